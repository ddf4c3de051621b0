"""Settings and fixtures for all tests: a clean environment, servers, and small datasets."""

from __future__ import annotations

import os
import signal
import socket
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background processes so
    signal.signal(signal.SIGINT, signal.default_int_handler)

import ais_tar2tf as t2t
from ais_tar2tf.native import engine
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.fault_server import FaultServer

# A slow machine must not fail a test.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

_MAX_WORKERS = 4  # each needs 2 GB for TensorFlow and its own servers
_ENGINES = ["native", "python"] if engine().name == "native" else ["python"]
_WITH_ALL_ENGINES = ("records", "streams", "test_tfdata.py", "test_resuming.py")  # folders and files of tests
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
pytest_plugins = ["tests.servers.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full", action="store_true", help="also run the tests that take minutes: whole matrices, more real servers"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `full`, which take minutes, unless --full is given."""
    if config.getoption("--full"):
        return
    deselected = [item for item in items if item.get_closest_marker("full")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the workers of `-n auto`: one for each core, but none for a single file, so that debuggers work."""
    files = {config.invocation_params.dir / argument.partition("::")[0] for argument in config.args}
    if len(files) == 1 and files.pop().is_file():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MAX_WORKERS)


def pytest_report_header() -> str:
    return f"engines: {' and '.join(_ENGINES)} ({engine().why})"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of `_WITH_ALL_ENGINES` with each engine, and all other tests with the default engine."""
    path = metafunc.definition.path
    if {path.parent.name, path.name}.intersection(_WITH_ALL_ENGINES):
        metafunc.parametrize("_engine", _ENGINES, indirect=True)


@pytest.fixture(autouse=True)
def _engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    name = getattr(request, "param", None)
    if name is not None:
        monkeypatch.setenv("AIS_TAR2TF_NATIVE", "0" if name == "python" else "1")


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        ours = name.startswith(("AIS_", "AWS_")) and name != "AIS_TAR2TF_NATIVE"
        if ours or name.lower().endswith("_proxy") or name in _CERTIFICATES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", os.devnull)  # ignore the token file of the user who runs the tests


@pytest.fixture
def fault_server() -> Iterator[FaultServer]:
    """An HTTP server without objects, into whose answers a test can inject faults."""
    with FaultServer() as server:
        yield server


@pytest.fixture
def memory(request: pytest.FixtureRequest) -> MemoryStore:
    """An empty store in memory, used by this test only."""
    return MemoryStore(f"test-{zlib.crc32(request.node.nodeid.encode()):08x}")


@pytest.fixture
def narrow_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the receive buffers of client sockets to 512 KiB.

    Otherwise Linux lets them grow to tens of MB, which hides how much the package reads ahead.
    """
    connect = socket.create_connection

    def narrow(*where: Any, **how: Any) -> socket.socket:
        sock = connect(*where, **how)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 512 * 1024)
        return sock

    monkeypatch.setattr(socket, "create_connection", narrow)


@pytest.fixture(scope="session")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[t2t.serve]:
    """A server with the bucket `imagenet`: train-{0..7}.tar.gz with 16 records each, of an image and a label."""
    folder = tmp_path_factory.mktemp("buckets")
    bucket: Path = folder / "imagenet"
    bucket.mkdir()
    for number in range(8):
        shard = made.labelled(f"n{number}", 16, lambda i, n=number: _labelled(n * 16 + i))
        (bucket / f"train-{number}.tar.gz").write_bytes(made.gzipped(shard))
    with t2t.serve(folder) as server:
        yield server


def _labelled(number: int) -> dict[str, bytes]:
    return {"jpg": made.image(number), "cls": b"%d" % (number % 10)}


@pytest.fixture(scope="session")
def tornet_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """16 samples like TorNet's: six in train-2015, two in test-2015, three and one each in 2013 and 2014."""
    from ais_tar2tf.tornet.small_data import make

    root = tmp_path_factory.mktemp("tornet")
    make(root, 16, (2013, 2014, 2015, 2015))
    return root
