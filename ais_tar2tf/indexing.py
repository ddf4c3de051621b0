"""Indexes of shards: read from them, kept beside them or elsewhere, found again, believed while they are true."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ais_tar2tf.account import Account
from ais_tar2tf.errors import AccessDenied, ExportError, LimitExceeded, SchemaError, ShardNotFound, StoreError
from ais_tar2tf.extraction import SelectsInside, listed_records
from ais_tar2tf.fetch.whole import fetch_whole
from ais_tar2tf.index_format import is_index
from ais_tar2tf.index_proof import prove, with_checksum
from ais_tar2tf.locations import location_text
from ais_tar2tf.progress import progress_for
from ais_tar2tf.reader import Shards, read_places
from ais_tar2tf.records import splitter
from ais_tar2tf.shard_index import EXPORTED, INDEX_NAME, MANIFEST_NAME, Index, ShardIndex, folder_of
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores import Store, TokenSource, check_bucket, open_store, split_url

__all__ = ["Found", "Place", "beside", "find", "place_at", "write"]


@dataclass(frozen=True)
class Place:
    """Where an index is, or will be. One that was `named` has to be there."""

    store: Store
    name: str
    named: bool = False

    @property
    def url(self) -> str:
        return self.store.url(self.name)


@dataclass(frozen=True)
class Found:
    """An index that is true of all the shards, or why there is none."""

    index: Index | None
    reason: str = ""
    url: str = ""  # of an index that was found, also of one that is not true


def beside(shards: Shards) -> Place:
    return Place(shards.store, folder_of(shards.names) + INDEX_NAME)


def place_at(
    out: str | os.PathLike[str], shards: Shards, *, endpoint: str | None, token: TokenSource | None
) -> Place:
    """A file or an object; in a folder it has its usual name."""
    text = location_text(out)
    scheme, bucket, name = split_url(text)
    if name.endswith("/") or not name or (scheme == "file" and Path(name).is_dir()):
        name = f"{name.rstrip('/')}/{INDEX_NAME}" if name.rstrip("/") else INDEX_NAME
    return Place(open_store(scheme, bucket, shards.read, endpoint=endpoint, token=token), name, named=True)


# Finding one.


def find(shards: Shards, place: Place) -> Found:
    """The index at a place, if it is there and still true; of an implicit place, nothing but its absence is told."""
    try:
        data = _read(shards, place)
        if data is None and len(shards.names) and EXPORTED.search(shards.names[0]):
            place = replace(place, name=folder_of(shards.names) + MANIFEST_NAME)
            data = _read(shards, place)
    except LimitExceeded as error:  # or a server that answers any name with something
        if place.named:
            raise
        return Found(None, str(error))
    if data is None:
        return Found(None, f"there is no index at {place.url}")
    try:
        index = Index.from_bytes(data, where=place.url)
    except SchemaError as error:
        if place.named:
            raise
        return Found(None, str(error), place.url)
    if index is None:
        if place.named:
            raise SchemaError(f"{place.url} is no index")
        return Found(None, f"{place.url} is no index")
    if index.grouping not in ("", shards.grouping):
        return Found(None, f"the index at {place.url} is of grouping={index.grouping!r}", place.url)
    index = index.within(folder_of(shards.names))
    unknown = _unknown(index, shards.names)
    proved, reason = (None, unknown) if unknown else prove(index, shards)
    return Found(proved, f"the index at {place.url} {reason}" if reason else "", place.url)


def _read(shards: Shards, place: Place) -> bytes | None:
    try:
        return fetch_whole(place.store, place.name, shards.read, limit="index_bytes")
    except (ShardNotFound, AccessDenied):  # a store that lists nothing says 403 of what is not there
        if place.named:
            raise
        return None


def _unknown(index: Index, names: Sequence[str]) -> str:
    for name in names:
        if index.get(name) is None:
            return f"does not know shard {name!r}"
    return ""


# Writing one.


def write(
    shards: Shards, place: Place, account: Account, progress: bool | None = None, *, counts_only: bool = False
) -> Index:
    """Read every shard whose entry at `place` is not true any more, and put the index there, whole.

    `counts_only`: shards are not read where a listing of what is in them says how many records there are.
    """
    if callable(shards.grouping):
        raise SchemaError("an index needs a grouping with a name: 'first-dot' or 'last-dot'")
    if place.url.startswith(("http://", "https://")):
        raise StoreError("plain HTTP is read only here: say out=, where the index is to be kept", url=place.url)
    if any("?" in name for name in shards.names) and len({*map(shown_url, shards.names)}) < len(shards.names):
        raise SchemaError("these URLs of shards differ only in a query that lets its bearer in, which no index holds")
    folder = folder_of(shards.names)
    known = _known_before(shards, place, folder)
    if known is None and split_url(place.url)[0] != "file":  # whose folders are made
        check_bucket(place.store, place.name)
    entries = {shard.name: shard for shard in known} if known is not None else {}
    missing = [name for name in shards.names if not _still_true(shards, known, name, counts_only)]
    for entry in _entries(shards, missing, account, progress, counts_only=counts_only):
        name = shown_url(entry.name.removeprefix(folder))  # a query that lets its bearer in is not written down
        entries[name] = replace(entry, name=name)
    index = Index(shards.grouping, entries.values(), folder=folder)
    data = index.to_bytes()
    if place.name.endswith(".json"):
        urls = {name: shards.store.url(folder + name) for name in entries}
        data = index.to_wids(urls, Path(place.name).stem)
    limit = shards.read.limits.index_bytes
    if len(data) > limit:
        raise LimitExceeded(f"the index has over {limit:,} bytes, Limits.index_bytes", shard=place.url, offset=0)
    place.store.put(place.name, data)
    return index


def _known_before(shards: Shards, place: Place, folder: str) -> Index | None:
    """Return the index that is there, to be gone on with; a damaged one is replaced.

    Raises:
        ExportError: Something else is there, which `t2t.index` did not write.
    """
    data = _read(shards, replace(place, named=False))
    if not data:
        return None
    if not is_index(data):
        raise ExportError(f"{place.url}: this file is there, and is no index; say another out= for the index")
    try:
        index = Index.from_bytes(data, where=place.url)
    except SchemaError:
        return None
    return index.within(folder) if index is not None and index.grouping == shards.grouping else None


def _still_true(shards: Shards, known: Index | None, name: str, counts_only: bool) -> bool:
    entry = known.get(name) if known is not None else None
    if entry is None or not (entry.placed or counts_only):
        return False
    return entry.identity.is_proved_by(shards.store.head(name).identity)


def _entries(
    shards: Shards, names: Sequence[str], account: Account, progress: bool | None, *, counts_only: bool
) -> Iterator[ShardIndex]:
    to_read: list[str] = []
    for name in names:
        counted = _listed(shards, name) if counts_only else None
        if counted is None:
            to_read.append(name)
        else:
            yield counted
    yield from _read_entries(shards, to_read, account, progress)


def _listed(shards: Shards, name: str) -> ShardIndex | None:
    """From a listing of what is in the shard; None where that leaves a doubt.

    A listing names links, too, without a size: a record of which nothing has one may be none. Without a version
    the entry would be believed for ever.
    """
    if not isinstance(shards.store, SelectsInside):
        return None
    try:
        inside = shards.store.inside(name)
    except StoreError:
        return None  # reading it will tell what is wrong, if anything is
    if inside is None or not inside.shard.identity.version:
        return None
    records = listed_records(inside.members, splitter(shards.grouping))
    sure = bool(records) and all(any(fields.values()) for fields in records.values())
    return ShardIndex(name, len(records), inside.shard.identity) if sure else None


def _read_entries(
    shards: Shards, names: Sequence[str], account: Account, progress: bool | None
) -> Iterator[ShardIndex]:
    """From the bytes of the shards."""
    with progress_for("index", len(names), progress) as shown:
        before = account.stats.bytes

        def found(records: int) -> None:
            shown.add(records, account.stats.bytes - before - shown.bytes)

        for name, mark, seen in read_places(replace(shards, names=names, index=None), account, found):
            shown.shard()
            compressed, identity = mark.compressed, with_checksum(shards, name, mark.identity)
            yield ShardIndex.of(
                name, identity, seen.offsets, seen.extents, seen.sizes, compressed=compressed, keys=seen.keys
            )
