"""What an index knows of shards, and its file: records, their places and sizes, of which content. No I/O.

The file, little-endian throughout:

    8 bytes       b"t2tindex"
    8 bytes       the length of the header
    header        JSON: {"version": 1, "grouping": "first-dot", "shards": [shard, …]}
    for each shard, in that order
      u4 × records   extents: what a record takes of the archive, up to the next one, in the shard's unit
      u4 × records   sizes: the bytes of a record's fields
      bytes          its keys as a JSON array, deflated; only of a compressed shard, whose ranges are of no use

A shard is {"name", "records", "first", "unit", "compressed", "identity", "keys"}: its name below the folder that all
shards share, where its first record begins, how many bytes a unit has, [version, etag, checksum, size] of the object,
and how many bytes its keys take.
"unit" 0 says that only the number of records is known: then it has no columns. `wids-shard-index-v1`, which is JSON,
is read and written too; it knows no more than that. Nor does the manifest of an export, which is only read.
"""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.stores import Identity

__all__ = ["CLASSES_NAME", "INDEX_NAME", "MANIFEST_NAME", "Cut", "Index", "ShardIndex", "folder_of", "is_beside"]

INDEX_NAME = "index.t2t"
"""The object, beside the shards, in which their index is looked for."""

CLASSES_NAME = "classes.json"
"""The object, beside the shards, that names the classes which their labels stand for."""

MANIFEST_NAME = "manifest.json"
"""The object, beside files that were exported, which counts their records, too."""

_MAGIC = b"t2tindex"
_VERSION = 1
_LENGTH = struct.Struct("<Q")
_NUMBER = np.dtype("<u4")
_TAR_BLOCK = 512
_MOST_KEY_BYTES = 256 * 1024 * 1024  # of one shard, unpacked: 2 million keys of 100 characters
_WIDS = "wids-shard-index-v1"
_MANIFEST = "manifest"  # what an export's manifest begins with


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
        unit = 1 if ((begins % _TAR_BLOCK).any() or (takes % _TAR_BLOCK).any()) else _TAR_BLOCK
        if len(takes) and int(takes.max()) // unit >= 1 << 32:
            raise SchemaError(f"shard {name!r} has a record that is too large for an index")
        return cls(
            name,
            len(begins),
            identity,
            int(begins[0]) if len(begins) else 0,
            unit,
            compressed,
            (takes // unit).astype(_NUMBER),
            np.asarray(sizes, _NUMBER),
            _packed(keys) if compressed else b"",
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
        return 0 if self.unit == _TAR_BLOCK else record

    def key(self, record: int) -> str | None:
        """What it is called; None where only its place is known."""
        return _unpacked(self.packed_keys, self.records)[record] if self.packed_keys else None

    def all_extents(self) -> list[int]:
        """What each record takes of the archive, in bytes."""
        assert self.extents is not None
        return (self.extents.astype(np.int64) * self.unit).tolist()

    def to_header(self) -> dict[str, Any]:
        i = self.identity
        return {
            "name": self.name,
            "records": self.records,
            "first": self.first,
            "unit": self.unit,
            "compressed": self.compressed,
            "identity": [i.version, i.etag, i.checksum, i.size],
            "keys": len(self.packed_keys),
        }


class Index:
    """What is known of several shards, by their names below the folder that they share."""

    def __init__(self, grouping: str, shards: Iterable[ShardIndex], *, folder: str = "") -> None:
        self.grouping: str = grouping
        self.folder: str = folder  # that names of shards have before the index's
        self._shards: dict[str, ShardIndex] = {shard.name: shard for shard in shards}

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
        return self._shards.get(name.removeprefix(self.folder))

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
        shards = list(self)
        header = json.dumps(
            {"version": _VERSION, "grouping": self.grouping, "shards": [shard.to_header() for shard in shards]},
            ensure_ascii=True,
            separators=(",", ":"),
        ).encode()
        columns = [
            column
            for shard in shards
            if shard.extents is not None and shard.sizes is not None
            for column in (shard.extents.tobytes(), shard.sizes.tobytes(), shard.packed_keys)
        ]
        return b"".join([_MAGIC, _LENGTH.pack(len(header)), header, *columns])

    @classmethod
    def from_bytes(cls, data: bytes) -> Index | None:
        """None when it is something else; `SchemaError` when it is an index, and damaged or of a later version."""
        if data.startswith(_MAGIC):
            return _from_columns(data)
        return _from_json(data) if data.lstrip()[:1] == b"{" else None

    def to_wids(self, urls: Mapping[str, str], name: str) -> bytes:
        """As `wids-shard-index-v1`; `urls` says what each shard's name becomes there."""
        listed = [
            {"url": urls[shard.name], "nsamples": shard.records, "filesize": shard.identity.size} for shard in self
        ]
        document = {"__kind__": _WIDS, "wids_version": 1, "name": name, "shardlist": listed}
        return json.dumps(document, indent=1).encode()


def _from_columns(data: bytes) -> Index:
    try:
        version, index, end = _parsed(data)
    except (ValueError, LookupError, TypeError, struct.error) as error:
        raise SchemaError(f"the index is damaged ({error}): write it again by t2t.index") from error
    if index is None:
        raise SchemaError(f"the index has format {version}, this reads {_VERSION}: write it again by t2t.index")
    if end != len(data):
        raise SchemaError("the index is damaged (it has another length than it says): write it again by t2t.index")
    return index


def _parsed(data: bytes) -> tuple[Any, Index | None, int]:
    """The version, the index if that is known here, and where it ends."""
    begin = len(_MAGIC) + _LENGTH.size
    (length,) = _LENGTH.unpack(data[len(_MAGIC) : begin])
    header = json.loads(data[begin : begin + length])
    if header["version"] != _VERSION:
        return header["version"], None, 0
    shards: dict[str, ShardIndex] = {}
    at = begin + length
    for each in header["shards"]:
        shard = _from_header(each)
        if shard.name in shards:
            raise ValueError(f"shard {shard.name!r} is there twice")
        if shard.unit:
            size = shard.records * _NUMBER.itemsize
            extents = np.frombuffer(data, _NUMBER, shard.records, at)
            sizes = np.frombuffer(data, _NUMBER, shard.records, at + size)
            keys = each.get("keys", 0)
            packed = data[at + 2 * size : at + 2 * size + keys]
            shard = replace(shard, extents=extents, sizes=sizes, packed_keys=packed)
            at += 2 * size + keys
        shards[shard.name] = shard
    return _VERSION, Index(str(header["grouping"]), shards.values()), at


def _from_header(each: Any) -> ShardIndex:
    numbers = [each["records"], each["first"], each["unit"], each.get("keys", 0)]
    if any(not isinstance(number, int) or number < 0 for number in numbers):
        raise ValueError("a number is negative, or none")
    version, etag, checksum, size = each["identity"]
    identity = Identity(str(version), str(etag), str(checksum), None if size is None else int(size))
    records, first, unit, _ = numbers
    return ShardIndex(str(each["name"]), records, identity, first, unit, bool(each["compressed"]))


def _packed(keys: Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(list(keys), separators=(",", ":")).encode()) if keys else b""


@lru_cache(maxsize=4)
def _unpacked(packed: bytes, records: int) -> list[str]:
    try:
        unpacker = zlib.decompressobj()
        keys = json.loads(unpacker.decompress(packed, _MOST_KEY_BYTES))
        if len(keys) == records and all(isinstance(key, str) for key in keys):
            return keys
    except (ValueError, TypeError, zlib.error) as error:
        raise SchemaError(f"the index is damaged (keys: {error}): write it again by t2t.index") from error
    raise SchemaError("the index is damaged (its keys are not those of its records): write it again by t2t.index")


def _from_json(data: bytes) -> Index | None:
    """Of webdataset's index, or of the manifest of files that were exported here."""
    try:
        document = json.loads(data)
        if document.get("__kind__") == _WIDS:
            counted = [(each["url"], each["nsamples"], each.get("filesize")) for each in document["shardlist"]]
        elif _MANIFEST in document:
            files = [file for split in document["splits"].values() for file in split["files"]]
            counted = [(file["name"], file["records"], file["bytes"]) for file in files]
        else:
            return None
        shards = [ShardIndex(str(name), int(records), Identity(size=size)) for name, records, size in counted]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SchemaError(f"this is neither a {_WIDS} nor a manifest ({error})") from error
    return Index("", _by_name(shards))


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
