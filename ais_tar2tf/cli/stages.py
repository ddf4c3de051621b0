"""How fast each part of the way from a store into a model is, measured one by one. It judges nothing.

The download is measured on the store; everything behind it on a sample of the same shards held in memory.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.source import Source, open_source
from ais_tar2tf.stores import Store
from ais_tar2tf.stores.memory import MemoryStore

__all__ = ["Measured", "Sample", "decoding", "download", "in_batches", "in_records", "take_sample"]

SAMPLE_BYTES = 128 * MIB  # held in memory: enough for a second of parsing, little beside TensorFlow
_MOST_SHARDS = 64  # of the sample
_BUCKET = "ais-tar2tf-bench"


@dataclass(frozen=True, slots=True)
class Measured:
    """One stage: what was measured, bytes of shards and records in so many seconds."""

    name: str
    seconds: float
    bytes: float
    records: float

    @property
    def rate(self) -> float:
        """Bytes of shards in a second."""
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
class Sample:
    """The first shards, in memory, and what is known of them."""

    urls: list[str]
    bytes: int
    records: int
    fields: tuple[str, ...]
    grouping: str = "first-dot"

    @property
    def record_bytes(self) -> float:
        """Bytes of a shard for each record in it: headers, padding and compression included."""
        return self.bytes / self.records if self.records else 0.0

    def source(self) -> Source:
        return open_source(self.urls, grouping=self.grouping, on_error="skip-shard")  # the last shard may be cut


def _blocks(store: Store, names: Iterable[str], connections: int) -> Generator[tuple[str, memoryview]]:
    """The bytes of shards as they come, with the shard that they are of."""
    read = replace(Read(), connections=connections)
    fetch = Fetch(store, map(Span, names), read, Account())
    try:
        while (span := fetch.next_shard()) is not None:
            while block := fetch.read():
                yield span.name, block
    finally:
        fetch.close()


def take_sample(store: Store, names: Sequence[str], grouping: str = "first-dot") -> Sample:
    """Whole shards into memory until they are enough; the last one may be cut."""
    kept: dict[str, bytearray] = {}
    total = 0
    for name, block in _blocks(store, names[:_MOST_SHARDS], Read().connections):
        kept.setdefault(name, bytearray()).extend(block)
        total += len(block)
        if total >= SAMPLE_BYTES:
            break
    memory = MemoryStore(_BUCKET)
    for name, data in kept.items():
        memory.put(name, bytes(data))
    urls = [memory.url(name) for name in kept]
    fields: dict[str, None] = {}
    records = 0
    for record in open_source(urls, grouping=grouping, on_error="skip-shard").records():
        records += 1
        fields.update(dict.fromkeys(record))
    return Sample(urls, total, records, tuple(name for name in fields if not name.startswith("__")), grouping)


def download(
    store: Store, names: Sequence[str], connections: int, seconds: float, record_bytes: float, begin: int = 0
) -> Measured:
    """Raw bytes from the store, nothing else, over and over until the time is up."""
    order = [*names[begin:], *names[:begin]]
    received = 0
    blocks = _blocks(store, itertools.cycle(order), connections)
    began = now = time.perf_counter()
    try:
        for _, block in blocks:
            received += len(block)
            now = time.perf_counter()
            if now - began >= seconds:
                break
    finally:
        blocks.close()
    name = f"download, {connections} connection{'s' if connections > 1 else ''}"
    return Measured(name, now - began, received, received / record_bytes if record_bytes else 0)


def in_records(sample: Sample, seconds: float) -> Measured:
    """Shards in memory → records in Python."""
    return _counted("parse into records", (1 for _ in _forever(sample.source().records)), seconds, sample)


def in_batches(
    name: str,
    source: Callable[[], Source],
    mapping: Callable[..., Any] | None,
    batch: int,
    seconds: float,
    sample: Sample,
) -> Measured:
    """Shards → batches of a tf.data.Dataset; the first batch is not counted, for with it everything is built."""
    there = source() if mapping is not None else source().select(*(f"{name}?" for name in sample.fields))
    dataset = there.dataset(mapping, batch=batch, repeat=None)
    batches = iter(dataset)
    next(batches)
    return _counted(name, (_first_dimension(each) for each in batches), seconds, sample)


def decoding(sample: Sample) -> Callable[..., Any] | None:
    """What a model needs: an image of a fixed size, when there are images; else nothing is decoded."""
    images = [name for name in sample.fields if name.rpartition(".")[2] in ("jpg", "jpeg", "png", "gif", "bmp")]
    if not images:
        return None
    import tensorflow as tf

    def decoded(record: Any) -> Any:
        pixels = tf.io.decode_image(record["image"], channels=3, expand_animations=False)
        return tf.image.resize(pixels, (224, 224)) / 255

    decoded.fields = (f"image={';'.join(images)}",)  # type: ignore[attr-defined]  # the first that a record has
    return decoded


def _forever(records: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from records()


def _counted(name: str, counts: Iterator[int], seconds: float, sample: Sample) -> Measured:
    records = 0
    began = now = time.perf_counter()
    for count in counts:
        records += count
        now = time.perf_counter()
        if now - began >= seconds:
            break
    return Measured(name, now - began, records * sample.record_bytes, records)


def _first_dimension(batch: Any) -> int:
    while isinstance(batch, dict | tuple | list):
        batch = next(iter(batch.values())) if isinstance(batch, dict) else batch[0]
    return int(batch.shape[0])
