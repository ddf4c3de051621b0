"""The manifest: what was written, from what, and how each file is proved. Published last; read first."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from ais_tar2tf.errors import ExportError
from ais_tar2tf.export.work import Identified
from ais_tar2tf.schema import Schema
from ais_tar2tf.shard_index import MANIFEST_NAME

__all__ = ["MANIFEST", "Manifest", "RecordFile", "SourceObject", "SplitEntry"]

MANIFEST = MANIFEST_NAME
_VERSION = 1


@dataclass(frozen=True, slots=True)
class RecordFile:
    name: str
    records: int
    bytes: int
    checksum: str  # "xxh3-128:hex", of the whole file


@dataclass(frozen=True, slots=True)
class SourceObject:
    """An object that was read, as its store identified it."""

    url: str
    version: str = ""
    etag: str = ""
    checksum: str = ""
    size: int | None = None

    @property
    def identity(self) -> Identified:
        return (self.version, self.etag, self.checksum, self.size)


@dataclass(frozen=True)
class SplitEntry:
    """One split: its files in order, and how they came about."""

    files: tuple[RecordFile, ...]
    schema: Schema = field(default_factory=Schema)
    plan: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[SourceObject, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict[str, int])  # of the whole run, by the name of the error
    ignored: int = 0  # members that are no field, of the whole run

    @property
    def records(self) -> int:
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Manifest:
    """All splits in one place: they share a format, a name and a schema."""

    format: str
    name: str
    splits: dict[str, SplitEntry]
    index_files: bool = False

    @property
    def schema(self) -> Schema:
        """Of the records of all splits."""
        entries = [entry.schema for _, entry in sorted(self.splits.items())]
        return reduce(Schema.merge, entries) if entries else Schema()

    def to_json(self) -> bytes:
        document = {
            "manifest": _VERSION,
            "format": self.format,
            "name": self.name,
            "index_files": self.index_files,
            "schema": self.schema.to_json(),
            "splits": {name: _split_json(entry) for name, entry in sorted(self.splits.items())},
        }
        return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Manifest:
        try:
            document: dict[str, Any] = json.loads(data)
            if document["manifest"] != _VERSION:
                raise ExportError(f"{where}: the manifest is of version {document['manifest']}, not {_VERSION}")
            return cls(
                format=document["format"],
                name=document["name"],
                splits={name: _split_of(entry) for name, entry in document["splits"].items()},
                index_files=document["index_files"],
            )
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ExportError(f"{where}: this is no manifest of ours ({error})") from error


def _split_json(entry: SplitEntry) -> dict[str, Any]:
    return {
        "records": entry.records,
        "bytes": entry.bytes,
        "skipped": dict(sorted(entry.skipped.items())),
        "ignored": entry.ignored,
        "files": [asdict(file) for file in entry.files],
        "schema": entry.schema.to_json(),
        "plan": entry.plan,
        "sources": [asdict(source) for source in entry.sources],
    }


def _split_of(entry: dict[str, Any]) -> SplitEntry:
    return SplitEntry(
        schema=Schema.from_json(entry["schema"]),
        files=tuple(RecordFile(**file) for file in entry["files"]),
        plan=entry["plan"],
        sources=tuple(SourceObject(**source) for source in entry["sources"]),
        skipped=entry["skipped"],
        ignored=entry["ignored"],
    )
