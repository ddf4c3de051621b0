"""The diagnosis of the verb `bench`: which measured stage is the bottleneck, and which options may help.

This module must not measure anything: `stages.py` makes the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.cli.stages import StageMeasurement

__all__ = ["Rates", "Verdict", "judge"]

_WORTH_IT = 1.2  # a gain below 20 % is within the noise of a measurement of a few seconds
_BATCH_BYTES = 64_000_000  # the largest suggested batch: prefetching holds several batches in memory


@dataclass(frozen=True)
class Rates:
    """The measurements of all stages. Without TensorFlow, only `downloads` and `parse` are measured.

    Attributes:
        downloads: Pairs (number of connections, measurement). The first pair has the default number of connections.
        parse: Making records of shards that are in memory.
        handed_over: Reading shards that are in memory into tf.data, and batching their records there.
        decode: The work of `handed_over`, and decoding and resizing images.
        together: The work of `decode`, but with shards that are read from the store.
    """

    downloads: Sequence[tuple[int, StageMeasurement]]
    parse: StageMeasurement
    handed_over: StageMeasurement | None = None
    decode: StageMeasurement | None = None
    together: StageMeasurement | None = None

    @property
    def stages(self) -> list[StageMeasurement]:
        """All measurements, from the store to the model."""
        found = (self.parse, self.handed_over, self.decode, self.together)
        return [*(measured for _, measured in self.downloads), *(each for each in found if each is not None)]

    @property
    def best_download(self) -> tuple[int, StageMeasurement]:
        """The fastest download. A later pair is chosen only if it is faster by the factor `_WORTH_IT`."""
        best = self.downloads[0]
        for each in self.downloads[1:]:
            if each[1].rate > best[1].rate * _WORTH_IT:
                best = each
        return best


@dataclass(frozen=True)
class Verdict:
    """The slowest stage, advice, and suggested options. `parallel` is None if its default is suggested."""

    bottleneck: str
    advice: tuple[str, ...]
    connections: int
    batch: int
    parallel: int | None

    @property
    def code(self) -> str:
        """Python that opens the data with the suggested options."""
        parallel = f", parallel={self.parallel}" if self.parallel else ""
        return f"t2t.open(url, connections={self.connections}).dataset(batch={self.batch}{parallel})"

    def to_json(self) -> dict[str, Any]:
        return {
            "bottleneck": self.bottleneck,
            "advice": list(self.advice),
            "suggested": {"connections": self.connections, "batch": self.batch, "parallel": self.parallel},
        }


def judge(rates: Rates, record_bytes: float, cores: int, *, batch: int) -> Verdict:
    """Return the verdict, which names the stage that is the bottleneck. `together` is not compared.

    The download is the bottleneck if no rate of `parse`, `handed_over` and `decode` is lower than the rate of
    `best_download`. Otherwise the bottleneck is the one of these three stages that adds the most time.

    Args:
        rates: The measurements.
        record_bytes: The average size of a record.
        cores: The number of cores of this machine.
        batch: The batch size of the measurements.
    """
    connections, download = rates.best_download
    inside = [each for each in (rates.parse, rates.handed_over, rates.decode) if each is not None]
    slowest = download if download.rate <= min(each.rate for each in inside) else _longest(inside)
    default = rates.downloads[0][0]
    advice: list[str] = []
    if slowest is download:
        bottleneck = "download"
        advice.append(_of_download(connections, default))
        advice.append("several epochs: t2t.open(url, cache='dir') reads each shard from the store only once")
    elif slowest is rates.decode:
        bottleneck = "decode"
        advice += [
            f"decoding can use at most the {cores} cores of this machine: set dataset(parallel={cores})",
            "store the images in the size that the model takes, or train where there are more cores",
        ]
    elif slowest is rates.handed_over:
        bottleneck = "tf.data"
        advice.append("select(…) only the fields that are used: what is skipped is not copied")
    else:
        bottleneck = "parse"
        advice.append("plain tar parses faster than tar.gz; small members cost more than large ones: convert once")
    suggested = connections if slowest is download else default
    parallel = cores if slowest is rates.decode else None
    return Verdict(bottleneck, tuple(advice), suggested, _batch(record_bytes, batch), parallel)


def _longest(inside: Sequence[StageMeasurement]) -> StageMeasurement:
    """Return the stage that adds the most time for a byte. Each measurement includes the stages before it."""
    longest, most, before = inside[0], 0.0, 0.0
    for stage in inside:
        time = 1 / stage.rate if stage.rate else math.inf
        if time - before > most:
            longest, most = stage, time - before
        before = max(before, time)
    return longest


def _of_download(connections: int, default: int) -> str:
    if connections != default:
        return f"t2t.open(url, connections={connections}) was faster than connections={default}"
    return "more connections gain nothing: the line or the store is at its limit; train nearer to the data"


def _batch(record_bytes: float, batch: int) -> int:
    """Return the suggested batch size: `batch`, halved until a batch has at most `_BATCH_BYTES` bytes."""
    while batch > 1 and batch * record_bytes > _BATCH_BYTES:
        batch //= 2
    return batch
