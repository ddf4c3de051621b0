"""Objects that are replaced while they are read: never two contents in one shard, whatever their store states."""

from __future__ import annotations

import contextlib
import gzip
import os
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.account import Account
from ais_tar2tf.errors import ChecksumMismatch, IndexMissing, ObjectChanged
from ais_tar2tf.export.framing import frame
from ais_tar2tf.features import encode
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import Limits, Read, Retry, Shuffle
from ais_tar2tf.plan import Plan
from ais_tar2tf.reading import PlainReading
from ais_tar2tf.records import Record
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores._identity import validator_of
from ais_tar2tf.stores.http import HttpStore
from faults import GOOD, Fault, FaultServer, Thing

RETRY = Retry(attempts=4, first_delay=0.001, max_delay=0.002)
RECORDS = 30
THEN = "Thu, 01 Jan 2026 10:00:00 GMT"

UNPROVED: dict[str, dict[str, str]] = {
    "nothing": {},
    "a weak ETag": {"ETag": 'W/"1"'},
    "Last-Modified without Date": {"Last-Modified": THEN},
    "a young Last-Modified": {"Last-Modified": THEN, "Date": "Thu, 01 Jan 2026 10:00:02 GMT"},
    "a weak ETag and a young Last-Modified": {"ETag": 'W/"1"', "Last-Modified": THEN, "Date": THEN},
}
PROVED: dict[str, dict[str, str]] = {
    "a strong ETag": {"ETag": '"1"'},
    "an old Last-Modified": {"Last-Modified": THEN, "Date": "Thu, 01 Jan 2026 10:01:00 GMT"},
    "a weak ETag and an old Last-Modified": {
        "ETag": 'W/"1"',
        "Last-Modified": THEN,
        "Date": "Thu, 01 Jan 2026 10:01:00 GMT",
    },
    "a version": {"Ais-Version": "7"},
}


def tar_of(letter: bytes, records: int = RECORDS) -> bytes:
    return made.labelled("r", records, lambda number: {"bin": letter * 9_000, "cls": b"%d" % number})


def tfrecord_of(letter: bytes, records: int = RECORDS) -> bytes:
    return b"".join(frame(encode({"bin": letter * 9_000, "cls": b"%d" % number})) for number in range(records))


SHARDS: dict[str, Callable[[bytes], bytes]] = {
    "tar": tar_of,
    "tar.gz": lambda letter: gzip.compress(tar_of(letter), 0, mtime=0),
    "tfrecord": tfrecord_of,
}


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


def contents(source: t2t.Source, into: list[bytes]) -> list[bytes]:
    """The letter of each record."""
    with source:
        into.extend(record["bin"][:1] for record in source.records())
    return into


# What an answer states.


@pytest.mark.parametrize("stated", UNPROVED.values(), ids=UNPROVED)
def test_what_proves_nothing(stated: dict[str, str]) -> None:
    found = Identity(etag=validator_of(*(stated.get(name, "") for name in ("ETag", "Last-Modified", "Date"))), size=9)
    assert not found.is_strong
    assert found.differs_from(found) is None
    assert not found.is_proved_by(found)


def test_a_date_that_has_grown_old_proves_nothing_of_what_was_read_while_it_was_young() -> None:
    young = Identity(etag=validator_of("", THEN, THEN))
    old = Identity(etag=validator_of("", THEN, "Thu, 01 Jan 2026 11:00:00 GMT"))
    assert old.is_proved_by(old)
    assert young.differs_from(old) is None
    assert not young.is_proved_by(old)


def test_a_weak_tag_that_changed_beside_an_old_date_that_did_not_is_a_change() -> None:
    old = "Thu, 01 Jan 2026 11:00:00 GMT"
    before, now = (Identity(etag=validator_of(tag, THEN, old)) for tag in ('W/"1"', 'W/"2"'))
    assert before.is_strong
    assert before.differs_from(now) == "etag"


# Bodies that break off, and ranges.


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("stated", [*UNPROVED.values(), *PROVED.values()], ids=[*UNPROVED, *PROVED])
def test_a_body_that_breaks_goes_on_with_the_same_content(
    server: FaultServer, stated: dict[str, str], connections: int
) -> None:
    cuts = [Fault(after=size, then="reset") for size in (100_000, 50_000, 200_000)]
    server.add("x.tar", Thing(tar_of(b"o"), stated), [*cuts, GOOD, *cuts])
    source = t2t.open(f"{server.url}/x.tar", retry=RETRY, connections=connections)
    assert contents(source, []) == [b"o"] * RECORDS
    assert source.stats.retries


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("stated", UNPROVED.values(), ids=UNPROVED)
def test_a_body_that_breaks_never_goes_on_with_another_content(
    server: FaultServer, stated: dict[str, str], connections: int, ranges: bool
) -> None:
    def replace() -> None:
        server.things["x.tar"] = Thing(tar_of(b"n"), stated)

    cut = Fault(after=200_000, then="reset", ranges=ranges)
    server.add("x.tar", Thing(tar_of(b"o"), stated), [cut, Fault(before=replace, ranges=ranges)])
    found: list[bytes] = []
    with pytest.raises(ObjectChanged, match="first bytes are others"):
        contents(t2t.open(f"{server.url}/x.tar", retry=RETRY, connections=connections), found)
    assert set(found) == {b"o"}


@pytest.mark.parametrize("connections", [1, 2])
def test_an_object_that_grew_is_read_as_it_is_now_or_not_at_all(server: FaultServer, connections: int) -> None:
    """Its length was not told with the first body, or it was, and is another now."""
    old, new = (b"".join([frame(encode({"bin": b"x" * 9_000}))] * count) for count in (40, 60))
    grown = Fault(before=lambda: server.things.update({"x": Thing(new)}), framing="chunked")
    server.add("x", Thing(old), [Fault(after=200_000, framing="chunked"), grown])
    source = t2t.open(f"{server.url}/x", retry=RETRY, connections=connections)
    if connections == 1:
        assert len(contents(source, [])) == 60
    else:
        with pytest.raises(ObjectChanged):
            contents(source, [])


@pytest.mark.parametrize("stated", UNPROVED.values(), ids=UNPROVED)
def test_one_body_brings_what_nothing_proves(server: FaultServer, stated: dict[str, str]) -> None:
    """Ranges over several connections might be of two contents."""
    data, names = bytes(range(256)) * 1_000, ["x", "y", "z"]
    for name in names:
        server.add(name, Thing(data, stated))
    read = Read(retry=RETRY, connections=4, range_bytes=30_000)
    store = HttpStore(server.url, read)
    with contextlib.closing(store), contextlib.closing(Fetch(store, map(Span, names), read, Account())) as fetch:
        while fetch.next_shard() is not None:
            assert b"".join(iter(lambda: bytes(fetch.read()), b"")) == data
    assert [len(server.ranges(name)) for name in names] == [2, 1, 1]  # a range had to show what the store states


# Positions.


@contextlib.contextmanager
def positions_of(
    url: str, shuffle: Shuffle | None = None
) -> Iterator[tuple[PlainReading, list[str], list[list[bytes]]]]:
    """A reading, every position in an epoch of it, and the labels in the chunk that ends there."""
    with t2t.open(url, limits=Limits(chunk_records=7), retry=RETRY, index=False) as source:
        reading = PlainReading(source._shards, Plan(len(source._shards.names), shuffle))
        texts: list[str] = []
        chunks: list[list[bytes]] = []
        with contextlib.closing(reading.open(reading.begin(0, 3, 1), Account())) as stream:
            while chunk := stream.next_chunk():
                chunks.append([record["cls"] for record in chunk])
                texts.append(stream.position.to_text())
        yield reading, texts, chunks


def read_on(reading: PlainReading, text: str) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.closing(reading.open(reading.parse(text), Account())) as stream:
        while chunk := stream.next_chunk():
            found += [record["cls"] for record in chunk]
    return found


@pytest.mark.parametrize("shuffle", [None, Shuffle(window=20, shards=2, turn=4)], ids=["in order", "shuffled"])
@pytest.mark.parametrize("kind", SHARDS)
@pytest.mark.parametrize("stated", [{}, UNPROVED["a weak ETag"]], ids=["nothing", "weak"])
def test_a_position_goes_on_with_the_same_content_or_not_at_all(
    server: FaultServer, stated: dict[str, str], kind: str, shuffle: Shuffle | None
) -> None:
    names = [f"x-{number}.{kind}" for number in range(2)]
    for name in names:
        server.add(name, Thing(SHARDS[kind](b"o"), stated))
    with positions_of(f"{server.url}/x-{{0..1}}.{kind}", shuffle) as (reading, texts, chunks):
        for number, text in enumerate(texts):
            expected = [label for chunk in chunks[number + 1 :] for label in chunk]
            assert read_on(reading, text) == expected
        server.things[names[0]] = Thing(SHARDS[kind](b"n"), stated)
        with pytest.raises(ObjectChanged):
            read_on(reading, texts[2])


def test_an_old_position_that_proves_nothing_is_refused(server: FaultServer) -> None:
    """As they were before a hash of what was read stood in them, and a checksum at their end."""
    server.add("x-0.tar", Thing(tar_of(b"o")))
    with positions_of(f"{server.url}/x-0.tar") as (reading, texts, _):
        unsealed = texts[2].rpartition(',"xxh3-64:')[0] + "]"
        before, _, behind = unsealed.partition(',"xxh3-128:')
        assert behind
        with pytest.raises(ObjectChanged, match="not certain"):
            read_on(reading, before + behind[behind.index('"') + 1 :])


# An index, and a cache.


def test_an_index_of_what_nothing_proves_is_not_believed(server: FaultServer, tmp_path: Path) -> None:
    server.add("x.tar", Thing(tar_of(b"o"), {"ETag": 'W/"1"'}))
    url, out = f"{server.url}/x.tar", tmp_path / "index.t2t"
    t2t.index(url, out=out)
    with t2t.open(url, index=out) as source, pytest.raises(IndexMissing, match="cannot be proved"):
        source[3]


def test_a_record_is_read_only_from_the_content_that_its_index_is_of(server: FaultServer, tmp_path: Path) -> None:
    server.add("x.tar", Thing(tar_of(b"o"), {"ETag": '"1"'}))
    url, out = f"{server.url}/x.tar", tmp_path / "index.t2t"
    t2t.index(url, out=out)
    with t2t.open(url, index=out, retry=RETRY) as source:
        assert source[3]["cls"] == b"3"
        server.things["x.tar"] = Thing(tar_of(b"n"), {"ETag": 'W/"1"'})
        with pytest.raises(ObjectChanged, match="not certain"):
            source[3]


@pytest.mark.parametrize(("stated", "requests"), [(UNPROVED["a weak ETag"], 2), (PROVED["a strong ETag"], 1)])
def test_a_cache_keeps_what_can_be_told_from_another_content(
    server: FaultServer, stated: dict[str, str], requests: int
) -> None:
    server.add("x.tar", Thing(tar_of(b"o"), stated))
    with t2t.open(f"{server.url}/x.tar", cache="memory", connections=1) as source:
        for _ in range(2):
            assert {record["bin"][:1] for record in source.records()} == {b"o"}
    assert sum(request.method == "GET" for request in server.requests) == requests


# Local files.


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(tar_of(b"n", 600))


def overwrite_and_set_the_time_back(path: Path) -> None:
    before = path.stat()
    overwrite(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def cut_off(path: Path) -> None:
    os.truncate(path, 3_000_000)


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(bytes(1024))


@pytest.mark.parametrize("change", [overwrite, overwrite_and_set_the_time_back, cut_off, grow])
@pytest.mark.parametrize("at", [1, 300, 599])
def test_a_file_that_is_written_to_while_it_is_read_is_an_error(
    tmp_path: Path, change: Callable[[Path], None], at: int
) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(b"o", 600))
    found: list[bytes] = []

    def read() -> None:
        for record in source.records():
            found.append(record["bin"][:1])
            if len(found) == at:
                change(path)

    with t2t.open(str(path), limits=Limits(chunk_records=1)) as source, pytest.raises(ObjectChanged):
        read()
    assert set(found) == {b"o"}


@pytest.mark.parametrize("change", ["replaced by a rename", "new permissions", "another link"])
def test_a_file_whose_bytes_stay_is_read_to_its_end(tmp_path: Path, change: str) -> None:
    path, other = tmp_path / "x.tar", tmp_path / "other"
    path.write_bytes(tar_of(b"o", 600))
    other.write_bytes(tar_of(b"n", 600))
    found: list[bytes] = []
    with t2t.open(str(path)) as source:
        for record in source.records():
            found.append(record["bin"][:1])
            if len(found) == 1:
                if change == "replaced by a rename":
                    other.replace(path)
                elif change == "new permissions":
                    path.chmod(0o600)
                else:
                    path.hardlink_to(other) if not path.exists() else (tmp_path / "link").hardlink_to(path)
    assert found == [b"o"] * 600


@pytest.mark.parametrize("change", [overwrite, overwrite_and_set_the_time_back])
def test_a_position_in_a_file_is_of_its_content(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(b"o", 600))
    with positions_of(str(path)) as (reading, texts, _):
        change(path)
        with pytest.raises(ObjectChanged):
            read_on(reading, texts[3])


def test_a_position_in_a_file_outlives_new_permissions(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(b"o", 100))
    with positions_of(str(path)) as (reading, texts, chunks):
        path.chmod(0o640)
        assert len(read_on(reading, texts[3])) == sum(map(len, chunks[4:]))


# Exports that were loaded.


def exported(out: str, letter: bytes, kind: str, folder: Path) -> None:
    source = folder / "source.tar"
    source.write_bytes(tar_of(letter))
    t2t.open(str(source)).export(out, format=kind, exists="replace", progress=False)


def letters(records: Iterable[Record]) -> set[bytes]:
    return {record["bin"][:1] for record in records}


READ: dict[str, Callable[[t2t.Loaded], set[bytes]]] = {
    "one record": lambda loaded: letters([loaded[3]]),
    "all records": lambda loaded: letters(loaded.records()),
    "a dataset": lambda loaded: letters(loaded.dataset().as_numpy_iterator()),
}


@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("kind", ["tfrecord", "array_record", "tar"])
def test_a_loaded_export_stays_the_one_that_was_loaded(tmp_path: Path, kind: str, begun: bool, how: str) -> None:
    """Another export took its place, whose files are as long."""
    if (kind, how) == ("tar", "one record"):
        return  # needs an index
    out = str(tmp_path / "out")
    exported(out, b"o", kind, tmp_path)
    loaded = t2t.load(out)
    if begun:
        assert READ[how](loaded) == {b"o"}
    exported(out, b"n", kind, tmp_path)
    with pytest.raises(ObjectChanged, match="since the export was loaded"):
        READ[how](loaded)
    assert READ[how](t2t.load(out)) == {b"n"}


@pytest.mark.parametrize("how", ["one record", "all records"])
@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_a_loaded_export_in_a_store_stays_the_one_that_was_read(tmp_path: Path, kind: str, how: str) -> None:
    out = f"memory://replaced-{kind}-{how.replace(' ', '-')}/out"
    exported(out, b"o", kind, tmp_path)
    loaded = t2t.load(out)
    assert READ[how](loaded) == {b"o"}
    exported(out, b"n", kind, tmp_path)
    if kind == "array_record":  # its library reads a copy
        assert READ[how](loaded) == {b"o"}
        return
    with pytest.raises(ObjectChanged):
        READ[how](loaded)


def test_a_file_that_took_the_place_of_an_exported_one_is_not_read_as_it(tmp_path: Path) -> None:
    """It was there before the export was loaded, and is as long."""
    for letter in (b"o", b"n"):
        exported(str(tmp_path / letter.decode()), letter, "tfrecord", tmp_path)
    (old,) = (tmp_path / "o").glob("*tfrecord-0*")
    old.write_bytes((tmp_path / "n" / old.name).read_bytes())
    loaded = t2t.load(tmp_path / "o")
    with pytest.raises(ChecksumMismatch, match="replaced since its manifest was written, or is damaged"):
        letters(loaded.records())
    old.write_bytes(old.read_bytes()[:-100])
    with pytest.raises(ObjectChanged, match="its manifest says"):
        letters(t2t.load(tmp_path / "o").records())


def test_a_record_of_a_server_without_ranges_costs_its_own_size(server: FaultServer, tmp_path: Path) -> None:
    """The server sends all that comes before it."""
    out = tmp_path / "out"
    source = tmp_path / "source.tar"
    source.write_bytes(made.labelled("r", 40, lambda number: {"bin": bytes([number]) * 1_000_000}))
    (path,) = t2t.open(str(source)).export(str(out), progress=False)
    for file in out.iterdir():
        server.add(file.name, Thing(file.read_bytes(), {"ETag": f'"{file.name}"'}), [Fault(ranges=False)] * 90)
    loaded = t2t.load(server.url, retry=RETRY)
    loaded[0]  # finds where records begin
    tracemalloc.start()
    try:
        assert loaded[38]["bin"] == bytes([38]) * 1_000_000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path.endswith("00000-of-00001")
    assert most < 12_000_000
