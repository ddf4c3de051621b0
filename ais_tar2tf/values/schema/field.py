"""`Field`: the description of one field of a record: its type, its shape, and how it is stored.

`Field.merge` combines two descriptions into one that fits the values of both. This module must not look at values:
`observation.py` finds the description of a value.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ais_tar2tf.base.documents.structure import Mismatch, boolean, fields, listed, maybe, text, whole
from ais_tar2tf.errors import SchemaError

__all__ = ["ANY", "ENCODINGS", "FILE_ENCODINGS", "LIST_DTYPES", "TEXT_DTYPES", "Field", "Shape"]

Shape = tuple[int | None, ...]

ANY = "any"
"""The type of an empty list. It merges with any other type."""

FILE_ENCODINGS = ("image", "text", "json", "msgpack", "npy", "npz", "audio", "hdf5", "netcdf")
ENCODINGS = ("list", "raw", *FILE_ENCODINGS)
"""How a field is stored: `list` as a bytes, float or int64 list, `raw` as the bytes of an array, others as a file."""

_TEXTUAL = frozenset({"bytes", "string"})
TEXT_DTYPES = frozenset({*_TEXTUAL, ANY})
"""Types that are stored in a bytes list."""

# The types whose values all fit into an int64, float32 or bytes list.
LIST_DTYPES = frozenset(
    {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "float16", "float32", "bytes", "string"}
)


@dataclass(frozen=True)
class Field:
    """The description of one field of a record.

    Attributes:
        name: The name of the field.
        dtype: The type of the values, or of the decoded values of a file.
        shape: The size of each dimension, None where sizes vary.
        encoding: How the field is stored, one of `ENCODINGS`.
        ragged: Whether the values are nested lists of different lengths.
        sparse: Whether the values are stored with their indices.
        optional: Whether some records lack the field.
        vocabulary: The words of a label. The number of a class is the index of its word.
        format: The format of an image.

    >>> print(Field("jpg", "uint8", (None, None, 3), "image", format="jpeg"))
    jpg: uint8 (?, ?, 3), image jpeg
    """

    name: str
    dtype: str
    shape: Shape = ()
    encoding: str = "list"
    ragged: bool = False
    sparse: bool = False
    optional: bool = False
    vocabulary: tuple[str, ...] | None = None
    format: str | None = None

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise SchemaError(f"field {self.name!r}: the encoding is one of {', '.join(ENCODINGS)}")
        object.__setattr__(self, "shape", self._checked_shape() if self.shape else ())
        if self.vocabulary is not None:
            object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        if self.dtype not in (*TEXT_DTYPES, "object"):
            self._check_dtype()
        if self.encoding == "raw" and self.dtype in TEXT_DTYPES:
            raise SchemaError(f"field {self.name!r}: {self.dtype} has no raw form")

    def _checked_shape(self) -> Shape:
        try:
            shape = tuple(None if size is None else operator.index(size) for size in self.shape)
        except TypeError:
            shape = (-1,)
        if any(size is not None and size < 0 for size in shape):
            raise SchemaError(
                f"field {self.name!r}: the shape {self.shape!r} needs a size of 0 or more, or None, per dimension"
            )
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
        """Whether every record has the field, and all of its values have the same shape."""
        return not (self.sparse or self.ragged or self.optional or None in self.shape)

    @property
    def is_file(self) -> bool:
        """Whether the field is stored as the unchanged bytes of a file."""
        return self.encoding in FILE_ENCODINGS

    @property
    def type_text(self) -> str:
        """The type and shape as text, for tables and errors."""
        shape = ", ".join("?" if size is None else str(size) for size in self.shape)
        comma = "," if len(self.shape) == 1 else ""
        words = [self.dtype, f"({shape}{comma})"] if self.shape else [self.dtype]
        return " ".join([*(["ragged"] if self.ragged else []), *(["sparse"] if self.sparse else []), *words])

    @property
    def encoding_text(self) -> str:
        """The encoding and format as text, for tables and errors."""
        return f"{self.encoding} {self.format}" if self.format else self.encoding

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}, {self.encoding_text}"

    def to_json(self) -> dict[str, Any]:
        """Return the field as a JSON object. Attributes after `encoding` with their default value are left out."""
        document: dict[str, Any] = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape)}
        document["encoding"] = self.encoding
        for flag in ("ragged", "sparse", "optional"):
            if getattr(self, flag):
                document[flag] = True
        if self.vocabulary is not None:
            document["vocabulary"] = list(self.vocabulary)
        if self.format is not None:
            document["format"] = self.format
        return document

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Field:
        """Return the field that a JSON object of `to_json` describes.

        Args:
            said: The JSON object.

        Raises:
            SchemaError: The object describes no field.
        """
        try:
            return cls(**_DOCUMENT(said))
        except Mismatch as mismatch:
            raise SchemaError(f"this is no field: {mismatch}") from None

    def merge(self, other: Field) -> Field:
        """Return one field that describes the values of this field and of another field.

        Args:
            other: A field of the same name.

        Raises:
            SchemaError: No type or encoding holds the values of both.
        """
        if self == other:
            return self
        if self.name != other.name:
            raise SchemaError(f"{self.name!r} and {other.name!r} are two fields")
        merged = _merged(self, other)
        vocabulary = _merged_vocabularies(self, other) if merged.dtype == "string" else None
        return replace(merged, optional=self.optional or other.optional, vocabulary=vocabulary)


_DOCUMENT = fields(
    {"name": text, "dtype": text},
    {
        "shape": listed(maybe(whole())),
        "encoding": text,
        **dict.fromkeys(("ragged", "sparse", "optional"), boolean),
        "vocabulary": maybe(listed(text)),
        "format": maybe(text),
    },
    strict=True,
)


def _merged_vocabularies(one: Field, other: Field) -> tuple[str, ...] | None:
    if one.vocabulary is None or other.vocabulary is None:
        return None
    if one.vocabulary == other.vocabulary:
        return one.vocabulary
    return tuple(sorted({*one.vocabulary, *other.vocabulary}))


def _merged(one: Field, other: Field) -> Field:
    """Merge types, shapes and encodings.

    Where two sizes differ, a sparse field keeps the larger size. In any other field, and in a merge with
    a field of empty lists, the size becomes None.
    """
    if one.is_file or other.is_file:
        return _merged_files(one, other)
    if ANY in (one.dtype, other.dtype):
        typed, empty = (other, one) if one.dtype == ANY else (one, other)
        return _merged_with_empty_list(typed, empty)
    if len(one.shape) != len(other.shape):
        raise _conflict(one, other)
    dtype = _common_dtype(one, other)
    sparse = one.sparse or other.sparse
    shape = _larger_shape(one.shape, other.shape) if sparse else _common_shape(one.shape, other.shape)
    is_list = dtype in LIST_DTYPES and "raw" not in (one.encoding, other.encoding)
    encoding = "list" if is_list else "raw"
    return replace(one, dtype=dtype, shape=shape, encoding=encoding, ragged=one.ragged or other.ragged, sparse=sparse)


def _merged_with_empty_list(typed: Field, empty: Field) -> Field:
    """Merge a field with a field of empty lists, which has no type.

    The shape of an empty list ends with the size 0 of its empty level: (0,) for [], (2, 0) for [[], []]. The sizes of
    further levels come from the other field.
    """
    depth = len(empty.shape)
    if typed.dtype == ANY and depth > len(typed.shape):
        typed, empty, depth = empty, typed, len(typed.shape)
    if depth > len(typed.shape) or (not depth and typed.shape):
        raise _conflict(typed, empty)
    outer = _common_shape(typed.shape[:depth], empty.shape)
    return replace(typed, shape=(*outer, *typed.shape[depth:]), ragged=typed.ragged or empty.ragged)


def _merged_files(one: Field, other: Field) -> Field:
    """Merge two fields of which at least one is a file.

    Two files of the same kind remain a file of this kind. Text and JSON become text. Any other two kinds of files
    become bytes. A string and a file of text or JSON become a string. A string and any other file become bytes, and
    so do bytes and any file. A file and a number are a conflict.
    """
    if one.encoding == other.encoding:
        common_dtype = _common_text_dtype if one.encoding == "text" else _common_file_dtype
        same_rank = len(one.shape) == len(other.shape)
        return replace(
            one,
            dtype=common_dtype(one.dtype, other.dtype),
            shape=_common_shape(one.shape, other.shape) if same_rank else (),
            format=one.format if one.format == other.format else None,
        )
    encodings = {one.encoding, other.encoding}
    if encodings == {"text", "json"}:
        return replace(one, encoding="text", dtype="string", shape=(), format=None)
    value = next((field for field in (one, other) if not field.is_file), None)
    if value is None:
        return Field(one.name, "bytes")
    if value.dtype in _TEXTUAL and not value.shape and value.encoding == "list":
        both_text = value.dtype == "string" and encodings <= {"text", "json", "list"}
        return Field(one.name, "string" if both_text else "bytes")
    raise _conflict(one, other)


def _common_text_dtype(one: str, other: str) -> str:
    if one == other:
        return one
    return "string" if "string" in (one, other) else "float64"


def _common_file_dtype(one: str, other: str) -> str:
    if one == other:
        return one
    if "object" in (one, other) or {one, other} & _TEXTUAL:
        return "object"
    return np.promote_types(one, other).name


def _common_dtype(one: Field, other: Field) -> str:
    """Return a type for the values of both fields, or raise SchemaError if there is none.

    Bytes and text become bytes. Integers and floats become the type of the floats.
    """
    a, b = one.dtype, other.dtype
    if a == b:
        return a
    if {a, b} <= _TEXTUAL:
        return "bytes"
    if {a, b} & _TEXTUAL:
        raise _conflict(one, other)
    kinds = {np.dtype(a).kind, np.dtype(b).kind}
    if "f" in kinds and kinds <= set("fiub"):
        return str(np.result_type(*(name for name in (a, b) if np.dtype(name).kind == "f")))
    if kinds <= set("iub") or len(kinds) == 1:
        wider = np.promote_types(a, b)
        if wider.kind in kinds:  # false for int64 and uint64: float64 cannot hold all of their values
            return str(wider)
    raise _conflict(one, other)


def _common_shape(one: Shape, other: Shape) -> Shape:
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _larger_shape(one: Shape, other: Shape) -> Shape:
    return tuple(None if a is None or b is None else max(a, b) for a, b in zip(one, other, strict=True))


def _conflict(one: Field, other: Field) -> SchemaError:
    return SchemaError(
        f"field {one.name!r} is {one.type_text} ({one.encoding_text}) "
        f"and {other.type_text} ({other.encoding_text}): nothing holds both"
    )
