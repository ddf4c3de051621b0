"""Makes records of the members of one tar or zip shard. This module must not open files or connections.

A member that belongs to no record is counted as ignored, or is an error if it looks like data.

In most shards, every record has the same fields. Such records are added by columns, that is, all values of a field at
once: by the native step (`_add_table`), or in Python (`_add_uniform`). Where records differ, `_add_one_by_one` adds
their members one by one.
"""

from __future__ import annotations

from operator import add, sub
from typing import Any

import numpy as np

from ais_tar2tf.archive import Bytes, Members, MemberTable
from ais_tar2tf.base.allocation import aligned_array
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import DuplicateField, DuplicateKey, MissingField, StrayMember
from ais_tar2tf.native import Grouped, tar_library
from ais_tar2tf.options import Limits
from ais_tar2tf.records.base import RecordGrouper
from ais_tar2tf.records.block_table import BlockTable, TablePart
from ais_tar2tf.records.cuts import BlockArray, slices
from ais_tar2tf.records.keys import decode_joined
from ais_tar2tf.records.naming import Grouping, is_not_data, number_of, split_uniform, splitter
from ais_tar2tf.records.selection import Selection
from ais_tar2tf.records.table import KEY_AND_SHARD, Record, RecordBatch, Records

__all__ = ["Grouper"]

_ADVICE = (
    "the files of one record have to lie next to each other: unpack the shard and pack the folder again by "
    "t2t.pack, or write it by tar --sort=name"
)
_RESERVED = "would replace the record's own key or shard; give it another field by a grouping of your own"
_SMALL = 16_384  # average bytes of a record, below which slicing a copy of all bytes is faster than slicing a view
_NAMES = frozenset(KEY_AND_SHARD)
_HEAD = 8  # members that are read one by one at a time, until the next key


class Grouper(RecordGrouper):
    """The grouper of tar and zip files: consecutive members whose names have the same key make one record.

    With `in_blocks`, fields that the native step finds stay in their file, or in their block. The block's memory must
    not be used again.
    """

    def __init__(
        self,
        shard: str,
        account: Account,
        limits: Limits,
        *,
        grouping: Grouping = "first-dot",
        selection: Selection | None = None,
        in_blocks: bool = False,
    ) -> None:
        super().__init__(shard, account, limits, selection)
        self._split = splitter(grouping)
        self._is_users_rule = not isinstance(grouping, str)
        self._rule = number_of(self._split)
        self._library = None if self._rule is None else tar_library()
        self._in_blocks = in_blocks
        self._shard_block: BlockArray = np.frombuffer(shard.encode("utf-8", "surrogateescape"), np.uint8)
        self._sources = None if selection is None else selection.sources
        # The attributes from `_key` to `_duplicate` describe the pending record, to which later members may belong.
        self._key: str | None = None  # None if no record is pending
        self._offset = 0
        self._fields: Record = {}
        self._size = 0
        self._unselected: set[str] | None = None  # its fields that are not selected; None if there are none
        self._duplicate: str | None = None  # a field that two of its members have
        self._given_back_at: int | None = None  # the offset of the members that the last `add` has given back
        self._searched = False  # whether `_find_rest` has searched for the rest of an incomplete record

    def wants(self, name: str) -> bool:
        """Return whether the bytes of a member are needed."""
        parts = self._split(name)
        return parts is not None and (self._sources is None or parts[1] in self._sources)

    def _add(self, members: Members, batch: RecordBatch) -> None:
        self._given_back_at = None
        if not isinstance(members, MemberTable) or self._rule is None:
            self._add_listed(members, batch)
            return
        begin = self._add_table(members, self._rule, batch)
        if begin == members.total:
            return
        rest = RecordBatch()  # appending records one by one to `batch` would copy the fields that are in blocks
        try:
            self._add_listed(members.part(begin), rest)
        finally:
            batch.extend(rest)

    def _add_listed(self, members: Members, batch: RecordBatch) -> None:
        begin = self._add_one_by_one(members, 0, batch, until_next_key=True)
        begin += self._add_uniform(members, begin, batch)
        self._add_one_by_one(members, begin, batch)

    def _add_table(self, members: MemberTable, rule: int, batch: RecordBatch) -> int:
        """Add the first complete records of `members` by the native step; return how many members need no more work.

        If only members of the last record are left, they are given back, so that they come again with the rest of the
        record. The members that this function leaves, which may be all of them, are for `_add_listed`.
        """
        assert self._library is not None
        begin = 0
        while self._key is not None and begin < members.total:
            head = members.part(begin, begin + _HEAD)
            added = self._add_one_by_one(head, 0, batch, until_next_key=True)
            begin += added
            if added < head.total:
                break
        if begin == members.total:
            return begin
        block, shift = self._block_of(members.data)
        grouped = self._library.group(
            members.walked, begin, rule, base=members.base, shift=shift, shard_bytes=len(self._shard_block)
        )
        count = len(grouped.offsets)
        if count:
            places = self._places_from(members, begin, grouped.width)
            if places is None or not self._add_grouped(members, begin, grouped, places, block, batch):
                return begin
            begin += count * grouped.width
        if grouped.rest_is_one and members.give_back(begin):
            self._given_back_at = members.base + members.given_back_at
            return members.total
        return begin

    def _block_of(self, data: memoryview | FileBytes) -> tuple[BlockArray | FileBytes | None, int]:
        """Return the file or block in which fields stay, and where `data` begins in it; None if fields are copied."""
        if not self._in_blocks:
            return None, 0
        return (data, 0) if isinstance(data, FileBytes) else aligned_array(data)

    def _places_from(self, members: MemberTable, begin: int, width: int) -> dict[str, int] | None:
        """Return `_selected_places` of the record that begins at member `begin`."""
        fields = [self._split(name) or ("", "") for name in members.part(begin, begin + width).names]
        return self._selected_places([field for _, field in fields])

    def _add_grouped(
        self,
        members: MemberTable,
        begin: int,
        grouped: Grouped,
        places: dict[str, int],
        block: BlockArray | FileBytes | None,
        batch: RecordBatch,
    ) -> bool:
        """Add records that the native step grouped; return False, and add none, if one of them is not in order."""
        starts, sizes, own = grouped.starts, grouped.sizes, len(KEY_AND_SHARD)
        if [*places.values()] != [*range(grouped.width)]:
            rows = [*range(own), *(own + place for place in places.values())]
            starts, sizes = starts[rows], sizes[rows]
        totals = sizes[own:].sum(axis=0)
        if totals.max() > self._limits.record_bytes:
            return False
        if self._key is not None:
            self._complete(batch, int(grouped.offsets[0]), members, begin)
            self._key = None
        joined, count = grouped.keys.tobytes(), len(totals)
        if not (self._add_ascending(joined, count) if grouped.ascending else self._add_keys(decode_joined(joined))):
            return False
        if block is not None:
            part = TablePart((grouped.keys, self._shard_block) + (block,) * len(places), starts, sizes)
            records = Records.from_columns(BlockTable((*KEY_AND_SHARD, *places), [part], _NAMES))
        else:
            data, keys = _sliceable(members.data, int(totals.sum()), count), decode_joined(joined)
            columns: dict[str, list[Any]] = {"__key__": keys, "__shard__": [self._shard] * count}
            for name, begins, lengths in zip(places, starts[own:].tolist(), sizes[own:].tolist(), strict=True):
                columns[name] = slices(data, begins, lengths)
            records = Records.from_columns(columns)
        batch.records.extend(records)
        batch.offsets += grouped.offsets.tolist()
        batch.sizes += totals.tolist()
        batch.extents += grouped.extents.tolist()
        return True

    def _add_one_by_one(
        self, members: Members, begin: int, batch: RecordBatch, *, until_next_key: bool = False
    ) -> int:
        """Add members from number `begin` on; return the number of the first member that was not added.

        With `until_next_key`, stop before the first member that does not belong to the pending record.
        """
        split, sources, data, most = self._split, self._sources, members.data, self._limits.record_bytes
        names, offsets, sizes, starts = members.names, members.offsets, members.sizes, members.starts
        current, fields = self._key, self._fields
        for at in range(begin, len(names)):
            part, size = split(names[at]), sizes[at]
            if part is None or not part[1]:
                self._leave_out(names[at])
                continue
            key, field = part
            if key != current:
                if until_next_key:
                    return at
                if current is not None:
                    self._complete(batch, offsets[at], members, at)
                current, fields = key, self._begin(key, offsets[at])
            if sources is not None and field not in sources:
                self._note_unselected(field)
            elif field in _NAMES:
                self._refuse(names[at], _RESERVED)
            elif field in fields:
                self._duplicate = field
            else:
                self._size += size
                if self._size > most:
                    raise self._limit("record_bytes", f"record {key!r} has over {most:,} bytes", offsets[at])
                fields[field] = bytes(data[starts[at] : starts[at] + size])
        self._check_fields()
        return len(names)

    def _add_uniform(self, members: Members, begin: int, batch: RecordBatch) -> int:
        """Add the records that begin at member `begin`, if all of them have the same fields in the same order.

        Return the number of members that were added. If the records differ or one of them has a fault, add no
        record and return 0. The last record is never added, because later members may belong to it.
        """
        split = split_uniform(list(members.names[begin:]), self._split)
        columns_at = None if split is None else self._selected_places(split[0])
        if split is None or columns_at is None:
            return 0
        fields, keys = split
        width, count = len(fields), len(keys)
        end = begin + width * count
        sizes = [members.sizes[begin + at : end : width] for at in columns_at.values()]
        totals = sizes[0] if sizes else [0] * count
        for column in sizes[1:]:
            totals = list(map(add, totals, column))
        if max(totals) > self._limits.record_bytes:
            return 0
        if self._key is not None:
            self._complete(batch, members.offsets[begin], members, begin)
            self._key = None
        if not self._add_keys(keys):
            return 0
        data = _sliceable(members.data, sum(totals), count)
        columns: dict[str, list[Any]] = {"__key__": keys, "__shard__": [self._shard] * count}
        for (name, at), column in zip(columns_at.items(), sizes, strict=True):
            columns[name] = slices(data, [*members.starts[begin + at : end : width]], [*column])
        batch.records.extend(Records.from_columns(columns))
        offsets = members.offsets[begin : end + 1 : width]
        batch.offsets += offsets[:-1]
        batch.sizes += totals
        batch.extents += map(sub, offsets[1:], offsets)
        return end - begin

    def _selected_places(self, fields: list[str]) -> dict[str, int] | None:
        """Return the index in `fields` of each selected field; None if records with these fields have a fault.

        A fault is a repeated, unnamed or reserved field, a selected field that is missing, or too many fields.
        """
        if len(set(fields)) < len(fields) or "" in fields or len(fields) > self._limits.fields:
            return None
        if not _NAMES.isdisjoint(fields):
            return None
        if self._selection is None:
            return {name: at for at, name in enumerate(fields)}
        return self._selection.places_in(fields)

    def _add_keys(self, keys: list[str]) -> bool:
        """Add the keys if all of them are new and no limit is reached; return whether the keys were added."""
        return self._has_room_for(len(keys)) and self._keys.add_all(keys)

    def _add_ascending(self, joined: bytes, count: int) -> bool:
        """Add ascending ASCII keys, each followed by a NUL, as `_add_keys` adds a list."""
        return self._has_room_for(count) and self._keys.add_ascending(joined, count)

    def _has_room_for(self, count: int) -> bool:
        return len(self._keys) + count < self._limits.keys and self._keys.size < self._limits.key_bytes

    @property
    def keys(self) -> int:
        """The number of different keys so far, without the key of the pending record."""
        return len(self._keys)

    @property
    def pending_offset(self) -> int | None:
        return self._given_back_at if self._key is None else self._offset

    def finish(self, end: int | None = None) -> RecordBatch:
        self.raise_failure()
        batch = RecordBatch()
        if self._key is not None:
            self._complete(batch, self._offset if end is None else end)
            self._key = None
        return batch

    def _begin(self, key: str, offset: int) -> Record:
        self._key, self._offset, self._size = key, offset, 0
        self._duplicate = self._unselected = None
        self._fields = {"__key__": key, "__shard__": self._shard}
        return self._fields

    def _leave_out(self, name: str) -> None:
        """Count a member without a key or a field as ignored.

        Refuse the member if it looks like data, unless a function of the user has left it out.
        """
        if self._is_users_rule or is_not_data(name):
            self._account.add(ignored=1)
        else:
            self._refuse(name, "has no extension, so it belongs to no record; leave it out by a grouping of your own")

    def _refuse(self, name: str, reason: str) -> None:
        message = f"member {name!r} {reason}, or skip it by on_error='skip-record'"
        self._account.record_error(StrayMember(message, shard=self._shard, key=name))

    def _note_unselected(self, field: str) -> None:
        if self._unselected is None:
            self._unselected = set()
        if field in self._unselected:
            self._duplicate = field
        self._unselected.add(field)

    def _check_fields(self) -> None:
        count = len(self._fields) - len(KEY_AND_SHARD) + (len(self._unselected) if self._unselected else 0)
        if count > self._limits.fields:
            message = (
                f"record {self._key!r} has over {self._limits.fields:,} fields (does the grouping fit the names?)"
            )
            raise self._limit("fields", message, self._offset)

    def _complete(self, batch: RecordBatch, end: int, members: Members | None = None, following: int = 0) -> None:
        """Check the pending record, which ends at the offset `end`. Add it to `batch`, or count it as skipped.

        `members` are the members in hand. Those from number `following` on come after the record.
        """
        key = self._key
        assert key is not None
        is_new = self._keys.add(key)
        if len(self._keys) > self._limits.keys:
            raise self._limit("keys", f"there are over {self._limits.keys:,} records", self._offset)
        if self._keys.size > self._limits.key_bytes:
            raise self._limit("key_bytes", f"keys have over {self._limits.key_bytes:,} characters", self._offset)
        self._check_fields()
        record = self._fields
        if not is_new or self._duplicate is not None or self._selection is not None:
            try:
                record = self._checked(key, is_new=is_new)
            except MissingField as error:
                self._account.record_error(self._find_rest(key, members, following) or error)
                return
            except (DuplicateKey, DuplicateField) as error:
                self._account.record_error(error)
                return
        batch.records.append(record)
        batch.offsets.append(self._offset)
        batch.sizes.append(self._size)
        batch.extents.append(end - self._offset)

    def _find_rest(self, key: str, members: Members | None, begin: int) -> MissingField | None:
        """Return an error that names a later member of the incomplete record `key`; None if no such member is found.

        The search covers `members` from number `begin` on. Splitting all their names takes long, so this search is
        made only for the first incomplete record of a shard.
        """
        following = [] if members is None or self._searched else members.names[begin:]
        self._searched = True
        for name in following:
            part = self._split(name)
            if part is not None and part[0] == key and part[1]:
                return MissingField(
                    f"its file {name!r} stands behind files of other records; {_ADVICE}",
                    shard=self._shard,
                    key=key,
                )
        return None

    def _checked(self, key: str, *, is_new: bool) -> Record:
        """Check the pending record, and return it with the selected fields only."""
        if not is_new:
            raise DuplicateKey(
                f"the key came before, and comes back after other records; {_ADVICE}. If these are two records, "
                "give one of them another key",
                shard=self._shard,
                key=key,
            )
        if self._duplicate is not None:
            raise DuplicateField(f"field {self._duplicate!r} is there twice", shard=self._shard, key=key)
        if self._selection is None:
            return self._fields
        existing = {*(self._fields.keys() - KEY_AND_SHARD), *(self._unselected or ())}
        record: Record = {"__key__": key, "__shard__": self._shard}
        return record | self._selection.apply(self._fields, existing, self._shard, key)


def _sliceable(data: Bytes | FileBytes, total: int, count: int) -> Bytes | FileBytes:
    """Return the bytes from which to slice `count` records of `total` bytes."""
    return data if isinstance(data, FileBytes) or total >= _SMALL * count else bytes(data)
