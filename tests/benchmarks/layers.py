"""The same work with our interfaces for Datum and TFRecorder, and by hand as in TensorFlow's guides.

A task's `shards` is one folder: images and texts with labels for Datum, arrays for TFRecorder.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
from ais_tar2tf.tfrecorder.helpers.marshaller import Example
from tests.benchmarks.writers import Drain, Writer, scratch

__all__ = ["LAYERS", "make_folder"]

_SIDE = 64  # height and width of an image
_WORDS = 40  # of the longest text
_BATCH = 32


def make_folder(folder: Path, records: int, values: int) -> None:
    """Write images and texts in Datum's layout for classification, and arrays with a CSV that lists them."""
    from PIL import Image

    (folder / "train").mkdir(parents=True)
    (folder / "arrays").mkdir()
    with (folder / "train.csv").open("w") as labels, (folder / "arrays.csv").open("w") as listed:
        labels.write("filename,label\n")
        for number in range(records):
            random = np.random.Generator(np.random.SFC64(number))
            picture, buffer = random.integers(0, 256, (_SIDE, _SIDE, 3), np.uint8), io.BytesIO()
            Image.fromarray(picture).save(buffer, "JPEG", quality=50)
            (folder / "train" / f"{number}.jpg").write_bytes(buffer.getvalue())
            np.save(folder / "arrays" / f"{number}.npy", random.random(values, np.float32))
            labels.write(f"{number},{number % 10}\n")
            listed.write(f"{number},{number % 10}\n")
    texts = {n: {"text": "word " * (n % _WORDS), "label": {"mood": n % 10}} for n in range(records)}
    (folder / "text.json").write_text(json.dumps(texts))


# Images


def _datum_export(folder: Path, out: Path) -> list[str]:
    from ais_tar2tf import datum

    configs = datum.configs.TFRWriteConfigs(splits={"train": {}})
    return datum.export.export_to_tfrecord(folder, out, datum.problem.IMAGE_CLF, configs)


def _guide_export(folder: Path, out: Path) -> list[str]:
    """Write images as the guide does: decode each for its shape, make a tf.train.Example, use TensorFlow's writer."""
    import tensorflow as tf

    def integer(value: int) -> Any:
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))

    out.mkdir()
    with (folder / "train.csv").open() as rows, tf.io.TFRecordWriter(str(out / "train.tfrecord")) as writer:
        for row in csv.DictReader(rows):
            image = (folder / "train" / f"{row['filename']}.jpg").read_bytes()
            height, width, depth = tf.io.decode_jpeg(image).shape
            feature = {
                "height": integer(height),
                "width": integer(width),
                "depth": integer(depth),
                "label": integer(int(row["label"])),
                "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return [str(out / "train.tfrecord")]


def _datum_loaded(folder: Path, _files: list[str]) -> Any:
    from ais_tar2tf import datum

    configs = datum.configs.DatasetConfigs(batch_size_val=_BATCH)
    return datum.load(folder, configs).val_fn("train")


def _guide_loaded(_folder: Path, files: list[str]) -> Any:
    import tensorflow as tf

    spec = {"image": tf.io.FixedLenFeature((), tf.string), "label": tf.io.FixedLenFeature((), tf.int64)}

    def parse(serialized: Any) -> dict[str, Any]:
        parsed = tf.io.parse_single_example(serialized, spec)
        return {**parsed, "image": tf.io.decode_jpeg(parsed["image"], 3)}

    return tf.data.TFRecordDataset(files).map(parse).batch(_BATCH).prefetch(tf.data.AUTOTUNE)


# Texts


def _datum_texts(folder: Path, out: Path) -> list[str]:
    from ais_tar2tf import datum

    configs = datum.configs.TFRWriteConfigs(splits={"text": {}})
    return datum.export.export_to_tfrecord(folder, out, datum.problem.TEXT_CLF, configs)


def _guide_texts(folder: Path, out: Path) -> list[str]:
    import tensorflow as tf

    out.mkdir()
    with tf.io.TFRecordWriter(str(out / "text.tfrecord")) as writer:
        for row in json.loads((folder / "text.json").read_text()).values():
            feature = {
                "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[row["text"].encode()])),
                "mood": tf.train.Feature(int64_list=tf.train.Int64List(value=[row["label"]["mood"]])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return [str(out / "text.tfrecord")]


def _datum_texts_loaded(folder: Path, _files: list[str]) -> Any:
    from ais_tar2tf import datum

    return datum.load(folder, datum.configs.DatasetConfigs(batch_size_val=_BATCH)).val_fn("text")


def _guide_texts_loaded(_folder: Path, files: list[str]) -> Any:
    import tensorflow as tf

    spec = {"text": tf.io.FixedLenFeature((), tf.string), "mood": tf.io.FixedLenFeature((), tf.int64)}
    dataset = tf.data.TFRecordDataset(files).map(lambda each: tf.io.parse_single_example(each, spec))
    return dataset.batch(_BATCH).prefetch(tf.data.AUTOTUNE)


# Arrays


class _Array(Example):
    def __init__(self, path: Path, label: int) -> None:
        self._path, self._label, self._data = path, label, None

    @tfrecordable(dtype=Example.Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @tfrecordable(dtype=Example.Field.TYPE_ARRAY_FLOAT32)
    def data(self) -> Any:
        return self._data

    def load(self, **_: Any) -> None:
        self._data = np.load(self._path)

    @staticmethod
    def from_csv_row(row: list[str], *, folder: Path, **_: Any) -> Any:
        return _Array(folder / "arrays" / f"{row[0]}.npy", int(row[1]))

    def to_csv_row(self) -> list[Any]:
        return [self._path.stem, self._label]


def _tfrecorder_export(folder: Path, out: Path) -> list[str]:
    from ais_tar2tf.tfrecorder import factory

    made = factory.generate_and_save_train_eval_test_tfrecords_files(
        out, _Array, folder / "arrays.csv", 1.0, folder=folder
    )
    return made["train"]


def _guide_arrays(folder: Path, out: Path) -> list[str]:
    import tensorflow as tf

    out.mkdir()
    with (folder / "arrays.csv").open() as rows, tf.io.TFRecordWriter(str(out / "0.tfr")) as writer:
        for name, label in csv.reader(rows):
            data = np.load(folder / "arrays" / f"{name}.npy")
            feature = {
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[int(label)])),
                "data": tf.train.Feature(float_list=tf.train.FloatList(value=data)),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
    return [str(out / "0.tfr")]


def _tfrecorder_loaded(_folder: Path, files: list[str]) -> Any:
    from ais_tar2tf.tfrecorder import factory

    return factory.generate_dataset(files, _Array).batch(_BATCH)


def _guide_arrays_loaded(folder: Path, files: list[str]) -> Any:
    import tensorflow as tf

    values = np.load(folder.parent / "arrays" / "0.npy").shape
    spec = {"label": tf.io.FixedLenFeature((), tf.int64), "data": tf.io.FixedLenFeature(values, tf.float32)}
    dataset = tf.data.TFRecordDataset(files).map(lambda each: tf.io.parse_single_example(each, spec))
    return dataset.batch(_BATCH).prefetch(tf.data.AUTOTUNE)


Export = Callable[[Path, Path], list[str]]


def _exporting(export: Export) -> Writer:
    def writer(paths: list[str], records: int) -> Drain:
        def drain() -> int:
            with scratch() as out:
                export(Path(paths[0]), out / "out")
            return records

        return drain

    return writer


def _loading(export: Export, load: Callable[[Path, list[str]], Any]) -> Writer:
    def writer(paths: list[str], records: int) -> Drain:
        folder = Path(paths[0])
        out = folder / export.__name__
        if not out.exists():
            export(folder, out)
        files = sorted(str(path) for pattern in ("*.tfr*", "train/*.tfr") for path in out.glob(pattern))
        dataset = load(out, files)
        batches = -(-records // _BATCH)
        return lambda: records - 1 + len(list(dataset.skip(batches - 1)))

    return writer


LAYERS: dict[str, Writer] = {
    "datum-export": _exporting(_datum_export),
    "guide-export": _exporting(_guide_export),
    "datum-texts-export": _exporting(_datum_texts),
    "guide-texts": _exporting(_guide_texts),
    "datum-texts-loaded": _loading(_datum_texts, _datum_texts_loaded),
    "guide-texts-loaded": _loading(_guide_texts, _guide_texts_loaded),
    "datum-loaded": _loading(_datum_export, _datum_loaded),
    "guide-loaded": _loading(_guide_export, _guide_loaded),
    "tfrecorder-export": _exporting(_tfrecorder_export),
    "guide-arrays": _exporting(_guide_arrays),
    "tfrecorder-loaded": _loading(_tfrecorder_export, _tfrecorder_loaded),
    "guide-arrays-loaded": _loading(_guide_arrays, _guide_arrays_loaded),
}
