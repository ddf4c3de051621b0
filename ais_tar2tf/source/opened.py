"""`OpenedShards` holds the state of a `Source`. The other modules of `source/` work on this state.

This module must not decide which records are read, or in which order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.records import Selection
from ais_tar2tf.source.cluster_selection import with_selected_members
from ais_tar2tf.source.index_lookup import IndexLookup
from ais_tar2tf.source.sample import Sample, read_sample
from ais_tar2tf.stores import Access
from ais_tar2tf.streams.in_cluster.store import Extracted
from ais_tar2tf.streams.reader import ReadSession, Shards

__all__ = ["OpenedShards"]


@dataclass(kw_only=True, eq=False)
class OpenedShards:
    """The shards of one store with a selection of fields, and the objects that all readers of these shards share.

    Attributes:
        session: The shards, and the open streams of their records.
        index: The index of the shards, which is loaded on demand.
        account: Counts records and errors. Decides whether to raise an error, or to skip the faulty record or shard.
        access: The endpoint and the token that the store was opened with.
        in_cluster: Whether AIStore selects the members that are read, and sends only these members. True: wherever
            AIStore can. False: never. None: only for shards where this moves fewer bytes.
        extracted: Counts the shards from which AIStore selected members, the bytes of these shards, and the bytes of
            the selected members.
    """

    session: ReadSession
    index: IndexLookup
    account: Account = field(default_factory=Account)
    access: Access = field(default_factory=Access)
    in_cluster: bool | None = False
    extracted: Extracted = field(default_factory=Extracted)
    _sample: Sample | None = field(default=None, init=False)

    @property
    def shards(self) -> Shards:
        """The shards, with the selection of the fields that are read."""
        return self.session.shards

    @property
    def sample(self) -> Sample:
        """The first records of the shards. They are kept if they are small; otherwise, each use reads them again."""
        if self._sample is not None:
            return self._sample
        sample = read_sample(self.session, self.account)
        if sample.is_small:
            self._sample = sample
        return sample

    @cached_property
    def with_members(self) -> Shards | None:
        """The shards as AIStore sends them, with only the selected members.

        None if `in_cluster` is False, or no fields are selected.
        """
        if self.in_cluster is False:
            return None
        return with_selected_members(self.shards, self.extracted, always=bool(self.in_cluster))

    def selecting(self, selection: Selection) -> OpenedShards:
        """Return the same shards with another selection of fields."""
        return replace(self, session=self.session.over(replace(self.shards, selection=selection)))
