"""The format in which a helper process returns the values of a file: JSON documents, and raw bytes. No I/O.

A document describes one value. Offsets count from the first of the raw bytes. A document is one of

    {"plain": value}                                          text, a number, or null
    {"bytes": [offset, size]}                                 bytes
    {"array": descr, "shape": [...], "at": offset}            an array of numbers; a single number if "shape" is null
    {"each": [document, ...], "shape": [...]}                 an array of Python objects
    {"texts": [length, ...], "shape": [...], "at": offset}    an array of str only: the length of each, in UTF-8
    {"blobs": [length, ...], "shape": [...], "at": offset}    an array of bytes only: the length of each
    {"fields": {name: document, ...}, "shape": [...]}         a structured array with fields of Python objects

A hostile file may have taken over the process that writes the documents, so `unpack` checks lengths, shapes and
types.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import numpy as np

from ais_tar2tf.options import MIB

__all__ = ["KEPT_BYTES", "LENGTH", "ValuePacker", "unpack"]

LENGTH = struct.Struct("<Q")
"""The format of the length before each request and each answer."""

KEPT_BYTES = 64 * MIB
"""The largest size of the memory that a helper shares and keeps between two files."""

_PLAIN = (str, int, float, bool, type(None))
_MAX_DEPTH = 16  # of documents inside documents


class ValuePacker:
    """Packs values: `add` returns the document of a value, and `pieces` are the raw bytes that are not written yet.

    Args:
        offsets: Maps the memory address of an array to its offset, if its bytes are already among the raw bytes.
        size: The size of the raw bytes that are already written. The pieces follow them.
    """

    def __init__(self, offsets: Mapping[int, int] | None = None, size: int = 0) -> None:
        self.pieces: list[memoryview] = []
        self.begin: int = size  # the offset of the first piece
        self.size: int = size
        self._offsets = offsets or {}

    def add(self, value: Any) -> dict[str, Any]:
        """Add a value and return its document."""
        if isinstance(value, np.ndarray | np.generic) and value.dtype.hasobject:
            return self._objects(np.asarray(value))
        if isinstance(value, np.ndarray | np.generic):
            array = np.ascontiguousarray(value)
            descr = np.lib.format.dtype_to_descr(array.dtype)
            shape = list(value.shape) if isinstance(value, np.ndarray) else None
            return {"array": descr, "shape": shape, "at": self._put(array)}
        if isinstance(value, bytes):
            return {"bytes": [self._put(np.frombuffer(value, np.uint8)), len(value)]}
        # Other values, such as HDF5 references, become None: they are useless without the open file.
        return {"plain": value if isinstance(value, _PLAIN) else None}

    def _put(self, array: Any) -> int:
        if array.nbytes and array.ctypes.data in self._offsets:
            return self._offsets[array.ctypes.data]
        at = self.size
        self.pieces.append(memoryview(array.reshape(-1).view(np.uint8)))
        self.size += array.nbytes
        return at

    def _objects(self, array: Any) -> dict[str, Any]:
        shape = list(array.shape)
        if array.dtype.names is not None:
            return {"fields": {name: self.add(array[name]) for name in array.dtype.names}, "shape": shape}
        items = array.reshape(-1).tolist()
        for name, kind, encode in (("texts", str, _encoded), ("blobs", bytes, bytes)):
            if items and all(type(item) is kind for item in items):
                parts = [encode(item) for item in items]
                at = self._put(np.frombuffer(b"".join(parts), np.uint8))
                return {name: list(map(len, parts)), "shape": shape, "at": at}
        return {"each": [self.add(item) for item in items], "shape": shape}


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def unpack(document: Any, fill: Callable[[int, Any], None], depth: int = 0) -> Any:
    """Return the value of a document that `ValuePacker.add` returned.

    Args:
        document: The document.
        fill: Fills an array with the raw bytes from an offset on. Raises ValueError if there are too few.
        depth: The number of documents around this one.

    Raises:
        ValueError, TypeError, LookupError, AttributeError, MemoryError: The document is malformed.
    """
    if depth > _MAX_DEPTH or not isinstance(document, dict):
        raise ValueError("a document is malformed or nested too deeply")
    if "plain" in document:
        if not isinstance(document["plain"], _PLAIN):
            raise ValueError("a plain value is a text, a number or null")
        return document["plain"]
    if "bytes" in document:
        at, size = document["bytes"]
        return _filled(np.empty(_length(size), np.uint8), _length(at), fill).tobytes()
    if "array" in document:
        return _array(document, fill)
    shape = tuple(map(_length, document["shape"]))
    if "fields" in document:
        return _structured(document["fields"], shape, fill, depth)
    items = _items(document, fill, depth)
    if len(items) != math.prod(shape):
        raise ValueError("the number of objects does not fit the shape")
    array = np.empty(len(items), object)
    for position, item in enumerate(items):
        array[position] = item
    return array.reshape(shape)


def _items(document: dict[str, Any], fill: Callable[[int, Any], None], depth: int) -> list[Any]:
    if "each" in document:
        return [unpack(each, fill, depth + 1) for each in document["each"]]
    lengths = list(map(_length, document["texts"] if "texts" in document else document["blobs"]))
    run = _filled(np.empty(sum(lengths), np.uint8), _length(document["at"]), fill).tobytes()
    items = [run[end - length : end] for length, end in zip(lengths, accumulate(lengths), strict=True)]
    return [item.decode("utf-8", "surrogatepass") for item in items] if "texts" in document else items


def _array(document: dict[str, Any], fill: Callable[[int, Any], None]) -> Any:
    dtype = np.lib.format.descr_to_dtype(_descr(document["array"]))
    if dtype.hasobject:
        raise ValueError("an array of numbers has the dtype of objects")
    shape = () if document["shape"] is None else tuple(map(_length, document["shape"]))
    array = np.empty(shape, dtype)
    if array.nbytes:
        _filled(array.reshape(-1).view(np.uint8), _length(document["at"]), fill)
    return array[()] if document["shape"] is None else array


def _structured(fields: Any, shape: tuple[int, ...], fill: Callable[[int, Any], None], depth: int) -> Any:
    columns = {name: unpack(each, fill, depth + 1) for name, each in fields.items()}
    dtype = [(name, column.dtype, column.shape[len(shape) :]) for name, column in columns.items()]
    array = np.empty(shape, dtype)
    for name, column in columns.items():
        array[name] = column
    return array


def _filled(array: Any, at: int, fill: Callable[[int, Any], None]) -> Any:
    fill(at, array)
    return array


def _length(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("a length or an offset is not a whole number")
    return value


def _descr(value: Any) -> Any:
    """Restore the tuples in the description of a dtype, which JSON turned into lists."""
    if isinstance(value, str):
        return value
    if value and isinstance(value[0], str):  # a dtype and its shape
        return (_descr(value[0]), tuple(map(_length, value[1])))
    fields: list[Any] = []
    for name, kind, *shape in value:
        title = tuple(name) if isinstance(name, list) else name
        fields.append((title, _descr(kind), *(tuple(map(_length, each)) for each in shape)))
    return fields
