"""Read compressed shards of every format, recognise formats, and resume in the middle of a shard."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import time
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import lz4.frame
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.archive.compressions import BZIP2, GZIP, LZ4, XZ, ZSTD, Compression
from ais_tar2tf.archive.decompression import FrameDecoder
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import KIB, MIB, Limits
from tests.support.archives import pieces

SHARD = "memory://b/s"
TEXT = b"".join(b"%d bottles\n" % number for number in range(5000))


class Way(NamedTuple):
    """A format, and how foreign libraries write it."""

    kind: Compression
    compress: Callable[[bytes], bytes]


def _lz4(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True, block_checksum=True)


def _zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


WAYS = {
    "gzip": Way(GZIP, lambda data: gzip.compress(data, 6)),
    "zstd": Way(ZSTD, _zstd),
    "lz4": Way(LZ4, _lz4),
    "bzip2": Way(BZIP2, bz2.compress),
    "xz": Way(XZ, lzma.compress),
}
each_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
SKIPPABLE = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"extra"  # a skippable frame of zstd or lz4


def unzip(blocks: Sequence[bytes], limits: Limits | None = None, kind: Compression = GZIP) -> bytes:
    decoder = FrameDecoder(SHARD, limits or Limits(), kind)
    found = b"".join(out for block in blocks for out in decoder.feed(block))
    decoder.finish()
    return found


def tar_of(members: dict[str, bytes], fmt: int = tarfile.USTAR_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=fmt) as tar:
        for name, body in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(body), 1.5 if fmt == tarfile.PAX_FORMAT else 1
            tar.addfile(info, io.BytesIO(body))
    return made.getvalue()


MEMBERS = {f"{at:03d}.{ext}": bytes([at]) * (400 * at) for at in range(1, 30) for ext in ("jpg", "cls")}
TAR = tar_of(MEMBERS)


def read(blocks: Sequence[bytes], limits: Limits | None = None, **options: object) -> list[tuple[str, bytes, int]]:
    archive = ShardArchive(SHARD, limits or Limits(), **options)  # type: ignore[arg-type]
    found = [
        (name, bytes(members.data[start : start + size]), offset)
        for block in blocks
        for members in archive.feed(block)
        for name, offset, start, size in zip(
            members.names, members.offsets, members.starts, members.sizes, strict=True
        )
    ]
    archive.finish()
    return found


def named(found: Sequence[tuple[str, bytes, int]]) -> dict[str, bytes]:
    return {name: body for name, body, _ in found}


# --- formats --------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    bodies=st.lists(st.sampled_from([b"", b"x", TEXT, TEXT[:700], bytes(3000)]), min_size=1, max_size=4),
    zeros=st.integers(0, 700),
    step=st.sampled_from([1, 2, 3, 7, 511, 4096, 10**6]),
    name=st.sampled_from(["", "inside.tar"]),
)
def test_members_padding_and_cuts(bodies: list[bytes], zeros: int, step: int, name: str) -> None:
    """Any number of members, cut anywhere, is read, with zeros after and between them."""
    made = io.BytesIO()
    for body in bodies:
        with gzip.GzipFile(name, "wb", fileobj=made) as file:
            file.write(body)
        made.write(bytes(zeros))
    assert unzip(pieces(made.getvalue(), step)) == b"".join(bodies)


@each_way
@settings(max_examples=40, deadline=None)
@given(
    bodies=st.lists(st.sampled_from([b"", b"x", TEXT, TEXT[:700], bytes(3000)]), min_size=1, max_size=4),
    gaps=st.lists(st.integers(0, 3), min_size=4, max_size=4),
    step=st.sampled_from([1, 2, 3, 7, 511, 4096, 10**6]),
)
def test_several_frames(way: Way, bodies: list[bytes], gaps: list[int], step: int) -> None:
    """Several consecutive frames are read, with everything that the format allows between them, cut anywhere."""
    between = SKIPPABLE if way.kind.skippable else bytes(way.kind.padding)
    data = b"".join(way.compress(body) + between * gap for body, gap in zip(bodies, gaps, strict=False))
    assert unzip(pieces(data, step), kind=way.kind) == b"".join(bodies)


@each_way
@pytest.mark.parametrize("size", [512 * KIB - 1, 512 * KIB, MIB + 1, 3 * MIB + 77])
@pytest.mark.parametrize("step", [1000, 10**9])
def test_all_output_is_given_at_the_end(way: Way, size: int, step: int) -> None:
    """Output comes in pieces, and all pieces of the last input are given."""
    limits = Limits(ratio=10**6)
    assert unzip(pieces(way.compress(bytes(size)), step), limits, way.kind) == bytes(size)


@each_way
@pytest.mark.parametrize("garbage", [b"g", b"garbage", b"\0\0\0x", TEXT, b"\x1f\x8bgarbage" * 3])
@pytest.mark.parametrize("step", [1, 5, 10**6])
def test_garbage_after_the_last_frame(way: Way, garbage: bytes, step: int) -> None:
    with pytest.raises(ArchiveError) as caught:
        unzip(pieces(way.compress(TEXT) + garbage, step), kind=way.kind)
    assert caught.value.shard == SHARD
    assert caught.value.offset == len(TEXT)


@each_way
@pytest.mark.parametrize("step", [1, 10**6])
def test_the_start_of_another_frame_after_the_last(way: Way, step: int) -> None:
    for length in range(1, 9):
        behind = way.compress(TEXT)[:length]
        with pytest.raises(ArchiveError) as caught:
            unzip(pieces(way.compress(TEXT) + behind, step), kind=way.kind)
        assert isinstance(caught.value, TruncatedArchive)


def test_zeros_after_xz_come_in_multiples_of_four() -> None:
    for zeros in range(9):
        data = lzma.compress(TEXT) + bytes(zeros)
        if zeros % 4:
            with pytest.raises(ArchiveError, match="they come in 4s"):
                unzip([data], kind=XZ)
        else:
            assert unzip([data], kind=XZ) == TEXT


@each_way
def test_damage_in_the_middle(way: Way) -> None:
    """Damage is an error or changes no byte, because all checksums are verified."""
    data = way.compress(TEXT)
    chance = random.Random(3)
    harmless = 0
    for _ in range(500):
        damaged = bytearray(data)
        damaged[chance.randrange(10, len(data))] ^= chance.randrange(1, 256)
        try:
            found = unzip(pieces(bytes(damaged), 999), kind=way.kind)
        except ArchiveError:
            continue
        assert found == TEXT
        harmless += 1
    assert harmless < 25


@each_way
def test_every_cut_is_detected(way: Way) -> None:
    data = way.compress(TEXT)
    for cut in range(len(data)):
        with pytest.raises(TruncatedArchive) as caught:
            unzip([data[:cut]], kind=way.kind)
        assert caught.value.offset <= len(TEXT)


@pytest.mark.parametrize("at", range(-8, 0))
def test_gzips_trailer_is_verified(at: int) -> None:
    """The last eight bytes, checksum and length, are verified."""
    data = bytearray(gzip.compress(TEXT))
    data[at] ^= 1
    for step in (1, 10**6):
        with pytest.raises(ArchiveError, match="damaged"):
            unzip(pieces(bytes(data), step))


def test_damage_in_gzips_header_changes_no_byte() -> None:
    """Time and operating system in the header may change. Every other change is an error."""
    data = gzip.compress(TEXT)
    for at in range(2, 10):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            try:
                found = unzip([bytes(damaged)])
            except ArchiveError:
                continue
            assert found == TEXT


@each_way
def test_thousands_of_empty_frames(way: Way) -> None:
    """The bytes after a frame are not copied for every frame."""
    data = way.compress(b"") * (MIB // 8 // len(way.compress(b"")))
    began = time.process_time()
    assert unzip([data], kind=way.kind) == b""
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (lzma.compress(TEXT, preset=9), XZ),
        (zstd.compress(TEXT * 200, options={zstd.CompressionParameter.window_log: 24}), ZSTD),
    ],
    ids=["xz", "zstd"],
)
def test_a_window_that_is_too_large(data: bytes, kind: Compression) -> None:
    """The size of a frame's window is limited, like any other stated size."""
    assert unzip([data], Limits(ratio=10**6), kind).startswith(TEXT)
    with pytest.raises(LimitExceeded, match=r"Limits\.window_bytes, which is 1,048,576"):
        unzip([data], Limits(window_bytes=MIB, ratio=10**6), kind)


def test_a_decompression_bomb_needs_little_memory() -> None:
    """Zeros at deflate's ratio of 1,030 to 1 are below the limit, and are never held in memory together."""
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(compressor.compress(bytes(MIB)) for _ in range(64)), compressor.flush()])
    assert len(bomb) < 70_000
    tracemalloc.start()
    try:
        decoder = FrameDecoder(SHARD, Limits(), GZIP)
        assert sum(len(out) for out in decoder.feed(bomb)) == 64 * MIB
        decoder.finish()
        decoder = FrameDecoder(SHARD, Limits(ratio=100), GZIP)
        with pytest.raises(LimitExceeded, match=r"Limits\.ratio is 100") as caught:
            for _ in decoder.feed(bomb):
                pass
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()
    assert caught.value.offset < 10 * MIB


def test_a_bomb_as_a_member() -> None:
    head = tarfile.TarInfo("zeros.bin")
    head.size = 64 * MIB
    compressor = zlib.compressobj(9, wbits=31)
    parts = [compressor.compress(head.tobuf(tarfile.USTAR_FORMAT))]
    parts += [compressor.compress(bytes(MIB)) for _ in range(64)]
    bomb = b"".join([*parts, compressor.compress(bytes(1024)), compressor.flush()])
    tracemalloc.start()
    try:
        with pytest.raises(LimitExceeded, match=r"Limits\.member_bytes"):
            read([bomb], Limits(member_bytes=MIB))
        assert named(read([bomb], wanted=lambda _: False)) == {"zeros.bin": b""}
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


# --- recognition ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 100, 511, 512, 513, 10**7])
def test_the_bytes_decide_the_format(step: int) -> None:
    """The bytes alone decide the format. The name is not used."""
    for data, compressed in ((TAR, False), *((way.compress(TAR), True) for way in WAYS.values())):
        archive = ShardArchive(SHARD, Limits())
        assert archive.compressed is None
        count = sum(len(members.names) for block in pieces(data, step) for members in archive.feed(block))
        archive.finish()
        assert count == len(MEMBERS)
        assert archive.compressed is compressed


HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>" + b"<p>Please sign in.</p>" * 40
OTHERS = {
    "a 7z file": b"7z\xbc\xaf\x27\x1c\0\x04" + b"x" * 600,
    "a rar file": b"Rar!\x1a\x07\x01\0" + b"x" * 600,
    "an lz4 file of the legacy format": b"\x02\x21\x4c\x18" + b"x" * 600,
    "one volume of several of a zip": b"PK\x07\x08PK\x03\x04" + b"x" * 600,
    "a file of the old `compress`": b"\x1f\x9d\x90" + b"x" * 600,
    "an ar file": b"!<arch>\ndebian-binary" + b" " * 600,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("step", [1, 10**7])
@pytest.mark.parametrize("length", [40, 10**7])
def test_other_formats_are_named(name: str, step: int, length: int) -> None:
    data = OTHERS[name][:length]
    with pytest.raises(UnsupportedArchive, match=rf"this is {name}; tar, zip and TFRecord are read") as caught:
        read(pieces(data, step))
    assert caught.value.shard == SHARD
    assert caught.value.offset == 0


def test_an_array_record_file_is_answered_with_its_reader(tmp_path: Path) -> None:
    writer = pytest.importorskip("array_record.python.array_record_module").ArrayRecordWriter(f"{tmp_path}/a", "")
    writer.write(b"x" * 600)
    writer.close()
    with pytest.raises(
        UnsupportedArchive, match=r"this is an ArrayRecord \(Riegeli\) file; t2t\.load\(folder\) reads"
    ):
        list(t2t.iter_records(f"{tmp_path}/a"))


@each_way
def test_compressed_twice(way: Way) -> None:
    with pytest.raises(UnsupportedArchive, match=rf"this is a {way.kind.name} file within another"):
        read([gzip.compress(way.compress(TAR))])


def test_a_tar_whose_first_name_begins_like_a_compressed_file() -> None:
    for name in ("BZh9.txt", "BZh91AY.cls", "PK.jpg"):
        assert named(read([tar_of({name: b"x"})])) == {name: b"x"}


@pytest.mark.parametrize("data", [random.Random(1).randbytes(5000), HTML, b"\0" + b"x" * 2000, b'{"error": 1}' * 99])
@pytest.mark.parametrize("step", [1, 10**7])
def test_bytes_that_are_no_archive(data: bytes, step: int) -> None:
    with pytest.raises(UnsupportedArchive, match="this is not an archive: it begins with b"):
        read(pieces(data, step))


@pytest.mark.parametrize("data", [b"", b"\0", b"x" * 100, bytes(100), bytes(511), HTML[:300], TAR[:511]])
@pytest.mark.parametrize("step", [1, 10**7])
def test_bytes_that_are_too_short(data: bytes, step: int) -> None:
    with pytest.raises(TruncatedArchive, match=f"the shard has {len(data)} bytes: too short") as caught:
        read(pieces(data, step))
    assert caught.value.shard == SHARD


@pytest.mark.parametrize(
    "data", [b"\x1f", b"\x1f\x8b", gzip.compress(TAR, mtime=0)[:30], gzip.compress(b"", mtime=0)[:-1]]
)
def test_a_short_piece_of_gzip(data: bytes) -> None:
    with pytest.raises(TruncatedArchive):
        read([data])


def test_pzstd_begins_with_an_empty_frame() -> None:
    assert named(read([SKIPPABLE + _zstd(TAR)])) == MEMBERS


def test_gzip_of_something_else() -> None:
    for inside in (HTML, random.Random(2).randbytes(9000)):
        with pytest.raises(ArchiveError):
            read([gzip.compress(inside)])
    for inside in (b"", b"x" * 100, bytes(100)):
        with pytest.raises(TruncatedArchive):
            read([gzip.compress(inside)])


def test_joined_archives_are_refused() -> None:
    """Two shards joined by `cat` are an error, because everything after the first end mark would be lost."""
    other = tar_of({"z.cls": b"1"})
    for data in (TAR + other, gzip.compress(TAR) + gzip.compress(other)):
        with pytest.raises(ArchiveError, match="several were concatenated") as caught:
            read([data])
        assert caught.value.offset >= len(TAR) - tarfile.RECORDSIZE
    with pytest.raises(ArchiveError, match="something behind the gzip stream"):
        read([gzip.compress(TAR) + other], allow_concatenated=True)


@pytest.mark.parametrize("step", [1, 511, 513, 10_000, 10**7])
def test_joined_archives_are_read_if_allowed(step: int) -> None:
    """If joined archives are allowed, all are read. The last one must have an end mark."""
    second = tar_of({"y.cls": b"2", "n" * 200 + ".jpg": b"long"}, tarfile.PAX_FORMAT)
    third = tar_of({"z.cls": b"1"}, tarfile.GNU_FORMAT)
    joined = TAR + second + bytes(3 * 512) + third
    whole = read([joined], allow_concatenated=True)
    with tarfile.open(fileobj=io.BytesIO(joined), ignore_zeros=True) as tar:
        assert list(named(whole)) == tar.getnames()
    assert named(whole) == {**MEMBERS, "y.cls": b"2", "n" * 200 + ".jpg": b"long", "z.cls": b"1"}
    for data in (joined, *(way.compress(TAR) + way.compress(joined[len(TAR) :]) for way in WAYS.values())):
        assert read(pieces(data, step), allow_concatenated=True) == whole
    for at, (_, _, offset) in enumerate(whole[-4:], len(whole) - 4):
        assert read([joined[offset:]], start=offset, compressed=False, allow_concatenated=True) == whole[at:]
    with pytest.raises(TruncatedArchive):
        read([joined[: whole[-1][2] + 1024]], allow_concatenated=True)


def test_after_an_archive_comes_another_one_or_an_error() -> None:
    for garbage in (b"x" * 512, bytes(512) + TAR[:700], bytes(100) + TAR):
        with pytest.raises(ArchiveError):
            read([TAR + garbage], allow_concatenated=True)


def test_one_tar_in_several_gzip_members() -> None:
    """Read a tar in several gzip members, as pigz and bgzip write it, cut anywhere."""
    data = b"".join(gzip.compress(piece, 1) for piece in pieces(TAR, 7777))
    assert named(read([data])) == MEMBERS
    assert named(read(pieces(data, 1000))) == MEMBERS


# --- resuming in the middle -----------------------------------------------------------------------------------


@each_way
@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_compressed_shards_are_resumed_at_an_offset(way: Way, fmt: int) -> None:
    """The offset refers to the decompressed archive, and the shard is fed from its start."""
    plain = tar_of({**dict(list(MEMBERS.items())[:12]), "n" * 300 + ".jpg": b"long", "z.cls": b"1"}, fmt)
    data = way.compress(plain)
    whole = read([data])
    assert read([plain]) == whole
    for at, (_, _, offset) in enumerate(whole):
        assert read([data], start=offset, compressed=True) == whole[at:]
        assert read(pieces(data, 999), start=offset, compressed=True) == whole[at:]
        assert read([plain[offset:]], start=offset, compressed=False) == whole[at:]


def test_a_compressed_shard_that_became_shorter() -> None:
    with pytest.raises(TruncatedArchive, match="shorter than it was") as caught:
        read([gzip.compress(TAR)], start=len(TAR) + 512, compressed=True)
    assert caught.value.offset == len(TAR)


def test_a_shard_that_is_no_longer_compressed() -> None:
    with pytest.raises(ArchiveError):
        read([TAR], start=1024, compressed=True)


def test_an_offset_that_is_no_header() -> None:
    with pytest.raises(ArchiveError):
        read([TAR[700:]], start=700, compressed=False)
