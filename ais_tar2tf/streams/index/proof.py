"""The proof that an index describes shards as they are now, even if the shards were copied to another store.

An index holds the identity that each shard had when the index was written. This module compares this identity with
the identity that the store states now. Each store gives its own versions and ETags to objects, so versions and ETags
prove nothing about a copy in another store. A checksum of the whole object proves that a copy has the same content.
If the store states no checksums of local files, this module computes them. A proof hashes at most
`Limits.proved_bytes`, and a file that it hashed is not hashed again in the same process. It must not read shards of
remote stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from os.path import commonprefix
from typing import NamedTuple

from ais_tar2tf.errors import ChecksumMismatch, ShardNotFound, StoreError
from ais_tar2tf.fetch.checksum import Checksum
from ais_tar2tf.stores import Identity, LocalFiles
from ais_tar2tf.stores.file import open_file
from ais_tar2tf.streams.index.entry import ShardIndex
from ais_tar2tf.streams.index.shards import Index
from ais_tar2tf.streams.reader import Shards

__all__ = ["Proved", "prove", "with_checksum"]

_HASH = "xxhash2"  # AIStore's name for xxh64. AIStore states it, too, so an index of files fits copies in AIStore
_MOST_ASKED = 1_000  # if a remote store has more shards, no checksums are requested: each shard needs a request
_BLOCK = 1024 * 1024  # bytes that are read and hashed at once


class Proved(NamedTuple):
    """The result of a proof.

    Attributes:
        bound: The index, which describes the shards as they are now; None if the proof failed. If checksums were
            needed for the proof, the index has the present identities of the shards.
        reason: The reason why the proof failed, as the end of a sentence about the index.
    """

    bound: Index | None
    reason: str = ""


def prove(index: Index, shards: Shards) -> Proved:
    """Compare an index with the shards as they are now. The index must have an entry for the name of each shard."""
    reason = _find_difference(index, shards)
    if not reason:
        return Proved(index)
    if not isinstance(shards.store, LocalFiles) and len(shards.names) > _MOST_ASKED:
        return Proved(None, reason)
    try:
        return _compare_checksums(index, shards)
    except ShardNotFound as error:
        return Proved(None, f"knows a shard that is not there any more ({error})")


# Proof by the identities that a listing states.


def _find_difference(index: Index, shards: Shards) -> str:
    """Return why the index does not describe the shards, or "" if it does.

    One listing states the present identities of all shards. If the listing fails, or its identities prove too little,
    only the first and the last shard are compared, each by a request for its identity.
    """
    store, names = shards.store, shards.names
    left, unproved = set(names), False
    try:
        for info in store.list(commonprefix([min(left), max(left)])) if left else ():  # noqa: RUF071  # no paths
            if info.name in left:
                left.remove(info.name)
                entry = index.entry(info.name)
                if reason := _doubt(entry, info.name, info.identity):
                    return reason
                unproved = unproved or bool(_lack_of_proof(entry, info.name, info.identity))
                if not left:
                    break
        if left:
            return f"knows shard {min(left)!r}, which is not there any more"
    except StoreError:
        unproved = True
    if not unproved:
        return ""
    ends = [(index.entry(name), name, store.head(name).identity) for name in (names[0], names[-1])]
    return next(filter(None, (_doubt(*end) or _lack_of_proof(*end) for end in ends)), "")


def _doubt(entry: ShardIndex, name: str, now: Identity) -> str:
    """Return why a shard differs from the indexed shard, or why no proof is possible; otherwise return ""."""
    field = entry.identity.differs_from(now)
    if field in ("version", "etag"):
        return (
            f"states another {field} of shard {name!r} than the store does, and no checksum that shows the same "
            "content: the shard was replaced since, or the index was written over another store"
        )
    if field:
        return _older(name, field)
    if entry.placed and not entry.identity.is_strong:
        return f"cannot be proved to be of shard {name!r}: the store stated no strong validator when it was written"
    return ""


def _lack_of_proof(entry: ShardIndex, name: str, now: Identity) -> str:
    """Return why `now` does not prove that a shard is the indexed shard, or "" if `now` proves this.

    Without a proof, a stream would refuse to begin at a record in the middle of the shard. An index that does not
    state where the records are is not used for this, and needs no proof.
    """
    if not entry.placed or entry.identity.is_proved_by(now):
        return ""
    return (
        f"states nothing that proves it to be of shard {name!r}: no checksum, version or ETag that this store states "
        "too, as when it was written over another store"
    )


def _older(name: str, field: str) -> str:
    return f"is older than shard {name!r}, whose {field} has changed since"


# Proof by checksums.


def _compare_checksums(index: Index, shards: Shards) -> Proved:
    """Bind the index to the present identities of the shards if checksums prove that no shard has changed."""
    identities: dict[str, Identity] = {}
    to_hash: list[str] = []
    for name in shards.names:
        entry, now = index.entry(name), shards.store.head(name).identity
        indexed = entry.identity
        identities[name] = replace(now, checksum=now.checksum or indexed.checksum)
        if indexed.is_proved_by(now) or (indexed.checksum and indexed.checksum == now.checksum):
            continue
        if field := replace(indexed, version="", etag="").differs_from(now):
            return Proved(None, _older(name, field))
        if not isinstance(shards.store, LocalFiles) or Checksum.stated_by(indexed) is None:
            return Proved(None, _doubt(entry, name, now) or _lack_of_proof(entry, name, now))
        to_hash.append(name)
    reason = _hash_files(index, shards, to_hash, sum(identities[name].size or 0 for name in to_hash))
    return Proved(None, reason) if reason else Proved(index.bound_to(identities))


def _hash_files(index: Index, shards: Shards, names: Sequence[str], size: int) -> str:
    """Hash local files, which have `size` bytes in all; return why they differ from the indexed shards, or ""."""
    most = shards.read.limits.proved_bytes
    if size > most:
        return (
            "was written over another store, or for a copy of these files, and proving that they are the same would "
            f"read {size:,} bytes, over Limits.proved_bytes ({most:,})"
        )
    for name in names:
        version = shards.store.head(name).identity.version
        if not _has_checksum(shards.store.url(name), version, index.entry(name).identity.checksum):
            return _older(name, "checksum")
    return ""


@lru_cache(maxsize=100_000)
def _has_checksum(path: str, version: str, checksum: str) -> bool:
    """Hash a file, and return whether it has a checksum; raise ObjectChanged if it no longer has `version`."""
    stated = Identity(version=version, checksum=checksum)
    try:
        _running(path, stated).verify(stated, path)
    except ChecksumMismatch:
        return False
    return True


def with_checksum(shards: Shards, name: str, identity: Identity) -> Identity:
    """Return the identity of a shard. If the identity of a local file has no checksum, hash the file to add it."""
    if identity.checksum or not isinstance(shards.store, LocalFiles):
        return identity
    running = _running(shards.store.url(name), replace(identity, checksum=f"{_HASH}:"))
    return replace(identity, checksum=f"{_HASH}:{running.hexdigest()}")


def _running(path: str, identity: Identity) -> Checksum:
    """Compute the checksum of a file, by the algorithm that the checksum of `identity` names.

    Raises:
        ObjectChanged: The file no longer has the version of `identity`.
    """
    checksum, buffer = Checksum.stated_by(identity), memoryview(bytearray(_BLOCK))
    assert checksum is not None
    body = open_file(path)
    try:
        replace(identity, checksum="").check(body.info.identity, path)
        while count := body.readinto(buffer):
            checksum.update(buffer[:count])
    finally:
        body.close()
    return checksum
