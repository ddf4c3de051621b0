"""Compare the tar reader with Python's tarfile, on foreign archives, and with every kind of damage."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import os
import random
import shutil
import subprocess
import tarfile
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ais_tar2tf.archive import ShardArchive, TarReader
from ais_tar2tf.archive.tar_runs import PlainMembers
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import KIB, MIB, Limits

BLOCK = 512
SHARD = "memory://b/s.tar"
END = bytes(2 * BLOCK)


class Member(NamedTuple):
    name: str
    body: bytes
    offset: int


def drain(archive: TarReader | ShardArchive, blocks: Sequence[bytes]) -> Iterator[Member]:
    for block in blocks:
        for members in archive.feed(block):
            for name, offset, start, size in zip(
                members.names, members.offsets, members.starts, members.sizes, strict=True
            ):
                yield Member(name, bytes(members.data[start : start + size]), offset)
    archive.finish()


HEADERS = ("native", "table", "walk", "careful")


def _tar_says() -> str:
    """Return the version of the installed program tar."""
    if shutil.which("tar") is None:
        return ""
    return subprocess.run(["tar", "--version"], capture_output=True, text=True, check=False, timeout=200).stdout


def read(data: bytes, cuts: Sequence[int] = (), limits: Limits | None = None, **options: object) -> list[Member]:
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    blocks = [data[a:b] for a, b in pairwise(edges)]
    return list(drain(TarReader(SHARD, limits or Limits(), **options), blocks))  # type: ignore[arg-type]


def read_until_error(
    data: bytes, step: int = 0, limits: Limits | None = None, **options: object
) -> tuple[list[Member], ArchiveError | None]:
    """Return the members before the first error, and the error."""
    blocks = [data[at : at + step] for at in range(0, len(data), step)] if step else [data]
    members = drain(TarReader(SHARD, limits or Limits(), **options), blocks)  # type: ignore[arg-type]
    found: list[Member] = []
    try:
        found.extend(members)  # extend keeps the members before an exception
    except ArchiveError as error:
        caught = error
    else:
        return found, None
    assert caught.shard == SHARD
    assert caught.offset >= 0
    assert str(caught).startswith(SHARD)
    return found, caught


def pairs(members: Sequence[Member]) -> list[tuple[str, bytes]]:
    return [(member.name, member.body) for member in members]


def files(members: Sequence[Member]) -> list[Member]:
    """Return the files. In v7, a file whose name ends with a slash is a directory."""
    return [member for member in members if not member.name.endswith("/")]


_NO_FILES = frozenset({b"D", b"V", b"M"})  # GNU's listing of a directory, volume label, continued member


def by_tarfile(data: bytes, most: int | None = None) -> list[tuple[str, bytes]]:
    """Return the first `most` files that tarfile reads. By POSIX, an entry of unknown type is a file."""
    found: list[tuple[str, bytes]] = []
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:", encoding="utf-8", errors="surrogateescape") as tar:
        for info in tar:
            if len(found) == most:
                break
            unknown = info.type not in tarfile.SUPPORTED_TYPES and info.type not in _NO_FILES
            if info.isreg() or unknown:
                body = tar.extractfile(info)
                assert body is not None
                found.append((info.name, body.read()))
    return found


def patched(header: bytes, at: int, value: bytes) -> bytes:
    """Return a header with `value` at offset `at` and a correct checksum."""
    raw = bytearray(header)
    raw[at : at + len(value)] = value
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw)


def padded(body: bytes) -> bytes:
    return body + bytes(-len(body) % BLOCK)


def entry(
    name: str, body: bytes = b"", *, fmt: int = tarfile.USTAR_FORMAT, kind: bytes = tarfile.REGTYPE, **more: object
) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(body)
    for key, value in more.items():
        setattr(info, key, value)
    return info.tobuf(fmt, "utf-8", "surrogateescape") + padded(body)


def pax(*records: tuple[str, bytes], kind: bytes = b"x") -> bytes:
    """Return a PAX header with these records, valid or not."""
    body = b"".join(pax_record(key, value) for key, value in records)
    return entry("PaxHeader", body, kind=kind)


def pax_record(key: str, value: bytes) -> bytes:
    rest = b" " + key.encode() + b"=" + value + b"\n"
    length = len(rest)
    while len(str(length)) + len(rest) != length:
        length = len(str(length)) + len(rest)
    return str(length).encode() + rest


# --- foreign archives -----------------------------------------------------------------------------------------

_HERE = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("TAR_CORPUS", _HERE.parent / ".." / "shared" / "corpus"))

_HUGE = "the sparse member becomes larger than Limits.member_bytes"
_NO_END = "no end mark, so members may be missing: read with allow_missing_end=True"

DIFFERENT: dict[str, tuple[type[ArchiveError] | None, str]] = {
    "go/gnu-sparse-big.tar": (LimitExceeded, _HUGE),
    "go/pax-sparse-big.tar": (LimitExceeded, _HUGE),
    "tar-rs/sparse-large.tar": (LimitExceeded, _HUGE),
    "go/gnu-incremental.tar": (TruncatedArchive, _NO_END),
    "go/gnu-multi-hdrs.tar": (TruncatedArchive, _NO_END),
    "go/nil-uid.tar": (TruncatedArchive, _NO_END),
    "go/pax-multi-hdrs.tar": (TruncatedArchive, _NO_END),
    "go/pax-pos-size-file.tar": (TruncatedArchive, _NO_END),
    "go/ustar-file-reg.tar": (TruncatedArchive, _NO_END),
    "tar-rs/empty_filename.tar": (TruncatedArchive, _NO_END),
    "go/pax-path-hdr.tar": (TruncatedArchive, "a PAX header that nothing follows: what it speaks of is missing"),
    "go/pax-global-records.tar": (
        None,
        "a global header's `path` is a remark, as in Go; tarfile gives its name to the members behind it",
    ),
}
TARFILE_DIFFERS: dict[str, list[str]] = {
    "go/gnu-incremental.tar": ["test2/foo", "test2/sparse"],  # tarfile reads GNU's times as a part of the name
    "go/pax-nil-sparse-data.tar": ["sparse.db"],  # tarfile reads the map as a part of the file
    "go/pax-nil-sparse-hole.tar": ["sparse.db"],
    "go/pax-global-records.tar": ["file1", "file2", "file3", "file4"],
    "go/pax-path-hdr.tar": [],  # tarfile calls this archive empty
}
SIZES = {"test2/sparse": 536_870_912, "sparse.db": 1000}  # from Go's tests
_LARGEST = {"go/gnu-incremental.tar": 1 * MIB}  # so that not every way of reading expands half a gigabyte


def _manifest() -> list[dict[str, str]]:
    path = CORPUS / "MANIFEST.tsv"
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return [
            row for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row["expected"] != "data"
        ]


MANIFEST = _manifest()


def corpus_file(row: dict[str, str]) -> bytes:
    data = (CORPUS / row["path"]).read_bytes()
    return bz2.decompress(data) if row["path"].endswith(".bz2") else data


def as_in_manifest(name: str) -> str:
    """Escape a name as the manifest does: bytes that are no UTF-8 as \\xNN, characters beyond ASCII as \\uNNNN."""
    shown = [
        char
        if ord(char) < 128
        else f"\\x{ord(char) - 0xDC00:02x}"
        if "\udc80" <= char <= "\udcff"
        else f"\\u{ord(char):04x}"
        for char in name.removeprefix("./")
    ]
    return "".join(shown)


def is_subsequence(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(each in rest for each in part)


@pytest.mark.parametrize("row", [pytest.param(row, id=row["path"]) for row in MANIFEST] or [None])
def test_foreign_archives_are_read(row: dict[str, str] | None) -> None:
    if row is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no tar corpus at {CORPUS}: set TAR_CORPUS")
    data, path = corpus_file(row), row["path"]
    found, error = read_until_error(data)
    limits = Limits(member_bytes=_LARGEST.get(path, 1 * MIB * 1024))
    ways = [read_until_error(data, limits=limits, headers=headers) for headers in HEADERS]
    assert len({(tuple(members), str(other)) for members, other in ways}) == 1
    assert path in _LARGEST or ways[0][0] == found
    if row["expected"] == "err":
        assert error is not None
        return
    different, reason = DIFFERENT.get(path, (None, ""))
    assert (None if error is None else type(error)) is different
    if reason is _NO_END:
        assert "allow_missing_end" in str(error)
        found = read(data, allow_missing_end=True)
    names = json.loads(row["names"])
    if len(names) == int(row["entries"]):  # for long archives, the manifest lists only the first names
        assert is_subsequence([as_in_manifest(member.name) for member in found], names)
    if path in TARFILE_DIFFERS:
        assert [member.name for member in found] == TARFILE_DIFFERS[path]
        assert all(len(member.body) == SIZES.get(member.name, len(member.body)) for member in found)
    else:
        assert pairs(files(found)) == by_tarfile(data, len(found) if different is LimitExceeded else None)


# --- sparse members -------------------------------------------------------------------------------------------

SPARSE_FORMATS = (
    ("--format=gnu",),
    ("--format=posix", "--sparse-version=0.0"),
    ("--format=posix", "--sparse-version=0.1"),
    ("--format=posix", "--sparse-version=1.0"),
)


@pytest.mark.skipif("GNU tar" not in _tar_says(), reason="no GNU tar to write sparse members; the corpus has some")
@pytest.mark.parametrize("options", SPARSE_FORMATS, ids=" ".join)
def test_sparse_members_as_gnu_tar_writes_them(options: tuple[str, ...], tmp_path: Path) -> None:
    """Compare with the files themselves: with one hole, a hundred holes, only a hole, or none."""
    chance = random.Random(4)
    parts = {
        "one": [(300_000, 700)],
        "many": [(at * 40_960, 4096) for at in range(100)],
        "none": [(0, 9000)],
        "all": [],
    }
    for name, written in parts.items():
        with (tmp_path / f"{name}.bin").open("wb") as file:
            for at, size in written:
                file.seek(at)
                file.write(chance.randbytes(size))
            file.truncate(5_000_000)
    names = [f"{name}.bin" for name in parts]
    made = subprocess.run(
        ["tar", "-c", "-f", "-", "--sparse", "--hole-detection=raw", *options, *names],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        timeout=200,
    )
    data = made.stdout
    assert len(data) < 1_000_000
    expected = [(name, (tmp_path / name).read_bytes()) for name in names]
    for headers in HEADERS:
        assert pairs(read(data, headers=headers)) == expected
    assert pairs(read(data, range(500, len(data), 777))) == expected
    chosen = list(drain(TarReader(SHARD, Limits(), wanted=lambda name: name == "all.bin"), [data]))
    assert [len(member.body) for member in chosen] == [0, 0, 0, 5_000_000]
    with pytest.raises(LimitExceeded, match=r"Limits\.sparse_bytes"):
        read(data, limits=Limits(sparse_bytes=12_000_000))
    for cut in range(0, len(data) - 20 * BLOCK, 999):
        _, error = read_until_error(data[:cut])
        assert isinstance(error, TruncatedArchive)


# --- archives from hypothesis ---------------------------------------------------------------------------------

_parts = st.text(alphabet="ab.x_- éß☺\udcff\udce2\n", min_size=1, max_size=60).filter(
    lambda part: part.strip(".") != ""
)
_names = st.one_of(
    st.lists(_parts, min_size=1, max_size=3).map("/".join),
    st.builds(
        lambda folder, count, base: "/".join([folder] * count + [base]),
        st.sampled_from(["d" * 9, "é" * 20]),
        st.integers(1, 20),
        _parts,
    ),
    st.builds(lambda length: "n" * length, st.sampled_from([99, 100, 101, 155, 255, 256, 257, 300])),
)
_SIZES = (0, 0, 1, 2, 511, 512, 513, 1023, 1024, 1025, 4096, 5000)
_INNER = entry("inner.jpg", b"i" * 700) + entry("inner/" + "l" * 120, b"z", fmt=tarfile.GNU_FORMAT) + END
_bodies = st.one_of(
    st.builds(
        lambda size, fill: (fill * size)[:size],
        st.sampled_from(_SIZES),
        st.sampled_from([b"\0", b"x", b"ustar\0", b"\xff"]),
    ),
    st.sampled_from([_INNER, _INNER[:BLOCK], b"q" * 100 + _INNER, _INNER[: 3 * BLOCK + 7], END]),
)
_FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
_mtimes = st.sampled_from([0, 1_700_000_000, 1_700_000_000.25, -1.5, 1e-05, 3e20])


@st.composite
def _entries(draw: st.DrawFn) -> bytes:
    """Draw a member with any extension headers."""
    name, fmt, mtime = draw(_names), draw(st.sampled_from(_FORMATS)), draw(_mtimes)
    kind = draw(
        st.sampled_from([tarfile.REGTYPE] * 6 + [tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE])
    )
    if len(name.encode("utf-8", "surrogateescape")) > 99 and kind == tarfile.AREGTYPE:
        kind = tarfile.REGTYPE  # tarfile reads such a file as a directory if its shortened name ends with a slash
    body = draw(_bodies) if kind in (tarfile.REGTYPE, tarfile.AREGTYPE) else b""
    more: dict[str, object] = {}
    if fmt == tarfile.PAX_FORMAT:
        more["mtime"] = mtime
        more["pax_headers"] = draw(st.sampled_from([{}, {}, {"comment": "é"}, {"SCHILY.xattr.a": "b=c\n"}]))
    if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        more["linkname"] = draw(_names)
    try:
        made = entry(name, body, fmt=fmt, kind=kind, **more)
    except ValueError:  # the name does not fit into ustar
        made = entry(name, body, fmt=tarfile.GNU_FORMAT, kind=kind, **more)
    variant = draw(st.sampled_from(["as it is"] * 5 + ["base-256", "v7", "pax size"]))
    header_at = len(made) - len(padded(body)) - BLOCK
    before, header, rest = made[:header_at], made[header_at : header_at + BLOCK], made[header_at + BLOCK :]
    if variant == "base-256":
        header = patched(header, 124, b"\x80" + len(body).to_bytes(11, "big"))
    elif variant == "v7" and not header[345]:
        header = patched(header, 257, bytes(8))
    elif variant == "pax size" and not before and body:
        before, header = pax(("size", b"%d" % len(body))), patched(header, 124, b"%011o\0" % 0)
    return before + header + rest


@st.composite
def _archives(draw: st.DrawFn) -> bytes:
    made = draw(st.lists(_entries(), max_size=10))
    if made and draw(st.booleans()):
        made.insert(0, pax(("comment", b"all of it"), kind=b"g"))
    return b"".join(made) + bytes(BLOCK * draw(st.integers(1, 20)))


@settings(max_examples=150, deadline=None)
@given(data=_archives(), cuts=st.lists(st.integers(0, 60_000), max_size=12), step=st.integers(64, 3 * BLOCK))
def test_all_ways_of_reading_agree(data: bytes, cuts: list[int], step: int) -> None:
    whole = read(data)
    assert pairs(whole) == by_tarfile(data)
    around = [edge + by for edge in range(BLOCK, len(data), BLOCK) for by in (-1, 0, 1)]
    for headers in HEADERS:
        assert read(data, headers=headers) == whole
        assert read(data, cuts, headers=headers) == whole
        assert read(data, range(step, len(data), step), headers=headers) == whole
        assert read(data, around, headers=headers) == whole


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
@pytest.mark.parametrize(("at", "field"), [(0, b""), (345, b"folder\0"), (508, b"tar\0"), (500, b"padding")])
def test_table_and_walk_take_the_same_headers_as_plain(fmt: int, at: int, field: bytes) -> None:
    made = entry("a.bin", b"x" * 600, fmt=fmt)
    data = patched(made[:BLOCK], at, field) + made[BLOCK:] + END
    found = [PlainMembers(memoryview(data), 0, 0, Limits(), dense=dense).take(0) for dense in (True, False)]
    assert (found[0] is None) == (found[1] is None)
    assert [member.name for member in read(data, headers="careful")] == [name for name, _ in by_tarfile(data)]
    for headers in HEADERS:
        assert read(data, headers=headers) == read(data, headers="careful")


@settings(max_examples=25, deadline=None)
@given(data=_archives())
def test_archives_are_read_byte_by_byte(data: bytes) -> None:
    data = data[: 40 * BLOCK]
    one_go, error = read_until_error(data)
    byte_by_byte, other = read_until_error(data, step=1)
    assert (byte_by_byte, str(other)) == (one_go, str(error))


@settings(max_examples=60, deadline=None)
@given(data=_archives())
def test_reading_from_each_offset_gives_the_rest(data: bytes) -> None:
    whole = read(data)
    for at, member in enumerate(whole):
        assert read(data[member.offset :], start=member.offset) == whole[at:]


def test_a_members_offset_is_that_of_its_first_header() -> None:
    first = entry("a.bin", b"x" * 600)
    for fmt in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        data = first + entry("n" * 300, b"y" * 10, fmt=fmt) + entry("z", b"z") + END
        for headers in HEADERS:
            members = read(data, headers=headers)
            assert [member.offset for member in members[:2]] == [0, len(first)]
            assert pairs(read(data[len(first) :], start=len(first), headers=headers)) == pairs(members[1:])


def test_which_types_are_files() -> None:
    kinds = [b"0", b"\0", b"7", b"Z", b"1", b"2", b"3", b"4", b"5", b"6"]
    data = b"".join(entry(f"t{at}", kind=kind) for at, kind in enumerate(kinds)) + END
    for headers in HEADERS:
        reader = TarReader(SHARD, Limits(), headers=headers)
        assert [member.name for member in drain(reader, [data])] == ["t0", "t1", "t2", "t3"]
        assert reader.ignored == 6


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_file_whose_shortened_name_ends_with_a_slash(fmt: int) -> None:
    """A v7 entry is a directory if its whole name ends with a slash. The header after a long name has only a part."""
    name = "d" * 99 + "/a.jpg"
    data = entry(name, b"x", fmt=fmt, kind=tarfile.AREGTYPE) + entry("b", b"y") + END
    assert pairs(read(data)) == [(name, b"x"), ("b", b"y")]


def test_a_directory_written_with_a_size_has_no_body() -> None:
    header = patched(entry("dir", kind=b"5")[:BLOCK], 124, b"%011o\0" % 9999)
    assert pairs(read(header + entry("a", b"b") + END)) == [("a", b"b")]


def test_a_member_continued_from_another_volume_is_refused() -> None:
    with pytest.raises(UnsupportedArchive, match="'part' goes on from another volume"):
        read(entry("part", b"x", kind=b"M") + END)


# --- extension headers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", HEADERS)
def test_pax_size_overrides_the_header(headers: str) -> None:
    header = patched(entry("a", b"")[:BLOCK], 124, b"%011o\0" % 3)
    data = entry("first", b"f") + pax(("size", b"1000")) + header + padded(b"x" * 1000) + entry("b", b"y") + END
    assert pairs(read(data, headers=headers)) == [("first", b"f"), ("a", b"x" * 1000), ("b", b"y")]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"9 a=b\n",
        b"5 a=b\n",
        b"07 a=b\n",
        b"6 ab=\n",
        b"-6 a=b\n",
        b"6 a=b ",
        b"6 =ab\n",
        b"99999999999999999999999 a=b\n",
        pax_record("size", b"-1"),
        pax_record("size", b"9" * 5000),
        pax_record("size", b"1e3"),
        pax_record("size", "²".encode()),
        pax_record("mtime", b"1.2.3"),
        pax_record("mtime", b"-"),
        pax_record("mtime", b"e5"),
        pax_record("mtime", b"12 "),
        b"20 mtime=1700000000\n",
        b"19 mtime=1700000000\n" + b"\0",
        pax_record("path", b"a\0b"),
        pax_record("mtime", b"12") + b"junk",
        pax_record("mtime", b"12") + b"\0" * 5,
    ],
)
def test_any_pax_header_is_read_safely(body: bytes) -> None:
    """Both parsers agree on any PAX header, and members before it are given."""
    data = entry("before", b"b" * 99) + entry("P", body, kind=b"x") + entry("a", b"x" * 9) + END
    fast, fast_error = read_until_error(data)
    for headers in HEADERS:
        slow, slow_error = read_until_error(data, headers=headers)
        assert (fast, str(fast_error)) == (slow, str(slow_error))
    assert fast[0].body == b"b" * 99
    harmless = (b"", b"07 a=b\n", b"6 ab=\n", b"20 mtime=1700000000\n")
    if body in harmless:
        assert fast_error is None
    else:
        assert isinstance(fast_error, ArchiveError)


@pytest.mark.parametrize("kind", [b"x", b"g", b"L", b"K"])
def test_an_extension_header_without_an_entry(kind: bytes) -> None:
    body = pax_record("comment", b"c") if kind in b"xg" else b"name\0"
    data = entry("a", b"x") + entry("ext", body, kind=kind)
    if kind == b"g":  # a global header does not need a following entry
        assert pairs(read(data + END)) == [("a", b"x")]
        return
    with pytest.raises(ArchiveError, match="extension header"):
        read(data + END)
    with pytest.raises(TruncatedArchive, match="extension header"):
        read(data, allow_missing_end=True)


def test_a_global_size_is_refused() -> None:
    for key in ("size", "GNU.sparse.major"):
        with pytest.raises(UnsupportedArchive, match="global PAX header"):
            read(pax((key, b"1"), kind=b"g") + entry("a", b"x") + END)


# --- the end --------------------------------------------------------------------------------------------------


def shard_of(records: int, fmt: int = tarfile.USTAR_FORMAT, body: int = 300) -> bytes:
    """Return a tar without empty members, and without bodies that begin with zeros."""
    made = b"".join(
        entry(
            f"{at:06d}.{ext}",
            bytes([1 + at % 250]) * (body + at),
            fmt=fmt,
            mtime=1.5 if fmt == tarfile.PAX_FORMAT else 1,
        )
        for at in range(records)
        for ext in ("jpg", "cls")
    )
    return made + bytes(-len(made) % tarfile.RECORDSIZE or tarfile.RECORDSIZE)


def loses_nothing(cut: int, end: int) -> bool:
    """Return whether a cut removes only padding: whole blocks after the first zero block of the end mark."""
    return cut >= end + BLOCK and cut % BLOCK == 0


@pytest.mark.parametrize("fmt", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
def test_every_cut_of_a_tar_is_detected(fmt: int) -> None:
    """Call `finish` after each byte. This is possible because `finish` changes nothing."""
    data = shard_of(64, fmt, body=1)
    end = len(data.rstrip(b"\0")) + BLOCK - 1
    end -= end % BLOCK
    reader, count = TarReader(SHARD, Limits()), 0
    for cut in range(len(data)):
        if loses_nothing(cut, end):
            reader.finish()
            assert count == 128
        else:
            with pytest.raises(TruncatedArchive) as caught:
                reader.finish()
            assert caught.value.shard == SHARD
            assert 0 <= caught.value.offset <= cut
        count += sum(len(members.names) for members in reader.feed(data[cut : cut + 1]))
    reader.finish()


def test_cuts_of_a_tar_in_one_block() -> None:
    data = shard_of(16)
    whole = read(data)
    end = whole[-1].offset + 2 * BLOCK
    for cut in sorted(
        {*range(0, len(data), 37), *(edge + by for edge in range(0, len(data), BLOCK) for by in (-1, 0, 1))}
    ):
        if cut < 0:
            continue
        found, error = read_until_error(data[:cut])
        assert found == whole[: len(found)]
        if loses_nothing(cut, end):
            assert error is None
            assert found == whole
        else:
            assert type(error) is TruncatedArchive


def test_every_cut_of_a_compressed_tar_is_detected() -> None:
    data = gzip.compress(shard_of(64))
    for cut in range(len(data)):
        with pytest.raises(TruncatedArchive) as caught:
            list(drain(ShardArchive(SHARD, Limits()), [data[:cut]]))
        assert caught.value.shard == SHARD
        assert caught.value.offset >= 0


def test_a_missing_end_mark_may_be_allowed() -> None:
    data = entry("a", b"x" * 600) + entry("b", b"y")
    with pytest.raises(TruncatedArchive, match="allow_missing_end=True"):
        read(data)
    assert pairs(read(data, allow_missing_end=True)) == [("a", b"x" * 600), ("b", b"y")]
    for cut in (BLOCK // 2, BLOCK, 2 * BLOCK, len(data) - 1, len(data) - BLOCK + 1):
        with pytest.raises(TruncatedArchive):
            read(data[:cut], allow_missing_end=True)


def test_an_archive_without_members() -> None:
    assert read(END) == []
    assert read(bytes(BLOCK)) == []
    with pytest.raises(TruncatedArchive):
        read(b"")


def test_two_joined_archives() -> None:
    one = entry("a", b"x") + END
    with pytest.raises(ArchiveError, match="several were concatenated"):
        read(one + entry("b", b"y") + END)


# --- damage ---------------------------------------------------------------------------------------------------

RECORDS = 20


def headers_of(data: bytes) -> list[int]:
    return [member.offset for member in read(data)]


def shape(members: Sequence[Member]) -> list[tuple[str, int]]:
    return sorted((member.name, len(member.body)) for member in members)


def assert_seen_or_harmless(damaged: bytes, original: list[tuple[str, int]]) -> bool:
    """Check that reading raises an error or gives all members. Return whether it raised an error."""
    found, error = read_until_error(damaged)
    assert error is not None or shape(found) == original
    return error is not None


@pytest.mark.parametrize("fmt", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_every_byte_of_every_header_flipped(fmt: int, flip: int) -> None:
    data = shard_of(RECORDS if fmt == tarfile.USTAR_FORMAT else 5, fmt)
    original = shape(read(data))
    per_member = 1 if fmt == tarfile.USTAR_FORMAT else 3
    for header in headers_of(data)[::2]:
        for at in range(header, header + per_member * BLOCK, 1 if per_member == 1 else 7):
            damaged = bytearray(data)
            damaged[at] ^= flip
            assert_seen_or_harmless(bytes(damaged), original)


def test_blocks_zeroed_dropped_doubled() -> None:
    """Zero, drop or double each block in turn. Dropping a member without a body cannot be detected."""
    data = shard_of(RECORDS, body=700)
    original, end = shape(read(data)), len(data.rstrip(b"\0"))
    headers = set(headers_of(data))
    for at in range(0, end, BLOCK):
        block = data[at : at + BLOCK]
        zeroed = assert_seen_or_harmless(data[:at] + bytes(BLOCK) + data[at + BLOCK :], original)
        assert zeroed == (at in headers)  # tar has no checksum of bodies
        dropped = assert_seen_or_harmless(data[:at] + data[at + BLOCK :], original)
        assert dropped or at > max(headers)  # the end mark's zeros replace the last body
        assert assert_seen_or_harmless(data[:at] + block + data[at:], original)


def test_blocks_swapped() -> None:
    """Swapping two headers with equal sizes gives a valid tar with the members in another order."""
    data = shard_of(RECORDS, body=700)
    original = shape(read(data))
    blocks = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]
    chance = random.Random(1)
    swaps = [(at, at + 1) for at in range(len(blocks) - 1)]
    swaps += [(chance.randrange(len(blocks)), chance.randrange(len(blocks))) for _ in range(1500)]
    for a, b in swaps:
        damaged = list(blocks)
        damaged[a], damaged[b] = damaged[b], damaged[a]
        found, error = read_until_error(b"".join(damaged))
        assert error is not None or [name for name, _ in shape(found)] == [name for name, _ in original]


@pytest.mark.parametrize("fmt", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_random_bytes_over_headers(fmt: int) -> None:
    """A sum of bytes does not detect every change of a name, but no damage may end the list early."""
    data = shard_of(RECORDS, fmt)
    headers, count = headers_of(data), 2 * RECORDS
    chance = random.Random(fmt)
    for _ in range(1500):
        damaged = bytearray(data)
        at = chance.choice(headers) + chance.randrange(BLOCK)
        run = chance.choice([1, 2, 3, 8, 64, 512])
        damaged[at : at + run] = chance.randbytes(run)
        found, error = read_until_error(bytes(damaged))
        assert error is not None or len(found) == count


_NUMBERS = (100, 108, 124, 130, 135, 136)


def _other_field(header: bytes, chance: random.Random) -> tuple[bytes, bool]:
    """Change a field and correct the checksum. Return also whether tarfile reads this value as we and Go do."""
    at = chance.choice([0, 97, 156, 157, 257, 263, 345, 500, 508, *_NUMBERS])
    value = chance.choice([*(bytes([each]) for each in b"\x0007 xgLS\x80\xff5"), chance.randbytes(3)])
    odd = (
        (
            at in _NUMBERS and (value == b"\0" or len(value) > 1 or header[at] == 0)
        )  # NUL before a number, or other bits next to the flag of base 256
        or value == b"g"  # a global header before the end is valid
        or at == 257  # a different magic may mean that there is no prefix; tarfile ignores it
        or (at == 345 and header[257:263] != b"ustar\0")  # GNU's times, which tarfile reads as a prefix
    )
    return patched(header, at, value), not odd


def _mutated(data: bytes, chance: random.Random) -> tuple[bytes, bool]:
    raw, comparable = bytearray(data), True
    for _ in range(chance.choice([1, 1, 2, 5])):
        at = chance.randrange(len(raw))
        block = slice(at - at % BLOCK, at - at % BLOCK + BLOCK)
        match chance.randrange(6):
            case 0:
                raw[at] ^= 1 << chance.randrange(8)
            case 1:
                raw[at : at + chance.randrange(1, 40)] = chance.randbytes(chance.randrange(40))
            case 2:
                raw[at:] = b"\0"
            case 3:
                other = chance.randrange(0, len(raw), BLOCK)
                raw[block.start : block.start] = raw[other : other + BLOCK]
            case _:
                raw[block], as_tarfile = _other_field(bytes(raw[block]).ljust(BLOCK, b"\0"), chance)
                comparable = comparable and as_tarfile
    return bytes(raw), comparable


def test_random_mutations_against_tarfile() -> None:
    """There is no untyped error, both parsers agree, and tarfile reads all archives that we read without an error."""
    chance = random.Random(20_240)
    seeds = [
        shard_of(4),
        shard_of(3, tarfile.PAX_FORMAT),
        entry("n" * 300, b"x" * 600, fmt=tarfile.GNU_FORMAT) + shard_of(2, tarfile.GNU_FORMAT),
        entry("d" * 60 + "/" + "p" * 60, b"x")
        + pax(("path", b"q" * 40), ("size", b"700"))
        + entry("r", b"z" * 700)
        + END,
    ]
    compared = 0
    for _ in range(4000):
        data, comparable = _mutated(chance.choice(seeds), chance)
        found, error = read_until_error(data)
        for headers in ("walk", "careful"):
            slow, slow_error = read_until_error(data, headers=headers)
            assert (found, str(error)) == (slow, str(slow_error))
        if error is None and comparable:
            compared += 1
            assert pairs(found) == by_tarfile(data)
    assert compared > 200


# --- limits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize(
    ("limits", "data", "field"),
    [
        (Limits(member_bytes=99), entry("a", b"x" * 100), "member_bytes"),
        (Limits(name_bytes=99), entry("n" * 100, b"x"), "name_bytes"),
        (Limits(name_bytes=10), entry("é" * 6, b"x", fmt=tarfile.GNU_FORMAT), "name_bytes"),
        (Limits(name_bytes=150), entry("d/" + "n" * 98 + "/" + "m" * 99, b"x"), "name_bytes"),
        (Limits(name_bytes=299), entry("n" * 300, b"x", fmt=tarfile.GNU_FORMAT), "name_bytes"),
        (Limits(name_bytes=299), entry("n" * 300, b"x", fmt=tarfile.PAX_FORMAT), "name_bytes"),
        (Limits(header_bytes=299), entry("n" * 300, b"x", fmt=tarfile.GNU_FORMAT), "header_bytes"),
        (Limits(header_bytes=299), entry("n" * 300, b"x", fmt=tarfile.PAX_FORMAT), "header_bytes"),
        (Limits(header_bytes=9), pax(("mtime", b"1.5")) + entry("a", b"x"), "header_bytes"),
        (Limits(header_bytes=999), pax(("comment", b"c" * 500)) * 2 + entry("a", b"x"), "header_bytes"),
        (Limits(member_bytes=99), pax(("size", b"100")) + entry("a", b"x" * 100), "member_bytes"),
    ],
)
def test_limits(limits: Limits, data: bytes, field: str, headers: str) -> None:
    with pytest.raises(LimitExceeded, match=rf"Limits\.{field}") as caught:
        read(entry("ok", b"x") + data + END, limits=limits, headers=headers)
    assert caught.value.shard == SHARD
    assert caught.value.offset >= 2 * BLOCK


def huge(size: int) -> bytes:
    """Return a header that states `size` bytes, followed by only a few."""
    return patched(entry("a.bin")[:BLOCK], 124, b"\x80" + size.to_bytes(11, "big")) + b"x" * 100


@pytest.mark.parametrize("claim", [12 * 10**9, 2**63, 2**87 - 1])
def test_a_stated_size_needs_no_memory(claim: int) -> None:
    archives = [
        huge(claim),
        pax(("size", b"%d" % claim)) + entry("a.bin")[:BLOCK] + b"x" * 100,
        patched(entry("P", kind=b"x")[:BLOCK], 124, b"\x80" + claim.to_bytes(11, "big")) + b"x" * 100,
        patched(entry("L", kind=b"L")[:BLOCK], 124, b"\x80" + claim.to_bytes(11, "big")) + b"x" * 100,
        pax(("GNU.sparse.realsize", b"%d" % claim)) + entry("a", b"x"),
    ]
    tracemalloc.start()
    try:
        for data in archives:
            with pytest.raises(ArchiveError):
                read(data)
            with pytest.raises(ArchiveError):
                read(data, limits=Limits(member_bytes=2**100))
        assert tracemalloc.get_traced_memory()[1] < 1 * MIB
    finally:
        tracemalloc.stop()


def test_negative_sizes() -> None:
    header = patched(entry("a")[:BLOCK], 124, b"\xff" * 12)
    with pytest.raises(ArchiveError, match="negative size: -1"):
        read(header + END)


def test_unselected_members_are_not_assembled() -> None:
    size = 4 * MIB
    head = patched(entry("big.bin")[:BLOCK], 124, b"%011o\0" % size)
    blocks = [head, *[b"x" * (64 * KIB)] * (size // (64 * KIB)), entry("a.cls", b"7") + END]
    limits = Limits(member_bytes=1 * MIB)
    reader = TarReader(SHARD, limits, wanted=lambda name: name.endswith(".cls"))
    tracemalloc.start()
    try:
        found = list(drain(reader, blocks))
        assert tracemalloc.get_traced_memory()[1] < 1 * MIB
    finally:
        tracemalloc.stop()
    assert pairs(found) == [("big.bin", b""), ("a.cls", b"7")]
    with pytest.raises(LimitExceeded, match=r"'big\.bin'.*Limits\.member_bytes"):
        list(drain(TarReader(SHARD, limits), blocks))
