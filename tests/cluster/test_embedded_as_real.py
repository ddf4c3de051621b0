"""The embedded server answers like a real AIStore: the same statuses, headers and bodies."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import xxhash

from ais_tar2tf.cluster.server import serve
from ais_tar2tf.cluster.server.lifecycle import Server
from tests.support import shards as made
from tests.support.exchanges import MSGPACK, Call, exchange

DATA = bytes(range(256)) * 40
OBJECT = "/v1/objects/{bucket}"
BUCKET = "/v1/buckets/{bucket}"
RECORDS = [("r/0", {"jpg": b"picture", "cls": b"1", "seg.png": b""}), ("r/1", {"jpg": b"p" * 600, "cls": b"2"})]
PLAIN = made.tar(RECORDS)
SHARDS = {"shard.tar": PLAIN, "shard.tgz": made.gzipped(PLAIN), "s/h.tar.gz": made.gzipped(PLAIN)}
NAMES = ["a.tar", "b c.tar", "c+d.tar", "deep/er/x.tar", "100%.tar", "ü.tar", "empty.tar"]
SIZED = {name: DATA[: 100 * at] for at, name in enumerate(NAMES[:-1], 1)} | {"empty.tar": b"", **SHARDS}


def at(name: str, query: str = "") -> str:
    return f"{OBJECT}/{quote(name)}{query}"


def listed(**value: Any) -> dict[str, Any]:
    return {"action": "list", "value": value}


def batch(*entries: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"in": list(entries), "mime": ".tar", "coer": True, "strm": True, **options}


# Left out: `Range: bytes=` and a page size of -1, which end a real connection and a real target without an answer;
# and a checksum of an unknown type, which ends it, too; actions that a real cluster has and the embedded server
# refuses with 501.
ASKS = [
    # Objects
    *(Call("GET", at(name)) for name in NAMES),
    *(Call("HEAD", at(name)) for name in NAMES),
    Call("GET", at("a.tar", "?provider=ais")),
    Call("GET", at("a.tar", "?provider=ais&namespace=")),
    *(
        Call("GET", at("c+d.tar"), headers={"Range": span})
        for span in (
            "bytes=0-0", "bytes=2-5", "bytes=7-", "bytes=-3", "bytes=-9999", "bytes=100-9999", "bytes=299-299",
            "bytes=300-", "bytes=300-301", "bytes=5-4", "bytes=0-1,4-5", "bytes=-0", "bytes=a-b", "lines=1-2",
            "bytes=-",
        )
    ),
    Call("GET", at("empty.tar"), headers={"Range": "bytes=0-"}),
    Call("GET", at("no-such.tar")),
    Call("HEAD", at("no-such.tar")),
    Call("GET", at("no-such.tar"), headers={"Range": "bytes=1-2"}),
    Call("DELETE", at("no-such.tar")),
    Call("GET", "/v1/objects/no-such-bucket/a.tar"),
    Call("HEAD", "/v1/objects/no-such-bucket/a.tar"),
    Call("PUT", "/v1/objects/no-such-bucket/a.tar", b"abc"),
    Call("GET", at("a.tar", "?provider=nonsense")),
    Call("GET", OBJECT),
    Call("GET", f"{OBJECT}/"),
    Call("PUT", at("new.tar"), b"abc"),
    Call("PUT", at("new.tar"), b"abcd"),
    Call("PUT", at("new.tar", "?provider=ais"), b""),
    *(
        Call("PUT", at("new.tar"), b"abc", {"Ais-Checksum-Type": kind, "Ais-Checksum-Value": value})
        for kind, value in (
            ("xxhash2", "0123456789abcdef"),
            ("xxhash2", xxhash.xxh64_hexdigest(b"abc")),
            ("md5", hashlib.md5(b"abc", usedforsecurity=False).hexdigest()),
            ("md5", hashlib.md5(b"abd", usedforsecurity=False).hexdigest()),
            ("sha256", hashlib.sha256(b"abd").hexdigest()),
            ("sha512", hashlib.sha512(b"abd").hexdigest()),
            ("crc32c", "364b3fb7"),
            ("crc32c", "364b3fb8"),
            ("none", ""),
        )
    ),
    Call("GET", at("new.tar")),
    Call("DELETE", at("new.tar")),
    Call("GET", at("new.tar")),
    # Buckets
    Call("HEAD", "/v1/buckets/no-such-bucket"),
    Call("GET", "/v1/buckets/no-such-bucket", listed()),
    Call("POST", BUCKET, {"action": "create-bck"}),
    Call("POST", f"{BUCKET}x", {"action": "create-bck"}),
    Call("DELETE", f"{BUCKET}x", {"action": "destroy-bck"}),
    Call("DELETE", "/v1/buckets/no-such-bucket", {"action": "destroy-bck"}),
    *(Call("POST", f"/v1/buckets/{b}", {"action": "create-bck"}) for b in ("a%20b", "a..b", "a" * 65, "%C3%BC")),
    Call("POST", BUCKET, b"no json"),
    Call("POST", BUCKET),
    # Listings
    Call("GET", BUCKET, listed()),
    Call("GET", BUCKET, listed(props="name,size")),
    Call("GET", BUCKET, listed(props="name,size,checksum,version")),
    Call("GET", BUCKET, listed(props="name")),
    Call("GET", BUCKET, listed(prefix="deep/", props="name,size")),
    Call("GET", BUCKET, listed(prefix="nothing", props="name,size")),
    Call("GET", BUCKET, listed(pagesize=2, props="name,size")),
    Call("GET", BUCKET, listed(pagesize=2, continuation_token="b c.tar", props="name,size")),
    Call("GET", BUCKET, listed(pagesize=2, continuation_token="zzz", props="name,size")),
    Call("GET", BUCKET, listed(pagesize=len(SIZED), props="name,size")),
    Call("GET", BUCKET, listed(pagesize="2", props="name,size")),
    Call("GET", BUCKET, listed(props="name,size,checksum"), {"Accept": MSGPACK}),
    Call("GET", BUCKET, listed(pagesize=3, props="name,size"), {"Accept": MSGPACK}),
    Call("GET", BUCKET, b"no json"),
    # In shards
    *(Call("GET", BUCKET, listed(prefix=name, props="name,size,version", flags="8")) for name in SHARDS),
    Call("GET", BUCKET, listed(prefix="shard.tar", props="name", flags="8")),
    Call("GET", BUCKET, listed(prefix="shard.tar", props="name,size", flags="8", pagesize=3)),
    Call("GET", BUCKET, listed(prefix="shard.tar", flags="8", pagesize=3, continuation_token="shard.tar/r/0.jpg")),
    *(Call("GET", at(name, "?archregx=.cls&archmode=suffix")) for name in SHARDS),
    *(
        Call("GET", at("shard.tar", f"?{urlencode({'archregx': pattern, 'archmode': mode}, quote_via=quote)}"))
        for pattern, mode in (
            ("r/1", "wdskey"), ("r/0", "wdskey"), ("r/0.seg", "wdskey"), ("r/0", "prefix"), ("/1.", "substr"),
            (r"(?i)(?:^|/)[^/.]+\.(?:CLS|seg\.png)$", "regexp"), ("nothing", "suffix"), ("(", "regexp"),
            ("", "prefix"), (".cls", "nonsense"),
        )
    ),
    Call("GET", at("shard.tar", "?archregx=.cls&archmode=suffix"), headers={"Range": "bytes=5-"}),
    Call("GET", at("no-such.tar", "?archregx=.cls&archmode=suffix")),
    Call("HEAD", at("shard.tar", "?archregx=.cls&archmode=suffix")),
    *(Call("GET", at("shard.tar", f"?archpath={quote(name)}")) for name in ("r/1.jpg", "r/0.seg.png", "nothing")),
    Call("GET", "/v1/ml/moss/no-such-bucket", batch({"objname": "a.tar"})),
    Call("GET", "/v1/ml/moss/{bucket}", batch({"objname": "shard.tar", "archpath": "r/1.cls"}, {"objname": "a.tar"})),
    Call(
        "GET",
        "/v1/ml/moss/{bucket}",
        batch(
            {"objname": "shard.tgz", "archpath": "r/0.jpg"},
            {"objname": "no-such.tar"},
            {"objname": "shard.tar", "archpath": "nothing"},
            {"objname": "shard.tar", "archpath": "r/1.jpg", "start": 3, "length": 5},
            {"objname": "b c.tar", "start": 7, "length": -1},
            onob=True,
        ),
    ),
    # Not in these builds
    Call("GET", "/v1/etl"),
    Call("PUT", "/v1/etl", {"name": "nothing"}),
    Call("GET", at("shard.tar", "?etl_name=nothing")),
    Call("POST", "/v1/sort", {}),
    Call("GET", "/v1/sort"),
    # Nodes
    Call("GET", "/v1/health"),
    Call("GET", "/v1/no-such-thing"),
    Call("GET", "/v2/objects/x/y"),
]  # fmt: skip


@pytest.fixture(scope="module")
def bare_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("embedded")) as server:
        yield server


@pytest.fixture(scope="module")
def filled(bare_server: Server, aistore: Any) -> str:
    """Create a bucket of the same name and content on both servers."""
    bucket = f"b{uuid.uuid4().hex[:16]}"
    for url in (bare_server.url, aistore.url):
        assert exchange(url, bucket, Call("POST", BUCKET, {"action": "create-bck"}))[-1]["status"] == 200
        for name, data in SIZED.items():
            assert exchange(url, bucket, Call("PUT", at(name), data))[-1]["status"] == 200
    return bucket


@pytest.mark.servers("aistore")
@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_the_embedded_server_answers_as_a_real_one(ask: Call, bare_server: Server, aistore: Any, filled: str) -> None:
    real = exchange(aistore.url, filled, ask)
    ours = exchange(bare_server.url, filled, ask)
    assert ours == real
