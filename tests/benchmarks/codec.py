"""Encode and decode tf.train.Examples of about 2 KB, with our codec and with TensorFlow's protobuf.

`FromString` leaves the values in protobuf's own memory. To do the same work as our `decode`, the peer copies them
into lists of bytes and numpy arrays. The lines named `bare` measure `FromString` alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

__all__ = ["CODECS"]

Drain = Callable[[], int]


@cache
def _images(count: int) -> list[dict[str, Any]]:
    """Return records of an image of 1,500 to 2,500 bytes, a label and a key."""
    draw = random.Random(0)
    return [
        {"image_raw": draw.randbytes(1_500 + at % 1_000), "label": at % 1_000, "key": b"n01/%08d" % at}
        for at in range(count)
    ]


@cache
def _floats(count: int) -> list[dict[str, Any]]:
    """Return records of 500 floats and a label."""
    draw = np.random.RandomState(0)
    return [{"x": draw.rand(500).astype(np.float32), "label": at % 1_000} for at in range(count)]


def _ours_encode(records: list[dict[str, Any]]) -> Drain:
    from ais_tar2tf.values.features import encode

    return lambda: sum(1 for record in records if encode(record))


def _ours_decode(records: list[dict[str, Any]]) -> Drain:
    from ais_tar2tf.values.features import decode

    payloads = _payloads(records)
    return lambda: sum(1 for payload in payloads if decode(payload))


def _payloads(records: list[dict[str, Any]]) -> Sequence[bytes]:
    """Return Examples that TensorFlow encoded, so that both sides decode the same bytes."""
    return [_example(record).SerializeToString() for record in records]


def _example(record: dict[str, Any]) -> Any:
    import tensorflow as tf

    feature = {}
    for name, value in record.items():
        if isinstance(value, bytes):
            feature[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        elif isinstance(value, int):
            feature[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            feature[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
    return tf.train.Example(features=tf.train.Features(feature=feature))


def _tensorflow_encode(records: list[dict[str, Any]]) -> Drain:
    return lambda: sum(1 for record in records if _example(record).SerializeToString())


def _tensorflow_decode(records: list[dict[str, Any]]) -> Drain:
    import tensorflow as tf

    payloads = _payloads(records)
    parse = tf.train.Example.FromString
    return lambda: sum(1 for payload in payloads if _values(parse(payload)))


def _values(example: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values = getattr(feature, kind).value
        found[name] = list(values) if kind == "bytes_list" else np.array(values, _TYPES[kind])
    return found


_TYPES = {"float_list": np.float32, "int64_list": np.int64}


def _tensorflow_decode_bare(records: list[dict[str, Any]]) -> Drain:
    import tensorflow as tf

    payloads = _payloads(records)
    parse = tf.train.Example.FromString
    return lambda: sum(1 for payload in payloads if parse(payload).features)


def _reader(codec: Callable[[list[dict[str, Any]]], Drain], records: Callable[[int], list[dict[str, Any]]]) -> Any:
    return lambda _shards, count: codec(records(count))


CODECS = {
    "ours-encode": _reader(_ours_encode, _images),
    "ours-decode": _reader(_ours_decode, _images),
    "ours-encode-floats": _reader(_ours_encode, _floats),
    "ours-decode-floats": _reader(_ours_decode, _floats),
    "tensorflow-encode": _reader(_tensorflow_encode, _images),
    "tensorflow-decode": _reader(_tensorflow_decode, _images),
    "tensorflow-decode-bare": _reader(_tensorflow_decode_bare, _images),
    "tensorflow-encode-floats": _reader(_tensorflow_encode, _floats),
    "tensorflow-decode-floats": _reader(_tensorflow_decode, _floats),
}
