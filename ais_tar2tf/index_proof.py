"""Proof that an index is of the shards as they are now, also when it was written over another store or for a copy.

A store states versions of its own, which say nothing of the same shards as files. A checksum of the whole object
does: both stores may state it, and local files are hashed, once in a process, up to `Limits.proved_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ais_tar2tf.errors import ChecksumMismatch, ShardNotFound, StoreError
from ais_tar2tf.fetch.checksum import Checksum
from ais_tar2tf.reader import Shards
from ais_tar2tf.shard_index import Index
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.file import FileStore

__all__ = ["Proved", "prove", "with_checksum"]

_HASH = "xxhash2"  # AIStore's name of xxh64: an index of files then holds for a bucket that they are copied into
_MOST_ASKED = 1_000  # shards whose checksums are asked for one by one
_BLOCK = 1024 * 1024  # bytes hashed at once


class Proved(NamedTuple):
    """An index with the shards' own identities, or why it is not of these shards."""

    known: Index | None
    reason: str = ""


def prove(index: Index, shards: Shards) -> Proved:
    """Return the index bound to the shards as they are. It knows all of them by name."""
    reason = _difference(index, shards)
    if not reason:
        return Proved(index)
    if not isinstance(shards.store, FileStore) and len(shards.names) > _MOST_ASKED:
        return Proved(None, reason)
    try:
        return _bound(index, shards)
    except ShardNotFound as error:
        return Proved(None, f"knows a shard that is not there any more ({error})")


# What stores state without reading anything.


def _difference(index: Index, shards: Shards) -> str:
    """Why the index is not of the shards. By a listing; where that proves too little, by the first and last shard."""
    store, names = shards.store, shards.names
    left, unproved = set(names), False
    try:
        for info in store.list(_shared(min(left), max(left))) if left else ():
            if info.name in left:
                left.remove(info.name)
                if reason := _doubt(index, info.name, info.identity):
                    return reason
                unproved = unproved or bool(_unproved(index, info.name, info.identity))
                if not left:
                    break
        if left:
            return f"knows shard {min(left)!r}, which is not there any more"
    except StoreError:
        unproved = True
    if not unproved:
        return ""
    ends = {name: store.head(name).identity for name in (names[0], names[-1])}
    return next(filter(None, (_doubt(index, *end) or _unproved(index, *end) for end in ends.items())), "")


def _shared(one: str, other: str) -> str:
    """What both begin with."""
    same = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return one[:same]


def _doubt(index: Index, name: str, now: Identity) -> str:
    known = index.get(name)
    assert known is not None
    what = known.identity.differs_from(now)
    if what in ("version", "etag"):
        return (
            f"states another {what} of shard {name!r} than the store does, and no checksum that shows the same "
            "content: the shard was replaced since, or the index was written over another store"
        )
    if what:
        return _older(name, what)
    if known.placed and not known.identity.is_strong:
        return f"cannot be proved to be of shard {name!r}: the store stated no strong validator when it was written"
    return ""


def _unproved(index: Index, name: str, now: Identity) -> str:
    """Why the places of a shard's records are not believed: a stream that begins at one of them would be refused."""
    known = index.get(name)
    assert known is not None
    if not known.placed or known.identity.is_proved_by(now):
        return ""
    return (
        f"states nothing that proves it to be of shard {name!r}: no checksum, version or ETag that this store states "
        "too, as when it was written over another store"
    )


def _older(name: str, what: str) -> str:
    return f"is older than shard {name!r}, whose {what} it has otherwise"


# By checksums.


def _bound(index: Index, shards: Shards) -> Proved:
    """Return the index with the identities that the shards have now, if checksums show that they are the same."""
    identities: dict[str, Identity] = {}
    to_hash: list[str] = []
    for name in shards.names:
        known, now = index.identity_of(name), shards.store.head(name).identity
        identities[name] = replace(now, checksum=now.checksum or known.checksum)
        if known.is_proved_by(now) or _same_checksum(known, now):
            continue
        if what := replace(known, version="", etag="").differs_from(now):
            return Proved(None, _older(name, what))
        if not _can_hash(shards, known):
            return Proved(None, _doubt(index, name, now) or _unproved(index, name, now))
        to_hash.append(name)
    reason = _read_through(index, shards, to_hash, [identities[name].size or 0 for name in to_hash])
    return Proved(None, reason) if reason else Proved(index.bound_to(identities))


def _same_checksum(known: Identity, now: Identity) -> bool:
    return bool(known.checksum) and known.checksum == now.checksum


def _can_hash(shards: Shards, known: Identity) -> bool:
    return isinstance(shards.store, FileStore) and Checksum.stated_by(known) is not None


def _read_through(index: Index, shards: Shards, names: Sequence[str], sizes: Sequence[int]) -> str:
    """Why files are not what the index was written for; empty when each has the checksum that it states."""
    most = shards.read.limits.proved_bytes
    if sum(sizes) > most:
        return (
            "was written over another store, or for a copy of these files, and proving that they are the same would "
            f"read {sum(sizes):,} bytes, over Limits.proved_bytes ({most:,})"
        )
    for name in names:
        known = index.identity_of(name)
        version = shards.store.head(name).identity.version
        if not _has_checksum(shards.store.url(name), version, known.checksum):
            return _older(name, "checksum")
    return ""


@lru_cache(maxsize=100_000)
def _has_checksum(path: str, version: str, checksum: str) -> bool:
    """Whether a file, in this version, has a checksum."""
    stated = Identity(version=version, checksum=checksum)
    try:
        _running(path, stated).verify(stated, path)
    except ChecksumMismatch:
        return False
    return True


def with_checksum(shards: Shards, name: str, identity: Identity) -> Identity:
    """Return the identity with the checksum of the whole shard, which a file has to be read for."""
    if identity.checksum or not isinstance(shards.store, FileStore):
        return identity
    running = _running(shards.store.url(name), replace(identity, checksum=f"{_HASH}:"))
    return replace(identity, checksum=f"{_HASH}:{running.hexdigest()}")


def _running(path: str, identity: Identity) -> Checksum:
    """Return the checksum of a file's bytes; raises ObjectChanged when it is not the one of that version any more."""
    checksum, buffer = Checksum.stated_by(identity), memoryview(bytearray(_BLOCK))
    assert checksum is not None
    body = FileStore().open(path)
    try:
        replace(identity, checksum="").check(body.info.identity, path)
        while count := body.readinto(buffer):
            checksum.update(buffer[:count])
    finally:
        body.close()
    return checksum
