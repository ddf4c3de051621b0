"""What was read of a file, as a small JSON document and a run of bytes: how a helper process hands it over. No I/O.

A value is one of

    {"plain": value}                                  text, a number, or nothing
    {"bytes": [at, size]}                             of the run
    {"array": descr, "shape": [...], "at": offset}    numbers; "shape" null: one numpy number
    {"each": [value, ...], "shape": [...]}            an array of Python objects
    {"texts" or "blobs": [...], "shape", "at"}        such an array of str or bytes only: the length of each
    {"fields": {name: value, ...}, "shape": [...]}    a structured array, some fields of which are Python objects

The process that wrote it may have been led astray by the file, so it is checked when it is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

__all__ = ["Packed", "unpacked"]

_PLAIN = (str, int, float, bool, type(None))
_DEPTH = 16  # lists within lists


class Packed:
    """Collects values: `document` is what `add` returns, and `pieces` are the bytes that it refers to."""

    def __init__(self, placed: Mapping[int, int] | None = None, size: int = 0) -> None:
        self.pieces: list[memoryview] = []
        self.begin: int = size  # where the first piece belongs
        self.size: int = size
        self._placed = placed or {}  # offsets of arrays that are in the run already, by the address of their bytes

    def add(self, value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray | np.generic) and value.dtype.hasobject:
            return self._objects(np.asarray(value))
        if isinstance(value, np.ndarray | np.generic):
            array = np.ascontiguousarray(value)
            descr = np.lib.format.dtype_to_descr(array.dtype)
            shape = list(value.shape) if isinstance(value, np.ndarray) else None
            return {"array": descr, "shape": shape, "at": self._put(array)}
        if isinstance(value, bytes):
            return {"bytes": [self._put(np.frombuffer(value, np.uint8)), len(value)]}
        # What is none of these refers to the file, which is closed then.
        return {"plain": value if isinstance(value, _PLAIN) else None}

    def _put(self, array: Any) -> int:
        if array.nbytes and array.ctypes.data in self._placed:
            return self._placed[array.ctypes.data]
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


def unpacked(document: Any, fill: Callable[[int, Any], None], depth: int = 0) -> Any:
    """Return the value that `Packed.add` made the document of.

    Args:
        document: What `add` returned.
        fill: Fills an array of bytes with those from an offset on, and checks that there are so many.

    Raises:
        ValueError: It is no such document. (Also TypeError, LookupError.)
    """
    if depth > _DEPTH or not isinstance(document, dict):
        raise ValueError("no value")
    if "plain" in document:
        return document["plain"]
    if "bytes" in document:
        at, size = document["bytes"]
        return _filled(np.empty(_whole(size), np.uint8), _whole(at), fill).tobytes()
    if "array" in document:
        return _array(document, fill)
    shape = tuple(map(_whole, document["shape"]))
    if "fields" in document:
        return _structured(document["fields"], shape, fill, depth)
    items = _items(document, fill, depth)
    if len(items) != math.prod(shape):
        raise ValueError("another number of objects than the shape says")
    array = np.empty(len(items), object)
    for place, item in enumerate(items):
        array[place] = item
    return array.reshape(shape)


def _items(document: dict[str, Any], fill: Callable[[int, Any], None], depth: int) -> list[Any]:
    if "each" in document:
        return [unpacked(each, fill, depth + 1) for each in document["each"]]
    lengths = list(map(_whole, document["texts"] if "texts" in document else document["blobs"]))
    run = _filled(np.empty(sum(lengths), np.uint8), _whole(document["at"]), fill).tobytes()
    items: list[Any] = []
    at = 0
    for length in lengths:
        item = run[at : at + length]
        items.append(item.decode("utf-8", "surrogatepass") if "texts" in document else item)
        at += length
    return items


def _array(document: dict[str, Any], fill: Callable[[int, Any], None]) -> Any:
    dtype = np.lib.format.descr_to_dtype(_descr(document["array"]))
    if dtype.hasobject:
        raise ValueError("objects are no numbers")
    shape = () if document["shape"] is None else tuple(map(_whole, document["shape"]))
    array = np.empty(shape, dtype)
    if array.nbytes:
        _filled(array.reshape(-1).view(np.uint8), _whole(document["at"]), fill)
    return array[()] if document["shape"] is None else array


def _structured(fields: Any, shape: tuple[int, ...], fill: Callable[[int, Any], None], depth: int) -> Any:
    columns = {name: unpacked(each, fill, depth + 1) for name, each in fields.items()}
    kinds = [(name, column.dtype, column.shape[len(shape) :]) for name, column in columns.items()]
    array = np.empty(shape, kinds)
    for name, column in columns.items():
        array[name] = column
    return array


def _filled(array: Any, at: int, fill: Callable[[int, Any], None]) -> Any:
    fill(at, array)
    return array


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("no length")
    return value


def _descr(value: Any) -> Any:
    """A dtype's description, in which JSON has made lists of tuples."""
    if isinstance(value, str):
        return value
    if value and isinstance(value[0], str):  # a type and its shape
        return (_descr(value[0]), tuple(map(_whole, value[1])))
    fields: list[Any] = []
    for name, kind, *shape in value:
        title = tuple(name) if isinstance(name, list) else name
        fields.append((title, _descr(kind), *(tuple(map(_whole, each)) for each in shape)))
    return fields
