"""Records of plain tensors, decoded at once: what TFDS does feature by feature, for the kinds that need no more."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from isal import isal_zlib

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.features import decode, encode

__all__ = ["plain_decoder", "plain_encoder"]

_STORED = ("float32", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32")
"""Types whose values a tf.train.Example holds as they are."""


@dataclass(frozen=True)
class _Plain:
    name: str
    shape: tuple[int, ...]
    dtype: Any
    encoding: str

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def decode(self, value: Any) -> Any:
        if self.encoding != "none":
            (data,) = value
            if self.encoding == "zlib":
                data = isal_zlib.decompress(data, bufsize=self.size)
            value = np.frombuffer(data, self.dtype)
        elif value.dtype != self.dtype:
            value = value.astype(self.dtype)
        value = value.reshape(self.shape)
        return value if self.shape else value[()]

    def encode(self, value: Any) -> Any:
        value = np.asarray(value)
        if value.shape != self.shape or value.dtype != self.dtype:
            raise SchemaError(
                f"{self.name!r} is {value.dtype} of shape {value.shape}, not {self.dtype} of shape {self.shape}"
            )
        if self.encoding == "none":
            return value
        return isal_zlib.compress(value.tobytes()) if self.encoding == "zlib" else value.tobytes()


def plain_decoder(features: Any) -> Callable[[bytes], dict[str, Any]] | None:
    """From a serialized example to what TFDS's own decoder gives; None where a feature is not plain."""
    known = _plain_features(features)
    if known is None:
        return None

    def decoded(record: bytes) -> dict[str, Any]:
        values = decode(record)
        return {name: plain.decode(values[name]) for name, plain in known.items()}

    return decoded


def plain_encoder(features: dict[str, tuple[tuple[int, ...], str, str]]) -> Callable[[dict[str, Any]], bytes]:
    """From values to a serialized example that TFDS decodes; features as (shape, type, encoding)."""
    known = [_Plain(name, shape, np.dtype(dtype), how) for name, (shape, dtype, how) in features.items()]

    def encoded(values: dict[str, Any]) -> bytes:
        return encode({plain.name: plain.encode(values[plain.name]) for plain in known})

    return encoded


def _plain_features(features: Any) -> dict[str, _Plain] | None:
    of_tfds: Any = importlib.import_module("tensorflow_datasets.core.features")
    if type(features) is not of_tfds.FeaturesDict:
        return None
    plain: dict[str, _Plain] = {}
    for name, feature in features.items():
        if type(feature) not in (of_tfds.Tensor, of_tfds.Scalar, of_tfds.ClassLabel) or getattr(
            feature, "_optional", False
        ):
            return None
        encoding = str(getattr(feature, "_encoding", "none")).rpartition(".")[2].lower()
        dtype = np.dtype(feature.np_dtype)
        if dtype.name not in _STORED or None in feature.shape:
            return None
        plain[name] = _Plain(name, tuple(feature.shape), dtype, encoding)
    return plain
