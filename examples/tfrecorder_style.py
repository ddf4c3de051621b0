"""Describe an example as a class, list examples in a CSV, and write record files with TFRecorder's functions.

python examples/tfrecorder_style.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np

from ais_tar2tf.tfrecorder import factory as tf_factory
from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
from ais_tar2tf.tfrecorder.helpers.marshaller import Example, IgnoreExampleException

LENGTH = 100  # values in a recording
CHUNK = 25  # values in each part that a model gets


class Recording(Example):
    """An example with a label from the CSV, and a curve that is loaded from a file when it is needed."""

    def __init__(self, name: str, label: int) -> None:
        super().__init__()
        self.name = name
        self._label = label
        self._curve: Any = None

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def curve(self) -> Any:
        return self._curve

    @curve.setter
    def curve(self, value: Any) -> None:
        self._curve = value

    @classmethod
    def from_csv_row(cls, row: list[str], **_: Any) -> Recording:
        return cls(row[0], int(row[1]))

    def to_csv_row(self) -> list[str]:
        return [self.name, str(self._label)]

    def load(self, folder: Path, **_: Any) -> None:
        path = folder / f"{self.name}.npy"
        if not path.is_file():
            raise IgnoreExampleException(f"{path.name} does not exist")
        self.curve = np.load(path)

    def split(self, **_: Any) -> list[Recording]:
        parts = []
        for begin in range(0, LENGTH, CHUNK):
            part = Recording(f"{self.name}-{begin}", self._label)
            part.curve = self.curve[begin : begin + CHUNK]
            parts.append(part)
        return parts

    def release(self) -> None:
        self.curve = None


def generate(folder: Path, count: int) -> Path:
    """Write curves and the CSV that lists them. The file of the last one is missing on purpose."""
    lines = []
    for number in range(count):
        if number < count - 1:
            np.save(folder / f"r{number:03d}.npy", np.sin(np.linspace(0, number + 1, LENGTH, dtype=np.float32)))
        lines.append(f"r{number:03d},{number % 2}")
    listed = folder / "recordings.csv"
    listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return listed


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder, out = Path(temporary), Path(temporary, "out")
        tf_factory.generate_and_save_train_eval_test_tfrecords_files(
            out,
            example_class=Recording,
            examples_list_filepath=generate(folder, 21),
            examples_train_eval_test_ratio=[0.7, 0.2, 0.1],
            folder=folder,  # further keyword arguments go to load() and split()
        )
        print((out / "log.txt").read_text(encoding="utf-8").strip())
        for split in ("train", "eval", "test"):
            paths = tf_factory.get_tfrecord_filepaths(dirpath=out / split)
            dataset = tf_factory.generate_dataset(paths, Recording)
            shapes = {tuple(curve.shape) for _, curve in dataset}
            print(f"{split}: {sum(1 for _ in dataset)} chunks of shape {shapes}")


if __name__ == "__main__":
    main()
