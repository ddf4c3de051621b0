"""What an index knows of shards: records, their places and sizes, of which content. No I/O; see `index_format`."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ais_tar2tf import index_format
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.index_format import NUMBER, TAR_BLOCK, Entry
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores import Identity

__all__ = [
    "CLASSES_NAME",
    "EXPORTED",
    "INDEX_NAME",
    "MANIFEST_NAME",
    "Cut",
    "Index",
    "ShardIndex",
    "folder_of",
    "is_beside",
]

INDEX_NAME = "index.t2t"
"""The object, beside the shards, in which their index is looked for."""

CLASSES_NAME = "classes.json"
"""The object, beside the shards, that names the classes which their labels stand for."""

MANIFEST_NAME = "manifest.json"
"""The object, beside files that were exported, which counts their records, too, and names their classes."""

EXPORTED = re.compile(r"-\d{5,}-of-\d{5,}")
"""Finds the number in the name of an exported file, which has a manifest beside it."""


def is_beside(name: str) -> bool:
    """Return whether an object is a document that lies among shards, and no shard.

    >>> is_beside("train/index.t2t"), is_beside("train/0.tar")
    (True, False)
    """
    return name.rpartition("/")[2] in (INDEX_NAME, CLASSES_NAME)


class Cut(NamedTuple):
    """Some records of a shard: from `first` to before `behind`."""

    first: int
    behind: int


@dataclass(frozen=True, slots=True, eq=False)
class ShardIndex:
    """One shard: how many records, and, unless `unit` is 0, where each begins and how large it is."""

    name: str
    records: int
    identity: Identity
    first: int = 0
    unit: int = 0
    compressed: bool = False
    extents: np.ndarray | None = None
    sizes: np.ndarray | None = None
    packed_keys: bytes = b""
    where: str = ""  # the index that it comes from, for errors

    @classmethod
    def of(
        cls,
        name: str,
        identity: Identity,
        offsets: Sequence[int],
        extents: Sequence[int],
        sizes: Sequence[int],
        *,
        compressed: bool,
        keys: Sequence[str] = (),
    ) -> ShardIndex:
        """From where each record begins, what it takes of the archive, the bytes of its fields, and its key."""
        begins = np.asarray(offsets, np.int64)
        takes = np.append(np.diff(begins), extents[-1:]).astype(np.int64)
        unit = 1 if ((begins % TAR_BLOCK).any() or (takes % TAR_BLOCK).any()) else TAR_BLOCK
        if len(takes) and int(takes.max()) // unit >= 1 << 32:
            raise SchemaError(f"shard {name!r} has a record that is too large for an index")
        return cls(
            name,
            len(begins),
            identity,
            int(begins[0]) if len(begins) else 0,
            unit,
            compressed,
            (takes // unit).astype(NUMBER),
            np.asarray(sizes, NUMBER),
            index_format.packed_keys(keys) if compressed else b"",
        )

    @property
    def placed(self) -> bool:
        """Whether it says where records begin."""
        return self.extents is not None

    def offset(self, record: int) -> int:
        """Where a record begins; the one behind the last begins where the last one ends."""
        assert self.extents is not None
        return self.first + int(self.extents[:record].sum(dtype=np.int64)) * self.unit

    def begins(self) -> array[int]:
        """Where records begin, and where the last one ends."""
        assert self.extents is not None
        return array("q", np.concatenate(([0], np.cumsum(self.extents, dtype=np.int64))) * self.unit + self.first)

    def number(self, record: int) -> int:
        """What a mark states as the number of a record: in a tar, which has blocks, that says nothing."""
        return 0 if self.unit == TAR_BLOCK else record

    def key(self, record: int) -> str | None:
        """What it is called; None where only its place is known."""
        if not self.packed_keys:
            return None
        return index_format.unpacked_keys(self.packed_keys, self.records, self.where)[record]

    def all_extents(self) -> list[int]:
        """What each record takes of the archive, in bytes."""
        assert self.extents is not None
        return (self.extents.astype(np.int64) * self.unit).tolist()

    def to_header(self) -> dict[str, Any]:
        """Return what the header of an index says of this shard."""
        return index_format.described(self.entry)

    @property
    def entry(self) -> Entry:
        """As it stands in the file of an index."""
        return Entry(
            self.name,
            self.records,
            self.identity,
            self.first,
            self.unit,
            self.compressed,
            self.extents,
            self.sizes,
            self.packed_keys,
        )


class Index:
    """What is known of several shards, by their names below the folder that they share."""

    def __init__(self, grouping: str, shards: Iterable[ShardIndex], *, folder: str = "") -> None:
        self.grouping: str = grouping
        self.folder: str = folder  # that names of shards have before the index's
        self._shards: dict[str, ShardIndex] = {shown_url(shard.name): shard for shard in shards}

    def __repr__(self) -> str:
        return f"<Index of {len(self._shards):,} shards with {self.records:,} records>"

    def __iter__(self) -> Iterator[ShardIndex]:
        return iter(self._shards.values())

    def __len__(self) -> int:
        return len(self._shards)

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self)

    def get(self, name: str) -> ShardIndex | None:
        """What is known of the shard with this whole name."""
        return self._shards.get(shown_url(name.removeprefix(self.folder)))

    def identity_of(self, name: str) -> Identity:
        """Return the content that it is of, of a shard that it knows by this whole name."""
        return self._known(name).identity

    def bound_to(self, identities: Mapping[str, Identity]) -> Index:
        """Return the same for shards, by their whole names, that have other identities and the same content."""
        bound = {name: replace(self._known(name), identity=identity) for name, identity in identities.items()}
        others = {self.folder + name: shard for name, shard in self._shards.items()}
        return Index(self.grouping, {**others, **bound}.values(), folder=self.folder)

    def records_of(self, names: Sequence[str]) -> int:
        """In these shards, all of which it knows."""
        return sum(self._known(name).records for name in names)

    def pieces(self, names: Sequence[str], numbers: range) -> Iterator[tuple[int, Cut]]:
        """(shard, records of it) for records by their numbers over all `names`, in runs as long as they can be."""
        ends = np.cumsum([self._known(name).records for name in names], dtype=np.int64)
        at = 0
        while at < len(numbers):
            number = numbers[at]
            shard = int(np.searchsorted(ends, number, side="right"))
            before = int(ends[shard - 1]) if shard else 0
            run = min(len(numbers) - at, int(ends[shard]) - number) if numbers.step == 1 else 1
            yield shard, Cut(number - before, number - before + run)
            at += run

    def _known(self, name: str) -> ShardIndex:
        known = self.get(name)
        assert known is not None
        return known

    def within(self, folder: str) -> Index:
        """The same for shards whose whole names begin with `folder`."""
        return Index(self.grouping, self, folder=folder)

    def to_bytes(self) -> bytes:
        """Return the file of this index."""
        return index_format.to_bytes(self.grouping, [shard.entry for shard in self])

    def to_wids(self, urls: Mapping[str, str], name: str) -> bytes:
        """Return it as `wids-shard-index-v1`; `urls` says what each shard's name becomes there."""
        return index_format.to_wids([shard.entry for shard in self], urls, name)

    @classmethod
    def from_bytes(cls, data: bytes, *, where: str = "the index") -> Index | None:
        """Return the index that a file holds, or None when it holds something else.

        Args:
            data: The file's bytes.
            where: Its name or URL, for errors.

        Raises:
            SchemaError: The file is an index, and damaged or of a later version.
        """
        parsed = index_format.parse_index(data, where=where)
        if parsed is None:
            return None
        grouping, entries = parsed
        shards = [ShardIndex(*entry, where=where) for entry in entries]
        index = cls(grouping, shards if grouping else _by_name(shards))
        if len(index) < len(shards):
            raise SchemaError(f"{where}: it names a shard twice; write it again by t2t.index(…)")
        return index


def _by_name(shards: Sequence[ShardIndex]) -> Iterator[ShardIndex]:
    """By what their URLs do not share."""
    shared = folder_of([shard.name for shard in shards])
    return (replace(shard, name=shard.name.removeprefix(shared)) for shard in shards)


def folder_of(names: Sequence[str]) -> str:
    """The folder that all names share, with its slash.

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
