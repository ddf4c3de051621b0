"""The measurements of the verb `bench`: the speed of each stage on the way from a store to a model.

The download reads from the store itself, and so does the measurement of all stages together. Every other stage reads
a sample of the same shards from memory.
This module must not judge the results; `diagnosis.py` does so.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.source import Source, open_source
from ais_tar2tf.stores import Store
from ais_tar2tf.stores.memory import MemoryStore

__all__ = ["BenchSample", "StageMeasurement", "decoding", "download", "in_batches", "in_records", "take_sample"]

SAMPLE_BYTES = 128 * MIB  # takes about a second to parse, and little memory compared with TensorFlow itself
_MOST_SHARDS = 64  # the largest number of shards in the sample
_BUCKET = "ais-tar2tf-bench"


@dataclass(frozen=True, slots=True)
class StageMeasurement:
    """The speed of one stage: how many bytes of shards and how many records passed the stage, in how many seconds."""

    name: str
    seconds: float
    bytes: float
    records: float

    @property
    def rate(self) -> float:
        """Bytes of shards per second."""
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def records_rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "stage": self.name,
            "seconds": round(self.seconds, 3),
            "bytes_per_second": round(self.rate),
            "records_per_second": round(self.records_rate, 1),
        }


@dataclass(frozen=True)
class BenchSample:
    """The first shards of the data set, in memory.

    Attributes:
        urls: The URLs of the shards in memory.
        bytes: The size of all these shards.
        records: The number of records in all these shards.
        fields: The names of all fields of these records.
        grouping: The rule by which members become records.
    """

    urls: list[str]
    bytes: int
    records: int
    fields: tuple[str, ...]
    grouping: str = "first-dot"

    @property
    def record_bytes(self) -> float:
        """The average bytes of a record, including the headers and the padding of the archive."""
        return self.bytes / self.records if self.records else 0.0

    def source(self) -> Source:
        return open_source(self.urls, grouping=self.grouping, on_error="skip-shard")  # the last shard may be partial


def _blocks(store: Store, names: Iterable[str], connections: int) -> Generator[tuple[str, memoryview]]:
    """Download shards; yield each block with the name of its shard."""
    read = replace(Read(), connections=connections)
    with closing(Fetcher(store, map(ShardRange, names), read, Account())) as fetch:
        while (span := fetch.next_shard()) is not None:
            while block := fetch.read():
                yield span.name, block


def take_sample(store: Store, names: Sequence[str], grouping: str = "first-dot") -> BenchSample:
    """Download the first shards into memory, up to about `SAMPLE_BYTES`. The last of them may be incomplete."""
    downloaded: dict[str, bytearray] = {}
    total = 0
    for name, block in _blocks(store, names[:_MOST_SHARDS], Read().connections):
        downloaded.setdefault(name, bytearray()).extend(block)
        total += len(block)
        if total >= SAMPLE_BYTES:
            break
    memory = MemoryStore(_BUCKET)
    for name, data in downloaded.items():
        memory.put(name, bytes(data))
    urls = [memory.url(name) for name in downloaded]
    fields: dict[str, None] = {}
    records = 0
    for record in open_source(urls, grouping=grouping, on_error="skip-shard").records():
        records += 1
        fields.update(dict.fromkeys(record))
    return BenchSample(urls, total, records, tuple(name for name in fields if not name.startswith("__")), grouping)


def download(
    store: Store, names: Sequence[str], connections: int, seconds: float, record_bytes: float, begin: int = 0
) -> StageMeasurement:
    """Measure the download of shards without parsing them.

    Args:
        store: The store of the shards.
        names: The shards, which are downloaded again and again until the time is over.
        connections: The number of connections to the store.
        seconds: The duration of the measurement.
        record_bytes: The average bytes of a record, from which the number of records is estimated.
        begin: The index in `names` of the first shard to download.
    """
    order = [*names[begin:], *names[:begin]]
    received = 0
    began = now = time.perf_counter()
    with closing(_blocks(store, itertools.cycle(order), connections)) as blocks:
        for _, block in blocks:
            received += len(block)
            now = time.perf_counter()
            if now - began >= seconds:
                break
    name = f"download, {connections} connection{'s' if connections > 1 else ''}"
    return StageMeasurement(name, now - began, received, received / record_bytes if record_bytes else 0)


def in_records(sample: BenchSample, seconds: float) -> StageMeasurement:
    """Measure how fast the shards in memory are parsed into records in Python."""
    return _measure("parse into records", (1 for _ in _forever(sample.source().records)), seconds, sample)


def in_batches(
    name: str,
    source: Callable[[], Source],
    mapping: Callable[..., Any] | None,
    batch: int,
    seconds: float,
    sample: BenchSample,
) -> StageMeasurement:
    """Measure a tf.data.Dataset of batches. The first batch is not measured, because it waits for the graph.

    Args:
        name: The name of the stage.
        source: Returns the source to read.
        mapping: The mapping of the dataset. None: a batch has all fields of the sample, as bytes.
        batch: The number of records in a batch.
        seconds: The duration of the measurement.
        sample: The sample, whose average record tells how many bytes of shards a batch stands for.
    """
    opened = source() if mapping is not None else source().select(*(f"{name}?" for name in sample.fields))
    batches = iter(opened.dataset(mapping, batch=batch, repeat=None))
    next(batches)
    return _measure(name, (_first_dimension(each) for each in batches), seconds, sample)


def decoding(sample: BenchSample) -> Callable[..., Any] | None:
    """Return a mapping that decodes and resizes images, as for a model; None if the sample has no images."""
    images = [name for name in sample.fields if name.rpartition(".")[2] in ("jpg", "jpeg", "png", "gif", "bmp")]
    if not images:
        return None
    import tensorflow as tf

    def decoded(record: Any) -> Any:
        pixels = tf.io.decode_image(record["image"], channels=3, expand_animations=False)
        return tf.image.resize(pixels, (224, 224)) / 255

    decoded.fields = (f"image={';'.join(images)}",)  # type: ignore[attr-defined]  # a record's first image
    return decoded


def _forever(records: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from records()


def _measure(name: str, counts: Iterator[int], seconds: float, sample: BenchSample) -> StageMeasurement:
    records = 0
    began = now = time.perf_counter()
    for count in counts:
        records += count
        now = time.perf_counter()
        if now - began >= seconds:
            break
    return StageMeasurement(name, now - began, records * sample.record_bytes, records)


def _first_dimension(batch: Any) -> int:
    while isinstance(batch, dict | tuple | list):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return int(batch.shape[0])
