"""Compare the zip reader with Python's zipfile, on archives that are cut, damaged or hostile."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.archive.zip import ZipReader
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import (
    ArchiveError,
    LimitExceeded,
    ObjectChanged,
    StoreError,
    TruncatedArchive,
    UnsupportedArchive,
)
from ais_tar2tf.options import KIB, MIB, Limits
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.order import Plan, Position
from ais_tar2tf.streams.reader import RecordStream
from tests.support.archives import Found, Pipe, drain, pieces, zip_of

SHARD = "memory://b/s.zip"


def by_zipfile(data: bytes) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        infos = sorted(file.infolist(), key=lambda info: info.header_offset)
        return [(info.filename, file.read(info)) for info in infos if not info.is_dir()]


def read(
    data: bytes, cuts: Sequence[int] = (), limits: Limits | None = None, start: int = 0, **options: object
) -> list[Found]:
    edges = [start, *sorted({cut for cut in cuts if start < cut < len(data)}), len(data)]
    archive = ShardArchive(SHARD, limits or Limits(), start=start, compressed=False if start else None, **options)  # type: ignore[arg-type]
    return list(drain(archive, data, [data[a:b] for a, b in pairwise(edges)], limits or Limits(), shard=SHARD))


def pairs(found: Sequence[Found]) -> list[tuple[str, bytes]]:
    return [(name, body) for name, body, _ in found]


MEMBERS = [(f"{at:03d}.{ext}", bytes([65 + at]) * (40 * at)) for at in range(20) for ext in ("jpg", "cls")]
WAYS = [
    (zipfile.ZIP_STORED, False),
    (zipfile.ZIP_DEFLATED, False),
    (zipfile.ZIP_STORED, True),
    (zipfile.ZIP_DEFLATED, True),
]
each_way = pytest.mark.parametrize(("method", "piped"), WAYS)


# --- foreign archives -----------------------------------------------------------------------------------------

_names = st.one_of(
    st.text(st.characters(exclude_characters="\0\\", exclude_categories=("Cs",)), min_size=1, max_size=40),
    st.sampled_from(["a/b.jpg", "ä/ö.jpg", "n" * 300, "folder/", "PK\x03\x04.jpg"]),
)
_bodies = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([b"", b"x" * 100_000, b"PK\x03\x04" * 50, b"PK\x07\x08" + bytes(12), zip_of(MEMBERS[:4])]),
)


@settings(max_examples=150, deadline=None)
@given(
    members=st.lists(st.tuples(_names, _bodies, st.sampled_from([0, 8])), max_size=8, unique_by=lambda each: each[0]),
    piped=st.booleans(),
    comment=st.sampled_from([b"", b"made by hand"]),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    step=st.sampled_from([1, 7, 100, 4096]),
)
def test_archives_are_read_as_zipfile_reads_them(
    members: list[tuple[str, bytes, int]], piped: bool, comment: bytes, cuts: list[int], step: int
) -> None:
    out: Pipe | io.BytesIO = Pipe() if piped else io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:  # type: ignore[arg-type]
        for name, body, method in members:
            info = zipfile.ZipInfo(name)
            file.writestr(info, b"" if info.is_dir() else body, method)
        file.comment = comment
    data = (out.written if isinstance(out, Pipe) else out).getvalue()
    whole = read(data)
    assert pairs(whole) == by_zipfile(data)
    assert read(data, cuts) == whole
    if len(data) < 5000 or step > 100:
        assert read(data, range(step, len(data), step)) == whole


@each_way
def test_reading_from_each_offset_gives_the_rest(method: int, piped: bool) -> None:
    data = zip_of(MEMBERS, method, piped=piped, comment=b"remark")
    whole = read(data)
    assert pairs(whole) == MEMBERS
    for at, (_, _, offset) in enumerate(whole):
        assert read(data, start=offset) == whole[at:]


def test_members_with_and_without_sizes_in_one_zip() -> None:
    """The directory is read in the middle, when a member first needs it."""
    with_sizes = zip_of(MEMBERS[:10], 8)
    without = zip_of(MEMBERS[10:], 8, piped=True)
    data = joined(with_sizes, without)
    assert by_zipfile(data) == MEMBERS
    whole = read(data)
    assert pairs(whole) == MEMBERS
    for step in (1, 100, 999):
        assert read(data, range(step, len(data), step)) == whole


def read_locals(data: bytes) -> bytes:
    """Return the bytes before the directory."""
    end = data.rfind(b"PK\x05\x06")
    return data[: struct.unpack_from("<I", data, end + 16)[0]]


def joined(first: bytes, second: bytes) -> bytes:
    """Join two zips: all members, then both directories, the second with corrected offsets."""
    one, two = read_locals(first), read_locals(second)
    listed = first[len(one) : first.rfind(b"PK\x05\x06")]
    moved = bytearray(second[len(two) : second.rfind(b"PK\x05\x06")])
    at = 0
    while at < len(moved):
        name, extra, comment = struct.unpack_from("<3H", moved, at + 28)
        (offset,) = struct.unpack_from("<I", moved, at + 42)
        struct.pack_into("<I", moved, at + 42, offset + len(one))
        at += 46 + name + extra + comment
    counts = [struct.unpack_from("<H", each, each.rfind(b"PK\x05\x06") + 10)[0] for each in (first, second)]
    body, directory = one + two, listed + bytes(moved)
    return (
        body
        + directory
        + struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, *[sum(counts)] * 2, len(directory), len(body), 0)
    )


def test_zip64(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small zip64: fields that would not fit into 32 bits are marked and stored in 64 bits."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 5)
    for piped in (False, True):
        data = zip_of(MEMBERS, piped=piped, comment=b"c" * 300)
        assert b"PK\x06\x06" in data
        assert pairs(read(data)) == MEMBERS
        assert pairs(read(data, range(1, len(data)))) == MEMBERS


@pytest.mark.timeout(20)
@pytest.mark.parametrize("step", [1, 7, 13, 1000])
@pytest.mark.parametrize("stated", [0, 1, 8, 43])
@pytest.mark.parametrize("piped", [False, True])
def test_a_zip64_end_that_states_too_small_a_size(
    stated: int, step: int, piped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    data = zip_of(MEMBERS[:4], piped=piped)
    at = data.rfind(b"PK\x06\x06")
    assert struct.unpack_from("<Q", data, at + 4) == (44,)
    data = _patched(data, b"PK\x06\x06", 4, struct.pack("<Q", stated))
    with pytest.raises(ArchiveError, match="zip64 end") as caught:
        read(data, range(step, len(data), step))
    assert caught.value.offset == at


def test_a_member_written_with_zip64_sizes() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file, file.open("a.jpg", "w", force_zip64=True) as member:
        member.write(b"x" * 1000)
    assert pairs(read(out.getvalue())) == [("a.jpg", b"x" * 1000)]


def test_names_in_code_page_437_and_utf8() -> None:
    data = zip_of([("b_.txt", b"1"), ("ü☺.txt", b"2")])
    as_pc = data.replace(b"b_.txt", b"b\x81.txt")
    assert pairs(read(as_pc)) == by_zipfile(as_pc) == [("bü.txt", b"1"), ("ü☺.txt", b"2")]


def test_folders_are_no_fields() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.mkdir("folder")
        file.writestr("folder/a.jpg", b"x")
    archive = ShardArchive(SHARD, Limits())
    assert [name for name, _, _ in drain(archive, b"", [out.getvalue()], Limits())] == ["folder/a.jpg"]
    assert archive.ignored == 1


def with_link(*, piped: bool) -> bytes:
    out: Pipe | io.BytesIO = Pipe() if piped else io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:  # type: ignore[arg-type]
        link = zipfile.ZipInfo("link.jpg")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        file.writestr(link, b"/etc/passwd")
        file.writestr("a.jpg", b"x")
    return (out.written if isinstance(out, Pipe) else out).getvalue()


def test_links_are_no_fields() -> None:
    """Only the directory identifies links. With it they are ignored; without it they are refused."""
    assert pairs(read(with_link(piped=True))) == [("a.jpg", b"x")]
    with pytest.raises(UnsupportedArchive, match=r"'link\.jpg', which was taken for a file, is a symbolic link"):
        read(with_link(piped=False))


@each_way
def test_a_comment_that_looks_like_an_end(method: int, piped: bool) -> None:
    """zipfile mistakes such a comment for the end."""
    assert pairs(read(zip_of(MEMBERS, method, piped=piped, comment=b"PK\x05\x06" + bytes(40)))) == MEMBERS


def test_an_empty_zip() -> None:
    assert read(zip_of([])) == []
    assert read(zip_of([], comment=b"c" * 1000), range(1, 1022)) == []


def test_unselected_members_are_not_decompressed() -> None:
    for method, piped in WAYS:
        data = zip_of([("a.bin", bytes(MIB)), ("a.cls", b"7")], method, piped=piped)
        found = read(data, limits=Limits(member_bytes=1000), wanted=lambda name: name.endswith("cls"))
        assert pairs(found) == [("a.bin", b""), ("a.cls", b"7")]


# --- through the stores ---------------------------------------------------------------------------------------


@each_way
def test_records_and_positions(method: int, piped: bool) -> None:
    store = MemoryStore(f"zip-{method}-{piped}")
    members = [(f"{at:03d}.{ext}", bytes([at]) * 3000) for at in range(150) for ext in ("jpg", "cls")]
    store.put("a.zip", zip_of(members, method, piped=piped))
    store.put("b.zip", zip_of([("z.jpg", b"1"), ("z.cls", b"2")], method, piped=piped))
    source = t2t.open([store.url("a.zip"), store.url("b.zip")], limits=Limits(chunk_records=7))
    whole = list(source.records())
    assert [record["__key__"] for record in whole] == [*(f"{at:03d}" for at in range(150)), "z"]
    assert whole[5]["jpg"] == bytes([5]) * 3000
    assert source.stats.records_read == source.stats.records_emitted == 151
    plan = Plan(2)
    stream = RecordStream(source.opened.session, plan, plan.begin(0, 0, 1), Account())
    done = 0
    while chunk := stream.next_chunk():
        done += len(chunk)
        again = RecordStream(source.opened.session, plan, Position.from_text(stream.position.to_text()), Account())
        following = again.next_chunk()
        assert [*following] == whole[done : done + len(following)]
        assert bool(following) is (done < 151)
        again.close()
    assert done == 151
    source.close()


def test_an_object_that_changes_while_its_directory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("zip-changes")
    store.put("a.zip", zip_of(MEMBERS, piped=True))
    opened = MemoryStore.open
    calls: list[int] = []

    def replacing(self: MemoryStore, name: str, start: int = 0, stop: int | None = None, **more: object) -> object:
        calls.append(start)
        if len(calls) == 2:
            self.put(name, zip_of([*MEMBERS, ("another.txt", b"x")], piped=True))
        return opened(self, name, start, stop, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryStore, "open", replacing)
    with t2t.open(store.url("a.zip")) as source, pytest.raises(ObjectChanged):
        list(source.records())
    assert len(calls) == 2


def test_a_directory_that_cannot_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore("zip-endless")
    store.put("a.zip", zip_of(MEMBERS, piped=True))
    monkeypatch.setattr("ais_tar2tf.fetch.Fetcher.size", None)
    with t2t.open(store.url("a.zip")) as source, pytest.raises(StoreError, match="does not say how long this zip is"):
        list(source.records())


# --- damage ---------------------------------------------------------------------------------------------------


@each_way
def test_every_byte_flipped(method: int, piped: bool) -> None:
    """A flipped byte is an error, or changes no member, as in times, versions and attributes."""
    data = zip_of(MEMBERS[:8], method, piped=piped)
    whole = read(data)
    harmless = 0
    for at in range(len(data)):
        for flip in (0x01, 0xFF):
            damaged = bytearray(data)
            damaged[at] ^= flip
            try:
                found = read(bytes(damaged))
            except ArchiveError:
                continue
            assert found == whole
            harmless += 1
    assert harmless < len(data)


@each_way
def test_a_directory_that_disagrees_with_the_members(method: int, piped: bool) -> None:
    data = zip_of(MEMBERS[:4], method, piped=piped)
    body = read_locals(data)
    directory = data[len(body) : data.rfind(b"PK\x05\x06")]
    entries = [b"PK\x01\x02" + entry for entry in directory.split(b"PK\x01\x02")[1:]]
    for listed in (entries[:-1], entries[1:], [*entries, entries[0]], [*entries[:-1], entries[0]]):
        with pytest.raises(ArchiveError):
            read(rebuilt(body, listed))
    assert pairs(read(rebuilt(body, entries[::-1]))) == MEMBERS[:4]  # the order of the directory does not matter


def rebuilt(body: bytes, entries: Sequence[bytes], other: dict[str, int] | None = None) -> bytes:
    directory = b"".join(entries)
    numbers = {"entries": len(entries), "size": len(directory), "offset": len(body), **(other or {})}
    end = struct.pack(
        "<4s4H2IH", b"PK\x05\x06", 0, 0, numbers["entries"], numbers["entries"], numbers["size"], numbers["offset"], 0
    )
    return body + directory + end


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize(
    "wrong", [{"entries": 3}, {"size": 1}, {"size": 0}, {"offset": 3}, {"offset": 0, "size": 10**6}]
)
def test_an_invalid_end_record(wrong: dict[str, int], piped: bool) -> None:
    data = zip_of(MEMBERS[:4], piped=piped)
    body = read_locals(data)
    directory = data[len(body) : data.rfind(b"PK\x05\x06")]
    entries = [b"PK\x01\x02" + entry for entry in directory.split(b"PK\x01\x02")[1:]]
    with pytest.raises(ArchiveError):
        read(rebuilt(body, entries, wrong))


@pytest.mark.parametrize("piped", [False, True])
def test_bytes_after_the_end(piped: bool) -> None:
    with pytest.raises(ArchiveError):
        read(zip_of(MEMBERS, piped=piped) + b"x")


def test_members_that_overlap() -> None:
    """Many members share one body, which could make 10 petabytes of 46 MB."""
    data = zip_of([("a.bin", bytes(100_000))], piped=True)
    body = read_locals(data)
    entry = data[len(body) : data.rfind(b"PK\x05\x06")]
    with pytest.raises(ArchiveError, match="lies over the one before it"):
        read(rebuilt(body, [entry] * 1000))


def _patched(data: bytes, sign: bytes, at: int, value: bytes) -> bytes:
    found = data.find(sign)
    return data[: found + at] + value + data[found + at + len(value) :]


@pytest.mark.parametrize(
    ("flags", "method", "says"),
    [
        (b"\x01\0", b"\x08\0", "'a.txt' is encrypted"),
        (b"\x41\0", b"\x08\0", "'a.txt' is encrypted"),
        (b"\x20\0", b"\x08\0", "'a.txt' is a patch"),
        (b"\0\0", b"\x09\0", "'a.txt' is deflate64; in a zip, stored and deflated"),
        (b"\0\0", b"\x0c\0", "'a.txt' is bzip2"),
        (b"\0\0", b"\x0e\0", "'a.txt' is lzma"),
        (b"\0\0", b"\x5d\0", "'a.txt' is zstd"),
        (b"\0\0", b"\x63\0", "'a.txt' is compressed by method 99"),
    ],
)
def test_unsupported_features_are_named(flags: bytes, method: bytes, says: str) -> None:
    data = _patched(zip_of([("a.txt", b"x" * 100)]), b"PK\x03\x04", 6, flags + method)
    with pytest.raises(UnsupportedArchive, match=says):
        read(data)


def test_a_data_descriptor_that_no_header_announces_is_refused() -> None:
    data = zip_of([("a.txt", b"x" * 100)])
    body = read_locals(data)
    with pytest.raises(UnsupportedArchive, match="a data descriptor that no local header announces"):
        read(body + b"PK\x07\x08" + bytes(12) + data[len(body) :])


@pytest.mark.parametrize("name", [b"", b"a\0b.t"])
def test_invalid_names_are_refused(name: bytes) -> None:
    data = zip_of([("a_b.t", b"x")])
    data = data.replace(b"a_b.t", name) if name else _patched(data, b"PK\x03\x04", 26, b"\0\0")
    with pytest.raises(ArchiveError, match="name is empty or has a NUL"):
        read(data)


@pytest.mark.parametrize("name", ["../../etc/passwd.jpg", "/etc/passwd.jpg", "C:\\windows.jpg", "..", "a/../b.txt"])
def test_path_tricks_are_only_names(name: str) -> None:
    assert pairs(read(zip_of([(name, b"x")]))) == by_zipfile(zip_of([(name, b"x")]))


# --- limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piped", [False, True])
@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (Limits(member_bytes=99), "member_bytes"),
        (Limits(name_bytes=9), "name_bytes"),
        (Limits(header_bytes=40), "header_bytes"),
        (Limits(members=2), "members"),
        (Limits(ratio=1), "ratio"),
    ],
)
def test_limits(limits: Limits, field: str, piped: bool) -> None:
    data = zip_of([("1.a", b"x"), ("a-long-name.txt", bytes(3 * MIB)), ("2.a", b"y")], piped=piped)
    with pytest.raises(LimitExceeded, match=rf"Limits\.{field}\b") as caught:
        read(data, limits=limits)
    assert caught.value.shard == SHARD


def test_a_directory_that_is_too_large() -> None:
    with pytest.raises(LimitExceeded, match=r"Limits\.directory_bytes is 100"):
        read(zip_of(MEMBERS, piped=True), limits=Limits(directory_bytes=100))


@pytest.mark.parametrize("claim", [12 * 10**9, 2**63])
@pytest.mark.parametrize("method", [0, 8])
def test_a_stated_size_needs_no_memory(claim: int, method: int) -> None:
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", 45, 0, method, 0, 0, 0, 2**32 - 1, 2**32 - 1, 5, 20)
    data = local + b"a.bin" + struct.pack("<2H2Q", 1, 16, claim, claim) + b"x" * 1000
    tracemalloc.start()
    try:
        for limits in (Limits(), Limits(member_bytes=2**70)):
            with pytest.raises(ArchiveError):
                read(data, limits=limits)
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def _local(method: int, packed: int, size: int, *, wide: bool = False) -> bytes:
    """Return a local header of a member `a.bin`, with its sizes in 32 bits or in a zip64 field."""
    extra = struct.pack("<2H2Q", 1, 16, size, packed) if wide else b""
    sizes = (2**32 - 1, 2**32 - 1) if wide else (packed, size)
    return struct.pack("<4s5H3I2H", b"PK\x03\x04", 45, 0, method, 0, 0, 0, *sizes, 5, len(extra)) + b"a.bin" + extra


@pytest.mark.parametrize("wide", [False, True])
def test_a_stored_member_with_too_small_a_size_is_refused(wide: bool) -> None:
    """The header states 10 bytes, and 400 MB follow, which are not read."""
    archive = ShardArchive(SHARD, Limits())
    with pytest.raises(
        ArchiveError, match=r"'a\.bin' is damaged: it is stored in 400,000,000 bytes, and should have 10"
    ):
        list(archive.feed(_local(zipfile.ZIP_STORED, 400_000_000, 10, wide=wide)))


def test_a_stored_member_with_too_large_a_size_is_refused() -> None:
    archive = ShardArchive(SHARD, Limits())
    with pytest.raises(ArchiveError, match="it is stored in 10 bytes, and should have 400,000,000"):
        list(archive.feed(_local(zipfile.ZIP_STORED, 10, 400_000_000)))


def test_a_deflated_member_above_the_limit_is_refused_at_its_header() -> None:
    """The compressed member repeats an empty block of five bytes."""
    archive = ShardArchive(SHARD, Limits(member_bytes=MIB))
    with pytest.raises(LimitExceeded, match=r"400,000,000 deflated bytes for 10; Limits\.member_bytes is 1,048,576"):
        list(archive.feed(_local(zipfile.ZIP_DEFLATED, 400_000_000, 10)))


def test_sizes_after_a_stored_member_that_disagree() -> None:
    """The member's header states no size; the directory states 10 bytes, but more are stored."""
    data = zip_of([("a.bin", bytes(3 * MIB)), ("b.bin", b"x")], zipfile.ZIP_STORED, piped=True)
    at = data.rfind(b"PK\x01\x02", 0, data.rfind(b"PK\x01\x02"))
    lying = data[: at + 24] + struct.pack("<I", 10) + data[at + 28 :]
    with pytest.raises(ArchiveError, match="it is stored in 3,145,728 bytes, and should have 10"):
        read(lying)


def test_sizes_of_unselected_members_that_disagree() -> None:
    """Unselected members are skipped, until the directory shows that the sizes are wrong."""
    archive = ShardArchive(SHARD, Limits(), wanted=lambda _: False)
    tracemalloc.start()
    try:
        list(archive.feed(_local(zipfile.ZIP_STORED, 400_000_000, 10)))
        block = bytes(MIB)
        for _ in range(64):
            list(archive.feed(block))
        assert tracemalloc.get_traced_memory()[1] < 4 * MIB
    finally:
        tracemalloc.stop()


def test_a_decompression_bomb_needs_little_memory() -> None:
    compressor = zlib.compressobj(9, wbits=-15)
    packed = b"".join([*(compressor.compress(bytes(MIB)) for _ in range(64)), compressor.flush()])
    crc = zlib.crc32(bytes(64 * MIB))

    def bomb(size: int) -> bytes:
        return (
            struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, len(packed), size, 5, 0) + b"a.bin" + packed
        )

    tracemalloc.start()
    try:
        for size, limits, says in (
            (10, Limits(), "longer than the archive says"),
            (64 * MIB, Limits(member_bytes=MIB), r"Limits\.member_bytes"),
            (64 * MIB, Limits(ratio=100), r"Limits\.ratio is 100"),
        ):
            with pytest.raises(ArchiveError, match=says):
                list(drain(ShardArchive(SHARD, limits), b"", pieces(bomb(size), 16 * KIB), limits, shard=SHARD))
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()


def test_random_mutations_against_zipfile() -> None:
    """There is no untyped error, and zipfile reads all archives that we read without an error."""
    chance = random.Random(20_241)
    seeds = [zip_of(MEMBERS[:6], method, piped=piped, comment=b"c") for method, piped in WAYS]
    agreed = 0
    for _ in range(4000):
        raw = bytearray(chance.choice(seeds))
        for _ in range(chance.choice([1, 1, 2, 4])):
            at = chance.randrange(len(raw))
            if chance.randrange(2):
                raw[at] ^= 1 << chance.randrange(8)
            else:
                raw[at : at + chance.randrange(6)] = chance.randbytes(chance.randrange(6))
        data = bytes(raw)
        try:
            found = read(data, [chance.randrange(len(data) + 1) for _ in range(3)])
        except ArchiveError:
            continue
        try:
            expected = by_zipfile(data)
        except NotImplementedError:  # zipfile refuses an unknown version; we use the method
            continue
        assert pairs(found) == expected
        agreed += 1
    assert agreed > 100


def test_finish_may_be_called_twice() -> None:
    reader = ZipReader(SHARD, Limits())
    with pytest.raises(TruncatedArchive, match="before its directory"):
        reader.finish()
    list(reader.feed(zip_of([("a.txt", b"x")])))
    reader.finish()
    reader.finish()
