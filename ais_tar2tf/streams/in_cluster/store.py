"""Selection in the cluster: AIStore sends only the selected members of a shard, where this saves many bytes.

The cluster answers with a tar of these members, in the order of the shard. A reader treats this tar as the shard.
This module must not parse the tar.

Members are requested only if the cluster's listing of the shard shows that all records are complete:

* Every member belongs to a record, except system files such as `.DS_Store`. No record has a field twice.
* Every record has all fields that are not optional, and at least one selected field.

Any other shard is read whole, so that its faults are reported as usual. A listing does not show the order of members.
So a record whose members are not stored together is noticed only if its selected members are not together in the tar.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import xxhash

from ais_tar2tf.base import forking
from ais_tar2tf.errors import ObjectChanged, StoreError, TransportError
from ais_tar2tf.records import Grouping, Selection, Split, is_not_data, members_pattern, splitter
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo, Store, WrapperStore

if TYPE_CHECKING:
    from ais_tar2tf.stores.ais import ShardMembers

__all__ = [
    "ChecksRecords",
    "Decision",
    "Extracted",
    "MembersBody",
    "MembersStore",
    "SelectsInside",
    "decide",
    "listed_records",
]

# Members are requested if the listing and the tar of these members are together smaller than this fraction of the
# shard's size. Selecting a larger fraction costs the cluster more than sending the whole shard.
_WORTH = 0.5
# How often the network or the server may fail while the first shard is listed. After this many failures, no further
# listing is requested, and all shards are read whole.
_FIRST_TRIES = 3
_BLOCK = 512  # bytes: in a tar, a member's header has one block, and a member's data are padded to whole blocks


@runtime_checkable
class SelectsInside(Protocol):
    """A store that can list and select the members of a shard, as AIStore can."""

    def list_members(self, name: str) -> ShardMembers | None:
        """List the members of a shard; return None if the listing may be incomplete."""
        ...

    def open_members(self, name: str, pattern: str, *, interrupt: Interrupt | None = None) -> Body:
        """Request a tar of the members whose names match a regular expression."""
        ...


@runtime_checkable
class ChecksRecords(Protocol):
    """A store that compares the number of records that were read from a shard with the number that the shard has."""

    def check_records(self, name: str, records: int) -> None:
        """Raise StoreError unless the shard has `records` records: as many as were read from its start to its end."""
        ...


@dataclass(slots=True)
class Extracted:
    """Counters that show what selection in the cluster has saved and cost so far.

    Attributes:
        shards: The number of shards from which members were requested, instead of the whole shard.
        whole_bytes: The total size of the shards that `shards` counts.
        whole_shards: How often a shard was opened whole. Shards that are opened after the store has decided to read
            all shards whole are not counted.
        member_bytes: The total size of the tars of these members, estimated from the listings.
        listed_bytes: The total size of all listings that were complete.
    """

    shards: int = 0
    whole_shards: int = 0
    whole_bytes: int = 0
    member_bytes: int = 0
    listed_bytes: int = 0


class Decision(NamedTuple):
    """The decision whether to request only the selected members of a shard.

    Attributes:
        members: Whether to request only these members.
        records: The number of records in the shard's listing; 0 without a listing, or if the listing shows
            that a record is incomplete.
        size: The size of a tar of these members, estimated from the listing; 0 wherever `records` is 0.
    """

    members: bool
    records: int = 0
    size: int = 0


def decide(listed: ShardMembers, selection: Selection, grouping: Grouping, *, always: bool = False) -> Decision:
    """Decide whether to request only the selected members of a shard.

    If `always` is True, and the listing shows that all records are complete, the members are requested even if this
    saves no bytes.
    """
    records = listed_records(listed.members, splitter(grouping))
    if not records or not all(_is_in_order(fields, selection) for fields in records.values()):
        return Decision(members=False)
    wanted = [fields[source] for fields in records.values() for source in selection.sources if source in fields]
    size = sum(_BLOCK - size // -_BLOCK * _BLOCK for size in wanted) + 2 * _BLOCK
    saves = listed.shard.size is not None and size + listed.listing_bytes < listed.shard.size * _WORTH
    return Decision(members=always or saves, records=len(records), size=size)


def listed_records(members: list[tuple[str, int]], split: Split) -> dict[str, dict[str, int]]:
    """Return the size of each field of each record, by key and field.

    The result is empty if a member belongs to no record, or if a record has a field twice. System files such as
    `.DS_Store` are no data, and are ignored.
    """
    records: dict[str, dict[str, int]] = {}
    for name, size in members:
        part = split(name)
        if part is None or not part[1]:
            if is_not_data(name):
                continue
            return {}
        fields = records.setdefault(part[0], {})
        if part[1] in fields:
            return {}
        fields[part[1]] = size
    return records


def _is_in_order(fields: dict[str, int], selection: Selection) -> bool:
    """Return whether a record has all fields that are not optional, and at least one selected field."""
    found = [any(source in fields for source in want.sources) for want in selection.wants]
    return any(found) and all(has or want.optional for has, want in zip(found, selection.wants, strict=True))


class MembersStore(WrapperStore):
    """A store that returns only the selected members of a shard, where this saves many bytes.

    The store decides about the first shard first. If the first shard is to be read whole, all other shards are read
    whole, too, and no further listing is requested. Otherwise, the decision about a shard depends only on the listing
    of its members, so this decision is the same whenever the shard is opened.

    If a shard cannot be listed, or its listing may be incomplete, this shard is read whole whenever it is opened.
    There is one exception: if members of the shard were requested before, the error of the listing is raised.

    If the network or the server fails while the first shard is listed, each shard that is opened is read whole until
    a later try lists the first shard. After `_FIRST_TRIES` such failures, all shards are read whole.
    """

    def __init__(
        self,
        store: Store,
        first: str,
        selection: Selection,
        grouping: Grouping,
        *,
        always: bool = False,
        extracted: Extracted | None = None,
    ) -> None:
        """Wrap a store.

        Args:
            store: The store of the whole shards, which must be a `SelectsInside`.
            first: The name of the first shard.
            selection: The fields to select.
            grouping: The rule by which members are grouped.
            always: Whether to request members even where this saves no bytes.
            extracted: The counters to which this store adds. Default: new counters.
        """
        assert isinstance(store, SelectsInside)
        self.extracted: Extracted = extracted or Extracted()
        super().__init__(store)
        self._inside: SelectsInside = store
        self._first = first
        self._selection = selection
        self._grouping: Grouping = grouping
        self._always = always
        self._pattern = members_pattern(grouping, sorted(selection.sources))
        self._lock = forking.lock()  # held while members are listed
        # Whether the first shard is requested as selected members. If False, all shards are read whole. None:
        # undecided. Without a pattern, the grouping is a function, which AIStore cannot apply, so no members are
        # requested.
        self._pays: bool | None = None if self._pattern is not None else False
        self._first_tries = _FIRST_TRIES
        # Shards that were opened whole because they, or the first shard, had no complete listing. They are opened
        # whole each time from then on.
        self._unlisted: set[str] = set()
        # The number of records in the listing of each shard from which only members are requested, by shard.
        self._records: dict[str, int] = {}

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        """Open a range of the whole shard, or the tar of its selected members if only these are to be requested.

        The tar is always opened from its start, whatever `start` and `stop` are.
        """
        pattern, listed = self._pattern, self._listed_shard(name)
        if listed is None or pattern is None:
            return self._store.open(name, start, stop, interrupt=interrupt)
        version = listed.identity.version
        digest = xxhash.xxh64_hexdigest(pattern.encode("utf-8", "surrogateescape"))
        marked = Identity(version, checksum=f"members:{digest}")  # a checkpoint must not take this tar for the shard
        body = self._inside.open_members(name, pattern, interrupt=interrupt)
        return MembersBody(
            body, ObjectInfo(name, None, marked), lambda: self._check_version(name, version, interrupt)
        )

    def check_records(self, name: str, records: int) -> None:
        """Raise StoreError unless `records` is the number of records in the shard's listing.

        A shard that was requested whole is not checked.
        """
        listed = self._records.get(name)
        if listed is not None and listed != records:
            raise StoreError(
                f"the cluster lists {listed:,} records in this shard, but {records:,} records were read from the "
                "selected members. If the shard contains links, read it whole: select(…, in_cluster=False)",
                url=self.url(name),
            )

    def _listed_shard(self, name: str) -> ObjectInfo | None:
        """Return the shard's `ObjectInfo` from its listing if only its members are to be requested, else None."""
        with self._lock:
            found = self._decide_first() if self._pays is None else None
            if self._pays is False:
                return None
            if self._pays is None or name in self._unlisted:
                found = None
            elif found is None or name != self._first:
                found = self._decide(name)
            decision, shard = found or (Decision(members=False), None)
            if shard is None:
                self._unlisted.add(name)
            if not decision.members:
                self._records.pop(name, None)  # the shard may have been replaced since it was listed first
            if name not in self._records:
                self._count(decision, shard)
            if decision.members:
                self._records[name] = decision.records
            return shard if decision.members else None

    def _decide_first(self) -> tuple[Decision, ObjectInfo | None] | None:
        """Decide about the first shard, and so whether other shards are listed. Return what `_decide` returns.

        While the first shard cannot be listed, nothing is decided. After `_FIRST_TRIES` failures, all shards are read
        whole.
        """
        self._first_tries -= 1
        found = self._decide(self._first)
        if found is not None or not self._first_tries:
            self._pays = found is not None and found[0].members
        return found

    def _decide(self, name: str) -> tuple[Decision, ObjectInfo | None] | None:
        """Return the decision about a shard, and the shard's `ObjectInfo` from its listing.

        The `ObjectInfo` is None if there is no listing, or if the listing may be incomplete. The result is None if
        the network or the server failed.

        Raises:
            StoreError: The shard cannot be listed, and members of it were requested before.
        """
        try:
            listed = self._inside.list_members(name)
        except StoreError as error:
            if name in self._records:
                raise  # only members of this shard were requested before, so it must not be read whole now
            # The error is not raised: the shard is read whole, and this fails, too, if the fault persists.
            return None if isinstance(error, TransportError) else (Decision(members=False), None)
        if listed is None:
            return Decision(members=False), None
        self.extracted.listed_bytes += listed.listing_bytes
        return decide(listed, self._selection, self._grouping, always=self._always), listed.shard

    def _count(self, decision: Decision, shard: ObjectInfo | None) -> None:
        if not decision.members or shard is None:
            self.extracted.whole_shards += 1
            return
        self.extracted.shards += 1
        self.extracted.whole_bytes += shard.size or 0
        self.extracted.member_bytes += decision.size

    def _check_version(self, name: str, version: str, interrupt: Interrupt | None) -> None:
        """Raise ObjectChanged if the shard has another version than `version` now.

        A HEAD request asks for the current version, because the answer that holds the members states no version.
        """
        now = self._store.head_once(name, interrupt=interrupt).identity.version
        if now != version:
            raise ObjectChanged(
                f"the shard was replaced while members of it were read: its version was {version!r} and is {now!r}; "
                "start this shard again",
                url=self.url(name),
            )


class MembersBody(Body):
    """The body of a tar of members. At its end, `at_end` is called, to raise an error if the shard was replaced."""

    def __init__(self, body: Body, info: ObjectInfo, at_end: Callable[[], None]) -> None:
        self.info: ObjectInfo = info
        self.start: int = 0
        self.stop: int | None = None
        self._body = body
        self._at_end = at_end

    def readinto(self, buffer: memoryview) -> int:
        count = self._body.readinto(buffer)
        if not count and len(buffer):
            self._at_end()
        return count

    def close(self) -> None:
        self._body.close()
