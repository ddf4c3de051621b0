"""Finds the index of opened shards once, and reads records by their numbers with it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import IndexMissing, StoreError
from ais_tar2tf.records import Record
from ais_tar2tf.streams.in_cluster.picking import read_numbered
from ais_tar2tf.streams.index.files import FoundIndex, IndexPlace, default_place, find_index
from ais_tar2tf.streams.index.shards import Index
from ais_tar2tf.streams.reader import Shards

__all__ = ["IndexLookup", "records_by_number"]


class IndexLookup:
    """The index of some shards. It is found when it is first needed, and then kept.

    All sources over the same shards share one lookup, also if they select different fields.
    """

    def __init__(self, shards: Shards, at: IndexPlace | bool = True) -> None:
        """Set the place of the index.

        Args:
            shards: The shards that the index must describe.
            at: The place of the index. True: next to the shards. False: nowhere.
        """
        self._shards = shards
        self.at: IndexPlace | bool = at

    @cached_property
    def found(self) -> FoundIndex:
        """The index, or the reason why no index is used."""
        names, at = self._shards.names, self.at
        is_named = isinstance(at, IndexPlace)
        if (
            at is False or not len(names) or ("?" in names[0] and not is_named)
        ):  # a signed URL opens one object only, not an index next to it
            return FoundIndex(None, "no index is used")
        return find_index(self._shards, at if is_named else default_place(self._shards))

    def index_or_none(self) -> Index | None:
        """Return the index; None if there is no index, or if it cannot be read."""
        try:
            return self.found.index
        except StoreError:
            return None

    def required(self) -> Index:
        """Return the index.

        Raises:
            IndexMissing: There is no index, or it does not describe the shards.
        """
        if self.found.index is None:
            names, store = self._shards.names, self._shards.store
            raise IndexMissing(
                f"this needs an index, and {self.found.reason}; write one by t2t.index(…)",
                url=store.url(names[0] if len(names) else ""),
            )
        return self.found.index


def records_by_number(shards: Shards, index: Index, numbers: range, account: Account) -> list[Record]:
    """Read records by their numbers in the order of the shards. Consecutive records of a shard are read at once.

    Raises:
        IndexMissing: A shard has fewer records than its index says.
    """
    indexed = replace(shards, index=index)
    found: list[Record] = []
    for shard, cut in index.pieces(shards.names, numbers):
        records = read_numbered(indexed, shard, cut, account.with_new_stats())
        if len(records) < cut.stop - cut.first:
            raise IndexMissing(
                "the shard has fewer records than its index says; write it again by t2t.index(…)",
                url=shards.store.url(shards.names[shard]),
            )
        found += records
    return found
