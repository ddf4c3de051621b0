"""The options of a plain loop over records, as `dataset` takes them: checked, and what they come to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.options import Shuffle, epochs_of, whole_number
from ais_tar2tf.plan.seeds import Seed
from ais_tar2tf.reading.loops import Loop, in_batches
from ais_tar2tf.records import Record
from ais_tar2tf.source._arguments import check_batching, check_even, seed_of, shuffle_option

__all__ = ["Ordered"]


@dataclass(frozen=True)
class Ordered:
    """In which order records come, how often, and in which batches."""

    how: Shuffle | None
    shard: Any
    even: str | None
    loop: Loop
    batch: int | None
    drop_remainder: bool

    @classmethod
    def of(
        cls,
        *,
        shuffle: bool | int | str | Shuffle | None = None,
        seed: int | None = None,
        shard: Any = None,
        even: str | None = None,
        repeat: int | None = 1,
        start_at: int = 0,
        batch: int | None = None,
        drop_remainder: bool = False,
    ) -> Ordered:
        """Check what was given.

        Raises:
            OptionError: An option has no effect, or no such value.
        """
        how = shuffle_option(shuffle, seed)
        check_batching(batch, drop_remainder=drop_remainder)
        check_even(even, shard)
        loop = Loop(
            seed=seed_of(how, shared=shard is not None),
            epochs=epochs_of(repeat),
            start_at=whole_number("start_at", start_at, least=0),
        )
        size = None if batch is None else whole_number("batch", batch, least=1)
        return cls(how, shard, even, loop, size, drop_remainder)

    @property
    def is_plain(self) -> bool:
        """Whether every record comes once, in the order of the shards."""
        plain = Loop(seed=Seed(0))
        return self.how is None and self.shard is None and self.loop == plain

    def batched(self, records: Iterator[Record]) -> Iterator[Any]:
        """Return the records, or batches of them where they were asked for."""
        if self.batch is None:
            return records
        return in_batches(records, self.batch, drop_remainder=self.drop_remainder)
