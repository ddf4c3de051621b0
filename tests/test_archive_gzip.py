"""Compressed shards, what a shard is recognised as, and going on in the middle of one."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.archive._gzip import GzipDecoder
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import MIB, Limits

SHARD = "memory://b/s"
TEXT = b"".join(b"%d bottles\n" % number for number in range(5000))


def pieces(data: bytes, step: int) -> list[bytes]:
    return [data[at : at + step] for at in range(0, len(data), step)]


def unzip(blocks: Sequence[bytes], limits: Limits | None = None) -> bytes:
    decoder = GzipDecoder(SHARD, limits or Limits())
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


# --- gzip by itself -------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    bodies=st.lists(st.sampled_from([b"", b"x", TEXT, TEXT[:700], bytes(3000)]), min_size=1, max_size=4),
    zeros=st.integers(0, 700),
    step=st.sampled_from([1, 2, 3, 7, 511, 4096, 10**6]),
    name=st.sampled_from(["", "inside.tar"]),
)
def test_members_padding_and_cuts(bodies: list[bytes], zeros: int, step: int, name: str) -> None:
    """However many members, however cut, padded with zeros behind and between them."""
    made = io.BytesIO()
    for body in bodies:
        with gzip.GzipFile(name, "wb", fileobj=made) as file:
            file.write(body)
        made.write(bytes(zeros))
    assert unzip(pieces(made.getvalue(), step)) == b"".join(bodies)


@pytest.mark.parametrize("size", [MIB - 1, MIB, MIB + 1, 3 * MIB, 3 * MIB + 77])
@pytest.mark.parametrize("step", [1000, 10**9])
def test_nothing_is_left_inside_at_the_end(size: int, step: int) -> None:
    """Output is given out in pieces of 1 MiB: what the last input yields beyond that comes too."""
    assert unzip(pieces(gzip.compress(bytes(size)), step)) == bytes(size)


@pytest.mark.parametrize("garbage", [b"g", b"\x1f", b"\x1fx", b"garbage", b"\0\0\0x", TEXT])
@pytest.mark.parametrize("step", [1, 5, 10**6])
def test_garbage_behind(garbage: bytes, step: int) -> None:
    with pytest.raises(ArchiveError) as caught:
        unzip(pieces(gzip.compress(TEXT) + garbage, step))
    assert caught.value.shard == SHARD
    assert caught.value.offset == len(TEXT)


@pytest.mark.parametrize("at", range(-8, 0))
def test_trailer_is_verified(at: int) -> None:
    """The last eight bytes are the checksum and the length."""
    data = bytearray(gzip.compress(TEXT))
    data[at] ^= 1
    for step in (1, 10**6):
        with pytest.raises(ArchiveError, match="damaged"):
            unzip(pieces(bytes(data), step))


def test_damage_in_the_middle() -> None:
    data = gzip.compress(TEXT)
    chance = random.Random(3)
    for _ in range(500):
        damaged = bytearray(data)
        at = chance.randrange(10, len(data))
        damaged[at] ^= chance.randrange(1, 256)
        with pytest.raises(ArchiveError):
            unzip([bytes(damaged)])


def test_damage_in_the_header_changes_no_byte() -> None:
    """Its time and system are remarks; whatever else is changed there is an error."""
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


def test_every_cut_is_seen() -> None:
    data = gzip.compress(TEXT)
    for cut in range(1, len(data)):
        with pytest.raises(TruncatedArchive) as caught:
            unzip([data[:cut]])
        assert caught.value.offset <= len(TEXT)


def test_a_bomb_costs_little() -> None:
    """Zeros, at deflate's 1,030 to 1: below the ratio they are members like others, but never held whole."""
    compressor = zlib.compressobj(9, wbits=31)
    bomb = b"".join([*(compressor.compress(bytes(MIB)) for _ in range(64)), compressor.flush()])
    assert len(bomb) < 70_000
    tracemalloc.start()
    try:
        decoder = GzipDecoder(SHARD, Limits())
        assert sum(len(out) for out in decoder.feed(bomb)) == 64 * MIB
        decoder.finish()
        decoder = GzipDecoder(SHARD, Limits(ratio=100))
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


# --- what a shard is ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 100, 511, 512, 513, 10**7])
def test_what_a_shard_is_its_bytes_say(step: int) -> None:
    """The name plays no part: it is not even asked for."""
    for data, compressed in ((TAR, False), (gzip.compress(TAR, 1), True)):
        archive = ShardArchive(SHARD, Limits())
        assert archive.compressed is None
        count = sum(len(members.names) for block in pieces(data, step) for members in archive.feed(block))
        archive.finish()
        assert count == len(MEMBERS)
        assert archive.compressed is compressed


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        file.writestr("a.txt", TEXT)
    return made.getvalue()


HTML = b"<!DOCTYPE html><html><head><title>Sign in</title></head><body>" + b"<p>Please sign in.</p>" * 40
OTHERS = {
    "zstd": b"\x28\xb5\x2f\xfd\x04\x00" + bytes(600),
    "lz4": b"\x04\x22\x4d\x18\x64\x40" + b"x" * 600,
    "bzip2": bz2.compress(TAR),
    "xz": lzma.compress(TAR),
    "zip": _zip(),
    "7z": b"7z\xbc\xaf\x27\x1c\0\x04" + b"x" * 600,
    "rar": b"Rar!\x1a\x07\x01\0" + b"x" * 600,
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("step", [1, 10**7])
@pytest.mark.parametrize("length", [40, 10**7])
def test_other_formats_are_named(name: str, step: int, length: int) -> None:
    data = OTHERS[name][:length]
    with pytest.raises(UnsupportedArchive, match=rf"a {name} file; tar and tar\.gz are read") as caught:
        read(pieces(data, step))
    assert caught.value.shard == SHARD
    assert caught.value.offset == 0


@pytest.mark.parametrize("data", [random.Random(1).randbytes(5000), HTML, b"\0" + b"x" * 2000, b'{"error": 1}' * 99])
@pytest.mark.parametrize("step", [1, 10**7])
def test_what_is_no_archive(data: bytes, step: int) -> None:
    with pytest.raises(UnsupportedArchive, match="this is not an archive: it begins with b"):
        read(pieces(data, step))


@pytest.mark.parametrize("data", [b"", b"\0", b"x" * 100, bytes(100), bytes(511), HTML[:300], TAR[:511]])
@pytest.mark.parametrize("step", [1, 10**7])
def test_what_is_too_short(data: bytes, step: int) -> None:
    with pytest.raises(TruncatedArchive, match=f"the shard has {len(data)} bytes: too short") as caught:
        read(pieces(data, step))
    assert caught.value.shard == SHARD


@pytest.mark.parametrize("data", [b"\x1f", b"\x1f\x8b", gzip.compress(TAR)[:30], gzip.compress(b"")[:-1]])
def test_a_short_piece_of_gzip(data: bytes) -> None:
    with pytest.raises(TruncatedArchive):
        read([data])


def test_gzip_of_something_else() -> None:
    for inside in (HTML, random.Random(2).randbytes(9000)):
        with pytest.raises(ArchiveError):
            read([gzip.compress(inside)])
    for inside in (b"", b"x" * 100, bytes(100)):
        with pytest.raises(TruncatedArchive):
            read([gzip.compress(inside)])


def test_archives_one_behind_the_other() -> None:
    """Two shards that somebody joined with `cat`: what stands behind the first end mark would be lost."""
    other = tar_of({"z.cls": b"1"})
    for data in (TAR + other, gzip.compress(TAR) + gzip.compress(other)):
        with pytest.raises(ArchiveError, match="several were concatenated") as caught:
            read([data])
        assert caught.value.offset >= len(TAR) - tarfile.RECORDSIZE
    with pytest.raises(ArchiveError, match="something behind the gzip stream"):
        read([gzip.compress(TAR) + other])


def test_one_tar_in_several_gzip_members() -> None:
    """As pigz and bgzip write it, cut anywhere."""
    data = b"".join(gzip.compress(piece, 1) for piece in pieces(TAR, 7777))
    assert named(read([data])) == MEMBERS
    assert named(read(pieces(data, 1000))) == MEMBERS


# --- going on in the middle -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_compressed_shards_go_on_at_an_offset(fmt: int) -> None:
    """The offset counts in the decompressed archive; the shard is fed from its beginning."""
    plain = tar_of({**dict(list(MEMBERS.items())[:12]), "n" * 300 + ".jpg": b"long", "z.cls": b"1"}, fmt)
    data = gzip.compress(plain)
    whole = read([data])
    assert read([plain]) == whole
    for at, (_, _, offset) in enumerate(whole):
        assert read([data], start=offset, compressed=True) == whole[at:]
        assert read(pieces(data, 999), start=offset, compressed=True) == whole[at:]
        assert read([plain[offset:]], start=offset, compressed=False) == whole[at:]


def test_a_compressed_shard_that_is_shorter_than_it_was() -> None:
    with pytest.raises(TruncatedArchive, match="shorter than it was"):
        read([gzip.compress(TAR)], start=len(TAR) + 512, compressed=True)


def test_a_shard_that_is_not_compressed_any_more() -> None:
    with pytest.raises(ArchiveError):
        read([TAR], start=1024, compressed=True)


def test_an_offset_that_is_no_header() -> None:
    with pytest.raises(ArchiveError):
        read([TAR[700:]], start=700, compressed=False)
