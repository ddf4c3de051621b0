"""Index files: written from shards, stored next to them or elsewhere, found again, and used while they are true."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ais_tar2tf.base.monitoring.progress import progress_for
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import AccessDenied, ExportError, LimitExceeded, SchemaError, ShardNotFound, StoreError
from ais_tar2tf.fetch.whole import fetch_whole
from ais_tar2tf.records import splitter
from ais_tar2tf.stores import Store, TokenSource, check_bucket, open_store, split_url
from ais_tar2tf.streams.in_cluster.store import SelectsInside, listed_records
from ais_tar2tf.streams.index.entry import ShardIndex
from ais_tar2tf.streams.index.format import is_index
from ais_tar2tf.streams.index.proof import prove, with_checksum
from ais_tar2tf.streams.index.shards import EXPORTED, INDEX_NAME, MANIFEST_NAME, Index, folder_of
from ais_tar2tf.streams.reader import Shards, read_places

__all__ = ["FoundIndex", "IndexPlace", "default_place", "find_index", "place_at", "write_index"]


@dataclass(frozen=True)
class IndexPlace:
    """The object that holds an index, or will hold it.

    Attributes:
        named: Whether the user named the place. `find_index` then raises an error if no index is there.
    """

    store: Store
    name: str
    named: bool = False

    @property
    def url(self) -> str:
        """The URL of the object."""
        return self.store.url(self.name)


@dataclass(frozen=True)
class FoundIndex:
    """The result of looking for an index.

    Attributes:
        index: The index, if it describes all shards as they are now.
        reason: Why there is no such index.
        url: The URL of the index that was found, even if that does not describe the shards.
    """

    index: Index | None
    reason: str = ""
    url: str = ""


def default_place(shards: Shards) -> IndexPlace:
    """Return the usual place of an index: the folder of its shards."""
    return IndexPlace(shards.store, folder_of(shards.names) + INDEX_NAME)


def place_at(
    out: str | os.PathLike[str], shards: Shards, *, endpoint: str | None, token: TokenSource | None
) -> IndexPlace:
    """Return the place that a user names: a file, an object, or a folder, in which the index has its usual name."""
    text = location_text(out)
    scheme, bucket, name = split_url(text)
    if name.endswith("/") or not name or (scheme == "file" and Path(name).is_dir()):
        name = f"{name.rstrip('/')}/{INDEX_NAME}" if name.rstrip("/") else INDEX_NAME
    return IndexPlace(open_store(scheme, bucket, shards.read, endpoint=endpoint, token=token), name, named=True)


# Finding.


def find_index(shards: Shards, place: IndexPlace) -> FoundIndex:
    """Look for an index of the shards at a place.

    Raises:
        SchemaError: The user named the place, and the object there is no index or damaged.
        ShardNotFound: The user named the place, and nothing is there.
    """
    try:
        data = _read(shards, place)
        if data is None and len(shards.names) and EXPORTED.search(shards.names[0]):
            place = replace(place, name=folder_of(shards.names) + MANIFEST_NAME)
            data = _read(shards, place)
        if data is None:
            return FoundIndex(None, f"there is no index at {place.url}")
    except LimitExceeded as error:  # perhaps from a server that answers any name with a page
        if place.named:
            raise
        return FoundIndex(None, str(error))
    try:
        index, fault = Index.from_bytes(data, where=place.url), SchemaError(f"{place.url} is no index")
    except SchemaError as error:
        index, fault = None, error
    if index is None:
        if place.named:
            raise fault
        return FoundIndex(None, str(fault), place.url)
    if index.grouping not in ("", shards.grouping):
        return FoundIndex(None, f"the index at {place.url} is of grouping={index.grouping!r}", place.url)
    index = index.within(folder_of(shards.names))
    unknown = next((name for name in shards.names if index.get(name) is None), None)
    proved, reason = prove(index, shards) if unknown is None else (None, f"does not know shard {unknown!r}")
    return FoundIndex(proved, f"the index at {place.url} {reason}" if reason else "", place.url)


def _read(shards: Shards, place: IndexPlace) -> bytes | None:
    """Return the bytes at a place; None if nothing is there and the user did not name the place."""
    try:
        return fetch_whole(place.store, place.name, shards.read, limit="index_bytes")
    except (ShardNotFound, AccessDenied):  # some stores answer 403 for an object that does not exist
        if place.named:
            raise
        return None


# Writing.


def write_index(
    shards: Shards, place: IndexPlace, account: Account, progress: bool | None = None, *, counts_only: bool = False
) -> Index:
    """Write an index of the shards; read only those whose entry in an existing index is not true any more.

    Args:
        shards: The shards.
        place: Where the index is published, whole or not at all.
        account: Counts what is read.
        progress: Show a progress bar; None: only in a terminal.
        counts_only: Count records by the cluster's listing of a shard instead of reading the shard, where that works.

    Raises:
        ExportError: The object at the place is not an index.
        LimitExceeded: The index would be larger than `Limits.index_bytes`.
        SchemaError: The shards cannot be told apart, or the grouping is a function.
        StoreError: Nothing can be written at the place.
    """
    if callable(shards.grouping):
        raise SchemaError("an index needs a grouping with a name: 'first-dot' or 'last-dot'")
    if place.url.startswith(("http://", "https://")):
        raise StoreError("plain HTTP is read only here: say out=, where the index is to be kept", url=place.url)
    if any("?" in name for name in shards.names) and len({*map(shown_url, shards.names)}) < len(shards.names):
        raise SchemaError("these URLs of shards differ only in a query that grants access, which no index holds")
    folder = folder_of(shards.names)
    existing = _existing_index(shards, place, folder)
    if existing is None and split_url(place.url)[0] != "file":  # folders of files are created
        check_bucket(place.store, place.name)
    entries = {shard.name: shard for shard in existing} if existing is not None else {}
    outdated = [name for name in shards.names if not _is_true(shards, existing, name, counts_only=counts_only)]
    for entry in _new_entries(shards, outdated, account, progress, counts_only=counts_only):
        name = shown_url(entry.name.removeprefix(folder))  # a query that grants access must not be stored
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


def _existing_index(shards: Shards, place: IndexPlace, folder: str) -> Index | None:
    """Return the index at a place, if its entries can be used; a damaged index is replaced.

    Raises:
        ExportError: The object at the place is not an index, so it must not be replaced.
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


def _is_true(shards: Shards, index: Index | None, name: str, *, counts_only: bool) -> bool:
    """Return whether an index has an entry that is enough, and that describes the shard as it is now."""
    entry = index.get(name) if index is not None else None
    if entry is None or not (entry.placed or counts_only):
        return False
    return entry.identity.is_proved_by(shards.store.head(name).identity)


def _new_entries(
    shards: Shards, names: Sequence[str], account: Account, progress: bool | None, *, counts_only: bool
) -> Iterator[ShardIndex]:
    to_read: list[str] = []
    for name in names:
        counted = _count_by_listing(shards, name) if counts_only else None
        if counted is None:
            to_read.append(name)
        else:
            yield counted
    yield from _read_entries(shards, to_read, account, progress)


def _count_by_listing(shards: Shards, name: str) -> ShardIndex | None:
    """Return an entry made from the cluster's listing of a shard; None if the listing leaves a doubt.

    A listing includes links, which have no size, so a record without any size may be no record. An entry without a
    version could never be found outdated.
    """
    if not isinstance(shards.store, SelectsInside):
        return None
    try:
        listed = shards.store.list_members(name)
    except StoreError:
        return None  # reading the shard raises the same error, if it persists
    if listed is None or not listed.shard.identity.version:
        return None
    records = listed_records(listed.members, splitter(shards.grouping))
    certain = bool(records) and all(any(fields.values()) for fields in records.values())
    return ShardIndex(name, len(records), listed.shard.identity) if certain else None


def _read_entries(
    shards: Shards, names: Sequence[str], account: Account, progress: bool | None
) -> Iterator[ShardIndex]:
    """Yield entries made by reading the shards."""
    with progress_for("index", len(names), progress) as shown:
        before = account.stats.bytes

        def found(records: int) -> None:
            shown.add(records, account.stats.bytes - before - shown.bytes)

        for name, mark, batch in read_places(replace(shards, names=names, index=None), account, found):
            shown.add_shard()
            yield ShardIndex.from_places(
                name,
                with_checksum(shards, name, mark.identity),
                batch.offsets,
                batch.extents,
                batch.sizes,
                compressed=mark.compressed,
                keys=batch.keys,
            )
