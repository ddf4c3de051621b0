"""Read hostile archives through `t2t.open`: typed errors or harmless names, in bounded memory."""

from __future__ import annotations

import functools
import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Iterator

import google_crc32c
import pytest
from isal import isal_zlib

import ais_tar2tf as t2t
from ais_tar2tf.errors import (
    ArchiveError,
    LimitExceeded,
    RecordError,
    Tar2TFError,
    TruncatedArchive,
    UnsupportedArchive,
)
from ais_tar2tf.options import MIB, Limits
from ais_tar2tf.recordfiles.formats.framing import frame
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.values.features import encode
from tests.support import archives

BLOCK = 512
END = bytes(2 * BLOCK)


def header(name: bytes = b"a.jpg", size: int = 0, kind: bytes = b"0", *, link: bytes = b"") -> bytes:
    """Return a GNU header. A number that does not fit into octal digits is written in base 256."""
    number = b"%011o\0" % size if 0 <= size < 8**11 else (size & (1 << 95) - 1 | 1 << 95).to_bytes(12, "big")
    raw = bytearray(BLOCK)
    for at, value in (
        (0, name[:100]),
        (100, b"0000644\0" * 3),
        (124, number),
        (136, b"%011o\0" % 1),
        (148, b" " * 8),
        (156, kind),
        (157, link),
        (257, b"ustar  \0"),
    ):
        raw[at : at + len(value)] = value
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def member(name: bytes, body: bytes = b"x", kind: bytes = b"0", **more: bytes) -> bytes:
    return header(name, len(body), kind, **more) + body + bytes(-len(body) % BLOCK)


def pax(**records: str) -> bytes:
    body = b""
    for key, value in records.items():
        rest = f" {key.replace('__', '.')}={value}\n".encode()
        length = len(rest)
        while len(str(length)) + len(rest) != length:
            length = len(str(length)) + len(rest)
        body += b"%d" % length + rest
    return member(b"pax", body, b"x")


def sparse(real_size: int) -> bytes:
    """Return an old GNU header of a sparse file without data."""
    raw = bytearray(header(b"hole.bin", 0, b"S"))
    raw[483:495] = b"\x80" + real_size.to_bytes(11, "big")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


@functools.cache
def gzip_bomb(size: int, head: bytes = b"") -> bytes:
    """Return `head` and `size` zeros, compressed by repeating one compressed MiB."""
    compressor = zlib.compressobj(9, wbits=31)
    begin = compressor.compress(head) + compressor.flush(zlib.Z_FULL_FLUSH)
    one = compressor.compress(bytes(MIB)) + compressor.flush(zlib.Z_FULL_FLUSH)
    crc, zeros = zlib.crc32(head), bytes(MIB)
    for _ in range(size // MIB):
        crc = isal_zlib.crc32(zeros, crc)
    return begin + one * (size // MIB) + b"\x03\0" + struct.pack("<2I", crc, (len(head) + size) & 0xFFFFFFFF)


def tfrecord_claim(size: int) -> bytes:
    length = struct.pack("<Q", size)
    crc = google_crc32c.value(length)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return length + struct.pack("<I", masked) + b"x" * 1000


_FILE = member(b"ok.jpg", b"good") + END
_DEFAULT, _SMALL = Limits(), Limits(member_bytes=8 * MIB)
_TFRECORD = frame(encode({"a": b"x"}))

ERRORS: dict[str, tuple[bytes, Limits, type[Tar2TFError], str]] = {
    "1 KB that claim 12 GB": (header(size=12 * 10**9) + END, _DEFAULT, LimitExceeded, r"Limits\.member_bytes"),
    "… and may": (header(size=12 * 10**9) + END, Limits(member_bytes=10**12), TruncatedArchive, "within member"),
    "12 GB in a PAX header": (pax(size=str(12 * 10**9)) + _FILE, _DEFAULT, LimitExceeded, r"Limits\.member_bytes"),
    "a size beyond 64 bits": (header(size=2**70) + END, _DEFAULT, ArchiveError, "over 64 bits"),
    "a negative size": (header(size=-1) + END, _DEFAULT, ArchiveError, "negative size"),
    "a negative size in a PAX header": (pax(size="-1") + _FILE, _DEFAULT, ArchiveError, "PAX header says"),
    "16 MiB of attributes": (
        pax(SCHILY__xattr__user__a="x" * 16 * MIB) + _FILE,
        _DEFAULT,
        LimitExceeded,
        r"Limits\.header_bytes",
    ),
    "16 MiB of headers, 64 KiB each": (
        pax(comment="x" * 65_000) * 256 + _FILE,
        _DEFAULT,
        LimitExceeded,
        r"Limits\.header_bytes",
    ),
    "a name of 1 MiB": (
        member(b"././@LongLink", b"n" * (MIB - 10) + b"\0", b"L") + _FILE,
        _DEFAULT,
        LimitExceeded,
        r"Limits\.name_bytes",
    ),
    "a NUL in a PAX name": (pax(path="a\0b.jpg") + _FILE, _DEFAULT, ArchiveError, "PAX header says"),
    "a PAX header shorter than it says": (
        member(b"pax", b"99 path=a.jpg\n", b"x") + _FILE,
        _DEFAULT,
        ArchiveError,
        "PAX header is malformed",
    ),
    "PAX says more bytes than there are": (pax(size="5000") + _FILE, _DEFAULT, TruncatedArchive, "within member"),
    "12 GB of holes": (sparse(12 * 10**9) + END, _DEFAULT, LimitExceeded, r"Limits\.member_bytes"),
    "a hundred holes of 8 MiB": (
        sparse(8 * MIB) * 100 + END,
        Limits(member_bytes=8 * MIB, sparse_bytes=64 * MIB),
        LimitExceeded,
        r"Limits\.sparse_bytes",
    ),
    "a sparse map in the body that never ends": (
        pax(GNU__sparse__major="1", GNU__sparse__minor="0", GNU__sparse__realsize="9", GNU__sparse__name="a.b")
        + member(b"x", b"999999999\n" + b"0\n" * 4_000_000),
        _SMALL,
        ArchiveError,
        "its map is damaged, or longer",
    ),
    "another volume": (member(b"a.jpg", kind=b"M") + END, _DEFAULT, UnsupportedArchive, "another volume"),
    "a gzip bomb as a member": (
        gzip_bomb(64 * MIB, header(b"a.jpg", 64 * MIB)),
        _SMALL,
        LimitExceeded,
        r"Limits\.member_bytes",
    ),
    "a gzip bomb of 1 GiB behind a ratio": (
        gzip_bomb(1024 * MIB, _FILE),
        Limits(ratio=100),
        LimitExceeded,
        r"Limits\.ratio",
    ),
    "a bomb in a bomb": (
        gzip.compress(gzip_bomb(256 * MIB)),
        _DEFAULT,
        UnsupportedArchive,
        "gzip file within another",
    ),
    "members without end": (
        member(b"d/", b"", b"5") * 50_000,
        Limits(members=10_000),
        LimitExceeded,
        r"Limits\.members",
    ),
    "keys without end": (
        b"".join(member(b"%d.a" % at, b"") for at in range(3000)) + END,
        Limits(keys=1000),
        LimitExceeded,
        r"Limits\.keys",
    ),
    "a TFRecord that claims 12 GB": (tfrecord_claim(12 * 10**9), _DEFAULT, LimitExceeded, r"Limits\.record_bytes"),
    "a TFRecord of something else": (frame(b"\x0a\xff\xff"), _DEFAULT, RecordError, "no tf.train.Example"),
    "a damaged TFRecord": (
        _TFRECORD[:14] + b"!" + _TFRECORD[15:],
        _DEFAULT,
        ArchiveError,
        "checksum of record 0's data",
    ),
}

HARMLESS: dict[str, tuple[bytes, list[tuple[str, dict[str, int]]], int]] = {
    "path tricks": (
        b"".join(map(member, (b"../../etc/passwd.a", b"/etc/passwd.a", b"a/../b.a", b"C:\\b.a", b"..a/x.a"))) + END,
        [(key, {"a": 1}) for key in ("../../etc/passwd", "/etc/passwd", "a/../b", "C:\\b", "..a/x")],
        0,
    ),
    "links, devices, directories, with bodies that they don't have": (
        b"".join(header(b"x.jpg", 5000, kind, link=b"/etc/passwd") for kind in (b"1", b"2", b"3", b"4", b"5", b"6"))
        + _FILE,
        [("ok", {"jpg": 4})],
        6,
    ),
    "something behind a NUL in a name": (member(b"a.jpg\0.exe") + END, [("a", {"jpg": 1})], 0),
    "a name that is no UTF-8": (member(b"\xff\xfe.jpg") + END, [("\udcff\udcfe", {"jpg": 1})], 0),
    "a PAX header that says otherwise than what it speaks of": (
        pax(path="real.jpg", size="700") + header(b"other.jpg", 3) + bytes(1024) + _FILE,
        [("real", {"jpg": 700}), ("ok", {"jpg": 4})],
        0,
    ),
    "a hole of 8 MiB": (sparse(8 * MIB) + _FILE, [("hole", {"bin": 8 * MIB}), ("ok", {"jpg": 4})], 0),
    "a gzip bomb of 1 GiB behind the end mark": (gzip_bomb(1024 * MIB, _FILE), [("ok", {"jpg": 4})], 0),
    "macOS's remarks": (member(b"._a.jpg") + member(b"b/._a.jpg") + _FILE, [("ok", {"jpg": 4})], 2),
}

_MAX_MEMORY = 64 * MIB  # the read-ahead, and a member of 8 MiB in transit


def _open(name: str, data: bytes, limits: Limits) -> t2t.Source:
    store = MemoryStore("hostile")
    store.put("x", data)
    return t2t.open(store.url("x"), limits=limits)


@pytest.fixture
def _bounded() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < _MAX_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("_bounded")
@pytest.mark.parametrize("name", ERRORS)
def test_hostile_archives_are_errors(name: str) -> None:
    data, limits, kind, says = ERRORS[name]
    with _open(name, data, limits) as source, pytest.raises(kind, match=says) as caught:
        for _ in source.records():
            pass
    assert caught.value.shard == "memory://hostile/x"  # type: ignore[attr-defined]
    assert getattr(caught.value, "offset", 0) >= 0


@pytest.mark.usefixtures("_bounded")
@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_archives_are_read(name: str) -> None:
    data, records, ignored = HARMLESS[name]
    found: list[tuple[str, dict[str, int]]] = []
    with _open(name, data, _DEFAULT) as source:
        for record in source.records():
            found.append(
                (record.pop("__key__"), {name: len(body) for name, body in record.items() if name[0] != "_"})
            )
            del record
        assert source.stats.ignored == ignored
    assert found == records


@pytest.mark.parametrize("ending", archives.COMPRESS)
def test_a_decompression_bomb_in_every_format(ending: str) -> None:
    """64 MiB of zeros after a member are never held in memory, and are limited by their ratio."""
    data = archives.COMPRESS[ending](_FILE + bytes(64 * MIB))
    tracemalloc.start()
    try:
        with _open(ending, data, Limits(ratio=10**6)) as source:
            assert [record["jpg"] for record in source.records()] == [b"good"]
        with (
            _open(ending, data, Limits(ratio=50)) as source,
            pytest.raises(LimitExceeded, match=r"Limits\.ratio is 50"),
        ):
            list(source.records())
        assert tracemalloc.get_traced_memory()[1] < 24 * MIB
    finally:
        tracemalloc.stop()
