"""The embedded server against a real AIStore: the same requests, the same statuses, headers and bodies."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest
import xxhash

import shards as made
from ais_tar2tf.server import Server, serve
from same import MSGPACK, Ask, exchange

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
    *(Ask("GET", at(name)) for name in NAMES),
    *(Ask("HEAD", at(name)) for name in NAMES),
    Ask("GET", at("a.tar", "?provider=ais")),
    Ask("GET", at("a.tar", "?provider=ais&namespace=")),
    *(
        Ask("GET", at("c+d.tar"), headers={"Range": span})
        for span in (
            "bytes=0-0", "bytes=2-5", "bytes=7-", "bytes=-3", "bytes=-9999", "bytes=100-9999", "bytes=299-299",
            "bytes=300-", "bytes=300-301", "bytes=5-4", "bytes=0-1,4-5", "bytes=-0", "bytes=a-b", "lines=1-2",
            "bytes=-",
        )
    ),
    Ask("GET", at("empty.tar"), headers={"Range": "bytes=0-"}),
    Ask("GET", at("no-such.tar")),
    Ask("HEAD", at("no-such.tar")),
    Ask("GET", at("no-such.tar"), headers={"Range": "bytes=1-2"}),
    Ask("DELETE", at("no-such.tar")),
    Ask("GET", "/v1/objects/no-such-bucket/a.tar"),
    Ask("HEAD", "/v1/objects/no-such-bucket/a.tar"),
    Ask("PUT", "/v1/objects/no-such-bucket/a.tar", b"abc"),
    Ask("GET", at("a.tar", "?provider=nonsense")),
    Ask("GET", OBJECT),
    Ask("GET", f"{OBJECT}/"),
    Ask("PUT", at("new.tar"), b"abc"),
    Ask("PUT", at("new.tar"), b"abcd"),
    Ask("PUT", at("new.tar", "?provider=ais"), b""),
    *(
        Ask("PUT", at("new.tar"), b"abc", {"Ais-Checksum-Type": kind, "Ais-Checksum-Value": value})
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
    Ask("GET", at("new.tar")),
    Ask("DELETE", at("new.tar")),
    Ask("GET", at("new.tar")),
    # Buckets
    Ask("HEAD", "/v1/buckets/no-such-bucket"),
    Ask("GET", "/v1/buckets/no-such-bucket", listed()),
    Ask("POST", BUCKET, {"action": "create-bck"}),
    Ask("POST", f"{BUCKET}x", {"action": "create-bck"}),
    Ask("DELETE", f"{BUCKET}x", {"action": "destroy-bck"}),
    Ask("DELETE", "/v1/buckets/no-such-bucket", {"action": "destroy-bck"}),
    *(Ask("POST", f"/v1/buckets/{name}", {"action": "create-bck"}) for name in ("a%20b", "a..b", "a" * 65, "%C3%BC")),
    Ask("POST", BUCKET, b"no json"),
    Ask("POST", BUCKET),
    # Listings
    Ask("GET", BUCKET, listed()),
    Ask("GET", BUCKET, listed(props="name,size")),
    Ask("GET", BUCKET, listed(props="name,size,checksum,version")),
    Ask("GET", BUCKET, listed(props="name")),
    Ask("GET", BUCKET, listed(prefix="deep/", props="name,size")),
    Ask("GET", BUCKET, listed(prefix="nothing", props="name,size")),
    Ask("GET", BUCKET, listed(pagesize=2, props="name,size")),
    Ask("GET", BUCKET, listed(pagesize=2, continuation_token="b c.tar", props="name,size")),
    Ask("GET", BUCKET, listed(pagesize=2, continuation_token="zzz", props="name,size")),
    Ask("GET", BUCKET, listed(pagesize=len(SIZED), props="name,size")),
    Ask("GET", BUCKET, listed(pagesize="2", props="name,size")),
    Ask("GET", BUCKET, listed(props="name,size,checksum"), {"Accept": MSGPACK}),
    Ask("GET", BUCKET, listed(pagesize=3, props="name,size"), {"Accept": MSGPACK}),
    Ask("GET", BUCKET, b"no json"),
    # In shards
    *(Ask("GET", BUCKET, listed(prefix=name, props="name,size,version", flags="8")) for name in SHARDS),
    Ask("GET", BUCKET, listed(prefix="shard.tar", props="name", flags="8")),
    Ask("GET", BUCKET, listed(prefix="shard.tar", props="name,size", flags="8", pagesize=3)),
    Ask("GET", BUCKET, listed(prefix="shard.tar", flags="8", pagesize=3, continuation_token="shard.tar/r/0.jpg")),
    *(Ask("GET", at(name, "?archregx=.cls&archmode=suffix")) for name in SHARDS),
    *(
        Ask("GET", at("shard.tar", f"?{urlencode({'archregx': pattern, 'archmode': mode}, quote_via=quote)}"))
        for pattern, mode in (
            ("r/1", "wdskey"), ("r/0", "wdskey"), ("r/0.seg", "wdskey"), ("r/0", "prefix"), ("/1.", "substr"),
            (r"(?i)(?:^|/)[^/.]+\.(?:CLS|seg\.png)$", "regexp"), ("nothing", "suffix"), ("(", "regexp"),
            ("", "prefix"), (".cls", "nonsense"),
        )
    ),
    Ask("GET", at("shard.tar", "?archregx=.cls&archmode=suffix"), headers={"Range": "bytes=5-"}),
    Ask("GET", at("no-such.tar", "?archregx=.cls&archmode=suffix")),
    Ask("HEAD", at("shard.tar", "?archregx=.cls&archmode=suffix")),
    *(Ask("GET", at("shard.tar", f"?archpath={quote(name)}")) for name in ("r/1.jpg", "r/0.seg.png", "nothing")),
    Ask("GET", "/v1/ml/moss/no-such-bucket", batch({"objname": "a.tar"})),
    Ask("GET", "/v1/ml/moss/{bucket}", batch({"objname": "shard.tar", "archpath": "r/1.cls"}, {"objname": "a.tar"})),
    Ask(
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
    Ask("GET", "/v1/etl"),
    Ask("PUT", "/v1/etl", {"name": "nothing"}),
    Ask("GET", at("shard.tar", "?etl_name=nothing")),
    Ask("POST", "/v1/sort", {}),
    Ask("GET", "/v1/sort"),
    # Nodes
    Ask("GET", "/v1/health"),
    Ask("GET", "/v1/no-such-thing"),
    Ask("GET", "/v2/objects/x/y"),
]  # fmt: skip


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("embedded")) as server:
        yield server


@pytest.fixture(scope="module")
def filled(embedded: Server, aistore: Any) -> str:
    """A bucket of the same name and content on both."""
    bucket = f"b{uuid.uuid4().hex[:16]}"
    for url in (embedded.url, aistore.url):
        assert exchange(url, bucket, Ask("POST", BUCKET, {"action": "create-bck"}))[-1]["status"] == 200
        for name, data in SIZED.items():
            assert exchange(url, bucket, Ask("PUT", at(name), data))[-1]["status"] == 200
    return bucket


@pytest.mark.servers("aistore")
@pytest.mark.parametrize("ask", ASKS, ids=str)
def test_the_embedded_server_answers_as_a_real_one(ask: Ask, embedded: Server, aistore: Any, filled: str) -> None:
    real = exchange(aistore.url, filled, ask)
    ours = exchange(embedded.url, filled, ask)
    assert ours == real
