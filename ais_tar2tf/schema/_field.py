"""One field of a record: its type, its shape, and how it is stored. Two that are seen of one field become one."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.structure import Mismatch, boolean, fields, listed, maybe, text, whole

__all__ = ["ANY", "ENCODINGS", "FILE_ENCODINGS", "LISTED", "TEXTS", "Field", "Shape"]

Shape = tuple[int | None, ...]

ANY = "any"
"""The type of an empty list: that of the others."""

FILE_ENCODINGS = ("image", "text", "json", "msgpack", "npy", "npz", "audio", "hdf5", "netcdf")
ENCODINGS = ("list", "raw", *FILE_ENCODINGS)
"""`list`: values in a list of their kind. `raw`: an array's bytes, exact. The others: a file's bytes as they are."""

_TEXTUAL = frozenset({"bytes", "string"})
TEXTS = frozenset({*_TEXTUAL, ANY})
"""Types that a list of bytes holds."""

_WIDENING = frozenset({"text", "list", "json"})  # what text is taken for, until a record says otherwise
# Types whose every value a list holds: int64, or float32.
LISTED = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32", "bytes", "string"}
)


@dataclass(frozen=True)
class Field:
    """A field: `shape` has None where sizes vary, `format` is an image's, `dtype` is of what the file decodes to.

    >>> print(Field("jpg", "uint8", (None, None, 3), "image", format="jpeg"))
    jpg: uint8 (?, ?, 3), image jpeg
    """

    name: str
    dtype: str
    shape: Shape = ()
    encoding: str = "list"
    ragged: bool = False  # lists in lists, of different lengths
    sparse: bool = False  # values with their indices
    optional: bool = False  # some records don't have it
    vocabulary: tuple[str, ...] | None = None  # of class labels; a label's number is its place here
    format: str | None = None

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise SchemaError(f"field {self.name!r}: the encoding is one of {', '.join(ENCODINGS)}")
        object.__setattr__(self, "shape", self._checked_shape() if self.shape else ())
        if self.vocabulary is not None:
            object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        if self.dtype not in (*TEXTS, "object"):
            self._check_dtype()
        if self.encoding == "raw" and self.dtype in TEXTS:
            raise SchemaError(f"field {self.name!r}: {self.dtype} has no raw form")

    def _checked_shape(self) -> Shape:
        try:
            shape = tuple(None if size is None else operator.index(size) for size in self.shape)
        except TypeError:
            shape = (-1,)
        if any(size is not None and size < 0 for size in shape):
            raise SchemaError(f"field {self.name!r}: a shape has a size each, or None, not {self.shape!r}")
        return shape

    def _check_dtype(self) -> None:
        try:
            dtype = np.dtype(self.dtype)
        except (TypeError, ValueError, OverflowError, SyntaxError, MemoryError) as error:
            raise SchemaError(f"field {self.name!r}: there is no type {self.dtype!r}") from error
        if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
            raise SchemaError(f"field {self.name!r}: values of {self.dtype!r} are not stored")

    @property
    def dense(self) -> bool:
        """Whether every record has it, in one shape."""
        return not (self.sparse or self.ragged or self.optional or None in self.shape)

    @property
    def is_file(self) -> bool:
        """Whether it is stored as the bytes that it came as."""
        return self.encoding in FILE_ENCODINGS

    @property
    def type_text(self) -> str:
        """Type and shape, as tables and errors say them."""
        shape = ", ".join("?" if size is None else str(size) for size in self.shape)
        comma = "," if len(self.shape) == 1 else ""
        words = [self.dtype, f"({shape}{comma})"] if self.shape else [self.dtype]
        return " ".join([*(["ragged"] if self.ragged else []), *(["sparse"] if self.sparse else []), *words])

    @property
    def encoding_text(self) -> str:
        """How it is stored, and as which format."""
        return f"{self.encoding} {self.format}" if self.format else self.encoding

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}, {self.encoding_text}"

    def to_json(self) -> dict[str, Any]:
        """As plain values; what is as usual is left out."""
        said: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        said["encoding"] = self.encoding
        for flag in ("ragged", "sparse", "optional"):
            if getattr(self, flag):
                said[flag] = True
        if self.vocabulary is not None:
            said["vocabulary"] = list(self.vocabulary)
        if self.format is not None:
            said["format"] = self.format
        return said

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Field:
        """What `to_json` gave."""
        try:
            return cls(**_PLAIN(said))
        except Mismatch as mismatch:
            raise SchemaError(f"this is no field: {mismatch}") from None

    def merge(self, other: Field) -> Field:
        """One field for values of either; SchemaError when there is none."""
        if self == other:
            return self
        if self.name != other.name:
            raise SchemaError(f"{self.name!r} and {other.name!r} are two fields")
        merged = _merged_types(self, other)
        return replace(
            merged, optional=self.optional or other.optional, vocabulary=_merged_vocabularies(self, other, merged)
        )


_FLAGS = dict.fromkeys(("ragged", "sparse", "optional"), boolean)
_PLAIN = fields(
    {"name": text, "dtype": text},
    {
        "shape": listed(maybe(whole())),
        "encoding": text,
        **_FLAGS,
        "vocabulary": maybe(listed(text)),
        "format": maybe(text),
    },
    strict=True,
)


def _merged_vocabularies(one: Field, other: Field, merged: Field) -> tuple[str, ...] | None:
    if one.vocabulary is None or other.vocabulary is None or merged.dtype != "string":
        return None
    if one.vocabulary == other.vocabulary:
        return one.vocabulary
    return tuple(sorted({*one.vocabulary, *other.vocabulary}))


def _merged_types(one: Field, other: Field) -> Field:
    if one.is_file or other.is_file:
        return _merged_files(one, other)
    if ANY in (one.dtype, other.dtype):
        known, empty = (other, one) if one.dtype == ANY else (one, other)
        return _with_empty_list(known, empty)
    if len(one.shape) != len(other.shape):
        raise _conflict(one, other)
    dtype = _merged_dtypes(one, other)
    sparse = one.sparse or other.sparse
    shape = _larger(one.shape, other.shape) if sparse else _common(one.shape, other.shape)
    listed = dtype in LISTED and "raw" not in (one.encoding, other.encoding)
    return replace(
        one,
        dtype=dtype,
        shape=shape,
        encoding="list" if listed else "raw",
        ragged=one.ragged or other.ragged,
        sparse=sparse,
    )


def _with_empty_list(known: Field, empty: Field) -> Field:
    """Lists that end early say nothing of the levels below, and of the type."""
    depth = len(empty.shape)
    if known.dtype == ANY and depth > len(known.shape):
        known, empty, depth = empty, known, len(known.shape)
    if depth > len(known.shape) or (not depth and known.shape):
        raise _conflict(known, empty)
    above = _common(known.shape[:depth], empty.shape)
    return replace(known, shape=(*above, *known.shape[depth:]), ragged=known.ragged or empty.ragged)


def _merged_files(one: Field, other: Field) -> Field:
    if one.encoding == other.encoding:
        same_rank = len(one.shape) == len(other.shape)
        if one.encoding == "text":
            dtype = _merged_numbers(one.dtype, other.dtype)
        else:
            dtype = one.dtype if one.dtype == other.dtype else _wider(one.dtype, other.dtype)
        return replace(
            one,
            dtype=dtype,
            shape=_common(one.shape, other.shape) if same_rank else (),
            format=one.format if one.format == other.format else None,
        )
    encodings = {one.encoding, other.encoding}
    if encodings == {"text", "json"}:
        return replace(one, encoding="text", dtype="string", shape=(), format=None)
    stored = next((each for each in (one, other) if not each.is_file), None)
    if stored is None or (stored.dtype in _TEXTUAL and not stored.shape and stored.encoding == "list"):
        both_text = stored is not None and encodings <= _WIDENING and stored.dtype == "string"
        return Field(one.name, "string" if both_text else "bytes", (), "list")
    raise _conflict(one, other)


def _merged_numbers(one: str, other: str) -> str:
    if one == other:
        return one
    return "string" if "string" in (one, other) else "float64"


def _wider(one: str, other: str) -> str:
    if "object" in (one, other) or {one, other} & _TEXTUAL:
        return "object"
    return np.promote_types(one, other).name


def _merged_dtypes(one: Field, other: Field) -> str:
    a, b = one.dtype, other.dtype
    if a == b:
        return a
    if a in _TEXTUAL and b in _TEXTUAL:
        return "bytes"
    if a in _TEXTUAL or b in _TEXTUAL:
        raise _conflict(one, other)
    kinds = {np.dtype(a).kind, np.dtype(b).kind}
    if "f" in kinds and kinds <= {"f", "i", "u", "b"}:
        floats = [each for each in (a, b) if np.dtype(each).kind == "f"]
        return str(np.result_type(*floats))
    if kinds <= {"i", "u", "b"}:
        wider = np.promote_types(a, b)
        if wider.kind != "f":
            return wider.name
    elif len(kinds) == 1:
        return str(np.promote_types(a, b))
    raise _conflict(one, other)


def _common(one: Shape, other: Shape) -> Shape:
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _larger(one: Shape, other: Shape) -> Shape:
    return tuple(None if a is None or b is None else max(a, b) for a, b in zip(one, other, strict=True))


def _conflict(one: Field, other: Field) -> SchemaError:
    return SchemaError(
        f"field {one.name!r} is {one.type_text} ({one.encoding_text}) "
        f"and {other.type_text} ({other.encoding_text}): nothing holds both"
    )
