"""Members of one shard → its records, and the account of what fits into none. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from operator import add, sub
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Bytes, Members
from ais_tar2tf.errors import (
    ArchiveError,
    DuplicateField,
    DuplicateKey,
    LimitExceeded,
    MissingField,
    RecordError,
    StrayMember,
)
from ais_tar2tf.options import Limits
from ais_tar2tf.records.keys import Keys
from ais_tar2tf.records.naming import Grouping, alike, is_by_rule, is_no_field, splitter
from ais_tar2tf.records.selection import Selection
from ais_tar2tf.records.table import NAMES, Record, RecordBatch, Records

__all__ = ["Grouper"]

_TOGETHER = (
    "the files of one record have to lie next to each other: unpack the shard and pack the folder again by "
    "t2t.pack, or write it by tar --sort=name"
)
_SMALL_FIELDS = 16_384  # bytes of a record
_NAMES = frozenset(NAMES)


def _bodies(data: Bytes, starts: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
    if isinstance(data, bytes):
        return [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
    return [bytes(data[start : start + size]) for start, size in zip(starts, sizes, strict=True)]


class Grouper:
    """Members of one shard in, whole records out; the record that may still grow is kept back."""

    def __init__(
        self,
        shard: str,
        account: Account,
        limits: Limits,
        *,
        grouping: Grouping = "first-dot",
        selection: Selection | None = None,
    ) -> None:
        self.number: int = 0  # members have names; nothing is numbered
        self._shard = shard
        self._account = account
        self._limits = limits
        self._split = splitter(grouping)
        self._selection = selection
        self._sources = None if selection is None else selection.sources
        self._seen = Keys()
        self._key: str | None = None
        self._offset = 0
        self._fields: Record = {}
        self._size = 0
        self._met: set[str] | None = None  # fields of this record that were not selected, when some were not
        self._twice: str | None = None
        self._failure: ArchiveError | RecordError | None = None  # to be raised behind the records before it
        self._looked = False  # for a record whose files do not lie next to each other

    def wants(self, name: str) -> bool:
        """Whether the body of the member `name` will be looked at."""
        parts = self._split(name)
        return parts is not None and (self._sources is None or parts[1] in self._sources)

    def add(self, members: Members) -> RecordBatch:
        """The records that are whole now. What stops here, stops behind the records that come before it."""
        self.raise_failure()
        batch = RecordBatch()
        try:
            self._add(members, batch)
        except (ArchiveError, RecordError) as error:
            self._failure = error
            if not batch.records:
                raise
        return batch

    @property
    def failed(self) -> bool:
        """Whether what is kept back may not be whole, since an error came while members were added."""
        return self._failure is not None

    def raise_failure(self) -> None:
        """Raise the error that came behind the records that were returned last."""
        if self._failure is not None:
            raise self._failure

    def _add(self, members: Members, batch: RecordBatch) -> None:
        begin = self._add_one_by_one(members, 0, batch, until_next_key=True)
        begin += self._add_alike(members, begin, batch)
        self._add_one_by_one(members, begin, batch)

    def _add_one_by_one(
        self,
        members: Members,
        begin: int,
        batch: RecordBatch,
        *,
        until_next_key: bool = False,
    ) -> int:
        """From the `begin`-th member on; how far it came."""
        split, sources, data, most = self._split, self._sources, members.data, self._limits.record_bytes
        current, fields = self._key, self._fields
        for at in range(begin, len(members.names)):
            part, size = split(members.names[at]), members.sizes[at]
            if part is None or not part[1]:
                self._leave_out(members.names[at])
                continue
            key, field = part
            if key != current:
                if until_next_key:
                    return at
                if current is not None:
                    self._flush(batch, members.offsets[at], (members.names, at))
                current, fields = key, self._begin(key, members.offsets[at])
            if sources is not None and field not in sources:
                self._note_unselected(field)
            elif field in _NAMES:
                self._refuse_name(members.names[at])
            elif field in fields:
                self._twice = field
            else:
                self._size += size
                if self._size > most:
                    raise self._limit("record_bytes", f"record {key!r} has over {most:,} bytes", members.offsets[at])
                start = members.starts[at]
                fields[field] = bytes(data[start : start + size])
        self._check_fields()
        return len(members.names)

    def _add_alike(self, members: Members, begin: int, batch: RecordBatch) -> int:
        """Whole records that have the same fields in the same order, as most shards do from end to end: by columns.

        Gives the number of members taken: 0 when they are not alike, or when anything is wrong with any of them;
        the last record is left, for it may still grow.
        """
        found = alike(members.names[begin:], self._split)
        if found is None:
            return 0
        pattern, keys = found
        width, count = len(pattern), len(keys)
        end = begin + width * count
        chosen = self._chosen(pattern)
        if chosen is None:
            return 0
        sizes = [members.sizes[begin + at : end : width] for _, at in chosen]
        totals = sizes[0] if sizes else [0] * count
        for column in sizes[1:]:
            totals = list(map(add, totals, column))
        if max(totals) > self._limits.record_bytes:
            return 0
        if self._key is not None:  # its key comes before theirs
            self._flush(batch, members.offsets[begin], (members.names, begin))
            self._key = None
        if not self._all_new(keys):
            return 0
        shard, data = self._shard, members.data
        if sum(totals) < _SMALL_FIELDS * count:
            data = bytes(data)  # one copy makes thousands of small slices cheaper than it costs
        columns: dict[str, list[Any]] = {"__key__": keys, "__shard__": [shard] * count}
        for (name, at), column in zip(chosen, sizes, strict=True):
            columns[name] = _bodies(data, members.starts[begin + at : end : width], column)
        batch.records.extend(Records.by_columns(columns))
        offsets = members.offsets[begin : end + 1 : width]
        batch.offsets += offsets[:-1]
        batch.sizes += totals
        batch.extents += map(sub, offsets[1:], offsets)
        return end - begin

    def _chosen(self, pattern: list[str]) -> list[tuple[str, int]] | None:
        """The name and the place of every field that is read; None if a record like this is not in order."""
        if len(set(pattern)) < len(pattern) or "" in pattern or len(pattern) > self._limits.fields:
            return None
        if not _NAMES.isdisjoint(pattern):
            return None
        if self._selection is None:
            return list(zip(pattern, range(len(pattern)), strict=True))
        chosen: list[tuple[str, int]] = []
        for want in self._selection.wants:
            place = next((pattern.index(source) for source in want.sources if source in pattern), None)
            if place is not None:
                chosen.append((want.name, place))
            elif not want.optional:
                return None
        return chosen

    def _all_new(self, keys: list[str]) -> bool:
        """Whether no key came before; remembers them if so."""
        if len(self._seen) + len(keys) >= self._limits.keys or self._seen.size >= self._limits.key_bytes:
            return False
        return self._seen.add_all(keys)

    @property
    def keys(self) -> int:
        """How many different keys came so far, without the one that is kept back."""
        return len(self._seen)

    @property
    def kept_back_at(self) -> int | None:
        """Where the record that may still grow begins; None before the first and behind the last."""
        return None if self._key is None else self._offset

    def finish(self, end: int | None = None) -> RecordBatch:
        """The last record: the shard's members end at the offset `end` (None where extents don't matter)."""
        self.raise_failure()
        batch = RecordBatch()
        if self._key is not None:
            self._flush(batch, self._offset if end is None else end)
            self._key = None
        return batch

    def _begin(self, key: str, offset: int) -> Record:
        self._key, self._offset, self._size, self._twice, self._met = key, offset, 0, None, None
        self._fields = {"__key__": key, "__shard__": self._shard}
        return self._fields

    def _leave_out(self, name: str) -> None:
        if not is_by_rule(self._split) or is_no_field(name):
            self._account.add(ignored=1)
            return
        self._account.record_error(
            StrayMember(
                f"member {name!r} has no extension, so it belongs to no record; "
                "leave it out by a grouping of your own, or skip it by on_error='skip-record'",
                shard=self._shard,
                key=name,
            )
        )

    def _refuse_name(self, name: str) -> None:
        """A field may not be called as what every record has beside its fields."""
        self._account.record_error(
            StrayMember(
                f"member {name!r} would replace the record's own key or shard; "
                "give it another field by a grouping of your own, or skip it by on_error='skip-record'",
                shard=self._shard,
                key=name,
            )
        )

    def _note_unselected(self, field: str) -> None:
        if self._met is None:
            self._met = set()
        if field in self._met:
            self._twice = field
        self._met.add(field)

    def _check_fields(self) -> None:
        count = len(self._fields) - len(NAMES) + (len(self._met) if self._met else 0)
        if count > self._limits.fields:
            message = (
                f"record {self._key!r} has over {self._limits.fields:,} fields (does the grouping fit the names?)"
            )
            raise self._limit("fields", message, self._offset)

    def _limit(self, name: str, message: str, offset: int) -> LimitExceeded:
        return LimitExceeded(f"{message}, Limits.{name}", shard=self._shard, offset=offset)

    def _flush(self, batch: RecordBatch, end: int, behind: tuple[Sequence[str], int] = ((), 0)) -> None:
        """The record is whole and ends at the offset `end`: check it, and put it into the batch or to the account.

        `behind` has names of members, and the place from where on they stand behind the record.
        """
        key = self._key
        assert key is not None
        is_new = self._seen.add(key)
        if len(self._seen) > self._limits.keys:
            raise self._limit("keys", f"there are over {self._limits.keys:,} records", self._offset)
        if self._seen.size > self._limits.key_bytes:
            raise self._limit("key_bytes", f"keys have over {self._limits.key_bytes:,} characters", self._offset)
        self._check_fields()
        record = self._fields
        if not is_new or self._twice is not None or self._selection is not None:
            try:
                record = self._checked(key, known=not is_new)
            except MissingField as error:
                self._account.record_error(self._torn_apart(key, *behind) or error)
                return
            except (DuplicateKey, DuplicateField) as error:
                self._account.record_error(error)
                return
        batch.records.append(record)
        batch.offsets.append(self._offset)
        batch.sizes.append(self._size)
        batch.extents.append(end - self._offset)

    def _torn_apart(self, key: str, names: Sequence[str], begin: int) -> MissingField | None:
        """Return the error of a record that lacks a field, where more of its files stand behind those of others.

        The first such record of a shard is looked for, as far as members came: each look costs a walk over them.
        """
        following, self._looked = [] if self._looked else names[begin:], True
        for name in following:
            part = self._split(name)
            if part is not None and part[0] == key and part[1]:
                return MissingField(
                    f"its file {name!r} stands behind files of other records; {_TOGETHER}", shard=self._shard, key=key
                )
        return None

    def _checked(self, key: str, *, known: bool) -> Record:
        if known:
            raise DuplicateKey(
                f"the key came before, and comes back after other records; {_TOGETHER}. If these are two records, "
                "give one of them another key",
                shard=self._shard,
                key=key,
            )
        if self._twice is not None:
            raise DuplicateField(f"field {self._twice!r} is there twice", shard=self._shard, key=key)
        if self._selection is None:
            return self._fields
        met = {*(self._fields.keys() - NAMES), *(self._met or ())}
        record: Record = {"__key__": key, "__shard__": self._shard}
        return record | self._selection.of(self._fields, met, self._shard, key)
