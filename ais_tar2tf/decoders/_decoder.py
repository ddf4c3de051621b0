"""How one field is decoded: the same choice in Python and in a graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ais_tar2tf import arrays, values
from ais_tar2tf.decoders import _graph, _python
from ais_tar2tf.errors import OptionTypeError, SchemaError

__all__ = ["KINDS", "WITHOUT_TENSOR", "Decoder"]

KINDS = ("bytes", "image", "text", "number", "label", "json", "msgpack", "npy", "npz", "audio", "hdf5", "netcdf")
WITHOUT_TENSOR = frozenset({"json", "msgpack", "npz", "hdf5", "netcdf"})
"""Kinds whose values are no tensors: in a dataset they stay bytes, or a function of the user's takes them apart."""


@dataclass(frozen=True)
class Decoder:
    """One field's. `dtype` is an image's, an array's or a number's; `shape` what is known of it.

    >>> Decoder("number", "int32")(b" 7 ")
    7
    """

    kind: str
    dtype: str | None = None
    vocabulary: tuple[str, ...] | None = None
    shape: tuple[int | None, ...] | None = None
    function: Callable[[bytes], Any] | None = None
    channels: int = 0  # of an image; 0: as many as it has
    at_least: tuple[int, int] | None = None  # height and width of a JPEG; it may be scaled while it is decoded
    as_in_graph: bool = False  # a plain image has the pixels that it has in a graph, which TensorFlow decodes

    def __post_init__(self) -> None:
        if self.kind not in KINDS and self.function is None:
            raise SchemaError(f"a field is decoded as one of {', '.join(KINDS)}, not {self.kind!r}")
        if self.kind == "label" and not self.vocabulary:
            raise SchemaError("a label needs its vocabulary: decode={'cls': ['cat', 'dog', …]}")

    def __call__(self, data: Any) -> Any:
        """The value of a file's bytes; what is no bytes was decoded before."""
        if self.function is not None:
            return self.function(data)
        if not isinstance(data, bytes | bytearray | memoryview):
            return data
        return self._decode(bytes(data))

    def _decode(self, data: bytes) -> Any:
        if self.kind == "image":
            dtype = self.dtype or "uint8"
            if self.as_in_graph or self.at_least is not None:
                return _python.image_as_in_graph(data, dtype, self.channels, self.at_least)
            return _python.image(data, dtype, self.channels)
        if self.kind == "number":
            return _python.number(data, self.dtype or "int64")
        if self.kind == "label":
            return self._place(_python.text(data).strip())
        return _PLAIN[self.kind](data)

    def _place(self, word: str) -> int:
        assert self.vocabulary is not None
        try:
            return self.vocabulary.index(word)
        except ValueError:
            raise SchemaError(f"label {word!r} is not in its vocabulary") from None

    def in_graph(self, tensor: Any) -> Any:
        """The same of a scalar string tensor."""
        if self.function is not None:
            raise OptionTypeError(
                "a function decodes this field, which a graph cannot call; use record_to_pair or map"
            )
        if self.kind == "image":
            return _graph.image(tensor, self.dtype or "uint8", self.channels, self.shape, self.at_least)
        if self.kind == "number":
            return _graph.number(tensor, self.dtype or "int64")
        if self.kind == "label":
            return _graph.label(tensor, self.vocabulary or ())
        if self.kind == "npy":
            if self.dtype is None:
                raise SchemaError("an array's type has to be known in a dataset: decode=True looks at a sample")
            return _graph.array(tensor, self.dtype, self.shape)
        if self.kind == "audio":
            return _graph.sound(tensor)
        if self.kind in WITHOUT_TENSOR:
            raise OptionTypeError(
                f"{self.kind} has no tensor form; take a value out by ops.SelectJSON, or by a map of yours"
            )
        return tensor  # bytes and text are strings there


_PLAIN: dict[str, Callable[[bytes], Any]] = {
    "bytes": bytes,
    "text": _python.text,
    "json": values.json_value,
    "msgpack": values.msgpack_value,
    "npy": arrays.decode_npy,
    "npz": arrays.decode_npz,
    "audio": _python.audio,
    "hdf5": _python.hdf5,
    "netcdf": _python.hdf5,
}
