"""Reading and writing of small documents, bounded in size, with a checksum. No I/O but of local files.

Three forms of documents are sealed with a checksum: JSON objects, rows (lists on one line) and journals (an object on
each line). Each function takes `fail`, which makes the error from its text: an `ExportError` for a manifest, a
`CheckpointError` for a checkpoint. The text always begins with `where`, the file or URL of the document.
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

from ais_tar2tf.base.documents.structure import Check, Fail, Mismatch, check
from ais_tar2tf.errors import Tar2TFError

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
"""The key of a sealed JSON object that holds the checksum of all other keys."""

OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
"""The flags with which a document is opened. Opening a FIFO in its place must not wait for a writer."""

_DEPTH = 64  # of nested lists and objects; ours have at most ten
_DENSE = 8  # bytes of text for each list or object, at least: ours have 20, and `[],` becomes 64 bytes of memory
_SMALL = 64 * 1024  # bytes of a document that may be of any density
_ROW_SEAL = re.compile(r',"(xxh3-64:[0-9a-f]{16})"\]\Z')
_STRING = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')


def read_file(path: Path, *, most: int, limit: str | None, fail: Fail) -> bytes:
    """Return the bytes of a local document.

    Args:
        path: The file.
        most: The largest number of bytes.
        limit: The field of `options.Limits` that sets this number, for the error; None for a number that is fixed.
        fail: Makes the error for a document that is too large or is no regular file. A file that cannot be opened
            raises `OSError`.
    """
    return read_handle(os.open(path, OPEN), most=most, limit=limit, where=os.fspath(path), fail=fail)


def read_handle(handle: int, *, most: int, limit: str | None, where: str, fail: Fail) -> bytes:
    """Return the bytes of an open document, and close it; see `read_file`."""
    with open(handle, "rb") as file:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), where)
        if not stat.S_ISREG(status.st_mode):
            raise fail(f"{where}: the document is no regular file")
        data = file.read(most + 1) if status.st_size <= most else b""
    if max(status.st_size, len(data)) > most:
        raise fail(f"{where}: the document has over {most:,} bytes{f', Limits.{limit}' if limit else ''}")
    return data


def parse_json(data: bytes | str, *, where: str, fail: Fail) -> dict[str, Any]:
    """Parse a JSON object; raise `fail(…)` if `data` is anything else."""
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
    """Return whether a text has so many brackets that its value would take far more memory than the text."""

    def dense(text: str) -> bool:
        return (text.count("[") + text.count("{")) * _DENSE > length

    length = len(text)
    return length > _SMALL and dense(text) and dense(_STRING.sub("", text))  # without brackets in strings


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
    """Parse a sealed JSON object: verify its checksum, check its structure, and return the result of the check.

    Args:
        data: The document's bytes.
        expected: The check of its structure; see `structure.py`.
        where: The document's file or URL, for the error.
        fail: Makes the error for a document that is damaged or has another structure.
    """
    document = verify_seal(parse_json(data, where=where, fail=fail), where=where, fail=fail)
    return check(document, expected, where=where, fail=fail)


# Checksums.


def seal(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with a checksum of all its keys and values, under `CHECKSUM`."""
    return {**document, CHECKSUM: _checksum(document)}


def verify_seal(document: dict[str, Any], *, where: str, fail: Fail) -> dict[str, Any]:
    """Return the document without its checksum; raise `fail(…)` if the document was changed after sealing.

    A document without a checksum was written by an older version, and is returned unchanged.
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
    """Return the checksum of bytes in the notation of our documents."""
    return f"xxh3-128:{xxhash.xxh3_128_hexdigest(data)}"


def document_bytes(document: Mapping[str, Any], *, indent: int | None = 1) -> bytes:
    """Return the bytes of a file for a sealed document. Names that are not UTF-8 keep their bytes."""
    text = json.dumps(seal(document), indent=indent, ensure_ascii=False)
    return text.encode("utf-8", "surrogateescape") + b"\n"


# Rows: lists on one line, such as a checkpoint's position.


def sealed_row(values: Sequence[Any]) -> str:
    """Return a list as JSON, with a checksum of the text as a further last value."""
    text = json.dumps(values, separators=(",", ":"))
    return f'{text[:-1]},"{_row_checksum(text)}"]'


def parse_row(saved: str, *, where: str, fail: Fail) -> list[Any]:
    """Return the list of a row that `sealed_row` wrote, or that an older version wrote without a checksum.

    Raises:
        Mismatch: The text is no list.
        fail(…): The row was changed after sealing.
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


# Journals: a sealed document on each line.


def sealed_line(document: Mapping[str, Any]) -> bytes:
    """Return a sealed document as one line of a journal."""
    return json.dumps(seal(document), ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def parse_lines(lines: Iterable[bytes], expected: Check[_T], *, where: str, fail: Fail) -> list[_T]:
    """Parse the lines of a journal, each as a document of its own, and return the results of the checks.

    Damaged lines at the end were being written when the machine stopped, and are left out. A damaged line before an
    undamaged line is an error.
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
