"""Where redirects may lead, and where a token may be seen: at the endpoint, and nowhere else."""

from __future__ import annotations

import importlib
import logging
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.errors import AccessDenied, StoreError
from ais_tar2tf.export import pool
from ais_tar2tf.options import Read, Retry
from ais_tar2tf.stores._answers import followed
from ais_tar2tf.stores._reach import is_protected
from ais_tar2tf.stores.ais import AisStore
from faults import Fault, FaultServer, ais
from tests.matrix.scene import CANARY, WAYS, credentials

SHARD = made.labelled("s", 5)
QUICK = Retry(attempts=1)

FOLLOWED = (
    "{url}/{path}",
    "HTTP://127.0.0.1:{port}/{path}",
    "//127.0.0.1:{port}/{path}",
    "http://localhost:{port}/{path}",
    "http://127.1:{port}/{path}",
    "{url}/{path}#fragment",
)
"""Another server, by any address of it."""

REFUSED = (
    "http://user@127.0.0.1:{port}/{path}",
    "http://user:s3cret@127.0.0.1:{port}/{path}",
    "http://:s3cret@127.0.0.1:{port}/{path}",
    "//user:s3cret@127.0.0.1:{port}/{path}",
    "http://elsewhere\\@127.0.0.1:{port}/{path}",
    "http://169.254.169.254/latest/meta-data/iam",
    "https://169.254.169.254/latest/meta-data/iam",
    "//169.254.169.254/latest",
    "http://169.254.169.254:{port}/{path}",
    "http://169.254.169.254./latest",
    "http://169.254.0.1/{path}",
    "http://2852039166/latest",
    "http://0xa9fea9fe/latest",
    "http://0xa9.0xfe.0xa9.0xfe/latest",
    "http://0251.0376.0251.0376/latest",
    "http://169.254.43518/latest",
    "http://[fe80::1]/latest",
    "http://[fe80::1%25lo]:{port}/latest",
    "http://[::ffff:169.254.169.254]/latest",
    "http://[::ffff:a9fe:a9fe]/latest",
    "http://[::a9fe:a9fe]/latest",
    "http://[64:ff9b::a9fe:a9fe]/latest",
    "http://[2002:a9fe:a9fe::1]/latest",
    "http://[fd00:ec2::254]/latest",
    "http://[fd20:ce::254]/latest",
    "http://100.100.100.200/latest",
    "http://168.63.129.16/machine",
    "http://192.0.0.192/opc",
    "ftp://127.0.0.1:{port}/{path}",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/{path}",
    "data:,bytes",
    "ais://bucket/x.tar",
    "http:///{path}",
    "http://[::1/{path}",
    "http://127.0.0.1:port/{path}",
    "http://127.0.0.1:99999/{path}",
    "http://127.0.0.1:0/{path}",
)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as found, credentials():
        found.add("bucket/x.tar", ais(SHARD))
        yield found


@pytest.fixture
def other() -> Iterator[FaultServer]:
    with FaultServer() as found:
        found.add("bucket/x.tar", ais(SHARD))
        yield found


def opened(server: FaultServer, way: str) -> t2t.Source:
    if way == "http":
        return t2t.open(f"{server.url}/bucket/x.tar", retry=QUICK)
    return t2t.open(f"{way}://bucket/x.tar", endpoint=server.url, retry=QUICK, token=CANARY)


def lead(server: FaultServer, other: FaultServer, way: str, shape: str) -> None:
    """The first answer for the shard is a redirect."""
    path = "v1/objects/bucket/x.tar?provider=ais&pid=1" if way == "ais" else "bucket/x.tar"
    location = shape.format(url=other.url, port=other.port, path=path)
    door = "v1/objects/bucket/x.tar?provider=ais" if way == "ais" else "bucket/x.tar"
    server.script[door].extend([Fault(status=302, headers={"Location": location})] * 3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", FOLLOWED)
def test_redirects_that_are_followed_take_nothing_along(
    server: FaultServer, other: FaultServer, way: str, shape: str
) -> None:
    lead(server, other, way, shape)
    with opened(server, way) as source:
        assert len(list(source.records())) == 5
    assert len(other.requests) == 1
    sent = str(other.requests)
    for secret in (CANARY, "authorization", "X-Amz-Signature", "a-secret"):
        assert secret not in sent
    assert (CANARY in str(server.requests)) == (way == "ais")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", REFUSED)
def test_redirects_that_are_refused_reach_nobody(
    server: FaultServer, other: FaultServer, way: str, shape: str
) -> None:
    lead(server, other, way, shape)
    with opened(server, way) as source, pytest.raises(StoreError, match=r"redirect to .* not followed") as caught:
        list(source.records())
    assert type(caught.value) is StoreError  # which is not tried again
    assert (source.stats.records_read, source.stats.records_emitted, source.stats.retries) == (0, 0, 0)
    assert len(server.requests) == 1
    assert other.requests == []
    for secret in (CANARY, "s3cret", "X-Amz-Signature"):
        assert secret not in told(caught.value)


def told(error: BaseException) -> str:
    return "".join([str(error), repr(error), repr(error.args), *traceback.format_exception(error)])


@pytest.mark.parametrize("target", ["http://t/x", "http://t:443/x", "ftp://t/x", "//u:s3cret@t/x", "http://p/a"])
def test_a_redirect_never_gives_up_tls(target: str) -> None:
    with pytest.raises(StoreError, match="not followed"):
        followed("https://p/a", target, "shown")
    assert followed("https://p/a", "//t/x", "shown") == "https://t/x"


def test_who_is_link_local_may_lead_to_its_neighbours() -> None:
    assert followed("http://169.254.7.1/a", "http://169.254.7.2/b", "shown") == "http://169.254.7.2/b"
    assert not any(map(is_protected, ("example.org", "127.0.0.1", "10.0.0.1", "fd00::1", "", "::ffff:10.0.0.1")))


def test_a_name_that_stands_for_a_link_local_address_is_refused(
    server: FaultServer, other: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known once connected; nothing was sent. Here 127.0.0.1 stands for such an address."""
    lead(server, other, "http", "http://localhost:{port}/{path}")
    bodies = importlib.import_module("ais_tar2tf.stores._http")
    monkeypatch.setattr(bodies, "is_protected", lambda host: host == "127.0.0.1")
    url = f"http://localhost:{server.port}/bucket/x.tar"
    with (
        t2t.open(url, retry=QUICK) as source,
        pytest.raises(StoreError, match=r"link-local address, .* is not followed"),
    ):
        list(source.records())
    assert len(server.requests) == 1
    assert other.requests == []


def test_a_listing_that_is_led_to_such_a_name_sends_nothing(
    server: FaultServer, other: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the control plane, too."""
    location = f"http://localhost:{other.port}/v1/buckets/bucket"
    server.script["v1/buckets/bucket?provider=ais"].extend([Fault(status=307, headers={"Location": location})] * 3)
    reach = importlib.import_module("ais_tar2tf.stores._reach")
    monkeypatch.setattr(reach, "is_protected", lambda host: host in ("127.0.0.1", "::1"))
    store = AisStore("bucket", Read(retry=QUICK), endpoint=server.url)
    with pytest.raises(StoreError, match="link-local"):
        list(store.list(""))
    store.close()
    assert len(server.requests) == 1
    assert other.requests == []


# The token


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """Everything that is said, logged or printed; the token is in none of it."""
    caplog.set_level(logging.DEBUG)
    collected: list[str] = []
    yield collected
    printed = capfd.readouterr()
    logged = [f"{record.getMessage()} {record.__dict__}" for record in caplog.get_records("call")]
    assert logged  # the libraries do say something
    text = "\n".join([*collected, *logged, printed.out, printed.err])
    assert CANARY not in text


def _files_hold_no_token(folder: Path) -> int:
    """How many there are."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path
        assert CANARY not in str(path)
    return len(files)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[t2t.serve]:
    """The embedded server, which lets nobody in without the token."""
    bucket = tmp_path / "served" / "bucket"
    bucket.mkdir(parents=True)
    for number in range(3):
        (bucket / f"s-{number}.tar").write_bytes(made.labelled(f"s{number}", 20))
    with t2t.serve(tmp_path / "served", token=CANARY) as server:
        yield server


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments and environment of the processes that an export starts."""
    seen: list[str] = []

    class Watched(subprocess.Popen[Any]):
        def __init__(self, command: Any, **how: Any) -> None:
            seen.append(f"{command} {how.get('env')}")
            super().__init__(command, **how)

    monkeypatch.setattr(pool.subprocess, "Popen", Watched)
    return seen


def test_the_token_is_shown_nowhere(cluster: t2t.serve, tmp_path: Path, said: list[str], started: list[str]) -> None:
    """Reprs, logs, arguments, environments, checkpoints, manifests, indexes."""
    out = tmp_path / "out"
    with t2t.open("ais://bucket/s-{0..2}.tar", endpoint=cluster.url, token=CANARY) as source:
        assert len(list(source.records())) == 60
        source.export(out / "export", shard_records=7, workers=2)
        t2t.index("ais://bucket/s-{0..2}.tar", out / "index", endpoint=cluster.url, token=CANARY)
        dataset = source.dataset()
        iterator = iter(dataset)
        next(iterator)
        tf.train.Checkpoint(iterator=iterator).write(str(out / "checkpoint" / "c"))
        stores = [source._shards.store, source._shards.store._pool, source._shards.store._control]  # type: ignore[attr-defined]
        said += [repr(each) for each in (source, dataset, source.stats, source.schema, source._shards, *stores)]
        said += [source._repr_html_(), str(vars(source._shards.store))]
        del iterator
    with t2t.AisDataset("bucket", cluster.url, token=CANARY) as client:
        said.append(repr(client))
    assert _files_hold_no_token(out) > 10
    assert len(started) == 2
    said += started


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_the_token_is_in_no_error(server: FaultServer, status: int, said: list[str], tmp_path: Path) -> None:
    """Not even where the server says it back to us, in body and header."""
    body = f'{{"message": "who is {CANARY}?"}}'
    fault = Fault(status=status, body=body.encode(), headers={"Hdr-Error": body})
    for target in ("v1/objects/bucket/x.tar?provider=ais", "v1/buckets/bucket?provider=ais"):
        server.script[target].extend([fault] * 40)
    asks: list[Callable[[t2t.Source], Any]] = [
        lambda source: list(source.records()),
        lambda source: source._shards.store.head("x.tar"),
        lambda source: source._shards.store.put("x.tar", b"x" * 10),
        lambda source: list(source._shards.store.list("")),
        lambda source: source.export(tmp_path / "out", workers=1),
        lambda source: list(source.dataset()),
    ]
    with opened(server, "ais") as source:
        for ask in asks:
            with pytest.raises((StoreError, tf.errors.OpError)) as caught:
                ask(source)
            assert status > 403 or isinstance(caught.value, AccessDenied)
            said.append(told(caught.value))
    assert f"Bearer {CANARY}" in str(server.requests)
    _files_hold_no_token(tmp_path)
