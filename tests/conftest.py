"""What every test shares: nothing left behind in the environment, and a bucket of shards on the embedded server."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what is to run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

import ais_tar2tf as t2t
import shards as made

# How fast the machine is, is no property of the code.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")

_MOST_WORKERS = 4  # each holds TensorFlow and its own servers: 2 GB
_CERTIFICATES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
pytest_plugins = ["tests.servers.plugin"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="also what takes long: whole matrices, more real servers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests marked `full` take minutes: without --full they are left out."""
    if config.getoption("--full"):
        return
    left_out = [item for item in items if item.get_closest_marker("full")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means: all cores, or for what is in one file just this process, where debuggers work."""
    files = {config.invocation_params.dir / argument.partition("::")[0] for argument in config.args}
    if len(files) == 1 and files.pop().is_file():
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


@pytest.fixture(autouse=True)
def _no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AIS_", "AWS_")) or name.lower().endswith("_proxy") or name in _CERTIFICATES:
            monkeypatch.delenv(name)
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", os.devnull)  # not the one of whoever runs the tests


@pytest.fixture
def narrow_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux lets what a connection of ours holds grow to tens of MB; with the other side's 4 MB it is then 5."""
    connect = socket.create_connection

    def narrow(*where: Any, **how: Any) -> socket.socket:
        sock = connect(*where, **how)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 512 * 1024)
        return sock

    monkeypatch.setattr(socket, "create_connection", narrow)


@pytest.fixture(scope="session")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[t2t.serve]:
    """A server with the bucket `imagenet`: train-{0..7}.tar.gz of 16 records each, image and label."""
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
    """16 samples like TorNet's: train-2015 has six, test-2015 two, of 2013 and 2014 there are three and one."""
    from ais_tar2tf.tornet.small_data import make

    root = tmp_path_factory.mktemp("tornet")
    make(root, 16, (2013, 2014, 2015, 2015))
    return root
