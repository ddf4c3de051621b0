"""What a dataset reads of its shards and makes of a record, and the request that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ais_tar2tf.account import Account
from ais_tar2tf.options import Shuffle, epochs_of, whole_number
from ais_tar2tf.reading import Reading, behind_the_end, size_of
from ais_tar2tf.records import Record
from ais_tar2tf.source._arguments import seed_of

if TYPE_CHECKING:
    from ais_tar2tf.source._source import Source
    from ais_tar2tf.tfdata.dataset import ShardDataset
    from ais_tar2tf.tfdata.tracing import GraphMapping, PythonMapping

__all__ = ["Prepared", "usual_bytes"]


@dataclass(frozen=True)
class Prepared:
    """What is read for a dataset, and what its elements are."""

    source: Source
    names: tuple[str, ...]
    optional: frozenset[str]
    mapping: GraphMapping | PythonMapping | None
    record_bytes: int = 0  # of those in the sample, of what is read

    def dataset(
        self,
        reading: Reading,
        account: Account,
        how: Shuffle | None,
        *,
        batch: int | None,
        drop_remainder: bool,
        repeat: int | None,
        shard: Any,
        start_at: int,
        parallel: int | None,
    ) -> ShardDataset:
        """The dataset of a reading, as `Source.dataset` is asked for it. -1 is tf.data's `repeat` and AUTOTUNE."""
        from ais_tar2tf.tfdata.chunks import Request
        from ais_tar2tf.tfdata.dataset import dataset_of
        from ais_tar2tf.tfdata.workers import several_workers

        start_at = whole_number("start_at", start_at, least=0)
        epochs = epochs_of(repeat)
        seed = seed_of(how, shared=shard is not None or several_workers())
        if how is not None:
            account.stats.seed = seed.value

        request = Request(
            reading=reading,
            account=account,
            names=self.names,
            optional=self.optional,
            mapping=self.mapping,
            batch=None if batch is None else whole_number("batch", batch, least=1),
            drop_remainder=drop_remainder,
            repeat=epochs,
            seed=seed,
            start_at=start_at,
            parallel=None if parallel in (None, -1) else whole_number("parallel", parallel, least=1),
            record_bytes=self.record_bytes,
            split=shard is not None,
        )
        each = reading.length(seed.value)
        if each is not None and 0 <= epochs * each < start_at:
            raise behind_the_end(start_at, epochs * each)
        return dataset_of(request)


def usual_bytes(sample: Sequence[Record], names: Sequence[str]) -> int:
    """What a record of the sample takes, of these names."""
    return sum(size_of({name: record.get(name) for name in names}) for record in sample) // max(1, len(sample))
