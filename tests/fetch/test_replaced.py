"""Objects are replaced while they are read. Two contents are never mixed in one shard, whatever the store states."""

from __future__ import annotations

import contextlib
import gzip
import os
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ChecksumMismatch, IndexMissing, ObjectChanged
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.options import Limits, Read, Retry, Shuffle
from ais_tar2tf.recordfiles.formats.framing import frame
from ais_tar2tf.records import Record
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.http import HttpStore
from ais_tar2tf.stores.identity import validator_of
from ais_tar2tf.streams.datasets import SourceReading
from ais_tar2tf.streams.order import Plan
from ais_tar2tf.values.features import encode
from tests.support import shards as made
from tests.support.fault_server import GOOD, Fault, FaultServer, ServedObject

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


def contents(source: t2t.Source, into: list[bytes]) -> list[bytes]:
    """Read a source and return the letter of each record."""
    with source:
        into.extend(record["bin"][:1] for record in source.records())
    return into


# Headers of answers


@pytest.mark.parametrize("stated", UNPROVED.values(), ids=UNPROVED)
def test_headers_that_prove_no_identity(stated: dict[str, str]) -> None:
    found = Identity(etag=validator_of(*(stated.get(name, "") for name in ("ETag", "Last-Modified", "Date"))), size=9)
    assert not found.is_strong
    assert found.differs_from(found) is None
    assert not found.is_proved_by(found)


def test_an_old_date_proves_nothing_about_earlier_reads() -> None:
    young = Identity(etag=validator_of("", THEN, THEN))
    old = Identity(etag=validator_of("", THEN, "Thu, 01 Jan 2026 11:00:00 GMT"))
    assert old.is_proved_by(old)
    assert young.differs_from(old) is None
    assert not young.is_proved_by(old)


def test_a_changed_weak_tag_with_an_unchanged_date_is_a_change() -> None:
    old = "Thu, 01 Jan 2026 11:00:00 GMT"
    before, now = (Identity(etag=validator_of(tag, THEN, old)) for tag in ('W/"1"', 'W/"2"'))
    assert before.is_strong
    assert before.differs_from(now) == "etag"


# Broken bodies and ranges


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("stated", [*UNPROVED.values(), *PROVED.values()], ids=[*UNPROVED, *PROVED])
def test_a_broken_body_is_resumed_with_the_same_content(
    fault_server: FaultServer, stated: dict[str, str], connections: int
) -> None:
    cuts = [Fault(after=size, then="reset") for size in (100_000, 50_000, 200_000)]
    fault_server.add("x.tar", ServedObject(tar_of(b"o"), stated), [*cuts, GOOD, *cuts])
    source = t2t.open(f"{fault_server.url}/x.tar", retry=RETRY, connections=connections)
    assert contents(source, []) == [b"o"] * RECORDS
    assert source.stats.retries


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("stated", UNPROVED.values(), ids=UNPROVED)
def test_a_broken_body_is_never_resumed_with_another_content(
    fault_server: FaultServer, stated: dict[str, str], connections: int, ranges: bool
) -> None:
    def replace() -> None:
        fault_server.objects["x.tar"] = ServedObject(tar_of(b"n"), stated)

    cut = Fault(after=200_000, then="reset", ranges=ranges)
    fault_server.add("x.tar", ServedObject(tar_of(b"o"), stated), [cut, Fault(before=replace, ranges=ranges)])
    found: list[bytes] = []
    with pytest.raises(ObjectChanged, match="first bytes are others"):
        contents(t2t.open(f"{fault_server.url}/x.tar", retry=RETRY, connections=connections), found)
    assert set(found) == {b"o"}


@pytest.mark.parametrize("connections", [1, 2])
def test_an_object_that_grew_is_read_in_its_new_state_or_not_at_all(
    fault_server: FaultServer, connections: int
) -> None:
    """The first body stated no length, or a different one."""
    old, new = (b"".join([frame(encode({"bin": b"x" * 9_000}))] * count) for count in (40, 60))
    grown = Fault(before=lambda: fault_server.objects.update({"x": ServedObject(new)}), framing="chunked")
    fault_server.add("x", ServedObject(old), [Fault(after=200_000, framing="chunked"), grown])
    source = t2t.open(f"{fault_server.url}/x", retry=RETRY, connections=connections)
    if connections == 1:
        assert len(contents(source, [])) == 60
    else:
        with pytest.raises(ObjectChanged):
            contents(source, [])


@pytest.mark.parametrize("stated", UNPROVED.values(), ids=UNPROVED)
def test_an_object_without_an_identity_is_read_in_one_body(fault_server: FaultServer, stated: dict[str, str]) -> None:
    """Without a proof of identity, a single body is read, because ranges could belong to two contents."""
    data, names = bytes(range(256)) * 1_000, ["x", "y", "z"]
    for name in names:
        fault_server.add(name, ServedObject(data, stated))
    read = Read(retry=RETRY, connections=4, range_bytes=30_000)
    store = HttpStore(fault_server.url, read)
    with (
        contextlib.closing(store),
        contextlib.closing(Fetcher(store, map(ShardRange, names), read, Account())) as fetch,
    ):
        while fetch.next_shard() is not None:
            assert b"".join(iter(lambda: bytes(fetch.read()), b"")) == data
    assert [len(fault_server.ranges(name)) for name in names] == [
        2,
        1,
        1,
    ]  # a range is requested first, to learn the headers


# Positions


@contextlib.contextmanager
def positions_of(
    url: str, shuffle: Shuffle | None = None
) -> Iterator[tuple[SourceReading, list[str], list[list[bytes]]]]:
    """Yield a reading, every position in one of its epochs, and the labels of the chunk that ends there."""
    with t2t.open(url, limits=Limits(chunk_records=7), retry=RETRY, index=False) as source:
        reading = SourceReading(source.opened.session, Plan(len(source.opened.shards.names), shuffle))
        texts: list[str] = []
        chunks: list[list[bytes]] = []
        with contextlib.closing(reading.open(reading.begin(0, 3, 1), Account())) as stream:
            while chunk := stream.next_chunk():
                chunks.append([record["cls"] for record in chunk])
                texts.append(stream.position.to_text())
        yield reading, texts, chunks


def read_on(reading: SourceReading, text: str) -> list[bytes]:
    found: list[bytes] = []
    with contextlib.closing(reading.open(reading.parse(text), Account())) as stream:
        while chunk := stream.next_chunk():
            found += [record["cls"] for record in chunk]
    return found


@pytest.mark.parametrize("shuffle", [None, Shuffle(window=20, shards=2, turn=4)], ids=["in order", "shuffled"])
@pytest.mark.parametrize("kind", SHARDS)
@pytest.mark.parametrize("stated", [{}, UNPROVED["a weak ETag"]], ids=["nothing", "weak"])
def test_a_position_is_resumed_with_the_same_content_or_not_at_all(
    fault_server: FaultServer, stated: dict[str, str], kind: str, shuffle: Shuffle | None
) -> None:
    names = [f"x-{number}.{kind}" for number in range(2)]
    for name in names:
        fault_server.add(name, ServedObject(SHARDS[kind](b"o"), stated))
    with positions_of(f"{fault_server.url}/x-{{0..1}}.{kind}", shuffle) as (reading, texts, chunks):
        for number, text in enumerate(texts):
            expected = [label for chunk in chunks[number + 1 :] for label in chunk]
            assert read_on(reading, text) == expected
        fault_server.objects[names[0]] = ServedObject(SHARDS[kind](b"n"), stated)
        with pytest.raises(ObjectChanged):
            read_on(reading, texts[2])


def test_an_old_position_that_proves_nothing_is_refused(fault_server: FaultServer) -> None:
    """Old positions have neither a hash of the bytes read nor a checksum."""
    fault_server.add("x-0.tar", ServedObject(tar_of(b"o")))
    with positions_of(f"{fault_server.url}/x-0.tar") as (reading, texts, _):
        unsealed = texts[2].rpartition(',"xxh3-64:')[0] + "]"
        before, _, behind = unsealed.partition(',"xxh3-128:')
        assert behind
        with pytest.raises(ObjectChanged, match="not certain"):
            read_on(reading, before + behind[behind.index('"') + 1 :])


# Index and cache


def test_an_index_of_shards_without_an_identity_is_ignored(fault_server: FaultServer, tmp_path: Path) -> None:
    fault_server.add("x.tar", ServedObject(tar_of(b"o"), {"ETag": 'W/"1"'}))
    url, out = f"{fault_server.url}/x.tar", tmp_path / "index.t2t"
    t2t.index(url, out=out)
    with t2t.open(url, index=out) as source, pytest.raises(IndexMissing, match="cannot be proved"):
        source[3]


def test_a_record_is_read_only_from_the_indexed_content(fault_server: FaultServer, tmp_path: Path) -> None:
    fault_server.add("x.tar", ServedObject(tar_of(b"o"), {"ETag": '"1"'}))
    url, out = f"{fault_server.url}/x.tar", tmp_path / "index.t2t"
    t2t.index(url, out=out)
    with t2t.open(url, index=out, retry=RETRY) as source:
        assert source[3]["cls"] == b"3"
        fault_server.objects["x.tar"] = ServedObject(tar_of(b"n"), {"ETag": 'W/"1"'})
        with pytest.raises(ObjectChanged, match="not certain"):
            source[3]


@pytest.mark.parametrize(("stated", "requests"), [(UNPROVED["a weak ETag"], 2), (PROVED["a strong ETag"], 1)])
def test_a_cache_keeps_only_objects_with_an_identity(
    fault_server: FaultServer, stated: dict[str, str], requests: int
) -> None:
    fault_server.add("x.tar", ServedObject(tar_of(b"o"), stated))
    with t2t.open(f"{fault_server.url}/x.tar", cache="memory", connections=1) as source:
        for _ in range(2):
            assert {record["bin"][:1] for record in source.records()} == {b"o"}
    assert sum(request.method == "GET" for request in fault_server.requests) == requests


# Local files


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
def test_a_file_whose_bytes_do_not_change_is_read_to_its_end(tmp_path: Path, change: str) -> None:
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
def test_a_position_in_a_file_is_bound_to_its_content(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(b"o", 600))
    with positions_of(str(path)) as (reading, texts, _):
        change(path)
        with pytest.raises(ObjectChanged):
            read_on(reading, texts[3])


def test_a_position_in_a_file_survives_new_permissions(tmp_path: Path) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(tar_of(b"o", 100))
    with positions_of(str(path)) as (reading, texts, chunks):
        path.chmod(0o640)
        assert len(read_on(reading, texts[3])) == sum(map(len, chunks[4:]))


# Loaded exports


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
def test_a_loaded_export_is_never_mixed_with_another(tmp_path: Path, kind: str, begun: bool, how: str) -> None:
    """Another export with files of the same length replaces the loaded one."""
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
def test_a_loaded_export_in_a_store_is_never_mixed_with_another(tmp_path: Path, kind: str, how: str) -> None:
    out = f"memory://replaced-{kind}-{how.replace(' ', '-')}/out"
    exported(out, b"o", kind, tmp_path)
    loaded = t2t.load(out)
    assert READ[how](loaded) == {b"o"}
    exported(out, b"n", kind, tmp_path)
    if kind == "array_record":  # the library reads a copy
        assert READ[how](loaded) == {b"o"}
        return
    with pytest.raises(ObjectChanged):
        READ[how](loaded)


def test_a_file_that_replaced_an_exported_one_is_not_read(tmp_path: Path) -> None:
    """A file of the same length replaced an exported one before the export was loaded."""
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


def test_a_record_from_a_server_without_ranges_needs_only_its_size(fault_server: FaultServer, tmp_path: Path) -> None:
    """The server also sends all bytes before the record."""
    out = tmp_path / "out"
    source = tmp_path / "source.tar"
    source.write_bytes(made.labelled("r", 40, lambda number: {"bin": bytes([number]) * 1_000_000}))
    (path,) = t2t.open(str(source)).export(str(out), progress=False)
    for file in out.iterdir():
        fault_server.add(
            file.name, ServedObject(file.read_bytes(), {"ETag": f'"{file.name}"'}), [Fault(ranges=False)] * 90
        )
    loaded = t2t.load(fault_server.url, retry=RETRY)
    loaded[0]  # reads the offsets of the records
    tracemalloc.start()
    try:
        assert loaded[38]["bin"] == bytes([38]) * 1_000_000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert path.endswith("00000-of-00001")
    assert most < 12_000_000
