"""A fast codec for samples of TFDS whose features are all plain.

A feature is plain if it is a tensor, scalar or class label of one fixed shape and of a type in `_EXACT_DTYPES`. TFDS
encodes and decodes each feature through its feature class. For plain features this codec gives the same result in one
step. It must not handle any other feature.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from isal import isal_zlib

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.features import decode, encode

__all__ = ["plain_decoder", "plain_encoder"]

_EXACT_DTYPES = ("float32", "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32")
"""Types whose values a tf.train.Example holds without loss."""


@dataclass(frozen=True)
class _PlainFeature:
    """A plain feature, as the docstring of the module defines it."""

    name: str
    shape: tuple[int, ...]
    dtype: Any
    encoding: str  # of TFDS: "none", "bytes", or "zlib" (compressed bytes)

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
    """Return a function that decodes serialized samples as TFDS does; None if a feature is not plain.

    `features` is the FeaturesDict of a TFDS data set.
    """
    plain_features = _plain_features(features)
    if plain_features is None:
        return None

    def decoded(record: bytes) -> dict[str, Any]:
        values = decode(record)
        return {name: feature.decode(values[name]) for name, feature in plain_features.items()}

    return decoded


def plain_encoder(features: dict[str, tuple[tuple[int, ...], str, str]]) -> Callable[[dict[str, Any]], bytes]:
    """Return a function that serializes samples as TFDS does.

    `features` maps the name of each feature, which must be plain, to (shape, type, encoding). The function raises
    SchemaError if a value has another shape or type.
    """
    plain = [
        _PlainFeature(name, shape, np.dtype(dtype), encoding) for name, (shape, dtype, encoding) in features.items()
    ]

    def encoded(values: dict[str, Any]) -> bytes:
        return encode({feature.name: feature.encode(values[feature.name]) for feature in plain})

    return encoded


def _plain_features(features: Any) -> dict[str, _PlainFeature] | None:
    tfds_features: Any = importlib.import_module("tensorflow_datasets.core.features")
    if type(features) is not tfds_features.FeaturesDict:
        return None
    plain_types = (tfds_features.Tensor, tfds_features.Scalar, tfds_features.ClassLabel)
    plain: dict[str, _PlainFeature] = {}
    for name, feature in features.items():
        if type(feature) not in plain_types or getattr(feature, "_optional", False):
            return None
        encoding = str(getattr(feature, "_encoding", "none")).rpartition(".")[2].lower()
        dtype = np.dtype(feature.np_dtype)
        if dtype.name not in _EXACT_DTYPES or None in feature.shape:
            return None
        plain[name] = _PlainFeature(name, tuple(feature.shape), dtype, encoding)
    return plain
