"""`Decoder`: the decoder of one field, for bytes in Python and for string tensors in a graph.

Both give the same value, except for the pixels of a JPEG that Pillow decodes. In Python, TensorFlow is imported only
for audio files, and for images that Pillow cannot or must not decode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ais_tar2tf.base.documents.parsing import json_value, msgpack_value
from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import OptionTypeError, SchemaError
from ais_tar2tf.values import arrays, hdf5
from ais_tar2tf.values.decoders import graph as _graph
from ais_tar2tf.values.decoders import pillow as _pillow
from ais_tar2tf.values.graph_values import to_number
from ais_tar2tf.values.schema import number_of_text

tf: Any = LazyModule("tensorflow")

__all__ = ["KINDS", "WITHOUT_TENSOR", "Decoder"]


@dataclass(frozen=True)
class Decoder:
    """The decoder of one field. Call the decoder with bytes, or call `decode_tensor` with a string tensor.

    Attributes:
        kind: The kind of the field, one of `KINDS`.
        dtype: The type of an image, an array or a number.
        vocabulary: The words of a label. A label decodes to the index of its word.
        shape: The shape of an image or an array, with None for unknown sizes.
        function: A function of the user that decodes the field; `kind` is then ignored.
        channels: The number of channels of a decoded image; 0 keeps the number of the file.
        at_least: The smallest height and width to which a JPEG may be scaled down during decoding. None forbids
            scaling.
        by_tensorflow: Whether TensorFlow, and not Pillow, decodes images that are passed as bytes. Pillow decodes a
            JPEG to slightly different pixels.

    >>> Decoder("number", "int32")(b" 7 ")
    7
    """

    kind: str
    dtype: str | None = None
    vocabulary: tuple[str, ...] | None = None
    shape: tuple[int | None, ...] | None = None
    function: Callable[[bytes], Any] | None = None
    channels: int = 0
    at_least: tuple[int, int] | None = None
    by_tensorflow: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS and self.function is None:
            raise SchemaError(f"a field is decoded as one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.kind == "label" and not self.vocabulary:
            raise SchemaError("a label needs its vocabulary: decode={'cls': ['cat', 'dog', …]}")

    def __call__(self, data: Any) -> Any:
        """Return the value of a field.

        If there is a `function`, it is called with `data` of any type. Otherwise, `data` that is not bytes is already
        decoded, and is returned unchanged.
        """
        if self.function is not None:
            return self.function(data)
        if not isinstance(data, bytes | bytearray | memoryview):
            return data
        return _KINDS[self.kind].python(self, bytes(data))

    def decode_tensor(self, encoded: Any) -> Any:
        """Decode a scalar string tensor to a tensor, by operations of a graph."""
        if self.function is not None:
            raise OptionTypeError(
                "a function decodes this field, which a graph cannot call; use record_to_pair or map"
            )
        decode = _KINDS[self.kind].graph
        if decode is None:
            raise OptionTypeError(
                f"{self.kind} has no tensor form; take a value out by ops.SelectJSON, or by a map of yours"
            )
        return decode(self, encoded)


def _image(decoder: Decoder, data: bytes) -> Any:
    """Return the pixels of an image, or of the first frame of an animation.

    Pillow decodes the image if it can, unless `by_tensorflow` or `at_least` requires TensorFlow. The module `pillow`
    says how the pixels of a JPEG differ between Pillow and TensorFlow.
    """
    dtype, channels = decoder.dtype or "uint8", decoder.channels
    if decoder.at_least is not None:
        return _graph.image(tf.constant(data), dtype, channels, None, decoder.at_least).numpy()
    pixels = None if decoder.by_tensorflow else _pillow.pixels(data, dtype, channels)
    if pixels is None:
        return tf.io.decode_image(data, channels, tf.as_dtype(dtype), expand_animations=False).numpy()
    return pixels


def _image_in_graph(decoder: Decoder, tensor: Any) -> Any:
    return _graph.image(tensor, decoder.dtype or "uint8", decoder.channels, decoder.shape, decoder.at_least)


def _label(decoder: Decoder, data: bytes) -> int:
    word = data.decode().strip()
    if word not in (decoder.vocabulary or ()):
        raise SchemaError(f"label {word!r} is not in its vocabulary")
    return (decoder.vocabulary or ()).index(word)


def _array_in_graph(decoder: Decoder, tensor: Any) -> Any:
    if decoder.dtype is None:
        raise SchemaError("an array's type has to be known in a dataset: decode=True looks at a sample")
    return _graph.array(tensor, decoder.dtype, decoder.shape)


def _number(decoder: Decoder, data: bytes) -> Any:
    """Return the number that a text states; surrounding whitespace is ignored."""
    try:
        return number_of_text(data, decoder.dtype or "int64")
    except SchemaError as error:
        advice = "; if these are words, name all of them: decode={'cls': ['cat', 'dog', …]}"
        raise SchemaError(f"{error}{advice if 'not a number' in str(error) else ''}") from None


def _audio(_: Decoder, data: bytes) -> Any:
    """Return the samples of a 16-bit WAV file as (samples, channels), in -1..1."""
    if data[:4] == b"fLaC":
        raise SchemaError("TensorFlow decodes WAV, not FLAC; decode it by a function of yours")
    return tf.audio.decode_wav(data).audio.numpy()


def _hdf5(_: Decoder, data: bytes) -> dict[str, Any]:
    """Return a dict from the paths of the variables in an HDF5 or netCDF-4 file to their values.

    The dict also holds the attributes of the file, with an `@` before each name.
    """
    file = hdf5.read(data)
    return {**file.variables, **{f"@{name}": value for name, value in file.attributes.items()}}


class _Kind(NamedTuple):
    """The two ways in which fields of one kind are decoded: bytes in Python, and string tensors in a graph."""

    python: Callable[[Decoder, bytes], Any]
    graph: Callable[[Decoder, Any], Any] | None = None  # None: the values cannot be tensors


_KINDS = {
    "bytes": _Kind(lambda _, data: data, lambda _, tensor: tensor),
    "image": _Kind(_image, _image_in_graph),
    "text": _Kind(lambda _, data: data.decode(), lambda _, tensor: tensor),
    "number": _Kind(_number, lambda decoder, tensor: to_number(tensor, decoder.dtype or "int64")),
    "label": _Kind(_label, lambda decoder, tensor: _graph.label(tensor, decoder.vocabulary or ())),
    "json": _Kind(lambda _, data: json_value(data)),
    "msgpack": _Kind(lambda _, data: msgpack_value(data)),
    "npy": _Kind(lambda _, data: arrays.decode_npy(data), _array_in_graph),
    "npz": _Kind(lambda _, data: arrays.decode_npz(data)),
    "audio": _Kind(_audio, lambda _, tensor: tf.audio.decode_wav(tensor).audio),
    "hdf5": _Kind(_hdf5),
    "netcdf": _Kind(_hdf5),
}

KINDS = tuple(_KINDS)
WITHOUT_TENSOR = frozenset(name for name, kind in _KINDS.items() if kind.graph is None)
"""The kinds whose values cannot be tensors. In a dataset, fields of these kinds stay bytes."""
