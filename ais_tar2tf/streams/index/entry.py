"""The entries of an index. An entry says how many records a shard has, and where each record begins.

This module must not do I/O.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ais_tar2tf.base.documents.sealed import parse_json
from ais_tar2tf.base.documents.structure import Fail, check, fields, listed, text
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.stores import Identity

__all__ = ["NUMBER", "REWRITE", "TAR_BLOCK", "Cut", "ShardIndex", "damaged"]

NUMBER = np.dtype("<u4")
"""The type of the numbers in the columns of an index."""

REWRITE = "write it again by t2t.index"
"""The advice in errors about an index that cannot be used."""

TAR_BLOCK = 512

_MOST_KEY_BYTES = 256 * 1024 * 1024  # decompressed keys of one shard: enough for 2 million keys of 100 characters
_KEYS = fields({"keys": listed(text)}, strict=True)


class Cut(NamedTuple):
    """Consecutive records of a shard, by number: from `first` on, and before `stop`."""

    first: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class ShardIndex:
    """The entry of one shard in an index.

    Attributes:
        name: The name of the shard, below the folder that all shards of the index share.
        records: The number of records.
        identity: The identity of the shard when the entry was written.
        first: The offset of the first record.
        unit: The number of bytes in a unit of `extents`: 512 if all records begin and end at multiples of 512,
            otherwise 1. If only `records` is known, the unit is 0.
        compressed: Whether the shard is compressed. If so, all offsets count decompressed bytes, and no record can be
            read from the shard by its range.
        extents: The distance from the beginning of each record to the beginning of the next record, in units. The
            last distance ends at the end of the last record. `extents` is None if only `records` is known.
        sizes: The number of bytes in the fields of each record; None if only `records` is known.
        packed_keys: The keys of all records as the index stores them, a JSON array compressed by zlib. Empty unless
            the shard is compressed.
        where: The file or URL of the index, for errors.
    """

    name: str
    records: int
    identity: Identity
    first: int = 0
    unit: int = 0
    compressed: bool = False
    extents: np.ndarray | None = None
    sizes: np.ndarray | None = None
    packed_keys: bytes = b""
    where: str = ""

    @classmethod
    def from_places(
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
        """Return the entry of a shard that was read.

        Args:
            name: The name of the shard.
            identity: The identity of the shard.
            offsets: The offset in the archive at which each record begins.
            extents: The number of bytes that each record takes in the archive. Only the last number is used: all
                other numbers are computed again as differences of `offsets`.
            sizes: The number of bytes in the fields of each record.
            compressed: Whether the shard is compressed.
            keys: The keys of the records, which are stored only if the shard is compressed.

        Raises:
            SchemaError: A record is too large for an index.
        """
        begins = np.asarray(offsets, np.int64)
        lengths = np.append(np.diff(begins), extents[-1:]).astype(np.int64)
        unit = 1 if ((begins % TAR_BLOCK).any() or (lengths % TAR_BLOCK).any()) else TAR_BLOCK
        if max(int(lengths.max(initial=0)) // unit, max(sizes, default=0)) >= 1 << 32:
            raise SchemaError(f"shard {name!r} has a record that is too large for an index")
        return cls(
            name,
            len(begins),
            identity,
            int(begins[0]) if len(begins) else 0,
            unit,
            compressed,
            (lengths // unit).astype(NUMBER),
            np.asarray(sizes, NUMBER),
            _pack_keys(keys) if compressed else b"",
        )

    @property
    def placed(self) -> bool:
        """Whether the entry says where records begin, and not only how many records there are."""
        return self.extents is not None

    def offset(self, record: int) -> int:
        """Return the offset at which the record with the number `record` begins.

        If `record` is the number of records, return the offset at which the last record ends.
        """
        assert self.extents is not None
        return self.first + int(self.extents[:record].sum(dtype=np.int64)) * self.unit

    def begins(self) -> array[int]:
        """Return the offset at which each record begins, and the offset at which the last record ends."""
        assert self.extents is not None
        return array("q", np.concatenate(([0], np.cumsum(self.extents, dtype=np.int64))) * self.unit + self.first)

    @property
    def is_tar(self) -> bool:
        """Whether the shard is a tar.

        In a tar, `unit` is 512, and each extent includes at least one header of 512 bytes. Records of a TFRecord file
        may begin at multiples of 512 by chance, but its frames add only 16 bytes to a record.
        """
        if self.unit != TAR_BLOCK or self.extents is None or self.sizes is None:
            return False
        return not self.records or int(self.extents[-1]) * TAR_BLOCK - int(self.sizes[-1]) >= TAR_BLOCK

    def number(self, record: int) -> int:
        """Return the number that a mark stores for a record: the number itself if it is the record's key.

        The records of a tar have names as keys. Their marks need no number, and the result is 0.
        """
        return 0 if self.is_tar else record

    def key(self, record: int) -> str | None:
        """Return the key of the record with the number `record`; None if the index stores no keys of this shard."""
        if not self.packed_keys:
            return None
        return _unpack_keys(self.packed_keys, self.records, self.where)[record]

    def all_extents(self) -> list[int]:
        """Return the number of bytes that each record takes in the archive."""
        assert self.extents is not None
        return (self.extents.astype(np.int64) * self.unit).tolist()


def damaged(where: str) -> Fail:
    """Return a function that turns a reason into the error for a damaged index, whose file or URL is `where`."""

    def fail(reason: str) -> SchemaError:
        short = reason.removeprefix(f"{where}: ").removeprefix("the document is damaged: ")
        return SchemaError(f"{where}: the index is damaged ({short}): {REWRITE}")

    return fail


def _pack_keys(keys: Sequence[str]) -> bytes:
    return zlib.compress(json.dumps(list(keys), separators=(",", ":")).encode()) if keys else b""


@lru_cache(maxsize=4)
def _unpack_keys(packed: bytes, records: int, where: str) -> list[str]:
    fail = damaged(where)
    try:
        unpacker = zlib.decompressobj()
        unpacked = unpacker.decompress(packed, _MOST_KEY_BYTES)
    except zlib.error as error:
        raise fail(f"keys: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise fail("keys: they end too early, or too late")
    document = parse_json(b'{"keys":' + unpacked + b"}", where=where, fail=fail)
    keys: list[str] = check(document, _KEYS, where=where, fail=fail)["keys"]
    if len(keys) != records:
        raise fail("its keys are not those of its records")
    return keys
