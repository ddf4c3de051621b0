"""Lists the members of a shard, reads the members whose names match a pattern, and yields members as a tar.

This module must not know HTTP requests.
"""

from __future__ import annotations

import gzip
import heapq
import io
import posixpath
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, NamedTuple, cast

import lz4.frame
import re2

from ais_tar2tf.cluster.server.refusals import RefusedError, bad_match_mode, bad_pattern, unknown_format

__all__ = ["Member", "end_mark", "is_archive", "joined", "list_members", "matcher", "read_members", "tar_entry"]

MATCH_MODES = ("regexp", "prefix", "suffix", "substr", "wdskey")
PIECE = 256 * 1024  # how many bytes of a member are read and sent at once
_BLOCK = 512  # bytes: a tar consists of blocks of this size
_PATTERN_BYTES = 8 * 1024 * 1024  # the most memory for a compiled pattern: RE2's default


class Member(NamedTuple):
    """A member of an archive. Read its body before you advance to the next member.

    `link` is the tar header of a member that is not a regular file, such as a link; None for a regular file.
    """

    name: str
    size: int
    body: IO[bytes]
    link: tarfile.TarInfo | None = None


_NOTHING: IO[bytes] = io.BytesIO()

_OPENERS: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {
    ".tar": lambda file: file,
    ".tgz": lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file)),
    ".tar.gz": lambda file: cast("IO[bytes]", gzip.GzipFile(fileobj=file)),
    ".tar.lz4": lambda file: cast("IO[bytes]", lz4.frame.LZ4FrameFile(file)),
}


def is_archive(name: str) -> bool:
    """Return whether a name has the extension of an archive. AIStore also decides by the name alone."""
    return name.endswith((*_OPENERS, ".zip"))


def matcher(pattern: str, mode: str) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches a pattern. The patterns "" and "*" match every name."""
    if mode not in MATCH_MODES:
        raise bad_match_mode(mode, MATCH_MODES)
    if pattern in ("", "*"):
        return lambda _: True
    if mode == "regexp":
        return _regular(pattern)
    return {
        "prefix": lambda name: name.startswith(pattern),
        "suffix": lambda name: name.endswith(pattern),
        "substr": lambda name: pattern in name,
        "wdskey": lambda name: _key(name) == pattern,
    }[mode]


def _regular(pattern: str) -> Callable[[str], bool]:
    """Return a matcher for a regular expression.

    The matcher uses RE2, whose time is linear in the length of a name. Python's `re` can take exponential time.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES
    try:
        found: Any = re2.compile(_encoded(pattern), options=options)
    except re2.error as error:
        raise bad_pattern(_text_of(error)) from error
    return lambda name: found.search(_encoded(name)) is not None


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text_of(error: Exception) -> str:
    return b" ".join(part for part in error.args if isinstance(part, bytes)).decode("utf-8", "replace")


def _key(name: str) -> str:
    """Return the key of a member: its path without the last extension and without a leading slash."""
    base = name[name.rfind("/") + 1 :]
    return (name[: len(name) - len(base) + base.rfind(".")] if "." in base else name).removeprefix("/")


def list_members(file: IO[bytes], name: str, *, most: int) -> list[tuple[str, int]]:
    """Return (name, size) of an archive's members, sorted by name; at most the first `most` members."""
    return heapq.nsmallest(most, ((member.name, member.size) for member in _members(file, name, lambda _: False)))


def read_members(file: IO[bytes], name: str, matches: Callable[[str], bool]) -> Iterator[Member]:
    """Yield the matching members in the archive's order. Read a member's body before you take the next member."""
    try:
        yield from (member for member in _members(file, name, matches) if matches(member.name))
    except (RefusedError, OSError):
        raise
    except Exception as error:  # decompressors raise many kinds of errors
        raise RefusedError(500, f"the archive {name!r} cannot be read: {error}") from error


def _members(file: IO[bytes], name: str, wanted: Callable[[str], bool]) -> Iterator[Member]:
    """Yield all members but directories.

    If `wanted` returns False for a member's name, the yielded body is empty, so that the member is not unpacked.
    """
    if name.endswith(".zip"):
        yield from _zip_members(file, wanted)
        return
    opener = next((opener for suffix, opener in _OPENERS.items() if name.endswith(suffix)), None)
    if opener is None:
        raise unknown_format(name)
    with tarfile.open(fileobj=opener(file), mode="r:") as archive:
        while (info := archive.next()) is not None:
            cast("Any", archive).members.clear()  # otherwise, tarfile keeps every member in memory
            if info.isreg():
                body = archive.extractfile(info) if wanted(info.name) else None
                yield Member(info.name, info.size, body or _NOTHING)
            elif not info.isdir():
                yield Member(info.name, 0, _NOTHING, info)


def _zip_members(file: IO[bytes], wanted: Callable[[str], bool]) -> Iterator[Member]:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if not info.is_dir():
                body = archive.open(info) if wanted(info.filename) else _NOTHING
                yield Member(info.filename, info.file_size, body)


def tar_entry(name: str, size: int, body: IO[bytes], link: tarfile.TarInfo | None = None) -> Iterator[bytes]:
    """Yield a member as it stands in a tar: header, content, and zeros up to the next multiple of 512 bytes."""
    info = link or tarfile.TarInfo(name)
    info.size = size
    yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    left = size
    while left > 0:
        piece = body.read(min(left, PIECE))
        if not piece:
            raise RefusedError(500, "the archive was cut while it was read")
        left -= len(piece)
        yield piece
    yield bytes(-size % _BLOCK)


def end_mark() -> bytes:
    return bytes(2 * _BLOCK)


def joined(shard: str, members: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return (SHARD/NAME, size) for each (NAME, size): AIStore's listings name members of a shard in this way."""
    return [(posixpath.normpath(f"{shard}/{name}"), size) for name, size in members]
