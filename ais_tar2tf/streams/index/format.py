"""Parses and builds the files of an index. Everything in a file is checked before it is used.

This module must not do I/O. Our own format (`index.t2t`) has this layout, in which all numbers are little-endian:

    8 bytes       b"t2tindex"
    8 bytes       the length of the header
    header        JSON: {"checksum": "xxh3-64:…", "version": 1, "grouping": "first-dot", "shards": [shard, …]}
    for each shard, in the order of the header
      u4 × records   extents: the number of units from the beginning of each record to the beginning of the next
      u4 × records   sizes: the number of bytes in each record's fields
      bytes          keys: a JSON array, deflated; only for a compressed shard, whose keys no range request can read

A shard in the header is {"name", "records", "first", "unit", "compressed", "identity", "keys"}. These values have
the meaning of the attributes of `ShardIndex`, except two: "identity" is [version, etag, checksum, size], and "keys"
is the length of the deflated keys. A shard without keys has no "keys". The extents, sizes and keys of a shard are its
columns. If "unit" is 0, only the number of records is known, and the shard has no columns.

The checksum covers the whole file, with zeros in place of the 16 digits of the checksum itself. Files that were
written by earlier versions of this package have no checksum.

Two other JSON documents state the numbers of records and the sizes of shards, but not where the records begin:

* webdataset's `wids-shard-index-v1`, which is read and written. Its "checksum" covers the base names, record counts
  and sizes of the shards. The rest of their URLs is not covered, because URLs change when shards are moved.
* the manifest of an export, which is only read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xxhash

from ais_tar2tf.base.documents.sealed import checksum_of, parse_document, parse_json
from ais_tar2tf.base.documents.structure import (
    Check,
    anything,
    boolean,
    check,
    fields,
    keyed,
    listed,
    maybe,
    one_of,
    row,
    text,
    whole,
)
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.stores import Identity
from ais_tar2tf.streams.index.entry import NUMBER, REWRITE, TAR_BLOCK, ShardIndex, damaged

__all__ = ["header_of", "is_index", "parse_index", "to_bytes", "to_wids"]

_MAGIC = b"t2tindex"
_VERSION = 1
_LENGTH = struct.Struct("<Q")
_BEGIN = len(_MAGIC) + _LENGTH.size
_SEAL = b'{"checksum":"xxh3-64:'  # the beginning of a header with a checksum
_DIGITS = slice(_BEGIN + len(_SEAL), _BEGIN + len(_SEAL) + 16)  # where the digits of the checksum are in the file
_ZEROS = "0" * 16
_MOST_OFFSET = 2**63 - 1  # the largest offset in a file
_WIDS = "wids-shard-index-v1"


def to_bytes(grouping: str, entries: Iterable[ShardIndex]) -> bytes:
    """Return an index in our own format."""
    headers: list[dict[str, Any]] = []
    columns: list[bytes] = []
    for entry in entries:
        headers.append(header_of(entry))
        if entry.extents is not None and entry.sizes is not None:
            columns += (entry.extents.tobytes(), entry.sizes.tobytes(), entry.packed_keys)
    document = {"checksum": f"xxh3-64:{_ZEROS}", "version": _VERSION, "grouping": grouping, "shards": headers}
    header = json.dumps(document, separators=(",", ":")).encode()
    data = bytearray().join([_MAGIC, _LENGTH.pack(len(header)), header, *columns])
    data[_DIGITS] = _checksum(data)
    return bytes(data)


def header_of(entry: ShardIndex) -> dict[str, Any]:
    """Return the part of the header that describes a shard."""
    i = entry.identity
    return {
        "name": entry.name,
        "records": entry.records,
        "first": entry.first,
        "unit": entry.unit,
        "compressed": entry.compressed,
        "identity": [i.version, i.etag, i.checksum, i.size],
        **({"keys": len(entry.packed_keys)} if entry.packed_keys else {}),
    }


def to_wids(entries: Iterable[ShardIndex], urls: Mapping[str, str], name: str) -> bytes:
    """Return an index as `wids-shard-index-v1`.

    Args:
        entries: The shards.
        urls: The URL of each shard, by the name of the shard.
        name: The name of the data set.
    """
    shards = [{"url": urls[each.name], "nsamples": each.records, "filesize": each.identity.size} for each in entries]
    document = {"__kind__": _WIDS, "wids_version": 1, "name": name, "shardlist": shards}
    return json.dumps({**document, "checksum": _wids_checksum(shards)}, indent=1).encode()


def _wids_checksum(shards: Sequence[Mapping[str, Any]]) -> str:
    counted = [[each["url"].rpartition("/")[2], each["nsamples"], each.get("filesize")] for each in shards]
    return checksum_of(json.dumps(counted, separators=(",", ":")).encode())


def is_index(data: bytes) -> bool:
    """Return whether a file looks like an index, in our format or in webdataset's. The file may still be damaged."""
    return data.startswith(_MAGIC) or (data.lstrip()[:1] == b"{" and _WIDS.encode() in data)


def parse_index(data: bytes, *, where: str) -> tuple[str, list[ShardIndex]] | None:
    """Parse the file of an index.

    Args:
        data: The bytes of the file.
        where: The name or URL of the file, for errors.

    Returns:
        The name of the grouping, and the entries of the shards. The name is "" in a format that does not state it.
        For a JSON object that is neither an index nor a manifest, and for a file that is neither JSON nor in our own
        format, None is returned instead.

    Raises:
        SchemaError: The file begins like JSON or like our own format, but is damaged, or it has a later version.
    """
    if data.startswith(_MAGIC):
        return _parse_own(data, where)
    return _parse_json(data, where) if data.lstrip()[:1] == b"{" else None


# Our own format.


def _checksum(data: bytes | bytearray) -> bytes:
    """Compute the digits of the checksum of an index. Zeros replace the digits that are in `data`."""
    with memoryview(data) as view:
        digest = xxhash.xxh3_64(view[: _DIGITS.start])
        digest.update(_ZEROS.encode())
        digest.update(view[_DIGITS.stop :])
    return digest.hexdigest().encode()


def _parse_own(data: bytes, where: str) -> tuple[str, list[ShardIndex]]:
    fail = damaged(where)
    if len(data) < _BEGIN:
        raise fail("it ends within its header")
    (length,) = _LENGTH.unpack(data[len(_MAGIC) : _BEGIN])
    header = parse_json(data[_BEGIN : _BEGIN + length], where=where, fail=fail)
    version = header.get("version", _VERSION)
    if version != _VERSION:
        raise SchemaError(f"{where}: the index has format {str(version)[:20]}, this reads {_VERSION}: {REWRITE}")
    checked = check(header, _HEADER, where=where, fail=fail)
    entries, end = _with_columns(checked["shards"], data, _BEGIN + length, where)
    if end != len(data):
        raise fail("it has another length than it says")
    sealed = data.startswith(_SEAL, _BEGIN)
    if sealed != ("checksum" in header) or (sealed and data[_DIGITS] != _checksum(data)):
        raise fail("its checksum does not match")
    return checked["grouping"], entries


def _with_columns(
    headers: Sequence[tuple[ShardIndex, int]], data: bytes, at: int, where: str
) -> tuple[list[ShardIndex], int]:
    """Return the entries with their columns, and the offset after the columns. The columns begin at offset `at`."""
    fail = damaged(where)
    entries: dict[str, ShardIndex] = {}
    for entry, key_bytes in headers:
        if entry.name in entries:
            raise fail(f"shard {entry.name!r} is there twice")
        if entry.unit:
            size = entry.records * NUMBER.itemsize
            end = at + 2 * size + key_bytes
            if end > len(data):
                raise fail("it ends within its columns")
            extents = np.frombuffer(data, NUMBER, entry.records, at)
            sizes = np.frombuffer(data, NUMBER, entry.records, at + size)
            if entry.first + int(extents.sum(dtype=np.int64)) * entry.unit > _MOST_OFFSET:
                raise fail(f"records of shard {entry.name!r} end where no file does")
            keys = data[at + 2 * size : end]
            entry = replace(entry, extents=extents, sizes=sizes, packed_keys=keys, where=where)
            at = end
        entries[entry.name] = entry
    return list(entries.values()), at


def _parse_header(value: Any) -> tuple[ShardIndex, int]:
    """Parse the description of one shard; return its entry without columns, and the length of its deflated keys."""
    shard = _SHARD(value)
    identity, key_bytes = Identity(*shard.pop("identity")), shard.pop("keys", 0)
    return ShardIndex(identity=identity, **shard), key_bytes


_SHARD = fields(
    {
        "name": text,
        "records": whole(),
        "first": whole(),
        "unit": one_of(0, 1, TAR_BLOCK),
        "compressed": boolean,
        "identity": row(text, text, text, maybe(whole())),
    },
    {"keys": whole()},
    strict=True,
)
_ENTRY: Check[tuple[ShardIndex, int]] = _parse_header
_HEADER = fields(
    {"version": one_of(_VERSION), "grouping": text, "shards": listed(_ENTRY)}, {"checksum": text}, strict=True
)


# The documents of other programs and exports.


def _parse_json(data: bytes, where: str) -> tuple[str, list[ShardIndex]] | None:
    """Parse webdataset's index, or the manifest of an export; return None for any other document."""

    def fail(reason: str) -> SchemaError:
        return SchemaError(f"{reason}; this is neither a {_WIDS} nor a manifest")

    document = parse_document(data, _OBJECT, where=where, fail=fail)
    if document.get("__kind__") == _WIDS:
        checked = check(document, _WIDS_INDEX, where=where, fail=fail)
        shards: list[dict[str, Any]] = checked["shardlist"]
        if checked.get("checksum") not in (None, _wids_checksum(shards)):
            raise SchemaError(
                f"{where}: the index is damaged (its checksum does not match): {REWRITE}. If the index was changed "
                'on purpose, delete "checksum" and its value, and the comma before them'
            )
        counted = [(each["url"], each["nsamples"], each.get("filesize")) for each in shards]
    elif "manifest" in document:
        splits = check(document, _MANIFEST_COUNTS, where=where, fail=fail)["splits"]
        files = [file for split in splits.values() for file in split["files"]]
        counted = [(each["name"], each["records"], each["bytes"]) for each in files]
    else:
        return None
    return "", [ShardIndex(name, records, Identity(size=size)) for name, records, size in counted]


_OBJECT = keyed(anything)
_WIDS_SHARD = fields({"url": text, "nsamples": whole()}, {"filesize": maybe(whole())})
_WIDS_INDEX = fields({"shardlist": listed(_WIDS_SHARD)}, {"checksum": text})
_MANIFEST_FILE = fields({"name": text, "records": whole(), "bytes": whole()})
_MANIFEST_COUNTS = fields({"splits": keyed(fields({"files": listed(_MANIFEST_FILE)}))})
