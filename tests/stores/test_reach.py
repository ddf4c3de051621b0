"""Redirects lead only to allowed addresses, and only the endpoint gets the token."""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import AccessDenied, StoreError
from ais_tar2tf.options import Read, Retry
from ais_tar2tf.recordfiles.export import pool
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.transport.redirects import is_protected, redirect_target
from tests.matrix.scene import CANARY, WAYS, credentials
from tests.support import shards as made
from tests.support.fault_server import Fault, FaultServer, ais
from tests.support.own_errors import everything_printed

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
"""The ways to write another server's address."""

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
def shard_server() -> Iterator[FaultServer]:
    with FaultServer() as found, credentials():
        os.environ["AIS_AUTHN_TOKEN"] = CANARY
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
    token = CANARY if way == "ais" else None  # other stores refuse the option, and must ignore the variable
    return t2t.open(f"{way}://bucket/x.tar", endpoint=server.url, retry=QUICK, token=token)


def lead(server: FaultServer, other: FaultServer, way: str, shape: str) -> None:
    """Let the first answer for the shard be a redirect."""
    path = "v1/objects/bucket/x.tar?provider=ais&pid=1" if way == "ais" else "bucket/x.tar"
    location = shape.format(url=other.url, port=other.port, path=path)
    door = "v1/objects/bucket/x.tar?provider=ais" if way == "ais" else "bucket/x.tar"
    server.script[door].extend([Fault(status=302, headers={"Location": location})] * 3)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", FOLLOWED)
def test_followed_redirects_do_not_forward_the_token(
    shard_server: FaultServer, other: FaultServer, way: str, shape: str
) -> None:
    lead(shard_server, other, way, shape)
    with opened(shard_server, way) as source:
        assert len(list(source.records())) == 5
    assert len(other.requests) == 1
    sent = str(other.requests)
    for secret in (CANARY, "authorization", "X-Amz-Signature", "a-secret"):
        assert secret not in sent
    assert (CANARY in str(shard_server.requests)) == (way == "ais")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", REFUSED)
def test_refused_redirects_send_no_request(
    shard_server: FaultServer, other: FaultServer, way: str, shape: str
) -> None:
    lead(shard_server, other, way, shape)
    with (
        opened(shard_server, way) as source,
        pytest.raises(StoreError, match=r"redirect to .* not followed") as caught,
    ):
        list(source.records())
    assert type(caught.value) is StoreError  # this class is not retried
    assert (source.stats.records_read, source.stats.records_emitted, source.stats.retries) == (0, 0, 0)
    assert len(shard_server.requests) == 1
    assert other.requests == []
    for secret in (CANARY, "s3cret", "X-Amz-Signature"):
        assert secret not in everything_printed(caught.value)


@pytest.mark.parametrize("target", ["http://t/x", "http://t:443/x", "ftp://t/x", "//u:s3cret@t/x", "http://p/a"])
def test_a_redirect_never_leaves_tls(target: str) -> None:
    with pytest.raises(StoreError, match="not followed"):
        redirect_target("https://p/a", target, "shown")
    assert redirect_target("https://p/a", "//t/x", "shown") == "https://t/x"


def test_a_link_local_server_may_redirect_to_link_local_addresses() -> None:
    assert redirect_target("http://169.254.7.1/a", "http://169.254.7.2/b", "shown") == "http://169.254.7.2/b"
    assert not any(map(is_protected, ("example.org", "127.0.0.1", "10.0.0.1", "fd00::1", "", "::ffff:10.0.0.1")))


def test_a_name_that_resolves_to_a_link_local_address_is_refused(
    shard_server: FaultServer, other: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is known after connecting, and nothing is sent. Here 127.0.0.1 stands for a link-local address."""
    lead(shard_server, other, "http", "http://localhost:{port}/{path}")
    redirects = importlib.import_module("ais_tar2tf.stores.transport.redirects")
    monkeypatch.setattr(redirects, "is_protected", lambda host: host == "127.0.0.1")
    url = f"http://localhost:{shard_server.port}/bucket/x.tar"
    with (
        t2t.open(url, retry=QUICK) as source,
        pytest.raises(StoreError, match=r"link-local address, .* is not followed"),
    ):
        list(source.records())
    assert len(shard_server.requests) == 1
    assert other.requests == []


def test_a_listing_that_is_redirected_to_such_a_name_sends_nothing(
    shard_server: FaultServer, other: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane refuses such a redirect, too."""
    location = f"http://localhost:{other.port}/v1/buckets/bucket"
    shard_server.script["v1/buckets/bucket?provider=ais"].extend(
        [Fault(status=307, headers={"Location": location})] * 3
    )
    reach = importlib.import_module("ais_tar2tf.stores.transport.redirects")
    monkeypatch.setattr(reach, "is_protected", lambda host: host in ("127.0.0.1", "::1"))
    store = AisStore("bucket", Read(retry=QUICK), endpoint=f"http://localhost:{shard_server.port}")
    with pytest.raises(StoreError, match="link-local"):
        list(store.list(""))
    store.close()
    assert len(shard_server.requests) == 1
    assert other.requests == []


# The token


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """Collect messages, logs and output, and check that the token is in none of them."""
    caplog.set_level(logging.DEBUG)
    collected: list[str] = []
    yield collected
    printed = capfd.readouterr()
    logged = [f"{record.getMessage()} {record.__dict__}" for record in caplog.get_records("call")]
    assert logged  # the libraries log messages, so the check is effective
    text = "\n".join([*collected, *logged, printed.out, printed.err])
    assert CANARY not in text


def _files_hold_no_token(folder: Path) -> int:
    """Check that no file contains the token, and return the number of files."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        assert CANARY.encode() not in path.read_bytes(), path
        assert CANARY not in str(path)
    return len(files)


@pytest.fixture
def token_cluster(tmp_path: Path) -> Iterator[t2t.serve]:
    """The embedded server, which requires the token."""
    bucket = tmp_path / "served" / "bucket"
    bucket.mkdir(parents=True)
    for number in range(3):
        (bucket / f"s-{number}.tar").write_bytes(made.labelled(f"s{number}", 20))
    with t2t.serve(tmp_path / "served", token=CANARY) as server:
        yield server


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the arguments and environments of the processes that an export starts."""
    seen: list[str] = []

    class Watched(subprocess.Popen[Any]):
        def __init__(self, command: Any, **how: Any) -> None:
            seen.append(f"{command} {how.get('env')}")
            super().__init__(command, **how)

    monkeypatch.setattr(pool.subprocess, "Popen", Watched)
    return seen


def test_the_token_is_shown_nowhere(
    token_cluster: t2t.serve, tmp_path: Path, said: list[str], started: list[str]
) -> None:
    """Check reprs, logs, arguments, environments, checkpoints, manifests and indexes."""
    out = tmp_path / "out"
    with t2t.open("ais://bucket/s-{0..2}.tar", endpoint=token_cluster.url, token=CANARY) as source:
        assert len(list(source.records())) == 60
        source.export(out / "export", shard_records=7, workers=2)
        t2t.index("ais://bucket/s-{0..2}.tar", out / "index", endpoint=token_cluster.url, token=CANARY)
        dataset = source.dataset()
        iterator = iter(dataset)
        next(iterator)
        tf.train.Checkpoint(iterator=iterator).write(str(out / "checkpoint" / "c"))
        stores = [source.opened.shards.store, source.opened.shards.store._pool, source.opened.shards.store._control]  # type: ignore[attr-defined]
        said += [repr(each) for each in (source, dataset, source.stats, source.schema, source.opened.shards, *stores)]
        said += [source._repr_html_(), str(vars(source.opened.shards.store))]
        del iterator
    with t2t.AisDataset("bucket", token_cluster.url, token=CANARY) as client:
        said.append(repr(client))
    assert _files_hold_no_token(out) > 10
    assert len(started) == 2
    said += started


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_the_token_is_in_no_error(shard_server: FaultServer, status: int, said: list[str], tmp_path: Path) -> None:
    """No error shows the token, even if the server repeats it in its body and headers."""
    body = f'{{"message": "who is {CANARY}?"}}'
    fault = Fault(status=status, body=body.encode(), headers={"Hdr-Error": body})
    for target in ("v1/objects/bucket/x.tar?provider=ais", "v1/buckets/bucket?provider=ais"):
        shard_server.script[target].extend([fault] * 40)
    asks: list[Callable[[t2t.Source], Any]] = [
        lambda source: list(source.records()),
        lambda source: source.opened.shards.store.head("x.tar"),
        lambda source: source.opened.shards.store.put("x.tar", b"x" * 10),
        lambda source: list(source.opened.shards.store.list("")),
        lambda source: source.export(tmp_path / "out", workers=1),
        lambda source: list(source.dataset()),
    ]
    with opened(shard_server, "ais") as source:
        for ask in asks:
            with pytest.raises((StoreError, tf.errors.OpError)) as caught:
                ask(source)
            assert status > 403 or isinstance(caught.value, AccessDenied)
            said.append(everything_printed(caught.value))
    assert f"Bearer {CANARY}" in str(shard_server.requests)
    _files_hold_no_token(tmp_path)
