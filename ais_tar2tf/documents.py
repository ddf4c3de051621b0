"""Read and write small documents: bounded, with a checksum, every fault a typed error. No I/O but on local files.

Each function takes `fail`, which makes the error to raise from a sentence: a manifest's is an `ExportError`, a
checkpoint's a `CheckpointError`. The sentence always begins with `where`, the file or URL of the document.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.structure import Check, Fail, Mismatch, check

__all__ = [
    "CHECKSUM",
    "OPEN",
    "Fail",
    "checksum_of",
    "document_bytes",
    "is_crowded",
    "is_deep",
    "parse_document",
    "parse_json",
    "parse_lines",
    "parse_row",
    "read_file",
    "read_handle",
    "seal",
    "sealed_line",
    "sealed_row",
    "verify_seal",
]

_T = TypeVar("_T")

CHECKSUM = "document_checksum"
"""The key under which a sealed JSON document keeps the checksum of all its other keys."""

OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""How a document is opened: a FIFO in its place must not wait for a writer."""

_DEPTH = 64  # of nested lists and objects; ours have at most ten
_DENSE = 8  # bytes that a list or object takes at least, on average: an honest one takes 20, `[],` in memory 64
_SMALL = 64 * 1024  # bytes of a document whose density does not matter
_ROW_SEAL = re.compile(r',"(xxh3-64:[0-9a-f]{16})"\]\Z')
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')


def read_file(path: Path, *, most: int, limit: str, fail: Fail) -> bytes:
    """Return the bytes of a local document, of which there may be at most `most`.

    Args:
        path: The file.
        most: The bound in bytes.
        limit: The field of `options.Limits` that sets the bound, for the error.
        fail: Makes the error for a document that is too large, or no regular file. A file that cannot be opened
            raises `OSError`.
    """
    return read_handle(os.open(path, OPEN), most=most, limit=limit, where=os.fspath(path), fail=fail)


def read_handle(handle: int, *, most: int, limit: str, where: str, fail: Fail) -> bytes:
    """Return the bytes of a document that is open already, and close it; see `read_file`."""
    with open(handle, "rb") as file:  # an open file, not a path
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), where)
        if not stat.S_ISREG(status.st_mode):
            raise fail(f"{where}: the document is no regular file")
        data = file.read(most + 1) if status.st_size <= most else b""
    if max(status.st_size, len(data)) > most:
        raise fail(f"{where}: the document has over {most:,} bytes, Limits.{limit}")
    return data


def parse_json(data: bytes | str, *, where: str, fail: Fail) -> dict[str, Any]:
    """Return the JSON object that `data` holds; raise `fail(…)` for anything else, however it is malformed."""
    document = _parsed(data, where, fail)
    if not isinstance(document, dict):
        raise fail(f"{where}: the document is damaged: it holds no JSON object")
    return document


def _parsed(data: bytes | str, where: str, fail: Fail) -> Any:
    try:
        text = data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")
        if is_crowded(text):
            raise fail(f"{where}: the document is damaged: it holds little but empty lists and objects")
        document: Any = json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, Tar2TFError):
            raise
        raise fail(f"{where}: the document is damaged: it is not JSON ({error})") from error
    if is_deep(document, _DEPTH):
        raise fail(f"{where}: the document is damaged: lists and objects are nested more than {_DEPTH} deep")
    return document


def is_crowded(text: str) -> bool:
    """Return whether a parsed text would take far more memory than its length lets expect."""

    def dense(text: str) -> bool:
        return (text.count("[") + text.count("{")) * _DENSE > length

    length = len(text)
    return length > _SMALL and dense(text) and dense(_STRING.sub("", text))  # brackets within strings don't count


def is_deep(document: Any, most: int) -> bool:
    """Return whether lists and objects are nested more than `most` deep."""
    level = [document] if type(document) in (dict, list) else []
    depth = 0
    while level and depth < most:
        depth += 1
        inner = [each.values() if type(each) is dict else each for each in level]
        level = [value for values in inner for value in values if type(value) in (dict, list)]
    return bool(level)


def parse_document(data: bytes | str, expected: Check[_T], *, where: str, fail: Fail) -> _T:
    """Return what `expected` makes of the JSON object that `data` holds, once its checksum is verified.

    Args:
        data: The document's bytes.
        expected: Its structure; see `structure`.
        where: The document's file or URL, for the error.
        fail: Makes the error for a document that is damaged, or something else.
    """
    document = verify_seal(parse_json(data, where=where, fail=fail), where=where, fail=fail)
    return check(document, expected, where=where, fail=fail)


# Checksums.


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a checksum of all that it says under `CHECKSUM`."""
    return {**document, CHECKSUM: _checksum(document)}


def verify_seal(document: dict[str, Any], *, where: str, fail: Fail) -> dict[str, Any]:
    """Return the document without its checksum; raise `fail(…)` when it is not what was sealed.

    A document that has no checksum was written by an older version, and is returned as it is.
    """
    if CHECKSUM not in document:
        return document
    plain = {key: value for key, value in document.items() if key != CHECKSUM}
    if document[CHECKSUM] != _checksum(plain):
        raise fail(f"{where}: the document is damaged: its checksum does not match what it says")
    return plain


def _checksum(document: Mapping[str, Any]) -> str:
    """Hash the document's values, independent of spacing and of the order of keys."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return checksum_of(canonical.encode())


def checksum_of(data: bytes) -> str:
    """Return the checksum of bytes, as documents of ours state it."""
    return f"xxh3-128:{xxhash.xxh3_128_hexdigest(data)}"


def document_bytes(document: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """Return a sealed document as it stands in its file; names of files that are no UTF-8 keep their bytes."""
    text = json.dumps(seal(document), indent=indent, ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape") + b"\n"


# Rows: a list on one line, such as a checkpoint's position.


def sealed_row(values: Sequence[Any]) -> str:
    """Return a list as JSON with a checksum of its text behind its last value."""
    text = json.dumps(values, separators=(",", ":"))
    return f'{text[:-1]},"{_row_checksum(text)}"]'


def parse_row(saved: str, *, where: str, fail: Fail) -> list[Any]:
    """Return the list that `sealed_row` wrote, or an earlier version without a checksum.

    Raises:
        Mismatch: It is no list.
        fail(…): It is not what was sealed.
    """
    text, checksum = saved, _ROW_SEAL.search(saved)
    if checksum is not None:
        text = f"{saved[: checksum.start()]}]"
        if checksum[1] != _row_checksum(text):
            raise fail(f"{where} is damaged: its checksum does not match what it says")
    try:
        row = _parsed(text, where, fail)
    except Tar2TFError as error:
        raise Mismatch("a list is expected", text) from error
    if not isinstance(row, list):
        raise Mismatch("a list is expected", text)
    return row


def _row_checksum(text: str) -> str:
    return f"xxh3-64:{xxhash.xxh3_64_hexdigest(text.encode('utf-8', 'surrogatepass'))}"


# Journals: a sealed document a line.


def sealed_line(document: Mapping[str, Any]) -> bytes:
    """Return a sealed document as one line of a journal."""
    return json.dumps(seal(document), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def parse_lines(lines: Iterable[bytes], expected: Check[_T], *, where: str, fail: Fail) -> list[_T]:
    """Return what the lines of a journal say, each checked as a document of its own.

    Lines at the end that are damaged were being written when the machine stopped: they are left out. A damaged line
    before a whole one is an error.
    """
    found: list[_T] = []
    torn: Tar2TFError | None = None
    for number, line in enumerate(lines, 1):
        try:
            if not line.endswith(b"\n"):
                raise fail(f"{where}, line {number}: the document is damaged: its end is missing")
            parsed = parse_document(line, expected, where=f"{where}, line {number}", fail=fail)
        except Tar2TFError as error:
            torn = torn or error
            continue
        if torn is not None:
            raise torn
        found.append(parsed)
    return found
