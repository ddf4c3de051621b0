"""The description of the shards to read: their store and names, the options, and the selected fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ais_tar2tf.options import Read
from ais_tar2tf.records import Grouping, Selection, splitter
from ais_tar2tf.stores import Store
from ais_tar2tf.streams.index.entry import ShardIndex
from ais_tar2tf.streams.index.shards import Index

__all__ = ["Shards"]


@dataclass(frozen=True)
class Shards:
    """A list of shards in one store, and how to read their records. It is immutable and opens nothing.

    Attributes:
        store: The store that holds the shards.
        names: The names of the shards. The number of a shard is its place in this list.
        read: The options.
        grouping: The rule by which a member's name is split into key and field.
        selection: The fields to read; None reads all.
        index: An index that was compared with all shards and describes them. Orders may depend on it.
        unverified_index: An index that may be outdated. It only saves requests: records are correct in any case.
        in_blocks: Whether the fields that the native step finds stay in the blocks in which they arrived, or in their
            file.
    """

    store: Store
    names: Sequence[str]
    read: Read = field(default_factory=Read)
    grouping: Grouping = "first-dot"
    selection: Selection | None = None
    index: Index | None = None
    unverified_index: Index | None = None
    in_blocks: bool = False

    def __post_init__(self) -> None:
        splitter(self.grouping)  # raises OptionError for an unknown name

    def entry(self, number: int) -> ShardIndex | None:
        """Return the entry of a shard in `index`, by the shard's number; None without an index."""
        return None if self.index is None else self.index.get(self.names[number])

    def begins(self, number: int) -> Callable[[], Sequence[int]] | None:
        """Return a function that lists the offsets of a shard's records; None if they are unknown or not needed.

        They are needed to jump over fields that are not selected. They come from an index that may be outdated.
        """
        index = (self.index or self.unverified_index) if self.selection is not None else None
        entry = None if index is None else index.get(self.names[number])
        return entry.begins if entry is not None and entry.placed and not entry.compressed else None
