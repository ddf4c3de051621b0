"""From a record to a new one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.decoders import Decoder
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.mapping import is_tensor, there_of
from ais_tar2tf.nearest import checked_class
from ais_tar2tf.ops._base import Conversion, failure_of, no_field, replaced, type_name
from ais_tar2tf.ops._transforms import convert, resize, rotate
from ais_tar2tf.options import check_effect, whole_number
from ais_tar2tf.records import Record
from ais_tar2tf.schema import LABEL_FIELDS, extension_of, kind_of_field

__all__ = ["Convert", "Decode", "Func", "Rename", "Resize", "Rotate"]


_CHANNELS = (0, 1, 3, 4)
_SAID_CHANNELS = "1 (grey), 3 (colours), 4 (with transparency) or 0 (what an image has)"


def height_and_width(name: str, size: Any) -> tuple[int, int]:
    """Return two positive numbers of pixels; `name` is for errors."""
    rows, columns = (whole_number(name, each) for each in size)
    if min(rows, columns) < 1:
        raise SchemaError(f"{name} is a height and a width of one pixel at least, not {(rows, columns)}")
    return rows, columns


@checked_class
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
    dtype: Any = None
    vocabulary: tuple[str, ...] | None = None
    channels: int = 0  # of an image: 1 grey, 3 colours, 4 with transparency; 0 what it has
    at_least: tuple[int, int] | None = None  # rows and columns

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dtype is not None:
            object.__setattr__(self, "dtype", type_name(self.dtype))
        if self.vocabulary is not None:
            object.__setattr__(self, "vocabulary", tuple(self.vocabulary))
        if self.at_least is not None:
            object.__setattr__(self, "at_least", height_and_width("Decode.at_least", self.at_least))
        object.__setattr__(self, "channels", whole_number("Decode.channels", self.channels))
        if self.channels not in _CHANNELS:
            raise OptionError(f"Decode.channels is {_SAID_CHANNELS}, not {self.channels}")
        kind = self._decoder.kind  # one that does not exist is found here
        for name in ("channels", "at_least") if kind != "image" else ():
            advice = "it is about images; leave it out, or say kind='image'"
            check_effect(name, getattr(self, name) or None, f"on a field that is decoded as {kind}", advice)

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


@checked_class
@dataclass(frozen=True)
class Convert(Conversion):
    """Another type: images are scaled as tf.image.convert_image_dtype does, text is read, others are cast.

    >>> Convert("cls", "int32")({"cls": b" 7"})
    {'cls': np.int32(7)}
    """

    field: str
    dtype: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dtype", type_name(self.dtype))

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: convert(value, self.dtype), "Convert")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Convert", "field": self.field, "dtype": self.dtype}


@checked_class
@dataclass(frozen=True)
class Resize(Conversion):
    """An image in another size (height, width), as tf.image.resize makes it: float32, bilinear."""

    field: str
    size: tuple[int, int]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "size", height_and_width("Resize.size", self.size))

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: resize(value, self.size), "Resize")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Resize", "field": self.field, "size": list(self.size)}


@checked_class
@dataclass(frozen=True)
class Rotate(Conversion):
    """An image turned counter-clockwise by degrees about its centre; its size stays, what comes in is black."""

    field: str
    degrees: float

    def __post_init__(self) -> None:
        super().__post_init__()
        degrees = float(self.degrees)
        if not math.isfinite(degrees):
            raise OptionError(f"Rotate.degrees is a number of degrees, not {self.degrees!r}")
        object.__setattr__(self, "degrees", self.degrees if isinstance(self.degrees, int) else degrees)

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: rotate(value, self.degrees), "Rotate")

    @property
    def reads(self) -> frozenset[str]:
        return frozenset({self.field})

    def to_json(self) -> dict[str, Any]:
        return {"op": "Rotate", "field": self.field, "degrees": self.degrees}


@checked_class
@dataclass(frozen=True, init=False)
class Rename(Conversion):
    """Other names: `Rename(image="jpg;png")` gives `image` the first of `jpg` and `png` that a record has.

    All names are read before any is written, so `Rename(a="b", b="a")` exchanges two. Names that are no Python
    names come as a dict: `Rename({"seg": "seg.png"})`.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]

    def __init__(self, names: Mapping[str, str] | None = None, /, **more: str) -> None:
        given: dict[Any, Any] = {**(names or {}), **more}
        if not all(isinstance(text, str) for pair in given.items() for text in pair):
            raise OptionTypeError(f"Rename takes new='old' or new='a;b', not {given!r}")
        parsed = tuple((new, tuple(old.split(";"))) for new, old in given.items())
        if not parsed or not all(new and all(olds) for new, olds in parsed):
            raise SchemaError(f"Rename takes new='old' or new='a;b', not {given!r}")
        object.__setattr__(self, "names", parsed)

    def __call__(self, record: Record) -> Record:
        found: dict[str, str] = {}
        for new, olds in self.names:
            old = next(iter(there_of(olds, record)), None)
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


@checked_class
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
