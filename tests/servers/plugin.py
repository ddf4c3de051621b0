"""A pytest plugin with fixtures for real servers, which start when the first test needs them.

A test names its servers by `@pytest.mark.servers("aistore", …)`. If one of them is not available, the test is left
out and a line at the end gives the reason; if the variable CI is set, the run fails. Each worker of pytest-xdist
starts its own servers. Each worker reports its reasons to the controller process, which prints them once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import certificates, namespace
from tests.servers.aistore import AIStore, Tls
from tests.servers.authn import AuthN
from tests.servers.build import EVERYDAY, FULL, Program
from tests.servers.cluster import AuthCluster, ExternalServer
from tests.servers.enter import MISSING
from tests.servers.environments import BEAM, WITHOUT_TENSORFLOW, Environment
from tests.servers.minio import KEY, REGION, SECRET, Minio
from tests.servers.toxiproxy import Toxiproxy

PROGRAMS: dict[str, tuple[Program | Environment, ...]] = {  # the programs that each server needs
    "aistore": (EVERYDAY["aisnode"],),
    "own-aistore": (EVERYDAY["aisnode"],),  # a test may break this cluster, so it is never an external one
    "authn": (EVERYDAY["aisnode"], EVERYDAY["authn"]),
    "minio": (EVERYDAY["minio"],),
    "aws": (FULL["aisnode-aws"], EVERYDAY["minio"]),
    "dsort": (FULL["aisnode-dsort"],),
    "toxiproxy": (FULL["toxiproxy"],),
    "beam": (BEAM,),  # no server, but it opens ports
    "no-tensorflow": (WITHOUT_TENSORFLOW,),
}
_EXTERNAL = {"aistore": "endpoint", "minio": "s3_endpoint"}  # options that name an external server
_CREDENTIALS = {  # copied at the start, because fixtures remove them from the environment
    name: os.environ[name]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    if name in os.environ
}
_reasons = pytest.StashKey[set[str]]()
_REASONS_KEY = "ais_tar2tf_no_servers"  # the key of the reasons in a worker's output


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--endpoint", help="test against this AIStore instead of starting one")
    parser.addoption(
        "--s3-endpoint",
        help="test against this MinIO; with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers(*names): the test needs these real servers")
    config.stash[_reasons] = set()


@pytest.hookimpl(trylast=True)  # after the tests that need --full were deselected
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        names = [name for mark in item.iter_markers("servers") for name in mark.args]
        reasons = {reason for name in names if (reason := why_not(name, config))}
        config.stash[_reasons] |= reasons
        (left_out if reasons else kept).append(item)
    if left_out and os.environ.get("CI"):  # in a worker, this stops the controller process
        session.shouldfail = f"{len(left_out)} tests need real servers: {_line(config)}"
        raise session.Failed(session.shouldfail)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_REASONS_KEY] = sorted(session.config.stash[_reasons])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the reasons of a worker. A worker that crashed has none."""
    node.config.stash[_reasons] |= set(getattr(node, "workeroutput", {}).get(_REASONS_KEY, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[_reasons] and not os.environ.get("CI"):
        terminalreporter.write_line(f"left out the tests that need real servers: {_line(config)}", yellow=True)


def _line(config: pytest.Config) -> str:
    return "; ".join(sorted(config.stash[_reasons]))


def why_not(name: str, config: pytest.Config) -> str:
    """Return the reason why a server is not available, or "" if it is."""
    if name in _EXTERNAL and config.getoption(_EXTERNAL[name]):
        return ""
    if MISSING in os.environ:
        return os.environ[MISSING]
    if not namespace.is_private():
        return "they run only in a private network: ./setup.sh test enters one"
    absent = sorted({program.name for program in PROGRAMS[name] if not program.path.is_file()})
    return f"{', '.join(absent)} not built: ./setup.sh test builds the servers" if absent else ""


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def aistore(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AIStore | ExternalServer]:
    """A cluster of one proxy and two targets. All tests share it, and each creates its own buckets."""
    given: str | None = request.config.getoption("endpoint")
    if given:
        yield ExternalServer(given.rstrip("/"))
        return
    with AIStore(EVERYDAY["aisnode"].path, tmp_path_factory.mktemp("aistore")) as cluster:
        yield cluster


@pytest.fixture
def own_aistore(tmp_path: Path) -> Iterator[AIStore]:
    """A cluster that the test may break."""
    with AIStore(EVERYDAY["aisnode"].path, tmp_path / "aistore") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def authn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthCluster]:
    folder = tmp_path_factory.mktemp("authn")
    with AuthN(EVERYDAY["authn"].path, folder / "authn") as service:
        cluster = AIStore(
            EVERYDAY["aisnode"].path,
            folder / "aistore",
            sections=AuthN.sections,
            environment=AuthN.environment,
            token=service.admin,
        )
        with cluster:
            service.register(cluster.url)
            yield AuthCluster(service, cluster)


@pytest.fixture(scope="session")
def minio(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Minio | ExternalServer]:
    given: str | None = request.config.getoption("s3_endpoint")
    if given:
        yield ExternalServer(given.rstrip("/"), {"AWS_REGION": REGION, **_CREDENTIALS, "AWS_ENDPOINT_URL": given})
        return
    with Minio(EVERYDAY["minio"].path, tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def aistore_tls(certified: certificates.Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIStore]:
    """A cluster whose certificate is signed by the tests' own CA."""
    tls = Tls(certified.ca, certified.server, certified.server_key)
    with AIStore(EVERYDAY["aisnode"].path, tmp_path_factory.mktemp("aistore-tls"), tls=tls) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def aistore_aws(minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIStore]:
    """A cluster with MinIO as its backend: `provider=s3` reads MinIO's buckets."""
    sections = {"backend": {"aws": {}}, "features": "16384"}  # path style
    environment = {
        "S3_ENDPOINT": minio.url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    folder = tmp_path_factory.mktemp("aistore-aws")
    with AIStore(FULL["aisnode-aws"].path, folder, sections=sections, environment=environment) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def aistore_dsort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIStore]:
    sections = {
        "distributed_sort": {
            "duplicated_records": "ignore",
            "missing_shards": "ignore",
            "ekm_malformed_line": "abort",
            "ekm_missing_key": "abort",
            "default_max_mem_usage": "80%",
            "call_timeout": "1m",
            "dsorter_mem_threshold": "100GB",
            "compression": "never",
            "bundle_multiplier": 4,
        }
    }
    with AIStore(FULL["aisnode-dsort"].path, tmp_path_factory.mktemp("aistore-dsort"), sections=sections) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    with Toxiproxy(FULL["toxiproxy"].path, tmp_path_factory.mktemp("toxiproxy")) as server:
        yield server
