"""Create the shards and record files of a benchmark, in a temporary folder, when a line first needs them."""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks import measure

__all__ = ["SETS", "Data", "DataSet", "write_tfrecords"]

_MTIME = 1_600_000_000  # an integer, or tarfile would write a PAX header for its fraction
_JPEG_START = b"\xff\xd8\xff\xe0"
_CODED_VALUES = 64  # with this many different values, a byte compresses to 6 bits, which gives the decoder real work
_WORD_BYTES = 8
_WORDS = np.random.Generator(np.random.SFC64(0)).integers(0, 256, (256, _WORD_BYTES), np.uint8)
"""Repeated words, which lz4 and zstd can compress; lz4 does not compress single repeated bytes."""

_LITTLE_BYTES = 512_000  # size of the shard that warms up a reader


@dataclass(frozen=True)
class DataSet:
    """A kind of shards: their number, their format, and the content of their records."""

    record_bytes: int
    records: int  # in all shards together
    shards: int
    ending: str = "tar"
    content: str = "noise"  # content of the field jpg
    label_bytes: int = 0  # size of the field cls; 0: as many bytes as the number has digits

    def quick(self) -> DataSet:
        """Return the same data set with a quarter of the records."""
        return replace(self, records=self.records // 4)


SETS = {
    "2KB": DataSet(2_000, 90_000, 2),
    "2KB-pax": DataSet(2_000, 40_000, 2, "pax.tar"),
    "2KB-gzip": DataSet(2_000, 40_000, 2, "tar.gz"),
    "2KB-many": DataSet(2_000, 320_000, 4),
    "2KB-zstd": DataSet(2_000, 40_000, 2, "tar.zst"),
    "2KB-lz4": DataSet(2_000, 40_000, 2, "tar.lz4"),
    "100KB": DataSet(100_000, 6_000, 3),
    "pictures": DataSet(60_000, 1_200, 2, content="picture"),
    "1MB+1KB": DataSet(1_000_000, 240, 2, label_bytes=1_000),
    "many": DataSet(2_000, 40, 1),
}


class Data:
    """The files of all data sets, in a folder that a server serves."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.sets = {name: kind.quick() if quick else kind for name, kind in SETS.items()}
        self.shards = cache(self._shards)
        self.tfrecords = cache(self._tfrecords)

    def _shards(self, name: str) -> list[str]:
        """Write a data set. Return the names of its shards, and last the name of the small warm-up shard."""
        kind = self.sets[name]
        each = kind.records // kind.shards
        names = [f"{name}-{shard}.{kind.ending}" for shard in range(kind.shards)]
        for shard, file in enumerate(names):
            _write(self.folder / file, kind, shard * each, each)
        warm_up = f"{name}-warm.{kind.ending}"
        _write(self.folder / warm_up, kind, kind.records, self.warm_up_records(name))
        return [*names, warm_up]

    def warm_up_records(self, name: str) -> int:
        return _LITTLE_BYTES // self.sets[name].record_bytes

    def _tfrecords(self, name: str) -> list[str]:
        """Write the same records as TFRecord files. Return their paths, the warm-up file last."""
        shards = [str(self.folder / shard) for shard in self.shards(name)]
        return measure.run("tfrecords", {"shards": shards})["paths"]


def write_tfrecords(task: dict[str, list[str]]) -> dict[str, list[str]]:
    """Write a TFRecord file next to each shard. This loads TensorFlow, so it runs in a separate process."""
    import tensorflow as tf

    paths = [f"{shard}.tfrecord" for shard in task["shards"]]
    for shard, path in zip(task["shards"], paths, strict=True):
        with tf.io.TFRecordWriter(path) as writer:
            for record in _records_in(Path(shard)):
                writer.write(_example(tf, record))
    return {"paths": paths}


def _records(kind: DataSet, first: int, count: int) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield (key, jpg, cls). The bytes depend only on the record's number."""
    for number in range(first, first + count):
        random = np.random.Generator(np.random.SFC64(number))
        label = b"%d" % (number % 1000)
        if kind.content == "picture":
            yield f"{number:08d}", _picture(number), label
            continue
        body = random.bytes(kind.record_bytes - len(_JPEG_START))
        if kind.ending == "tar.gz":
            body = (np.frombuffer(body, np.uint8) % _CODED_VALUES).tobytes()
        elif kind.ending in ("tar.zst", "tar.lz4"):
            body = _WORDS[np.frombuffer(body, np.uint8)[: len(body) // _WORD_BYTES]].tobytes()
        yield f"{number:08d}", _JPEG_START + body, label.rjust(kind.label_bytes)


def _picture(number: int) -> bytes:
    """Return a JPEG of 480 × 640 pixels with waves and some noise."""
    from PIL import Image

    random = np.random.Generator(np.random.SFC64(number))
    rows, columns = np.mgrid[0:480, 0:640]
    waves = [np.sin(rows / each) + np.cos(columns / each) for each in random.uniform(5, 40, 3)]
    pixels = np.stack(waves, axis=-1) * 55 + 128 + random.normal(0, 6, (480, 640, 3))
    file = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
    return file.getvalue()


def _write(path: Path, kind: DataSet, first: int, count: int) -> None:
    writers: dict[str, Callable[..., None]] = {
        "tar": _write_tar,
        "pax.tar": _write_pax,
        "tar.gz": _write_gzip,
        "tar.zst": _write_zstd,
        "tar.lz4": _write_lz4,
    }
    writers[kind.ending](path, _records(kind, first, count))


def _write_tar(path: Path, records: Iterator[tuple[str, bytes, bytes]]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, records)


def _write_gzip(path: Path, records: Iterator[tuple[str, bytes, bytes]]) -> None:
    with (
        gzip.open(path, "wb", compresslevel=1) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,  # type: ignore[call-overload]
    ):
        _add(tar, records)


def _write_zstd(path: Path, records: Iterator[tuple[str, bytes, bytes]]) -> None:
    from backports import zstd

    with zstd.open(path, "wb") as stream, tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        _add(tar, records)


def _write_lz4(path: Path, records: Iterator[tuple[str, bytes, bytes]]) -> None:
    import lz4.frame

    with (
        lz4.frame.open(path, "wb") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        _add(tar, records)


def _write_pax(path: Path, records: Iterator[tuple[str, bytes, bytes]]) -> None:
    """Write a shard with webdataset, whose fractional times put a PAX header before every member."""
    import webdataset

    with webdataset.TarWriter(str(path), encoder=False) as writer:
        for key, jpg, label in records:
            writer.write({"__key__": key, "jpg": jpg, "cls": label})


def _add(tar: tarfile.TarFile, records: Iterator[tuple[str, bytes, bytes]]) -> None:
    for key, jpg, label in records:
        for field, body in (("jpg", jpg), ("cls", label)):
            member = tarfile.TarInfo(f"{key}.{field}")
            member.size, member.mtime = len(body), _MTIME
            tar.addfile(member, io.BytesIO(body))


def _records_in(path: Path) -> Iterator[dict[str, bytes]]:
    """Yield the records of a shard, of two members each, read by tarfile."""
    with tarfile.open(path) as tar:
        members = iter(tar)
        for one, other in zip(members, members, strict=True):
            record = {"key": one.name.partition(".")[0].encode()}
            for member in (one, other):
                file = tar.extractfile(member)
                assert file is not None
                record[member.name.partition(".")[2]] = file.read()
            yield record


def _example(tf: Any, record: dict[str, bytes]) -> bytes:
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value])) for name, value in record.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
