"""Selection where the data is: of a shard only the members that are wanted come, where that moves fewer bytes.

What comes is a tar of these members in the shard's order; to whoever reads it, it is the shard. A shard is asked for
so when the cluster's own listing of it says that its records are in order: each has every field that must be there
and at least one that is selected, no field is there twice, no member belongs to none. Other shards are read whole, so
that what is wrong with them is told as always. What a listing does not show is the order of members: of a record
whose members don't stand together, only those that are selected tell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import xxhash

from ais_tar2tf import forking
from ais_tar2tf.errors import ObjectChanged, StoreError
from ais_tar2tf.records import Grouping, Selection, Split, is_no_field, splitter
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo, Store, WrapperStore, asked

__all__ = ["Extracted", "MembersBody", "MembersStore", "SelectsInside", "choose", "listed_records", "pattern_of"]

_WORTH = 0.5  # of the shard's bytes: above this, the target's reading of a shard costs more than its bytes do
_BLOCK = 512
_PATTERNS = {  # of a member's name, before its fields
    "first-dot": r"(?i)(?:^|/)[^/.]+\.(?:{})$",
    "last-dot": r"(?i)[^/]\.(?:{})$",
}


class _Listed(Protocol):
    @property
    def shard(self) -> ObjectInfo: ...
    @property
    def members(self) -> list[tuple[str, int]]: ...
    @property
    def listed(self) -> int: ...


@runtime_checkable
class SelectsInside(Protocol):
    """A store that looks into shards, as AIStore does."""

    def inside(self, name: str) -> _Listed | None: ...

    def open_members(self, name: str, pattern: str, *, interrupt: Interrupt | None = None) -> Body: ...


@dataclass(slots=True)
class Extracted:
    """What came of it so far. Bytes that the members take are estimated before they are asked for."""

    shards: int = 0  # of which only members were asked for
    whole_shards: int = 0  # that were looked into, and read whole
    whole_bytes: int = 0  # what those shards have of which only members were asked for
    member_bytes: int = 0  # what was asked for of them
    listed_bytes: int = 0  # what looking into shards cost


class Choice(NamedTuple):
    """Whether to ask for members only; how many records there are then, and the bytes that come."""

    members: bool
    records: int = 0
    size: int = 0


def pattern_of(selection: Selection, grouping: Grouping) -> str | None:
    """The regular expression, in Go's syntax, of the members that hold a selection's fields; None where none can.

    >>> pattern_of(Selection(["image=jpg;png", "seg.png?"]), "first-dot")
    '(?i)(?:^|/)[^/.]+\\\\.(?:jpg|png|seg\\\\.png)$'
    """
    if callable(grouping):
        return None
    return _PATTERNS[grouping].format("|".join(re.escape(source) for source in sorted(selection.sources)))


def choose(listed: _Listed, selection: Selection, grouping: Grouping, *, whenever: bool = False) -> Choice:
    """What to do about one shard; `whenever`: also where it saves no bytes."""
    records = listed_records(listed.members, splitter(grouping))
    if not records or not all(_is_in_order(fields, selection) for fields in records.values()):
        return Choice(members=False)
    wanted = [fields[source] for fields in records.values() for source in selection.sources if source in fields]
    size = sum(_BLOCK - size // -_BLOCK * _BLOCK for size in wanted) + 2 * _BLOCK
    saves = listed.shard.size is not None and size + listed.listed < listed.shard.size * _WORTH
    return Choice(members=whenever or saves, records=len(records), size=size)


def listed_records(members: list[tuple[str, int]], split: Split) -> dict[str, dict[str, int]]:
    """The sizes of each record's fields; nothing where a member belongs to no record, or a field is there twice."""
    records: dict[str, dict[str, int]] = {}
    for name, size in members:
        part = split(name)
        if part is None or not part[1]:
            if is_no_field(name):
                continue
            return {}
        fields = records.setdefault(part[0], {})
        if part[1] in fields:
            return {}
        fields[part[1]] = size
    return records


def _is_in_order(fields: dict[str, int], selection: Selection) -> bool:
    """Whether a record has what must be there, and is seen at all when only members come."""
    found = [any(source in fields for source in want.sources) for want in selection.wants]
    return any(found) and all(there or want.optional for there, want in zip(found, selection.wants, strict=True))


class MembersStore(WrapperStore):
    """A store whose shards have the selected members only, where that pays; `first` speaks for all of them.

    The choice is made anew whenever a shard is opened, by what is listed alone, so it is the same again while the
    shard is. If the shard that `first` names would be read whole, none of the others is looked into.
    """

    def __init__(
        self,
        store: Store,
        first: str,
        selection: Selection,
        grouping: Grouping,
        *,
        whenever: bool = False,
        extracted: Extracted | None = None,
    ) -> None:
        assert isinstance(store, SelectsInside)
        self.extracted: Extracted = extracted or Extracted()
        super().__init__(store)
        self._inside: SelectsInside = store
        self._first = first
        self._selection = selection
        self._grouping: Grouping = grouping
        self._whenever = whenever
        self._pattern = pattern_of(selection, grouping)
        self._lock = forking.lock()  # looking into shards: one at a time
        self._pays: bool | None = None if self._pattern is not None else False
        self._records: dict[str, int] = {}  # of shards that were asked for by members

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        """By members: from 0, whatever was asked."""
        pattern, seen = self._pattern, self._looked_into(name)
        if seen is None or pattern is None:
            return self._store.open(name, start, stop, interrupt=interrupt)
        version = seen.identity.version
        digest = xxhash.xxh64_hexdigest(pattern.encode("utf-8", "surrogateescape"))
        marked = Identity(version, checksum=f"members:{digest}")  # so that no checkpoint takes one for the other
        body = self._inside.open_members(name, pattern, interrupt=interrupt)
        return MembersBody(
            body, ObjectInfo(name, None, marked), lambda: self._check_version(name, version, interrupt)
        )

    def check(self, name: str, records: int) -> None:
        """Of a shard that came by members: as many records as were listed."""
        listed = self._records.get(name)
        if listed is not None and listed != records:
            raise StoreError(
                f"of {listed:,} records that the cluster lists, the members asked for make {records:,}; has the "
                "shard links? Read it whole: select(…, in_cluster=False)",
                url=self.url(name),
            )

    def _looked_into(self, name: str) -> ObjectInfo | None:
        """The shard as it is listed, if it is to be asked for by members."""
        with self._lock:
            choice, seen = None, None
            if self._pays is None:
                choice, seen = self._choice(self._first)
                self._pays = choice.members
            if not self._pays:
                return None
            if choice is None or name != self._first:
                choice, seen = self._choice(name)
            new = name not in self._records
            if choice.members:
                self._records[name] = choice.records
            if new:
                self._count(choice, seen)
            return seen if choice.members else None

    def _choice(self, name: str) -> tuple[Choice, ObjectInfo | None]:
        try:
            listed = self._inside.inside(name)
        except StoreError:
            if name in self._records:
                raise
            return Choice(members=False), None  # reading the shard whole will tell what is wrong, if anything is
        if listed is None:
            return Choice(members=False), None
        self.extracted.listed_bytes += listed.listed
        return choose(listed, self._selection, self._grouping, whenever=self._whenever), listed.shard

    def _count(self, choice: Choice, seen: ObjectInfo | None) -> None:
        if not choice.members or seen is None:
            self.extracted.whole_shards += 1
            return
        self.extracted.shards += 1
        self.extracted.whole_bytes += seen.size or 0
        self.extracted.member_bytes += choice.size

    def _check_version(self, name: str, version: str, interrupt: Interrupt | None) -> None:
        """The answer itself does not say of which version of the shard it is."""
        now = asked(self._store, name, interrupt).identity.version
        if now != version:
            raise ObjectChanged(
                f"the shard was replaced while members of it were read: its version was {version!r} and is {now!r}; "
                "start this shard again",
                url=self.url(name),
            )


class MembersBody:
    """The tar of the members; at its end it is proved that the shard is still the one that was looked into."""

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
