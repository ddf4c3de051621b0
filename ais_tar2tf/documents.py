"""Read and write small documents: bounded, with a checksum, every fault a typed error. No I/O but on local files.

Each function takes `fail`, which makes the error to raise from a sentence: a manifest's is an `ExportError`, a
checkpoint's a `CheckpointError`. The sentence always begins with `where`, the file or URL of the document.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf.errors import Tar2TFError

__all__ = ["CHECKSUM", "Fail", "parse_json", "read_file", "seal", "verify_seal"]

Fail = Callable[[str], Tar2TFError]
"""Makes the error that a reader of this kind of document raises."""

CHECKSUM = "document_checksum"
"""The key under which a sealed JSON document keeps the checksum of all its other keys."""

_DEPTH = 64  # of nested lists and objects; ours have at most ten


def read_file(path: Path, *, most: int, limit: str, fail: Fail) -> bytes:
    """Return the bytes of a local document, of which there may be at most `most`.

    Args:
        path: The file.
        most: The bound in bytes.
        limit: The field of `options.Limits` that sets the bound, for the error.
        fail: Makes the error for a document that is too large. A file that cannot be opened raises `OSError`.
    """
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise fail(f"{path}: the document has more than {most:,} bytes (Limits.{limit})")
    return data


def parse_json(data: bytes, *, where: str, fail: Fail) -> dict[str, Any]:
    """Return the JSON object that `data` holds; raise `fail(…)` for anything else, however it is malformed."""
    try:
        text = data.decode("utf-8", "surrogateescape")
        if _depth(text) > _DEPTH:
            raise fail(f"{where}: the document is damaged: lists and objects are nested more than {_DEPTH} deep")
        document: Any = json.loads(text)
    except (ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, Tar2TFError):
            raise
        raise fail(f"{where}: the document is damaged: it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise fail(f"{where}: the document is damaged: it holds no JSON object")
    return document


def _depth(text: str) -> int:
    """Return an upper bound of how deep lists and objects are nested: brackets within strings count, too."""
    deepest = depth = 0
    for character in text if text.count("[") + text.count("{") > _DEPTH else "":
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def seal(document: dict[str, Any]) -> dict[str, Any]:
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


def _checksum(document: dict[str, Any]) -> str:
    """Hash the document's values, independent of spacing and of the order of keys."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"xxh3-128:{xxhash.xxh3_128_hexdigest(canonical.encode())}"
