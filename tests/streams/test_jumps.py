"""Unselected bytes are skipped: the rest arrives complete and in order, and skipped bytes are not downloaded."""

from __future__ import annotations

import io
import tarfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ObjectChanged, StoreError, TransportError, TruncatedArchive
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.fetch.files import FileFetcher
from ais_tar2tf.options import KIB, Limits, Read, Retry
from ais_tar2tf.records import Selection
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.streams.order import Plan
from ais_tar2tf.streams.reader import ReadSession, RecordStream, Shards
from tests.support.fault_server import GOOD, Fault, FaultServer, plain, tagged

READ = Read(retry=Retry(attempts=4, first_delay=0.001, max_delay=0.002), range_bytes=40 * KIB, jump_bytes=10 * KIB)
DATA = bytes(i * i % 251 for i in range(600_011))
STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 150_000)), max_size=30)


@pytest.fixture(scope="module")
def jump_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        server.add("x", plain(DATA))
        server.add("y", plain(DATA[::-1]))
        yield server


def _walk(fetch: Any, steps: Sequence[tuple[bool, int]]) -> tuple[bytes, bytes]:
    """Read and skip parts of a shard. Return the received and the expected bytes."""
    found, wanted, at = bytearray(), bytearray(), 0
    for jumps, count in steps:
        if jumps:
            passed = fetch.jump(min(count, len(DATA) - at))
            assert 0 <= passed <= count
            at += passed
        else:
            block = bytes(fetch.read())
            found += block
            wanted += DATA[at : at + len(block)]
            at += len(block)
    while block := bytes(fetch.read()):
        found += block
        wanted += DATA[at : at + len(block)]
        at += len(block)
    assert at == len(DATA)
    return bytes(found), bytes(wanted)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.sampled_from([2, 3]))
def test_the_rest_is_read_over_http(
    jump_server: FaultServer, steps: list[tuple[bool, int]], connections: int
) -> None:
    read = replace(READ, connections=connections)
    store = HttpStore(jump_server.url, read)
    fetch = Fetcher(store, iter([ShardRange("x"), ShardRange("y")]), read, Account())
    try:
        fetch.next_shard()
        found, wanted = _walk(fetch, steps)
        assert found == wanted
        fetch.next_shard()
        assert b"".join(iter(lambda: bytes(fetch.read()), b"")) == DATA[::-1]
    finally:
        fetch.close()
        store.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_the_rest_is_read_from_files(tmp_path: Path, steps: list[tuple[bool, int]]) -> None:
    (tmp_path / "x").write_bytes(DATA)
    (tmp_path / "y").write_bytes(b"the next one")
    fetch = FileFetcher(FileStore(str(tmp_path)), iter([ShardRange("x"), ShardRange("y")]), READ, Account())
    fetch.next_shard()
    found, wanted = _walk(fetch, steps)
    assert found == wanted
    fetch.next_shard()
    assert bytes(fetch.read()) == b"the next one"
    fetch.close()
    with pytest.raises(StoreError, match="closed"):
        fetch.read()


def test_bytes_of_a_file_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They precede the next block, come alone at the end, and count once."""
    (tmp_path / "x").write_bytes(DATA)
    account = Account()
    fetch = FileFetcher(FileStore(str(tmp_path)), iter([ShardRange("x", 1_000)]), READ, account)
    fetch.next_shard()
    found, last, again = bytearray(), b"", 0
    while len(view := fetch.read(keep=True, again=again)) > again:
        assert view[:again] == last[len(last) - again :]
        found, last = found + view[again:], bytes(view)
        again = min(len(last), 1 + len(found) % 4_001)
        if len(found) % 3 == 0:  # a break: the file is opened again
            monkeypatch.setattr(fetch, "_body", None)
    assert found == DATA[1_000:]
    assert view == DATA[-again:]
    assert fetch.read() == b""
    assert account.stats.bytes == len(found)
    fetch.close()


ISLANDS = st.lists(st.integers(0, len(DATA)), max_size=40).map(sorted)
FAULTS = st.lists(
    st.sampled_from(
        [
            Fault(),
            Fault(status=503),
            Fault(after=700),
            Fault(after=100, then="short"),
            Fault(shift=1),
            Fault(framing="chunked"),
            Fault(ranges=False),
        ]
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(STEPS, ISLANDS, FAULTS, st.sampled_from([2, 3]))
def test_the_rest_is_read_whatever_record_offsets_are_given(
    jump_server: FaultServer, steps: list[tuple[bool, int]], begins: list[int], faults: list[Fault], connections: int
) -> None:
    """The server may also answer requests for several ranges with faults."""
    jump_server.add("bad", tagged(DATA))
    jump_server.script["bad"].clear()
    jump_server.script["bad"].extend([Fault(), *faults])
    read = replace(READ, connections=connections, retry=replace(READ.retry, attempts=12))
    store, account = HttpStore(jump_server.url, read), Account()
    fetch = Fetcher(store, iter([ShardRange("bad", begins=lambda: begins), ShardRange("y")]), read, account)
    try:
        fetch.next_shard()
        found, wanted = _walk(fetch, steps)
        assert found == wanted
        fetch.next_shard()
        assert b"".join(iter(lambda: bytes(fetch.read()), b"")) == DATA[::-1]
    finally:
        fetch.close()
        store.close()


def test_several_ranges_are_requested_together(jump_server: FaultServer) -> None:
    """Twenty skips from record to record need only a few requests."""
    begins, jumped = list(range(0, len(DATA), 20_000)), threading.Event()
    held = Fault(after=0, wait=jumped)  # otherwise bytes would arrive before the first skip
    jump_server.add("together", tagged(DATA), [GOOD, held, held])
    before = len(jump_server.ranges("together"))  # of the other engine
    store = HttpStore(jump_server.url, READ)
    fetch = Fetcher(store, iter([ShardRange("together", begins=lambda: begins)]), READ, Account())
    try:
        fetch.next_shard()
        at = len(fetch.read())
        for target in range(200_000, 600_000, 20_000):
            assert fetch.jump(target - at) == target - at
            jumped.set()
            block = bytes(fetch.read())
            assert block == DATA[target : target + len(block)]
            at = target + len(block)
        asked = [each or "" for each in jump_server.ranges("together")[before:]]
        assert any("," in each for each in asked)
        assert len(asked) < 10
    finally:
        fetch.close()
        store.close()


@pytest.mark.parametrize("stop", [None, 11_000_000])
@pytest.mark.parametrize("connections", [1, 2, 3])
def test_a_long_span_after_a_skip_is_read(jump_server: FaultServer, connections: int, stop: int | None) -> None:
    """After a skip, the reader reads more than the read-ahead without waiting for itself."""
    large = DATA * 22
    jump_server.add("large", tagged(large))
    jump_server.add("next", tagged(large))
    read = Read(connections=connections, retry=READ.retry)
    store = HttpStore(jump_server.url, read)
    spans = [ShardRange("large", stop=stop), ShardRange("next")]
    fetch = Fetcher(store, iter(spans), read, Account(), read_ahead_bytes=4_000_000)
    try:
        fetch.next_shard()
        at = len(fetch.read())
        at += (passed := fetch.jump(3_000_000))
        assert bool(passed) is (
            stop is not None
        )  # otherwise the span is smaller than a range and arrives in one answer
        found = bytearray()
        while block := fetch.read():
            found += block
        assert found == large[at:stop]
        fetch.next_shard()
        assert sum(len(block) for block in iter(lambda: bytes(fetch.read()), b"")) == len(large)
    finally:
        fetch.close()
        store.close()


@pytest.mark.parametrize("status", [200, 416])
def test_a_server_without_multiple_ranges_gets_single_ranges(status: int) -> None:
    with FaultServer() as server:
        server.add("x", tagged(DATA))
        store = HttpStore(server.url, READ)
        try:
            server.script["x"].append(Fault(ranges=False) if status == 200 else Fault(status=416))
            wanted = [("x", 0, 10), ("x", 50, 60)]
            assert store.ranges_at_once > 1
            assert store.read_many(wanted) is None
            assert store.ranges_at_once == 1
        finally:
            store.close()


def test_a_changed_content_is_detected_in_multiple_ranges() -> None:
    with FaultServer() as server:
        server.add("x", tagged(DATA))
        store = HttpStore(server.url, READ)
        answer = store.read_many([("x", 0, 10), ("x", 50, 60)])
        assert answer is not None
        assert [bytes(piece) for piece in answer.pieces] == [DATA[:10], DATA[50:60]]
        assert (answer.identity.etag, answer.identity.size) == ('"1"', len(DATA))
        server.add("x", tagged(DATA, "2"))
        begins = list(range(0, len(DATA), 20_000))
        span = ShardRange("x", identity=answer.identity, begins=lambda: begins)
        fetch = Fetcher(store, iter([span]), READ, Account())
        try:
            fetch.next_shard()
            with pytest.raises(ObjectChanged):
                _walk(fetch, [(False, 1), (True, 100_000)])
        finally:
            fetch.close()
            store.close()


def test_connections_that_break_after_a_skip_lose_nothing(jump_server: FaultServer) -> None:
    broken = [Fault(), *[Fault(after=5_000), Fault(status=503), Fault(after=100, then="short")] * 2]
    jump_server.add("broken", plain(DATA), broken)
    read = replace(READ, connections=2, retry=replace(READ.retry, attempts=9))
    store, account = HttpStore(jump_server.url, read), Account()
    fetch = Fetcher(store, iter([ShardRange("broken")]), read, account)
    try:
        fetch.next_shard()
        found, wanted = _walk(fetch, [(False, 1), (True, 200_000), (False, 1), (True, 100_000), (False, 1)])
        assert found == wanted
        assert account.stats.retries >= 1
    finally:
        fetch.close()
        store.close()


def test_a_server_without_ranges_is_read_through(jump_server: FaultServer) -> None:
    jump_server.add("whole", plain(DATA), [Fault(ranges=False)] * 9)
    read = replace(READ, connections=2)
    store = HttpStore(jump_server.url, read)
    fetch = Fetcher(store, iter([ShardRange("whole")]), read, Account())
    try:
        fetch.next_shard()
        first = bytes(fetch.read())
        assert fetch.jump(300_000) == 0
        assert first + b"".join(iter(lambda: bytes(fetch.read()), b"")) == DATA
    finally:
        fetch.close()
        store.close()


# Selections


MEMBERS = st.lists(
    st.tuples(st.sampled_from(["cls", "jpg", "cls.txt"]), st.one_of(st.integers(0, 600), st.integers(0, 90_000))),
    min_size=1,
    max_size=14,
)


def _tar(members: Sequence[tuple[str, int]], *, one_by_one: bool) -> bytes:
    """Group members into records, a repeated field beginning a new one.

    `one_by_one` adds PAX headers between members.
    """
    file, number, met = io.BytesIO(), 0, set[str]()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for field, size in members:
            if field in met:
                number, met = number + 1, set()
            met.add(field)
            member = tarfile.TarInfo(f"{number:03d}.{field}")
            member.size = size
            member.mtime = 1_600_000_000.5 if one_by_one else 1_600_000_000  # type: ignore[assignment]
            tar.addfile(member, io.BytesIO(bytes((at * 7 + size) % 256 for at in range(256)) * (size // 256 + 1)))
    return file.getvalue()


def _by_tarfile(data: bytes, wanted: str) -> list[tuple[str, bytes | None]]:
    records: dict[str, bytes | None] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            key, _, field = member.name.partition(".")
            records.setdefault(key, None)
            if field == wanted:
                file = tar.extractfile(member)
                assert file is not None
                records[key] = file.read()
    return list(records.items())


def _selected(store: Any, names: Sequence[str], read: Read) -> list[tuple[str, bytes | None]]:
    shards = Shards(store, names, read, selection=Selection(["cls?"]))
    plan = Plan(shards=len(names))
    stream = RecordStream(ReadSession(shards), plan, plan.begin(0, 0, 1), Account())
    found: list[tuple[str, bytes | None]] = []
    try:
        while chunk := stream.next_chunk():
            found += [(record["__key__"], record.get("cls")) for record in chunk]
    finally:
        stream.close()
    return found


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(MEMBERS, min_size=1, max_size=3), st.booleans())
def test_a_selection_is_what_tarfile_reads(
    jump_server: FaultServer, tmp_path: Path, shards: list[list[tuple[str, int]]], one_by_one: bool
) -> None:
    wanted: list[tuple[str, bytes | None]] = []
    for number, members in enumerate(shards):
        data = _tar(members, one_by_one=one_by_one)
        wanted += _by_tarfile(data, "cls")
        (tmp_path / f"s{number}").write_bytes(data)
        jump_server.add(f"s{number}", plain(data))
    names = [f"s{number}" for number in range(len(shards))]
    assert _selected(FileStore(str(tmp_path)), names, READ) == wanted
    store = HttpStore(jump_server.url, READ)
    try:
        assert _selected(store, names, READ) == wanted
    finally:
        store.close()


def _large(folder: Path) -> bytes:
    data = _tar([("jpg", 900_000), ("cls", 600)] * 24, one_by_one=False)
    (folder / "large.tar").write_bytes(data)
    return data


def test_large_unselected_fields_are_not_read(tmp_path: Path) -> None:
    data = _large(tmp_path)
    with t2t.open(str(tmp_path / "large.tar")) as source:
        assert [len(record["cls"]) for record in source.select("cls").records()] == [600] * 24
        assert source.stats.bytes < len(data) / 10
    with t2t.serve(tmp_path.parent) as web:
        url = f"{web.url}/v1/objects/{tmp_path.name}/large.tar"
        with t2t.open(url, limits=Limits(read_ahead_bytes=4_000_000)) as source:
            assert [len(record["cls"]) for record in source.select("cls").records()] == [600] * 24
            assert source.stats.bytes < len(data) * 3 / 4


def test_a_tar_that_is_cut_in_a_skipped_part(tmp_path: Path) -> None:
    data = _large(tmp_path)
    (tmp_path / "large.tar").write_bytes(data[: len(data) * 2 // 3])
    with t2t.open(str(tmp_path / "large.tar")) as source, pytest.raises(TruncatedArchive):
        list(source.select("cls").records())


def test_a_file_that_changes_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(DATA)
    fetch = FileFetcher(FileStore(str(tmp_path)), iter([ShardRange("x")]), READ, Account())
    fetch.next_shard()
    assert fetch.read()
    path.write_bytes(DATA[:50_000])
    with pytest.raises((ObjectChanged, TransportError)):
        _walk(fetch, [])
    fetch.close()


@pytest.mark.servers("aistore")
def test_several_ranges_of_a_real_aistore(aistore: Any, tmp_path: Path) -> None:
    """With an index, records are read by GetBatch; without one, by single ranges."""
    from ais_tar2tf.stores.ais import AisStore

    data = _large(tmp_path)
    store = AisStore("islands", Read(), endpoint=aistore.url)
    store.create()
    store.put("large.tar", data)
    store.close()
    url, index = "ais://islands/large.tar", str(tmp_path / "index.t2t")
    t2t.index(url, out=index, endpoint=aistore.url)
    for where in (False, index):
        with t2t.open(url, endpoint=aistore.url, index=where, limits=Limits(read_ahead_bytes=4_000_000)) as source:
            chosen = source.select("cls", in_cluster=False)
            assert [len(record["cls"]) for record in chosen.records()] == [600] * 24
            assert source.stats.bytes < len(data) * 3 / 4
