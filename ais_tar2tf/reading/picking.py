"""Records by their numbers: by a range of the shard, or, of a compressed shard in AIStore, by asking for members."""

from __future__ import annotations

import string
from dataclasses import replace

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ArchiveError, ShardNotFound
from ais_tar2tf.extraction import MembersBody, SelectsInside
from ais_tar2tf.options import MIB
from ais_tar2tf.reader import Shards, read_part
from ais_tar2tf.records import Record
from ais_tar2tf.shard_index import Cut, ShardIndex
from ais_tar2tf.stores import Body, Identity, Interrupt, ObjectInfo, Store, WrapperStore, asked

__all__ = ["read_numbered"]

_WORTH = 4 * MIB  # to be read and passed over, for each record: less costs no more than the target's search
_BACKSLASHED = frozenset(string.punctuation)  # what Go's regular expressions and Python's both take behind one


def read_numbered(shards: Shards, number: int, cut: Cut, account: Account) -> list[Record]:
    """The records of one shard from `cut.first` to before `cut.behind`; fewer where it has fewer."""
    known = shards.known(number)
    if known is None or not known.compressed or not isinstance(shards.store, SelectsInside):
        return read_part(shards, number, cut, account)
    keys = [known.key(record) for record in range(*cut)]
    if known.offset(cut.first) < _WORTH * len(keys) or None in keys:
        return read_part(shards, number, cut, account)
    found: list[Record] = []
    for key in keys:
        record = _picked(shards, number, known, str(key), account)
        if record is None:
            return read_part(shards, number, cut, account)
        found.append(record)
    return found


def _picked(shards: Shards, number: int, known: ShardIndex, key: str, account: Account) -> Record | None:
    """The record with this key, as the cluster takes it out of its shard; None where the whole shard has to tell."""
    name = shards.names[number]
    store = _OneRecord(shards.store, key, known.identity)
    read = replace(shards.read, connections=1)  # the answer has no length, and knows no ranges
    chosen = replace(shards, store=store, names=[name], read=read, index=None)
    try:
        found = read_part(chosen, 0, Cut(0, shards.read.limits.keys), account)
    except (ShardNotFound, ArchiveError):
        return None
    of_key = [record for record in found if record["__key__"] == key]
    return of_key[0] if len(of_key) == 1 else None


class _OneRecord(WrapperStore):
    """A store whose shards hold the members of one record; at their end it is proved that the shard is the same."""

    def __init__(self, store: Store, key: str, identity: Identity) -> None:
        escaped = "".join(f"\\{each}" if each in _BACKSLASHED else each for each in key)
        super().__init__(store)
        self._pattern = f"^{escaped}\\."
        self._identity = identity

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Body:
        del start, stop  # it comes from its start, and whole
        assert isinstance(self._store, SelectsInside)
        body = self._store.open_members(name, self._pattern, interrupt=interrupt)
        return MembersBody(body, ObjectInfo(name, None, Identity()), lambda: self._check(name, interrupt))

    def _check(self, name: str, interrupt: Interrupt | None) -> None:
        self._identity.prove(asked(self._store, name, interrupt).identity, self.url(name))

    def close(self) -> None:
        """The store is another's."""
