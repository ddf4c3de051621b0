"""What is read, and how: everything that a lane needs beside where to begin."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import Read
from ais_tar2tf.reader.epochs import EpochStream
from ais_tar2tf.records import Grouping, Selection, splitter
from ais_tar2tf.shard_index import Index, ShardIndex
from ais_tar2tf.stores import Store

__all__ = ["Shards"]


@dataclass(frozen=True)
class Shards:
    """Which shards, and what is to become of them."""

    store: Store
    names: Sequence[str]
    read: Read = field(default_factory=Read)
    grouping: Grouping = "first-dot"
    selection: Selection | None = None
    index: Index | None = None  # that is true of all of them
    layout: Index | None = None  # where records are likely to begin; wrong, it costs requests and nothing else
    check: Callable[[str, int], None] | None = None  # what a store says to the records of a shard that was read whole
    streams: weakref.WeakSet[EpochStream] = field(default_factory=lambda: weakref.WeakSet[EpochStream]())
    tuning: Tuning | None = None  # of all that read these; one of its own when none is given

    def __post_init__(self) -> None:
        splitter(self.grouping)
        if self.tuning is None:
            object.__setattr__(self, "tuning", Tuning(self.read))

    def known(self, number: int) -> ShardIndex | None:
        """What the index says of a shard."""
        return None if self.index is None else self.index.get(self.names[number])

    def among(self, read: Read, readers: int) -> Shards:
        """For one of several readers at once, each of which reads as `read` says and knows what all of them found."""
        assert self.tuning is not None
        return replace(self, read=read, tuning=self.tuning.among(read, readers))

    def begins(self, number: int) -> Callable[[], Sequence[int]] | None:
        """What tells where the records of a shard are likely to begin."""
        layout = (self.index or self.layout) if self.selection is not None else None
        known = None if layout is None else layout.get(self.names[number])
        return known.begins if known is not None and known.placed and not known.compressed else None

    def close(self) -> None:
        """No stream of these shards stays open, and no connection is kept."""
        for stream in list(self.streams):
            stream.close()
        self.store.close()
