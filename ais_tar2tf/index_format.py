"""The file of an index of shards: its bytes, checked before anything in them is believed. No I/O.

The file, little-endian throughout:

    8 bytes       b"t2tindex"
    8 bytes       the length of the header
    header        JSON: {"checksum": "xxh3-64:…", "version": 1, "grouping": "first-dot", "shards": [shard, …]}
    for each shard, in that order
      u4 × records   extents: what a record takes of the archive, up to the next one, in the shard's unit
      u4 × records   sizes: the bytes of a record's fields
      bytes          its keys as a JSON array, deflated; only of a compressed shard, whose ranges are of no use

A shard is {"name", "records", "first", "unit", "compressed", "identity", "keys"}: its name below the folder that all
shards share, where its first record begins, how many bytes a unit has, [version, etag, checksum, size] of the object,
and how many bytes its keys take, if it has any. "unit" 0 says that only the number of records is known: then it has
no columns.

The checksum is of the whole file, with zeros in place of its own 16 digits. Files of earlier versions have none.

`wids-shard-index-v1`, which is JSON, is read and written too; it knows no more than the number of records. Its
"checksum" is of the shards' base names, counts and sizes, so that who moves the shards may change their URLs. The
manifest of an export knows the number of records, too, and is only read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xxhash

from ais_tar2tf.documents import checksum_of, parse_document, parse_json
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.stores import Identity
from ais_tar2tf.structure import (
    Check,
    Fail,
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

__all__ = [
    "NUMBER",
    "TAR_BLOCK",
    "Entry",
    "described",
    "is_index",
    "packed_keys",
    "parse_index",
    "to_bytes",
    "to_wids",
    "unpacked_keys",
]

NUMBER = np.dtype("<u4")
TAR_BLOCK = 512

_MAGIC = b"t2tindex"
_VERSION = 1
_LENGTH = struct.Struct("<Q")
_BEGIN = len(_MAGIC) + _LENGTH.size
_SEAL = b'{"checksum":"xxh3-64:'  # what a header with a checksum begins with
_DIGITS = slice(_BEGIN + len(_SEAL), _BEGIN + len(_SEAL) + 16)  # of the checksum, in the file
_ZEROS = "0" * 16
_MOST_OFFSET = 2**63 - 1
_MOST_KEY_BYTES = 256 * 1024 * 1024  # of one shard, unpacked: 2 million keys of 100 characters
_AGAIN = "write it again by t2t.index"
_WIDS = "wids-shard-index-v1"
_MANIFEST = "manifest"  # what an export's manifest begins with


class Entry(NamedTuple):
    """What an index says of one shard."""

    name: str
    records: int
    identity: Identity
    first: int = 0
    unit: int = 0
    compressed: bool = False
    extents: np.ndarray | None = None
    sizes: np.ndarray | None = None
    packed_keys: bytes = b""


def to_bytes(grouping: str, entries: Sequence[Entry]) -> bytes:
    """Return the file of an index."""
    said = {"checksum": f"xxh3-64:{_ZEROS}", "version": _VERSION, "grouping": grouping}
    header = json.dumps({**said, "shards": [described(entry) for entry in entries]}, separators=(",", ":")).encode()
    columns = [
        column
        for entry in entries
        if entry.extents is not None and entry.sizes is not None
        for column in (entry.extents.tobytes(), entry.sizes.tobytes(), entry.packed_keys)
    ]
    data = bytearray().join([_MAGIC, _LENGTH.pack(len(header)), header, *columns])
    data[_DIGITS] = _checksum(data)
    return bytes(data)


def described(entry: Entry) -> dict[str, Any]:
    """Return what the header says of a shard."""
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


def to_wids(entries: Iterable[Entry], urls: Mapping[str, str], name: str) -> bytes:
    """Return the same as `wids-shard-index-v1`; `urls` says what each shard's name becomes there."""
    shards = [{"url": urls[each.name], "nsamples": each.records, "filesize": each.identity.size} for each in entries]
    document = {"__kind__": _WIDS, "wids_version": 1, "name": name, "shardlist": shards}
    return json.dumps({**document, "checksum": _wids_checksum(shards)}, indent=1).encode()


def _wids_checksum(shards: Sequence[Mapping[str, Any]]) -> str:
    counted = [[each["url"].rpartition("/")[2], each["nsamples"], each.get("filesize")] for each in shards]
    return checksum_of(json.dumps(counted, separators=(",", ":")).encode())


def is_index(data: bytes) -> bool:
    """Return whether a file, which may be damaged, is an index of ours or of webdataset's."""
    return data.startswith(_MAGIC) or (data.lstrip()[:1] == b"{" and _WIDS.encode() in data)


def parse_index(data: bytes, *, where: str) -> tuple[str, list[Entry]] | None:
    """Return the grouping and the shards that a file names, or None when it is no index.

    Args:
        data: The file's bytes.
        where: Its name or URL, for errors.

    Raises:
        SchemaError: The file is an index, and damaged or of a later version.
    """
    if data.startswith(_MAGIC):
        return _from_columns(data, where)
    return _from_json(data, where) if data.lstrip()[:1] == b"{" else None


# Our own format.


def _checksum(data: bytes | bytearray) -> bytes:
    """Return the digits of an index's checksum, whatever stands in their place."""
    with memoryview(data) as view:
        digest = xxhash.xxh3_64(view[: _DIGITS.start])
        digest.update(_ZEROS.encode())
        digest.update(view[_DIGITS.stop :])
    return digest.hexdigest().encode()


def _damaged(where: str) -> Fail:
    def fail(reason: str) -> SchemaError:
        short = reason.removeprefix(f"{where}: ").removeprefix("the document is damaged: ")
        return SchemaError(f"{where}: the index is damaged ({short}): {_AGAIN}")

    return fail


def _from_columns(data: bytes, where: str) -> tuple[str, list[Entry]]:
    fail = _damaged(where)
    if len(data) < _BEGIN:
        raise fail("it ends within its header")
    (length,) = _LENGTH.unpack(data[len(_MAGIC) : _BEGIN])
    header = parse_json(data[_BEGIN : _BEGIN + length], where=where, fail=fail)
    version = header.get("version", _VERSION)
    if version != _VERSION:
        raise SchemaError(f"{where}: the index has format {str(version)[:20]}, this reads {_VERSION}: {_AGAIN}")
    said = check(header, _HEADER, where=where, fail=fail)
    entries, end = _with_columns(said["shards"], data, _BEGIN + length, fail)
    if end != len(data):
        raise fail("it has another length than it says")
    sealed = data.startswith(_SEAL, _BEGIN)
    if sealed != ("checksum" in header) or (sealed and data[_DIGITS] != _checksum(data)):
        raise fail("its checksum does not match")
    return said["grouping"], entries


def _with_columns(
    described: Sequence[tuple[Entry, int]], data: bytes, at: int, fail: Fail
) -> tuple[list[Entry], int]:
    """The shards with their columns, and where these end."""
    entries: dict[str, Entry] = {}
    for entry, keys in described:
        if entry.name in entries:
            raise fail(f"shard {entry.name!r} is there twice")
        if entry.unit:
            size = entry.records * NUMBER.itemsize
            end = at + 2 * size + keys
            if end > len(data):
                raise fail("it ends within its columns")
            extents = np.frombuffer(data, NUMBER, entry.records, at)
            sizes = np.frombuffer(data, NUMBER, entry.records, at + size)
            entry = entry._replace(extents=extents, sizes=sizes, packed_keys=data[at + 2 * size : end])
            _check_end(entry, extents, fail)
            at = end
        entries[entry.name] = entry
    return list(entries.values()), at


def _check_end(entry: Entry, extents: np.ndarray, fail: Fail) -> None:
    """Offsets of records are numbers that files have."""
    if entry.first + int(extents.sum(dtype=np.int64)) * entry.unit > _MOST_OFFSET:
        raise fail(f"records of shard {entry.name!r} end where no file does")


def _entry(value: Any) -> tuple[Entry, int]:
    """A shard as the header has it, and the bytes of its keys."""
    said = _SHARD(value)
    identity, keys = Identity(*said.pop("identity")), said.pop("keys", 0)
    return Entry(identity=identity, **said), keys


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
_ENTRY: Check[tuple[Entry, int]] = _entry
_HEADER = fields(
    {"version": one_of(_VERSION), "grouping": text, "shards": listed(_ENTRY)}, {"checksum": text}, strict=True
)


# Keys of a compressed shard.


def packed_keys(keys: Sequence[str]) -> bytes:
    """Return the keys of a shard's records as an index holds them."""
    return zlib.compress(json.dumps(list(keys), separators=(",", ":")).encode()) if keys else b""


@lru_cache(maxsize=4)
def unpacked_keys(packed: bytes, records: int, where: str) -> list[str]:
    """Return the keys of a shard's `records` records; `where` is the index, for errors."""
    fail = _damaged(where)
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


_KEYS = fields({"keys": listed(text)}, strict=True)


# Documents of others that count records.


def _from_json(data: bytes, where: str) -> tuple[str, list[Entry]] | None:
    """Of webdataset's index, or of the manifest of files that were exported here."""

    def fail(reason: str) -> SchemaError:
        return SchemaError(f"{reason}; this is neither a {_WIDS} nor a manifest")

    document = parse_document(data, _OBJECT, where=where, fail=fail)
    if document.get("__kind__") == _WIDS:
        said = check(document, _WIDS_INDEX, where=where, fail=fail)
        shards: list[dict[str, Any]] = said["shardlist"]
        if said.get("checksum") not in (None, _wids_checksum(shards)):
            raise SchemaError(
                f"{where}: the index is damaged (its checksum does not match): {_AGAIN}, or take the line with the "
                "checksum out of it if it was changed on purpose"
            )
        counted = [(each["url"], each["nsamples"], each.get("filesize")) for each in shards]
    elif _MANIFEST in document:
        splits = check(document, _MANIFEST_COUNTS, where=where, fail=fail)["splits"]
        files = [file for split in splits.values() for file in split["files"]]
        counted = [(each["name"], each["records"], each["bytes"]) for each in files]
    else:
        return None
    return "", [Entry(name, records, Identity(size=size)) for name, records, size in counted]


_OBJECT = keyed(anything)
_WIDS_SHARD = fields({"url": text, "nsamples": whole()}, {"filesize": maybe(whole())})
_WIDS_INDEX = fields({"shardlist": listed(_WIDS_SHARD)}, {"checksum": text})
_MANIFEST_FILE = fields({"name": text, "records": whole(), "bytes": whole()})
_MANIFEST_COUNTS = fields({"splits": keyed(fields({"files": listed(_MANIFEST_FILE)}))})
