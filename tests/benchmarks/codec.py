"""tf.train.Examples of some 2 KB, written and read by us and by TensorFlow's protobuf, in this process.

`FromString` alone leaves the values in protobuf's own memory, from which each has to be taken; so the peer takes
them out, into what our `decode` gives: lists of bytes and numpy arrays. The line `bare` shows it without that.
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
    """An image of 1,500 to 2,500 bytes, a label, a key."""
    draw = random.Random(0)
    return [
        {"image_raw": draw.randbytes(1_500 + at % 1_000), "label": at % 1_000, "key": b"n01/%08d" % at}
        for at in range(count)
    ]


@cache
def _floats(count: int) -> list[dict[str, Any]]:
    """500 floats and a label."""
    draw = np.random.RandomState(0)
    return [{"x": draw.rand(500).astype(np.float32), "label": at % 1_000} for at in range(count)]


def _ours_encode(records: list[dict[str, Any]]) -> Drain:
    from ais_tar2tf.features import encode

    return lambda: sum(1 for record in records if encode(record))


def _ours_decode(records: list[dict[str, Any]]) -> Drain:
    from ais_tar2tf.features import decode

    payloads = _payloads(records)
    return lambda: sum(1 for payload in payloads if decode(payload))


def _payloads(records: list[dict[str, Any]]) -> Sequence[bytes]:
    """TensorFlow's bytes, so that both read the same."""
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


def _of(job: Callable[[list[dict[str, Any]]], Drain], made: Callable[[int], list[dict[str, Any]]]) -> Any:
    return lambda _shards, count: job(made(count))


CODECS = {
    "ours-encode": _of(_ours_encode, _images),
    "ours-decode": _of(_ours_decode, _images),
    "ours-encode-floats": _of(_ours_encode, _floats),
    "ours-decode-floats": _of(_ours_decode, _floats),
    "tensorflow-encode": _of(_tensorflow_encode, _images),
    "tensorflow-decode": _of(_tensorflow_decode, _images),
    "tensorflow-decode-bare": _of(_tensorflow_decode_bare, _images),
    "tensorflow-encode-floats": _of(_tensorflow_encode, _floats),
    "tensorflow-decode-floats": _of(_tensorflow_decode, _floats),
}
