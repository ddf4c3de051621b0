"""Conversions: ops that return a new record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.base.nearest import checked_class
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.ops.base import ConversionOp, failure_of, missing_field, replaced, type_name
from ais_tar2tf.ops.transforms import convert, resize, rotate
from ais_tar2tf.options import check_effect, whole_number
from ais_tar2tf.records import Record
from ais_tar2tf.values.decoders import Decoder
from ais_tar2tf.values.default_mappings import present_fields
from ais_tar2tf.values.graph_values import is_tensor
from ais_tar2tf.values.schema import LABEL_FIELDS, extension_of, kind_of_field

__all__ = ["Convert", "Decode", "Func", "Rename", "Resize", "Rotate"]


_CHANNELS = (0, 1, 3, 4)
_CHANNELS_TEXT = "1 (grey), 3 (colours), 4 (with transparency) or 0 (what an image has)"


def height_and_width(name: str, size: Any) -> tuple[int, int]:
    """Check a size in pixels, whose `name` an error tells, and return it as two ints."""
    rows, columns = (whole_number(name, each) for each in size)
    if min(rows, columns) < 1:
        raise SchemaError(f"{name} is a height and a width of one pixel at least, not {(rows, columns)}")
    return rows, columns


@checked_class
@dataclass(frozen=True)
class Decode(ConversionOp):
    """A conversion that decodes a file: to pixels, a number, text, an array, or the values in JSON.

    In a graph, text stays a string tensor, and JSON cannot be decoded; `SelectJSON` selects values from it.

    Args:
        field: The field to decode.
        kind: How to decode it, as `"image"` or `"npy"`. Default: a label if there is a vocabulary, otherwise by the
            extension in the field's name, and an image if that is unknown.
        dtype: The type of the numbers. Default: that of the file.
        vocabulary: The names of classes: a label becomes its position in this list.
        channels: The channels of an image: 1 is grey, 3 are colours, 4 are colours with transparency. Default: 0,
            those of the file.
        at_least: A height and a width. A larger JPEG is scaled to a half, a quarter or an eighth while it is decoded,
            and stays at least this large. This is much faster before a `Resize`, and nearly as precise.

    Raises:
        ValueError: A setting has a wrong value, or is one of images on another kind.

    Example:
        >>> Decode("cls")({"cls": b"7"})
        {'cls': 7}
    """

    field: str
    kind: str | None = None
    dtype: Any = None
    vocabulary: tuple[str, ...] | None = None
    channels: int = 0
    at_least: tuple[int, int] | None = None

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
            raise OptionError(f"Decode.channels is {_CHANNELS_TEXT}, not {self.channels}")
        kind = self._decoder.kind  # raises for an unknown kind
        for name in ("channels", "at_least") if kind != "image" else ():
            advice = "it is about images; leave it out, or say kind='image'"
            check_effect(name, getattr(self, name) or None, f"on a field that is decoded as {kind}", advice)

    @property
    def _decoder(self) -> Decoder:
        return Decoder(
            self.kind or self._default_kind,
            self.dtype,
            self.vocabulary,
            channels=self.channels,
            at_least=self.at_least,
            by_tensorflow=True,
        )

    @property
    def _default_kind(self) -> str:
        if self.vocabulary is not None:
            return "label"
        if extension_of(self.field) in LABEL_FIELDS:
            return "number"
        return kind_of_field(self.field) or "image"

    def __call__(self, record: Record) -> Record:
        decoder = self._decoder
        return replaced(
            record,
            self.field,
            lambda value: decoder.decode_tensor(value) if is_tensor(value) else decoder(value),
            "Decode",
        )


@checked_class
@dataclass(frozen=True)
class Convert(ConversionOp):
    """A conversion to another type.

    Images are scaled as tf.image.convert_image_dtype does, text is parsed as a number, and other values are cast.

    Args:
        field: The field to convert.
        dtype: The type, by its name or as a type of NumPy or TensorFlow.

    Raises:
        SchemaError: There is no such type.

    Example:
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


@checked_class
@dataclass(frozen=True)
class Resize(ConversionOp):
    """A conversion of an image to another size, as tf.image.resize does it: bilinear, with float32 values.

    Args:
        field: The field of the image.
        size: The height and the width in pixels.

    Raises:
        SchemaError: The size is not positive.
    """

    field: str
    size: tuple[int, int]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "size", height_and_width("Resize.size", self.size))

    def __call__(self, record: Record) -> Record:
        return replaced(record, self.field, lambda value: resize(value, self.size), "Resize")


@checked_class
@dataclass(frozen=True)
class Rotate(ConversionOp):
    """A conversion that rotates an image counter-clockwise about its centre. Its size stays; new corners are black.

    Args:
        field: The field of the image.
        degrees: The angle.

    Raises:
        OptionError: The angle is not a finite number.
    """

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


@checked_class
@dataclass(frozen=True, init=False)
class Rename(ConversionOp):
    """A conversion that gives fields other names.

    `Rename(image="jpg;png")` renames the first of `jpg` and `png` that a record has to `image`. All values are read
    before any is written, so that `Rename(a="b", b="a")` exchanges two fields. Names that Python does not accept as
    keywords are given in a dict: `Rename({"seg": "seg.png"})`.

    Attributes:
        names: The new names, each with the fields that may become it.
    """

    names: tuple[tuple[str, tuple[str, ...]], ...]

    def __init__(self, names: Mapping[str, str] | None = None, /, **more: str) -> None:
        """Set the names.

        Args:
            names: Old names by new name.
            **more: The same, as keywords.

        Raises:
            SchemaError: There is no name, or an empty one.
            OptionTypeError: A name is no text.
        """
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
            old = next(iter(present_fields(olds, record)), None)
            if old is None:
                raise missing_field(record, *olds)
            found[new] = old
        others = {name: value for name, value in record.items() if name not in found.values()}
        return {**others, **{new: record[old] for new, old in found.items()}}

    @property
    def reads(self) -> frozenset[str]:
        return frozenset(old for _, olds in self.names for old in olds)

    def to_json(self) -> dict[str, Any]:
        return {"op": "Rename", "names": {new: ";".join(olds) for new, olds in self.names}}


@checked_class
@dataclass(frozen=True)
class Func(ConversionOp):
    """A conversion by a function of the user's. In a graph, the function is traced.

    Args:
        function: A function that gets a record and returns one.
    """

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

    def to_json(self) -> dict[str, Any]:
        raise SchemaError("Func cannot be written as JSON")
