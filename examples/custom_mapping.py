"""Map records to model inputs with a function of your own: as a TensorFlow graph, or as plain Python.

python examples/custom_mapping.py
"""

from __future__ import annotations

import json
import os
from typing import Any

import ais_tar2tf as t2t

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np
import tensorflow as tf


def as_graph(record: Any) -> tuple[Any, Any]:
    """Map with TensorFlow operations: traced once, run in C++, in parallel. Unused fields are not read."""
    words = tf.strings.split(tf.strings.lower(record["txt"]))
    return tf.size(words), tf.strings.to_number(record["cls"], tf.int32)


def as_python(record: dict[str, Any]) -> tuple[Any, Any]:
    """Map with any Python code, here json and numpy. Several threads call the function, so it must not keep state."""
    about = json.loads(record["json"])
    return np.asarray(about["scores"], np.float32), np.int32(about["id"])


def main() -> None:
    t2t.pack(generate(64), "memory://mapped/train-{}.tar", create=True)
    source = t2t.open("memory://mapped/train-0.tar")

    graph = source.dataset(as_graph, batch=16)
    words, labels = next(iter(graph))
    sizes = f"{int(words[0])} words, label {int(labels[0])}"
    print(f"as a graph: {words.shape[0]} records per batch, the first has {sizes}")

    # The types of a plain Python function cannot be traced, so declare them.
    plain = source.dataset(as_python, batch=16, output_types=(tf.float32, tf.int32), output_shapes=((3,), ()))
    scores, ids = next(iter(plain))
    print(f"as Python: scores {tuple(scores.shape)}, ids {ids.numpy()[:4].tolist()} …")

    # Errors name the record, and skipped records are counted.
    t2t.pack([*generate(3), {"__key__": "x", "txt": "", "cls": "cat", "json": "{}"}], "memory://mapped/bad.tar")
    bad = t2t.open("memory://mapped/bad.tar", on_error="skip-record")
    kept = sum(1 for _ in bad.dataset(as_graph))
    print(f"{kept} of 4 records kept, skipped: {dict(bad.stats.skipped)}")


def generate(count: int):
    for number in range(count):
        about = {"id": number, "scores": [number / 2, 0.5, 1.0]}
        yield {
            "__key__": f"{number:04d}",
            "txt": f"Text number {number}",
            "cls": str(number % 5),
            "json": json.dumps(about),
        }


if __name__ == "__main__":
    main()
