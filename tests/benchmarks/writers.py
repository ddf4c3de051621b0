"""Write TFRecord files with our export and with the peers' writers, and read them back.

Both sides read the same local shards and write into memory (`/dev/shm`, if it exists), because a slow disk would make
both equally fast. The output is deleted before the next pass.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["WRITERS", "Drain", "Writer", "scratch"]

Drain = Callable[[], int]
Writer = Callable[[list[str], int], Drain]

_MEMORY = Path("/dev/shm")  # `scratch` makes a new folder in it
_RECORD_BUFFER = 8 * 1024 * 1024


@contextmanager
def scratch() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="t2t-benchmarks-", dir=_MEMORY if _MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _export(workers: int) -> Writer:
    def writer(paths: list[str], records: int) -> Drain:
        import ais_tar2tf as t2t

        def drain() -> int:
            with scratch() as folder, t2t.open(paths) as source:
                source.export(folder / "out", workers=workers, progress=False)
                return source.stats.records_emitted

        return drain

    return writer


def webdataset_tfrecord_writer(paths: list[str], records: int) -> Drain:
    """Write as tutorials do: make a tf.train.Example of each sample, and use TensorFlow's writer."""
    import tensorflow as tf
    import webdataset

    def feature(value: bytes) -> Any:
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))

    def drain() -> int:
        count = 0
        with scratch() as folder, tf.io.TFRecordWriter(str(folder / "out.tfrecord")) as writer:
            for sample in webdataset.WebDataset(paths, shardshuffle=False):
                named = {"__key__": sample["__key__"].encode(), "jpg": sample["jpg"], "cls": sample["cls"]}
                features = tf.train.Features(feature={name: feature(value) for name, value in named.items()})
                writer.write(tf.train.Example(features=features).SerializeToString())
                count += 1
        return count

    return drain


def _exported(paths: list[str]) -> tuple[Path, list[str]]:
    """Export the shards into a folder next to them, once, and return the folder and its files."""
    import ais_tar2tf as t2t

    out = Path(paths[0]).with_name(f"{Path(paths[0]).stem}-{len(paths)}-exported")
    return out, t2t.open(paths).export(out, workers=1, progress=False)


def ours_loaded(paths: list[str], records: int) -> Drain:
    import ais_tar2tf as t2t

    dataset = t2t.load(_exported(paths)[0]).dataset("train")
    return lambda: _drain(dataset, records)


def plain_tfrecord_dataset(paths: list[str], records: int) -> Drain:
    """Parse sequentially. `plain_tfrecord_dataset_parallel` parses in parallel; both are peers."""
    return _plain(paths, records, None)


def plain_tfrecord_dataset_parallel(paths: list[str], records: int) -> Drain:
    import tensorflow as tf

    return _plain(paths, records, tf.data.AUTOTUNE)


def _plain(paths: list[str], records: int, calls: int | None) -> Drain:
    import tensorflow as tf

    spec = {name: tf.io.FixedLenFeature((), tf.string) for name in ("__key__", "jpg", "cls")}
    dataset = tf.data.TFRecordDataset(_exported(paths)[1], buffer_size=_RECORD_BUFFER)
    dataset = dataset.map(lambda text: tf.io.parse_single_example(text, spec), num_parallel_calls=calls)
    dataset = dataset.prefetch(tf.data.AUTOTUNE)
    return lambda: _drain(dataset, records)


def _drain(dataset: Any, records: int) -> int:
    return records - 1 + len(list(dataset.skip(records - 1)))


WRITERS: dict[str, Writer] = {
    "ours-export": _export(1),
    "ours-export-2": _export(2),
    "webdataset-tfrecord-writer": webdataset_tfrecord_writer,
    "ours-loaded": ours_loaded,
    "plain-tfrecord": plain_tfrecord_dataset,
    "plain-tfrecord-parallel": plain_tfrecord_dataset_parallel,
}
