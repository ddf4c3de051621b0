"""From a record to a new one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.decoders import Decoder
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.mapping import is_tensor
from ais_tar2tf.ops._base import Conversion, failure_of, no_field, replaced, type_name
from ais_tar2tf.ops._transforms import convert, resize, rotate
from ais_tar2tf.records import Record
from ais_tar2tf.schema import LABEL_FIELDS, extension_of, kind_of_field

__all__ = ["Convert", "Decode", "Func", "Rename", "Resize", "Rotate"]


@dataclass(frozen=True)
class Decode(Conversion):
    """What a file says, in the place of its bytes: pixels, a label's number, an array, what JSON says.

    The kind is what the field's extension says, an image if it says nothing; or say it: `Decode("raw", "npy")`.
    In a graph, text stays a string tensor and JSON cannot be decoded: take values out of it by SelectJSON.

    `at_least=(height, width)` lets a JPEG that is larger be scaled to a half, a quarter or an eighth while it is
    decoded, never below that size: much quicker before a Resize, and close to what a Resize of all its pixels gives.

    >>> Decode("cls")({"cls": b"7"})
    {'cls': 7}
    """

    field: str
    kind: str | None = None
    dtype: str | None = None
    vocabulary: tuple[str, ...] | None = None
    channels: int = 0  # of an image: 1 grey, 3 colours, 4 with transparency; 0 what it has
    at_least: tuple[int, int] | None = None  # rows and columns

    def __post_init__(self) -> None:
        if self.dtype is not None:
            object.__setattr__(self, "dtype", type_name(self.dtype))
        if self.vocabulary is not None:
            object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        if self.at_least is not None:
            object.__setattr__(self, "at_least", tuple(self.at_least))
        _ = self._decoder  # a kind that does not exist is found now

    @property
    def _decoder(self) -> Decoder:
        return Decoder(
            self.kind or self._usual,
            self.dtype,
            self.vocabulary,
            channels=self.channels,
            at_least=self.at_least,
            as_in_graph=True,
        )

    @property
    def _usual(self) -> str:
        if self.vocabulary is not None:
            return "label"
        if extension_of(self.field) in LABEL_FIELDS:
            return "number"
        return kind_of_field(self.field) or "image"

    def __call__(self, record: Record) -> Record:
        decoder = self._decoder
        return replaced(record, self.field, lambda v: decoder.in_graph(v) if is_tensor(v) else decoder(v), "Decode")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        words = None if self.vocabulary is None else list(self.vocabulary)
        said: dict[str, Any] = {"field": self.field, "kind": self.kind, "dtype": self.dtype, "vocabulary": words}
        said["channels"] = self.channels or None
        said["at_least"] = None if self.at_least is None else list(self.at_least)
        return {"op": "Decode", **{name: value for name, value in said.items() if value is not None}}


@dataclass(frozen=True)
class Convert(Conversion):
    """Another type: images are scaled as tf.image.convert_image_dtype does, text is read, others are cast.

    >>> Convert("cls", "int32")({"cls": b" 7"})
    {'cls': np.int32(7)}
    """

    field: str
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", type_name(self.dtype))

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: convert(value, self.dtype), "Convert")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Convert", "field": self.field, "dtype": self.dtype}


@dataclass(frozen=True)
class Resize(Conversion):
    """An image in another size (height, width), as tf.image.resize makes it: float32, bilinear."""

    field: str
    size: tuple[int, int]

    def __post_init__(self) -> None:
        size = tuple(int(each) for each in self.size)
        if len(size) != 2 or min(size) < 1:
            raise SchemaError(f"an image has a height and a width, not {self.size!r}")
        object.__setattr__(self, "size", size)

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: resize(value, self.size), "Resize")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Resize", "field": self.field, "size": list(self.size)}


@dataclass(frozen=True)
class Rotate(Conversion):
    """An image turned counter-clockwise by degrees about its centre; its size stays, what comes in is black."""

    field: str
    degrees: float

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: rotate(value, self.degrees), "Rotate")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Rotate", "field": self.field, "degrees": self.degrees}


@dataclass(frozen=True, init=False)
class Rename(Conversion):
    """Other names: `Rename(image="jpg;png")` gives `image` the first of `jpg` and `png` that a record has.

    All names are read before any is written, so `Rename(a="b", b="a")` exchanges two. Names that are no Python
    names come as a dict: `Rename({"seg": "seg.png"})`.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]

    def __init__(self, names: Mapping[str, str] | None = None, /, **more: str) -> None:
        given = {**(names or {}), **more}
        parsed = tuple((new, tuple(old.split(";"))) for new, old in given.items())
        if not parsed or not all(new and all(olds) for new, olds in parsed):
            raise SchemaError(f"Rename takes new='old' or new='a;b', not {given!r}")
        object.__setattr__(self, "names", parsed)

    def __call__(self, record: Record) -> Record:
        found: dict[str, str] = {}
        for new, olds in self.names:
            old = next((each for each in olds if each in record), None)
            if old is None:
                raise no_field(record, *olds)
            found[new] = old
        moved = {new: record[old] for new, old in found.items()}
        gone = set(found.values())
        return {**{name: value for name, value in record.items() if name not in gone}, **moved}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(old for _, olds in self.names for old in olds)

    def to_json(self) -> dict[str, Any]:
        return {"op": "Rename", "names": {new: ";".join(olds) for new, olds in self.names}}


@dataclass(frozen=True)
class Func(Conversion):
    """A function of yours from a record to a record. In a graph it is traced, if it can be."""

    function: Callable[[Record], Record]

    def __call__(self, record: Record) -> Record:
        if any(is_tensor(value) for value in record.values()):
            import tensorflow as tf

            return dict(tf.function(self.function)(dict(record)))
        try:
            result: Any = self.function(dict(record))
            if not isinstance(result, Mapping):
                raise SchemaError(f"it returned {type(result).__name__}; a record is expected")  # noqa: TRY301
        except Exception as error:
            raise failure_of(error, record, "Func") from error
        return dict(result)

    @property
    def reads(self) -> None:
        return None
