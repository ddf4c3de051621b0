"""Random access to records: by a range of the shard, or in a compressed shard in AIStore by the names of members."""

from __future__ import annotations

import string
from dataclasses import replace

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ArchiveError, ShardNotFound
from ais_tar2tf.options import MIB
from ais_tar2tf.records import Record
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo, Store, WrapperStore
from ais_tar2tf.streams.in_cluster.store import MembersBody, SelectsInside
from ais_tar2tf.streams.index.entry import Cut
from ais_tar2tf.streams.reader import Shards, read_part

__all__ = ["read_numbered"]

# A plain read also reads all bytes before the first record, and drops these bytes. If there are fewer than `_WORTH`
# of these bytes for each requested record, a plain read is faster than a search for the members by the target.
_WORTH = 4 * MIB
# In the regular expressions of both Go and Python, a backslash may stand before each of these characters.
_ESCAPED = frozenset(string.punctuation)


def read_numbered(shards: Shards, number: int, cut: Cut, account: Account) -> list[Record]:
    """Read consecutive records of one shard; return fewer if the shard has fewer.

    Args:
        shards: The shards.
        number: The number of the shard.
        cut: The records.
        account: Counts what is read, and decides about errors.
    """
    entry = shards.entry(number)
    if entry is None or not entry.compressed or not isinstance(shards.store, SelectsInside):
        return read_part(shards, number, cut, account)
    keys = [entry.key(record) for record in range(*cut)]
    if entry.offset(cut.first) < _WORTH * len(keys) or None in keys:
        return read_part(shards, number, cut, account)
    found: list[Record] = []
    for key in keys:
        record = _read_one(shards, number, entry.identity, str(key), account)
        if record is None:
            return read_part(shards, number, cut, account)
        found.append(record)
    return found


def _read_one(shards: Shards, number: int, identity: Identity, key: str, account: Account) -> Record | None:
    """Read the record with a key from a tar of its members; return None if the tar does not hold exactly this record.

    `identity` is that of the shard when its index was written.
    """
    store = _RecordStore(shards.store, key, identity)
    read = replace(shards.read, connections=1)  # the answer has no length, and a request for it has no ranges
    one = replace(shards, store=store, names=[shards.names[number]], read=read, index=None)
    try:
        records = read_part(one, 0, Cut(0, shards.read.limits.keys), account)
    except (ShardNotFound, ArchiveError):
        return None
    with_key = [record for record in records if record["__key__"] == key]
    return with_key[0] if len(with_key) == 1 else None


class _RecordStore(WrapperStore):
    """A store whose shards have only the members of one record."""

    def __init__(self, store: Store, key: str, identity: Identity) -> None:
        escaped = "".join(f"\\{each}" if each in _ESCAPED else each for each in key)
        super().__init__(store)
        self._pattern = f"^{escaped}\\."
        self._identity = identity

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        """Open the whole tar of the members. At its end, an error is raised if the shard was replaced."""
        del start, stop
        assert isinstance(self._store, SelectsInside)
        body = self._store.open_members(name, self._pattern, interrupt=interrupt)
        return MembersBody(body, ObjectInfo(name, None, Identity()), lambda: self._check(name, interrupt))

    def _check(self, name: str, interrupt: Interrupt | None) -> None:
        self._identity.prove(self._store.head_once(name, interrupt=interrupt).identity, self.url(name))

    def close(self) -> None:
        """Leave the wrapped store open: it belongs to the caller."""
