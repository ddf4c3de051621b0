"""The index of several shards, and the names of the documents that are stored next to shards. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.stores import Identity
from ais_tar2tf.streams.index.entry import Cut, ShardIndex
from ais_tar2tf.streams.index.format import parse_index, to_bytes, to_wids

__all__ = [
    "CLASSES_NAME",
    "EXPORTED",
    "INDEX_NAME",
    "MANIFEST_NAME",
    "Index",
    "folder_of",
    "is_sidecar",
]

INDEX_NAME = "index.t2t"
"""The usual name of an index, in the folder of its shards."""

CLASSES_NAME = "classes.json"
"""The document, in the folder of shards, that names the classes of their labels."""

MANIFEST_NAME = "manifest.json"
"""The document, in the folder of exported files, that counts their records and names the classes of their labels."""

EXPORTED = re.compile(r"-\d{5,}-of-\d{5,}")
"""Matches the number in the name of an exported file, whose folder has a manifest."""


def is_sidecar(name: str) -> bool:
    """Return whether an object is the index or the classes document of the shards in its folder.

    >>> is_sidecar("train/index.t2t"), is_sidecar("train/0.tar")
    (True, False)
    """
    return name.rpartition("/")[2] in (INDEX_NAME, CLASSES_NAME)


class Index:
    """The entries of several shards, by the names of the shards below their common folder."""

    def __init__(self, grouping: str, shards: Iterable[ShardIndex], *, folder: str = "") -> None:
        """Make an index.

        Args:
            grouping: The rule by which records were counted; "" if unknown.
            shards: The entries.
            folder: The common beginning of the shards' whole names, which the names in the entries lack.
        """
        self.grouping: str = grouping
        self.folder: str = folder
        self._shards: dict[str, ShardIndex] = {shown_url(shard.name): shard for shard in shards}

    def __repr__(self) -> str:
        return f"<Index of {len(self._shards):,} shards with {self.records:,} records>"

    def __iter__(self) -> Iterator[ShardIndex]:
        return iter(self._shards.values())

    def __len__(self) -> int:
        return len(self._shards)

    @property
    def records(self) -> int:
        """The number of records in all shards."""
        return sum(shard.records for shard in self)

    def get(self, name: str) -> ShardIndex | None:
        """Return the entry of a shard, by its whole name; None if the index has no such shard."""
        return self._shards.get(shown_url(name.removeprefix(self.folder)))

    def entry(self, name: str) -> ShardIndex:
        """Return the entry of a shard that the index has, by its whole name."""
        entry = self.get(name)
        assert entry is not None
        return entry

    def bound_to(self, identities: Mapping[str, Identity]) -> Index:
        """Return a copy in which some shards have new identities. The caller proved that their content is the same.

        Args:
            identities: The new identities by the whole names of shards.
        """
        bound = {name: replace(self.entry(name), identity=identity) for name, identity in identities.items()}
        others = {self.folder + name: shard for name, shard in self._shards.items()}
        return Index(self.grouping, {**others, **bound}.values(), folder=self.folder)

    def records_of(self, names: Sequence[str]) -> int:
        """Return the number of records in some shards, by whole names, all of which the index has."""
        return sum(self.entry(name).records for name in names)

    def pieces(self, names: Sequence[str], numbers: range) -> Iterator[tuple[int, Cut]]:
        """Divide records into the longest runs that lie within one shard each.

        Args:
            names: The whole names of the shards.
            numbers: The numbers of records, counted over all these shards.

        Yields:
            The number of a shard among `names`, and the records in it.
        """
        ends = np.cumsum([self.entry(name).records for name in names], dtype=np.int64)
        at = 0
        while at < len(numbers):
            number = numbers[at]
            shard = int(np.searchsorted(ends, number, side="right"))
            before = int(ends[shard - 1]) if shard else 0
            run = min(len(numbers) - at, int(ends[shard]) - number) if numbers.step == 1 else 1
            yield shard, Cut(number - before, number - before + run)
            at += run

    def within(self, folder: str) -> Index:
        """Return the index of the same shards in another folder."""
        return Index(self.grouping, self, folder=folder)

    def to_bytes(self) -> bytes:
        """Return the file of this index."""
        return to_bytes(self.grouping, self)

    def to_wids(self, urls: Mapping[str, str], name: str) -> bytes:
        """Return the index as webdataset's `wids-shard-index-v1`.

        Args:
            urls: The URL of each shard, by its name.
            name: The name of the data set.
        """
        return to_wids(self, urls, name)

    @classmethod
    def from_bytes(cls, data: bytes, *, where: str = "the index") -> Index | None:
        """Parse the file of an index; return None if the file is something else.

        Args:
            data: The bytes of the file.
            where: Its name or URL, for errors.

        Raises:
            SchemaError: The file is an index, but damaged or of a later version.
        """
        parsed = parse_index(data, where=where)
        if parsed is None:
            return None
        grouping, shards = parsed
        # Only the index format states a grouping. The names in other formats may be whole names.
        index = cls(grouping, shards if grouping else _below_folder(shards))
        if len(index) < len(shards):
            raise SchemaError(f"{where}: it names a shard twice; write it again by t2t.index(…)")
        return index


def _below_folder(shards: Sequence[ShardIndex]) -> Iterator[ShardIndex]:
    """Yield the entries with names below the folder that all of them share."""
    shared = folder_of([shard.name for shard in shards])
    return (replace(shard, name=shard.name.removeprefix(shared)) for shard in shards)


def folder_of(names: Sequence[str]) -> str:
    """Return the folder that all names share, with its slash.

    >>> folder_of(["a/train/0.tar", "a/train/1.tar"]), folder_of(["0.tar"])
    ('a/train/', '')
    """
    if not len(names):
        return ""
    shared = names[0].rpartition("/")[0]
    for name in names:
        while shared and not name.startswith(f"{shared}/"):
            shared = shared.rpartition("/")[0]
    if shared or all(name.startswith("/") for name in names):
        return f"{shared}/"
    return ""
