"""pytest: which real servers there are, started when a test first asks, and what their absence means.

A test says `@pytest.mark.servers("aistore", …)`. Where one of these cannot be had, the test is left out and one line
says so at the end; with CI set, the run fails. Each worker of pytest-xdist starts servers of its own; what is left
out is found by each worker, and said once by the process that leads them.
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
from tests.servers.cluster import AuthCluster, Outside
from tests.servers.enter import MISSING
from tests.servers.environments import BEAM, WITHOUT_TENSORFLOW, Environment
from tests.servers.minio import KEY, REGION, SECRET, Minio
from tests.servers.toxiproxy import Toxiproxy

PROGRAMS: dict[str, tuple[Program | Environment, ...]] = {  # what a server of this name needs
    "aistore": (EVERYDAY["aisnode"],),
    "own-aistore": (EVERYDAY["aisnode"],),  # one that the test may break, so never one of somebody's
    "authn": (EVERYDAY["aisnode"], EVERYDAY["authn"]),
    "minio": (EVERYDAY["minio"],),
    "aws": (FULL["aisnode-aws"], EVERYDAY["minio"]),
    "dsort": (FULL["aisnode-dsort"],),
    "toxiproxy": (FULL["toxiproxy"],),
    "beam": (BEAM,),  # no server; but it opens ports
    "no-tensorflow": (WITHOUT_TENSORFLOW,),
}
_GIVEN = {"aistore": "endpoint", "minio": "s3_endpoint"}  # options that name a server of somebody's
_CREDENTIALS = {  # as they were when pytest began: tests themselves see none
    name: os.environ[name]
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION")
    if name in os.environ
}
_reasons = pytest.StashKey[set[str]]()
_TOLD = "ais_tar2tf_no_servers"  # under which a worker tells its reasons


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--endpoint", help="an AIStore to test against, in place of one that is started here")
    parser.addoption(
        "--s3-endpoint",
        help="a MinIO to test against; with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "servers(*names): needs these real servers")
    config.stash[_reasons] = set()


@pytest.hookimpl(trylast=True)  # when what needs --full is left out already
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        names = [name for mark in item.iter_markers("servers") for name in mark.args]
        reasons = {reason for name in names if (reason := why_not(name, config))}
        config.stash[_reasons] |= reasons
        (left_out if reasons else kept).append(item)
    if left_out and os.environ.get("CI"):  # a worker's word stops the process that leads
        session.shouldfail = f"{len(left_out)} tests need real servers: {_line(config)}"
        raise session.Failed(session.shouldfail)
    if left_out:
        items[:] = kept
        config.hook.pytest_deselected(items=left_out)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_TOLD] = sorted(session.config.stash[_reasons])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker is done, or died and tells nothing."""
    node.config.stash[_reasons] |= set(getattr(node, "workeroutput", {}).get(_TOLD, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.stash[_reasons] and not os.environ.get("CI"):
        terminalreporter.write_line(f"left out what needs real servers: {_line(config)}", yellow=True)


def _line(config: pytest.Config) -> str:
    return "; ".join(sorted(config.stash[_reasons]))


def why_not(name: str, config: pytest.Config) -> str:
    """Why there is no server of this name; nothing when there is one."""
    if name in _GIVEN and config.getoption(_GIVEN[name]):
        return ""
    if MISSING in os.environ:
        return os.environ[MISSING]
    if not namespace.is_private():
        return "they run where only loopback is: ./setup.sh test enters such a network"
    absent = sorted({program.name for program in PROGRAMS[name] if not program.path.is_file()})
    return f"{', '.join(absent)} not built: ./setup.sh test builds what is needed" if absent else ""


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> certificates.Certificates:
    return certificates.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="session")
def aistore(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIStore | Outside]:
    """One proxy, two targets, shared by tests: each makes buckets of its own."""
    given: str | None = request.config.getoption("endpoint")
    if given:
        yield Outside(given.rstrip("/"))
        return
    with AIStore(EVERYDAY["aisnode"].path, tmp_path_factory.mktemp("aistore")) as cluster:
        yield cluster


@pytest.fixture
def own_aistore(tmp_path: Path) -> Iterator[AIStore]:
    """One that the test may break."""
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
def minio(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minio | Outside]:
    given: str | None = request.config.getoption("s3_endpoint")
    if given:
        yield Outside(given.rstrip("/"), {"AWS_REGION": REGION, **_CREDENTIALS, "AWS_ENDPOINT_URL": given})
        return
    with Minio(EVERYDAY["minio"].path, tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture(scope="session")
def aistore_tls(certified: certificates.Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIStore]:
    """With a CA of the test's own."""
    tls = Tls(certified.ca, certified.server, certified.server_key)
    with AIStore(EVERYDAY["aisnode"].path, tmp_path_factory.mktemp("aistore-tls"), tls=tls) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def aistore_aws(minio: Minio, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AIStore]:
    """Over MinIO: `provider=s3` reads its buckets through AIStore."""
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
