"""Downloads over faulty connections give the stored bytes or one typed error, in bounds, and leave nothing open."""

from __future__ import annotations

import calendar
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import AccessDenied, ChecksumMismatch, ObjectChanged, ShardNotFound, StoreError, TransportError
from ais_tar2tf.fetch import Fetcher, ShardRange, close_all
from ais_tar2tf.options import MIB, Limits, Read, Retry, Timeouts
from ais_tar2tf.stores import Identity, Store
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.stores.transport.answers import identity_of
from tests.support import shards as made
from tests.support.best_time import best_seconds
from tests.support.fault_server import (
    GOOD,
    PATIENCE,
    Fault,
    FaultServer,
    ServedObject,
    ais,
    plain,
    random_faults,
    tagged,
)
from tests.support.leftovers import left_open, open_files, our_threads

RETRY = Retry(attempts=4, first_delay=0.001, max_delay=0.002, max_retry_after=0.05)
READ = Read(retry=RETRY, timeouts=Timeouts(connect=2, idle=10), connections=1)
DATA = bytes(i * i % 251 for i in range(200_003))

WEAK = {"ETag": 'W/"1"'}
_THEN, _NOW = "Thu, 01 Jan 2026 10:00:00 GMT", "Thu, 01 Jan 2026 10:00:01 GMT"
OLD = {"Last-Modified": _THEN, "Date": "Thu, 01 Jan 2026 10:00:10 GMT"}
YOUNG = {"Last-Modified": _NOW, "Date": _NOW}
NGINX = {"ETag": f'"{calendar.timegm(time.strptime(_NOW, "%a, %d %b %Y %H:%M:%S GMT")):x}-30d43"', **YOUNG}


def with_connections(count: int, range_bytes: int = 30_011) -> Read:
    return replace(READ, connections=count, range_bytes=range_bytes)


@pytest.fixture
def fetching(fault_server: FaultServer) -> Iterator[Callable[..., Fetcher]]:
    """Create Fetchers that read from the server, and close them after the test."""
    store = HttpStore(fault_server.url, READ)
    opened: list[Fetcher] = []

    def make(
        names: Sequence[str | ShardRange] = ("x",), read: Read = READ, account: Account | None = None
    ) -> Fetcher:
        spans = [ShardRange(name) if isinstance(name, str) else name for name in names]
        store._pool._timeouts = read.timeouts
        opened.append(Fetcher(store, iter(spans), read, account or Account(), draw=lambda: 0.0))
        return opened[-1]

    yield make
    for fetch in opened:
        fetch.close()
    store.close()


def read_into(found: bytearray, fetch: Fetcher) -> None:
    while block := fetch.read():
        found += block


def shard_of(fetch: Fetcher) -> bytes:
    """Return the bytes of the current shard."""
    found = bytearray()
    read_into(found, fetch)
    assert fetch.read() == b""
    return bytes(found)


def all_of(fetch: Fetcher) -> list[bytes]:
    found: list[bytes] = []
    while fetch.next_shard() is not None:
        found.append(shard_of(fetch))
    return found


# Good connections


SIZES = (1, 0, 100_003, 64 * 1024, 30_011, 0, 2 * MIB + 17, 30_012)


@pytest.mark.parametrize("range_bytes", [30_011, 1 << 20, 8 << 20])
@pytest.mark.parametrize("connections", [1, 2, 4])
@pytest.mark.parametrize("kind", [plain, tagged, ais])
def test_shards_are_complete_and_in_order(
    fault_server: FaultServer,
    fetching: Callable[..., Fetcher],
    connections: int,
    range_bytes: int,
    kind: Callable[[bytes], ServedObject],
) -> None:
    contents = [(DATA * 12)[at : at + size] for at, size in enumerate(SIZES)]
    for at, content in enumerate(contents):
        fault_server.add(str(at), kind(content))
    account = Account()
    fetch = fetching([str(at) for at in range(len(SIZES))], with_connections(connections, range_bytes), account)
    assert all_of(fetch) == contents
    assert fetch.next_shard() is None
    assert account.stats.bytes == sum(SIZES)
    assert account.stats.retries == account.stats.resumes == 0
    if connections == 1:
        assert {request.range for request in fault_server.requests} == {None}


@pytest.mark.parametrize("connections", [1, 2, 4])
@pytest.mark.parametrize("framing", ["chunked", "close"])
@pytest.mark.parametrize("size", [0, 30_011, 200_003])
def test_a_body_of_unknown_length_is_read_to_its_end(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], connections: int, framing: str, size: int
) -> None:
    fault = Fault(framing=framing, ranges=False)  # pyright: ignore[reportArgumentType]  # one of its literals
    fault_server.add("x", plain(DATA[:size]), [fault] * 9)
    fault_server.add("y", plain(b"after"))
    fetch = fetching(["x", "y"], with_connections(connections))
    assert all_of(fetch) == [DATA[:size], b"after"]


@pytest.mark.parametrize("connections", [1, 3])
def test_a_server_without_ranges_gets_one_request(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], connections: int
) -> None:
    fault_server.add("x", plain(DATA), [Fault(ranges=False)] * 9)
    assert all_of(fetching(["x"], with_connections(connections))) == [DATA]
    assert len(fault_server.requests) == 1


def test_a_server_that_stops_supporting_ranges_loses_nothing(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    fault_server.add("x", plain(DATA), [GOOD, GOOD, *[Fault(ranges=False)] * 9])
    assert all_of(fetching(["x"], with_connections(2))) == [DATA]


def test_a_range_whose_length_only_its_header_states(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    account = Account()
    fault_server.add("x", tagged(DATA), [Fault(framing="chunked")] * 9)
    assert all_of(fetching(read=with_connections(2, 50_000), account=account)) == [DATA]
    assert len(fault_server.requests) == 5
    assert account.stats.retries == 0


def test_a_range_without_a_total_is_an_error(fault_server: FaultServer, fetching: Callable[..., Fetcher]) -> None:
    fault_server.add("x", tagged(DATA), [Fault(total=False)])
    fetch = fetching(["x"], with_connections(2))
    fetch.next_shard()
    with pytest.raises(StoreError, match="read it with connections=1"):
        fetch.read()
    fault_server.script["x"].extend([Fault(after=1000), Fault(total=False)])
    assert all_of(fetching(["x"])) == [DATA]


def test_reading_begins_in_the_middle(fault_server: FaultServer, fetching: Callable[..., Fetcher]) -> None:
    fault_server.add("x", ais(DATA))
    for connections in (1, 3):
        fetch = fetching([ShardRange("x", 77_777), ShardRange("x")], with_connections(connections))
        assert all_of(fetch) == [DATA[77_777:], DATA]  # the checksum of the whole object cannot verify the first part
    assert "bytes=77777-" in fault_server.ranges("x")


def test_the_requested_number_of_connections_is_used(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    go_on = threading.Event()
    fault_server.add("x", tagged(DATA), [Fault(after=10, wait=go_on)] * 9)
    fetch = fetching(["x"], with_connections(3))
    fetch.next_shard()
    fetch.read()
    fault_server.wait_until_concurrent(3)
    go_on.set()
    shard_of(fetch)
    assert fault_server.max_concurrent == 3


def test_the_next_shard_is_requested_before_this_one_is_read(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    for name in "xyz":
        fault_server.add(name, tagged(DATA))
    fetch = fetching(["x", "y", "z"], with_connections(2))
    fetch.next_shard()
    fetch.read()
    fault_server.wait_until_requests(3 * 7)
    assert len(shard_of(fetch)) < len(DATA)
    assert all_of(fetch) == [DATA, DATA]


# Faulty connections

OVERCOME: dict[str, list[Fault]] = {
    **{f"status {status}": [Fault(status=status)] * 3 for status in (408, 425, 429, 500, 502, 503, 504)},
    "retry after": [
        Fault(status=429, headers={"Retry-After": "0.01"}),
        Fault(status=503, headers={"Retry-After": "?"}),
    ],
    "no headers": [Fault(mute=True)] * 3,
    "reset": [Fault(after=100_000)],
    "reset at once": [Fault(after=0)] * 3,
    "reset before the last byte": [Fault(after=len(DATA) - 1)],
    "short": [Fault(after=70_001, then="short"), Fault(after=3, then="short")],
    "chunked": [Fault(framing="chunked", after=150_000)],
    "chunked, short of its end mark": [Fault(framing="chunked", after=150_000, then="short")],
    "chunked, its end mark alone missing": [Fault(framing="chunked", after=len(DATA), then="short")],
    "trickle": [Fault(piece=5_000)],
    "no ranges on resume": [Fault(after=90_000), Fault(ranges=False)],
    "no ranges on resume, and breaks off in what we have": [
        Fault(after=90_000),
        Fault(ranges=False, after=50_000),
        Fault(ranges=False, after=120_000, then="short"),
    ],
    "wrong range": [Fault(after=90_000), Fault(shift=1), Fault(shift=-5)],
    "all of it": [
        Fault(status=503),
        Fault(after=10_000),
        Fault(mute=True),
        Fault(shift=3),
        Fault(after=60_000, then="short"),
        Fault(status=500),
        Fault(after=1, ranges=False),
        Fault(after=50_000, framing="chunked"),
    ],
}


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("kind", [plain, tagged, ais])
@pytest.mark.parametrize("name", OVERCOME)
def test_faults_that_are_survived(
    fault_server: FaultServer,
    fetching: Callable[..., Fetcher],
    name: str,
    kind: Callable[[bytes], ServedObject],
    connections: int,
) -> None:
    account = Account()
    fault_server.add("x", kind(DATA), OVERCOME[name])
    fault_server.add("y", kind(b"after"))
    read = replace(
        with_connections(connections, 120_001), retry=replace(RETRY, attempts=9)
    )  # all faults may hit one range
    assert all_of(fetching(["x", "y"], read, account)) == [DATA, b"after"]
    assert account.stats.bytes == len(DATA) + len(b"after")
    if connections == 1:  # with ranges, some faults would be after the end of an answer
        assert (account.stats.retries > 0) == (name != "trickle")


def test_bytes_before_a_break_are_not_requested_again(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    account = Account()
    fault_server.add("x", tagged(DATA), [Fault(after=70_001, then="short"), Fault(after=3, then="short")])
    assert all_of(fetching(account=account)) == [DATA]
    assert fault_server.ranges("x") == [None, "bytes=70001-200002", "bytes=70004-200002"]
    assert (account.stats.retries, account.stats.resumes) == (2, 2)


def test_bytes_before_a_chunked_break_are_not_requested_again(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    fault_server.add("x", tagged(DATA), [Fault(after=70_001, then="short", framing="chunked")])
    assert all_of(fetching()) == [DATA]
    assert fault_server.ranges("x") == [None, "bytes=70001-"]


FATAL: dict[str, tuple[list[Fault], type[StoreError], str, int]] = {
    "no such object": ([Fault(status=404)], ShardNotFound, "there is no such object", 1),
    "gone on resume": ([Fault(after=9_000, then="short"), Fault(status=404)], ShardNotFound, "was there when", 2),
    "401": ([Fault(status=401)], AccessDenied, "401", 1),
    "403 on resume": ([Fault(after=9_000, then="short"), Fault(status=403)], AccessDenied, "403", 2),
    "418": ([Fault(status=418)], StoreError, "418", 1),
    "412": ([Fault(status=412)], ObjectChanged, "412", 1),
    "501": ([Fault(status=501)], StoreError, "501", 1),
    "503 for ever": ([Fault(status=503)] * 9, TransportError, "503.*given up after 4 tries", 4),
    "mute for ever": ([Fault(mute=True)] * 9, TransportError, "given up after 4 tries", 4),
    "no progress": (
        [Fault(after=9_000, then="short"), *[Fault(after=0, then="short")] * 9],
        TransportError,
        "given up after 4 tries",
        4,
    ),
    "wrong range for ever": (
        [Fault(after=9_000, then="short"), *[Fault(shift=1)] * 9],
        TransportError,
        "Content-Range.*given up",
        4,
    ),
    "unsatisfiable on resume": ([Fault(after=9_000, then="short"), Fault(status=416)], ObjectChanged, "416", 2),
    "redirect for ever": (
        [Fault(status=302, headers={"Location": "/x"})] * 20,
        StoreError,
        "redirects do not end",
        6,
    ),
    "redirect to nowhere": ([Fault(status=302)], StoreError, "302", 1),
    "repeated bytes for ever": (
        [Fault(after=9_000, then="short"), *[Fault(repeat=512)] * 9],
        TransportError,
        "Content-Range.*Content-Length.*given up",
        4,
    ),
    "interim for ever": ([Fault(interim=(100,) * 99)] * 9, TransportError, "interim.*given up", 4),
    "trailers for ever": (
        [Fault(status=200, headers={"Transfer-Encoding": "chunked"}, body=b"0\r\n" + b"a: b\r\n" * 999)] * 9,
        TransportError,
        "100 headers.*given up",
        4,
    ),
}


@pytest.mark.parametrize("name", FATAL)
def test_faults_that_are_one_error(fault_server: FaultServer, fetching: Callable[..., Fetcher], name: str) -> None:
    faults, kind, text, requests = FATAL[name]
    fault_server.add("x", tagged(DATA), faults)
    fault_server.add("y", tagged(b"after"))
    fetch = fetching(["x", "y"])
    fetch.next_shard()
    found = bytearray()
    with pytest.raises(StoreError, match=text) as caught:
        read_into(found, fetch)
    assert type(caught.value) is kind
    assert caught.value.url == f"{fault_server.url}/x"
    assert found == DATA[: len(found)]
    assert len(found) == (9_000 if faults[0].after else 0)
    assert len(fault_server.ranges("x")) == requests
    with pytest.raises(kind):
        fetch.read()  # again
    assert all_of(fetch) == [b"after"]


@pytest.mark.parametrize("keep", [False, True])
def test_the_last_bytes_of_a_block_come_again(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], *, keep: bool
) -> None:
    """They precede the next block, and come alone at the shard's end. Earlier views that are kept do not change."""
    fault_server.add("x", ais(DATA))
    fetch = fetching()
    fetch.next_shard()
    views, found, again = [fetch.read(keep=keep)], bytearray(), 0
    while len(views[-1]) > again:
        view = views[-1]
        found += view[again:]
        again = min(len(view), 1 + len(found) % 5_003)
        tail = bytes(view[-again:])
        views.append(fetch.read(keep=keep, again=again))
        assert views[-1][:again] == tail
    assert found == DATA
    assert views[-1] == DATA[-again:]
    assert fetch.read() == b""
    if keep:
        joined = b"".join(views)
        assert all(bytes(view) in DATA for view in views)
        assert len(joined) > len(DATA)


def test_a_break_after_the_last_byte_needs_no_further_bytes(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    cut = Fault(framing="chunked", after=len(DATA), then="short")
    fault_server.add("x", tagged(DATA), [cut])
    fault_server.add("y", tagged(DATA), [cut, Fault(status=416, headers={"Content-Range": "bytes */9"})])
    fetch = fetching(["x", "y"])
    fetch.next_shard()
    assert shard_of(fetch) == DATA
    assert fault_server.ranges("x") == [None, "bytes=200003-", None]
    of_x = [request.method for request in fault_server.requests if request.target == "/x"]
    assert of_x[-1] == "HEAD"  # 416 does not state the object's identity
    fetch.next_shard()
    with pytest.raises(ObjectChanged, match="416"):
        shard_of(fetch)


def test_progress_resets_the_retry_budget(fault_server: FaultServer, fetching: Callable[..., Fetcher]) -> None:
    account = Account()
    cut = [Fault(after=5_000, then="short"), Fault(status=503), Fault(status=500)]  # 3 of 4 tries
    fault_server.add("x", tagged(DATA), cut * 30)
    assert all_of(fetching(account=account)) == [DATA]
    assert account.stats.retries == 90


def test_retry_after_is_respected(fault_server: FaultServer, fetching: Callable[..., Fetcher]) -> None:
    fault_server.add("x", plain(DATA), [Fault(status=429, headers={"Retry-After": "0.04"})])
    began = time.monotonic()
    assert all_of(fetching()) == [DATA]
    assert time.monotonic() - began >= 0.04


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (tagged(DATA, "1"), tagged(DATA, "2"), "etag"),
        (ais(DATA), ais(DATA[::-1], 2), "checksum"),
        (ServedObject(DATA, {"Ais-Version": "1"}), ServedObject(DATA, {"Ais-Version": "2"}), "version"),
        (plain(DATA), plain(DATA + b"more"), "size"),
        (plain(DATA), plain(DATA[:-1]), "size"),
        (plain(DATA), plain(DATA[:10]), "size"),
        (plain(DATA), plain(DATA[::-1]), "first bytes are others"),
        (ServedObject(DATA, WEAK), ServedObject(DATA[::-1], WEAK), "first bytes are others"),
        (ServedObject(DATA, WEAK), ServedObject(DATA[::-1], {"ETag": 'W/"2"'}), "etag"),
        (ServedObject(DATA, YOUNG), ServedObject(DATA[::-1], YOUNG), "first bytes are others"),
        (ServedObject(DATA, NGINX), ServedObject(DATA[::-1], NGINX), "first bytes are others"),
        (ServedObject(DATA, OLD), ServedObject(DATA[::-1], YOUNG), "etag"),
        (tagged(DATA), plain(DATA[::-1]), "not certain"),
        (tagged(DATA), plain(DATA), "not certain"),
    ],
)
def test_a_replaced_object_is_an_error(
    fault_server: FaultServer,
    fetching: Callable[..., Fetcher],
    before: ServedObject,
    after: ServedObject,
    what: str,
    connections: int,
) -> None:
    def replaced() -> None:
        fault_server.objects["x"] = after

    # Without a strong validator, a second request downloads the whole shard, except the range of the first request.
    first = [GOOD] if connections > 1 and not identity_of(before.headers, None).is_strong else []
    fault_server.add("x", before, [*first, Fault(after=20_000, then="short"), Fault(before=replaced)])
    fetch = fetching(["x"], with_connections(connections))
    fetch.next_shard()
    found = bytearray()
    with pytest.raises(ObjectChanged, match=what):
        read_into(found, fetch)
    assert found == DATA[: len(found)]


def test_a_shard_is_bound_to_its_known_identity(fault_server: FaultServer, fetching: Callable[..., Fetcher]) -> None:
    fault_server.add("x", ais(DATA, 7))
    fetch = fetching([ShardRange("x", 10, Identity(version="7")), ShardRange("x", 10, Identity(version="6"))])
    fetch.next_shard()
    assert shard_of(fetch) == DATA[10:]
    assert fetch.identity.version == "7"
    fetch.next_shard()
    with pytest.raises(ObjectChanged, match="version was '6' and is '7'"):
        fetch.read()


@pytest.mark.parametrize("connections", [1, 2])
def test_a_shard_that_ends_before_the_resume_has_changed(connections: int) -> None:
    store = MemoryStore("shorter")
    store.put("x", DATA)
    read = with_connections(connections)
    fetch = Fetcher(
        store, iter([ShardRange("x", len(DATA) + 1), ShardRange("x", len(DATA)), ShardRange("x")]), read, Account()
    )
    fetch.next_shard()
    with pytest.raises(ObjectChanged, match="200,003 bytes"):
        fetch.read()
    assert all_of(fetch) == [b"", DATA]
    fetch.close()


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("at", [0, 123_456, len(DATA) - 1])
def test_a_flipped_byte_is_detected(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], at: int, connections: int
) -> None:
    size = 30_011 if connections > 1 else len(DATA)
    faults = [GOOD] * (at // size) + [Fault(flip=at % size)] if connections == 1 else []
    if connections > 1:  # ranges arrive in any order, so the byte is flipped in the stored object
        broken = bytearray(DATA)
        broken[at] ^= 1
        fault_server.add("x", ServedObject(bytes(broken), ais(DATA).headers))
    else:
        fault_server.add("x", ais(DATA), faults)
    fetch = fetching(["x"], with_connections(connections))
    fetch.next_shard()
    with pytest.raises(ChecksumMismatch, match="damaged"):
        shard_of(fetch)


def test_without_a_checksum_a_flipped_byte_is_not_detected(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    """Show that the test above detects the flip only by the checksum."""
    fault_server.add("x", tagged(DATA), [Fault(flip=5)])
    (found,) = all_of(fetching())
    assert found != DATA
    assert len(found) == len(DATA)


@pytest.mark.parametrize("connections", [1, 2])
def test_a_missing_shard_is_an_error_in_its_turn(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], connections: int
) -> None:
    fault_server.add("x", plain(DATA))
    fault_server.add("z", plain(DATA[::-1]))
    fetch = fetching(["x", "no-such", "z"], with_connections(connections))
    fetch.next_shard()
    assert shard_of(fetch) == DATA
    fetch.next_shard()
    with pytest.raises(ShardNotFound, match="no-such"):
        fetch.read()
    assert all_of(fetch) == [DATA[::-1]]


def test_bytes_after_an_answer_are_not_the_next_answer(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    """A body that is longer than its length contains another valid answer, which must not be used."""
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    fault_server.add("x", plain(DATA[:50_000] + forged), [Fault(length_error=-len(forged))])
    fault_server.add("y", plain(b"genuine"))
    assert all_of(fetching(["x", "y"])) == [DATA[:50_000], b"genuine"]


# Waiting


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("after", [0, 50_000, 64 * 1024])
def test_a_stall_is_detected_in_time_and_survived(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], framing: str, after: int
) -> None:
    fault = Fault(after=after, then="stall", framing=framing)  # pyright: ignore[reportArgumentType]  # as above

    def overcome() -> None:
        fault_server.add("x", ais(DATA), [fault])
        assert all_of(fetching(read=replace(READ, timeouts=Timeouts(idle=0.3)))) == [DATA]

    assert 0.3 <= best_seconds(overcome, below=1.3) < 1.3


def test_a_stall_of_a_second_is_detected_within_another(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    read = replace(READ, timeouts=Timeouts(idle=1), retry=replace(RETRY, attempts=1))

    def find() -> None:
        fault_server.add("x", plain(DATA), [Fault(after=50_000, then="stall")] * 9)
        fetch = fetching(read=read)
        fetch.next_shard()
        with pytest.raises(TransportError, match="nothing came for 1 s"):
            shard_of(fetch)

    assert 2 <= best_seconds(find, below=4) < 4  # two tries


@pytest.mark.parametrize("kept", [False, True])
def test_a_server_that_never_answers_is_abandoned_once(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], kept: bool
) -> None:
    fault_server.add("w", plain(b"w"))
    names = ["w", "x"] if kept else ["x"]  # over a reused connection, or over a new one

    def give_up() -> None:
        fault_server.add("x", plain(DATA), [Fault(silent=True)])
        account = Account()
        assert all_of(fetching(names, replace(READ, timeouts=Timeouts(idle=0.5)), account))[-1] == DATA
        assert account.stats.retries == 1

    assert 0.5 <= best_seconds(give_up, below=1.5) < 1.5


def test_a_trickle_is_no_stall(fault_server: FaultServer, fetching: Callable[..., Fetcher]) -> None:
    go_on = threading.Event()
    fault_server.add("x", plain(DATA), [Fault(after=50_000, wait=go_on)])
    fetch = fetching(read=replace(READ, timeouts=Timeouts(idle=5)))
    fetch.next_shard()
    assert bytes(fetch.read())[:10] == DATA[:10]  # available bytes are returned at once, although the server stalls
    go_on.set()
    shard_of(fetch)
    assert len(fault_server.requests) == 1


def test_the_first_block_does_not_wait_for_the_others(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    go_on = threading.Event()
    fault_server.add("x", plain(bytes(32 * MIB)), [Fault(after=1 * MIB, wait=go_on)])
    fetch = fetching(read=replace(READ, limits=Limits(read_ahead_bytes=64 * MIB)))
    fetch.next_shard()
    assert 0 < len(fetch.read()) <= 64 * 1024
    assert fault_server.sent <= 1 * MIB
    go_on.set()


# Bounds


@pytest.mark.usefixtures("narrow_sockets")
@pytest.mark.parametrize(("connections", "framing"), [(1, "length"), (1, "close"), (3, "length")])
def test_the_read_ahead_is_bounded(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], connections: int, framing: str
) -> None:
    size, ahead, kernel = 64 * MIB, 4 * MIB, 10 * MIB  # the buffers of both sockets of a connection
    fault = Fault(framing=framing)  # pyright: ignore[reportArgumentType]  # as above
    fault_server.add("x", tagged(bytes(size)), [fault] * 64)
    read = replace(READ, connections=connections, range_bytes=2 * MIB, limits=Limits(read_ahead_bytes=ahead))
    fetch = fetching(read=read)
    fetch.next_shard()
    fetch.read()
    if connections == 1:
        assert fault_server.blocked.wait(PATIENCE)
    else:
        fault_server.wait_until_requests(3)
        time.sleep(0.1)  # no event shows that nothing more is sent
    assert 0 < fault_server.sent < ahead + connections * (MIB + kernel)
    blocks = [block for request in fetch._state.requests for block in request.blocks]
    assert sum(block.end - block.begin for block in blocks) <= ahead
    assert (
        sum(len(block.buffer) for block in blocks) <= ahead + connections * 2 * MIB
    )  # each connection may have a block that is partly filled
    assert len(shard_of(fetch)) > size - 2 * MIB


def test_a_read_ahead_smaller_than_a_range_is_enough(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    data = DATA * 30
    fault_server.add("x", ais(data))
    read = replace(READ, connections=4, range_bytes=3 * MIB, limits=Limits(read_ahead_bytes=1))
    assert all_of(fetching(["x", "x"], read)) == [data, data]


# Leaving early


@pytest.mark.parametrize("connections", [1, 2, 4])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_shard_is_abandoned_in_the_middle(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], connections: int, framing: str
) -> None:
    for at in range(30):
        fault = Fault(framing=framing)  # pyright: ignore[reportArgumentType]  # as above
        fault_server.add(str(at), plain(DATA[at:]), [fault] * 20)
    fetch = fetching([str(at) for at in range(30)], with_connections(connections))
    for at in range(30):
        assert fetch.next_shard() == ShardRange(str(at))
        if at % 5 == 4:
            assert shard_of(fetch) == DATA[at:]
        elif at % 5 != 3:
            assert fetch.read()[:5] == DATA[at : at + 5]
    assert fetch.next_shard() is None


@pytest.mark.parametrize("connections", [1, 2])
def test_abandoning_a_stalled_shard_does_not_wait(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], connections: int
) -> None:
    fault_server.add("x", plain(DATA), [Fault(after=1_000, then="stall")] * 9)
    fault_server.add("y", plain(DATA))
    fetch = fetching(["x", "y"], with_connections(connections))
    fetch.next_shard()
    fetch.read()
    began = time.monotonic()
    assert all_of(fetch) == [DATA]
    assert time.monotonic() - began < 9  # idle is 10


@pytest.fixture
def no_connection_left(fault_server: FaultServer) -> Iterator[None]:
    """Check after the test that no thread of ours and no connection to the server is left."""
    gc.collect()
    before, threads = open_files(), our_threads()
    yield
    assert our_threads() <= threads
    fault_server.wait_until_no_client()
    assert left_open(before) == []


def records(server: FaultServer, faults: Iterable[Fault] = (), **options: object) -> t2t.open:
    shard = made.labelled("n", 50)
    for name in ("s-0.tar", "s-1.tar", "s-2.tar"):
        server.add(name, ais(shard), faults)
    return t2t.open(f"{server.url}/s-{{0..2}}.tar", retry=RETRY, **options)  # type: ignore[arg-type]


@pytest.mark.usefixtures("no_connection_left")
@pytest.mark.parametrize("connections", [1, 3])
def test_nothing_is_left_at_the_end(fault_server: FaultServer, connections: int) -> None:
    with records(fault_server, connections=connections) as source:
        assert len(list(source.records())) == 150


@pytest.mark.usefixtures("no_connection_left")
@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("faults", [[], [Fault(after=20_000, then="stall")] * 9, [Fault(piece=700)] * 9])
def test_nothing_is_left_after_an_early_break(
    fault_server: FaultServer, faults: list[Fault], connections: int
) -> None:
    with records(fault_server, faults, connections=connections) as source:
        for record in source.records():
            assert record["__key__"]
            break


@pytest.mark.usefixtures("no_connection_left")
@pytest.mark.parametrize("status", [404, 503])
def test_nothing_is_left_after_an_error(fault_server: FaultServer, status: int) -> None:
    with records(fault_server, [GOOD, *[Fault(status=status)] * 9], connections=2) as source:
        fault_server.script["s-0.tar"].clear()
        fault_server.script["s-1.tar"].popleft()
        seen: list[str] = []
        with pytest.raises(StoreError, match=rf"s-1.*{status}" if status == 503 else r"s-1"):
            seen.extend(record["__key__"] for record in source.records())
        assert len(seen) == 50


@pytest.mark.usefixtures("no_connection_left")
def test_nothing_is_left_when_the_iterator_is_dropped(fault_server: FaultServer) -> None:
    source = records(fault_server, [Fault(after=20_000, then="stall")] * 9)
    iterator = source.records()
    next(iterator)
    del iterator, source
    gc.collect()


@pytest.mark.usefixtures("no_connection_left")
def test_nothing_is_left_of_an_iterator_that_never_started(fault_server: FaultServer) -> None:
    with records(fault_server) as source:
        source.records()
        source.records().close()
    fetch = Fetcher(MemoryStore("nothing"), iter([]), READ, Account())
    assert fetch.next_shard() is None
    fetch.close()
    fetch.close()


@pytest.mark.parametrize(
    "ending", ["", "sys.exit(0)", "del records", "threading.Thread(target=records.close).start()", "source.close()"]
)
def test_the_interpreter_exits_in_the_middle(fault_server: FaultServer, ending: str) -> None:
    records(fault_server, [Fault(after=20_000, then="stall")] * 9)
    program = f"""
import sys, threading
import ais_tar2tf as t2t
source = t2t.open({f"{fault_server.url}/s-{{0..2}}.tar"!r}, connections=2, timeouts=t2t.options.Timeouts(idle=200))
records = source.records()
next(records)
print("read")
{ending}
"""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, timeout=100, text=True)  # idle is 200
    assert (done.returncode, done.stdout, done.stderr) == (0, "read\n", "")
    fault_server.wait_until_no_client()


@pytest.mark.usefixtures("no_connection_left")
@pytest.mark.parametrize("fault", [Fault(after=0, then="stall"), Fault(silent=True), Fault(status=503)])
def test_closing_ends_a_reader_that_waits(fault_server: FaultServer, fault: Fault) -> None:
    fault_server.add("x", plain(DATA), [fault] * 9)
    store = HttpStore(fault_server.url, READ)
    retry = Retry(first_delay=30, max_delay=30)
    fetch = Fetcher(store, iter([ShardRange("x")]), replace(READ, retry=retry, timeouts=Timeouts(idle=30)), Account())
    fetch.next_shard()
    raised: list[StoreError] = []

    def read() -> None:
        try:
            fetch.read()
        except StoreError as error:
            raised.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    fault_server.wait_until_requests(1)
    began = time.monotonic()
    fetch.close()
    reader.join(PATIENCE)
    assert time.monotonic() - began < PATIENCE  # the idle time-out and the first delay are longer
    assert "closed" in str(raised[0])
    with pytest.raises(StoreError, match="closed"):
        fetch.read()
    store.close()


def test_an_error_in_the_names_of_shards_is_raised_in_its_turn(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    def spans() -> Iterator[ShardRange]:
        yield ShardRange("x")
        raise StoreError("no more names", url="u")

    fault_server.add("x", plain(DATA))
    store = HttpStore(fault_server.url, READ)
    for connections in (1, 3):
        fetch = Fetcher(store, spans(), with_connections(connections), Account())
        fetch.next_shard()
        assert shard_of(fetch) == DATA
        for _ in range(2):
            with pytest.raises(StoreError, match="no more names"):
                fetch.next_shard()
        fetch.close()
    store.close()


@pytest.mark.parametrize("threads", [0, 1])
def test_fewer_threads_are_enough_if_the_system_refuses_more(
    fault_server: FaultServer, fetching: Callable[..., Fetcher], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault_server.add("x", plain(DATA))
    start, left = threading.Thread.start, [None] * threads

    def started(thread: threading.Thread) -> None:
        if thread.name.startswith("ais_tar2tf"):
            if not left:
                raise RuntimeError("can't start new thread")
            left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    fetch = fetching(["x"], with_connections(4))
    if threads == 1:
        assert all_of(fetch) == [DATA]
        return
    with pytest.raises(RuntimeError, match="can't start"):
        fetch.next_shard()


class _Broken(MemoryStore):
    def open(self, *_: object, **__: object) -> object:  # type: ignore[override]
        raise RuntimeError("a fault of ours")


def test_an_error_in_a_thread_of_ours_is_raised_and_does_not_hang() -> None:
    store: Store = _Broken("broken")  # type: ignore[assignment]
    fetch = Fetcher(store, iter([ShardRange("x")]), READ, Account())
    fetch.next_shard()
    with pytest.raises(StoreError, match=r"unexpectedly.*RuntimeError: a fault of ours") as caught:
        fetch.read()
    assert isinstance(caught.value.__cause__, RuntimeError)
    fetch.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_streams_alone(
    fault_server: FaultServer, fetching: Callable[..., Fetcher]
) -> None:
    go_on = threading.Event()
    fault_server.add("x", plain(DATA), [Fault(after=100_000, wait=go_on)])
    fetch = fetching()
    fetch.next_shard()
    found = bytes(fetch.read())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            close_all()
            status = 0
        finally:
            os._exit(status)  # in any case, otherwise the child would run the other tests
    assert os.waitpid(child, 0)[1] == 0
    go_on.set()
    assert found + shard_of(fetch) == DATA
    assert len(fault_server.requests) == 1


# End to end, and at random


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("seed", range(1, 5))
def test_each_record_is_read_once_over_faulty_connections(
    fault_server: FaultServer, seed: int, connections: int
) -> None:
    size = len(made.labelled("n", 50))
    expected = list(records(fault_server, connections=1).records())
    with records(fault_server, random_faults(seed, size, 12), connections=connections) as source:
        assert [(each["__key__"], each["jpg"]) for each in source.records()] == [
            (each["__key__"], each["jpg"]) for each in expected
        ]
        assert source.stats.records_read == source.stats.records_emitted == 150
        assert source.stats.retries > 0


@pytest.mark.parametrize("on_error", ["raise", "skip-shard"])
def test_a_shard_that_fails_is_counted_or_raised(fault_server: FaultServer, on_error: str) -> None:
    with records(fault_server, on_error=on_error, connections=2) as source:
        fault_server.script["s-1.tar"].extend([Fault(after=9_000), *[Fault(status=503)] * 9])
        if on_error == "raise":
            with pytest.raises(TransportError, match=r"s-1\.tar.*503"):
                list(source.records())
            return
        assert 100 <= len(list(source.records())) < 150
        assert dict(source.stats.skipped) == {"TransportError": 1}


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_faults_give_the_same_bytes(fault_server: FaultServer, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 150_000), min_size=1, max_size=4), "sizes")
    read = replace(
        READ,
        retry=Retry(attempts=50, first_delay=1e-6, max_delay=1e-6),
        connections=data.draw(st.sampled_from([1, 2, 4]), "connections"),
        range_bytes=data.draw(st.sampled_from([1_000, 4_099, 65_536, 1 << 20]), "range_bytes"),
        limits=Limits(read_ahead_bytes=data.draw(st.sampled_from([1, 2 * MIB]), "read_ahead")),
    )
    kind = data.draw(st.sampled_from([plain, tagged, ais]), "kind")
    spans: list[ShardRange] = []
    for at, size in enumerate(sizes):
        faults = random_faults(
            data.draw(st.integers(0, 1 << 30), "seed"), size, data.draw(st.integers(0, 8), "faults")
        )
        fault_server.script[str(at)].clear()
        fault_server.add(str(at), kind(DATA[at : at + size]), faults)
        spans.append(ShardRange(str(at), data.draw(st.integers(0, max(0, size - 1)), "start")))
    store = HttpStore(fault_server.url, read)
    fetch = Fetcher(store, iter(spans), read, Account(), draw=lambda: 0.0)
    try:
        whole = [DATA[at : at + size] for at, size in enumerate(sizes)]
        assert all_of(fetch) == [one[span.start :] for one, span in zip(whole, spans, strict=True)]
    finally:
        fetch.close()
        store.close()


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_way_of_reading_is_in_order(fault_server: FaultServer, data: st.DataObject) -> None:
    """Read some blocks of each shard over breaking connections, some bytes repeatedly, and stop anywhere."""
    count = data.draw(st.integers(1, 6), "shards")
    read = replace(
        READ,
        retry=Retry(attempts=50, first_delay=1e-6, max_delay=1e-6),
        connections=data.draw(st.sampled_from([1, 2, 4]), "connections"),
        range_bytes=data.draw(st.sampled_from([4_099, 65_536]), "range_bytes"),
    )
    for at in range(count):
        fault_server.script[str(at)].clear()
        fault_server.add(
            str(at), ais(DATA[at:]), random_faults(data.draw(st.integers(0, 1 << 30), "seed"), 150_000, 4)
        )
    threads, store = our_threads(), HttpStore(fault_server.url, read)
    fetch = Fetcher(store, iter([ShardRange(str(at)) for at in range(count)]), read, Account(), draw=lambda: 0.0)
    try:
        for at in range(data.draw(st.integers(0, count), "read")):
            assert fetch.next_shard() == ShardRange(str(at))
            found, last = bytearray(), b""
            for _ in range(data.draw(st.integers(0, 3), "blocks")):
                again = min(len(last), data.draw(st.integers(0, fetch.most_again), "again"))
                view = fetch.read(keep=data.draw(st.booleans(), "keep"), again=again)
                assert view[:again] == last[len(last) - again :]
                found, last = found + view[again:], bytes(view)
            assert found == DATA[at:][: len(found)]
    finally:
        fetch.close()
        store.close()
    assert our_threads() <= threads
