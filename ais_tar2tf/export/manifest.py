"""The manifest: what was written, from what, and how each file is proved. Published last; read first."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from ais_tar2tf.documents import document_bytes, parse_document
from ais_tar2tf.errors import ExportError, SchemaError
from ais_tar2tf.export.formats import FORMATS
from ais_tar2tf.export.work import SPLIT, Identified
from ais_tar2tf.schema import Schema
from ais_tar2tf.shard_index import MANIFEST_NAME
from ais_tar2tf.structure import (
    Check,
    Mismatch,
    anything,
    boolean,
    fields,
    keyed,
    listed,
    made,
    matching,
    maybe,
    name,
    one_of,
    text,
    whole,
)

__all__ = [
    "CLASSES",
    "MANIFEST",
    "NAME",
    "SCHEMA",
    "Manifest",
    "RecordFile",
    "SourceObject",
    "SplitEntry",
    "classes_of",
]

MANIFEST = MANIFEST_NAME
NAME = re.compile(r"[A-Za-z0-9_]+")
"""The name of an export: it is part of its files' names."""

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
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The names of classes, in the order of their numbers, by the feature that has the numbers."""

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

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """The names of classes by feature, where all splits have the same."""
        entries = list(self.splits.values())
        if any(entry.classes != entries[0].classes for entry in entries):
            return {}
        return dict(entries[0].classes) if entries else {}

    def to_json(self) -> bytes:
        document = {
            "manifest": _VERSION,
            "format": self.format,
            "name": self.name,
            "index_files": self.index_files,
            "schema": self.schema.to_json(),
            "splits": {name: _split_json(entry) for name, entry in sorted(self.splits.items())},
        }
        return document_bytes(document)

    @classmethod
    def from_json(cls, data: bytes, *, where: str) -> Manifest:
        """Return the manifest that a document holds.

        Args:
            data: The document.
            where: Its file or URL, for errors.

        Raises:
            ExportError: The document is damaged, no manifest of this version, or another program's.
            UnsafeName: It names a file outside its folder.
        """
        if b'"manifest"' not in data:
            raise ExportError(
                f"{where}: another program's file is there, and no manifest of an export: name another folder"
            )
        document = parse_document(data, _DOCUMENT, where=where, fail=ExportError)
        del document["manifest"]
        return cls(**document)


def _split_json(entry: SplitEntry) -> dict[str, Any]:
    classes = {feature: list(names) for feature, names in entry.classes.items()}
    return {
        **({"classes": classes} if classes else {}),
        "records": entry.records,
        "bytes": entry.bytes,
        "skipped": dict(sorted(entry.skipped.items())),
        "ignored": entry.ignored,
        "files": [asdict(file) for file in entry.files],
        "schema": entry.schema.to_json(),
        "plan": entry.plan,
        "sources": [asdict(source) for source in entry.sources],
    }


def _schema(value: Any) -> Schema:
    try:
        return Schema.from_json(value)
    except SchemaError as error:
        raise Mismatch(f"a schema is expected ({error})", value) from None


SCHEMA: Check[Schema] = _schema


def _entry(
    files: list[RecordFile],
    sources: list[SourceObject],
    classes: Mapping[str, Sequence[str]] | None = None,
    **said: Any,
) -> SplitEntry:
    return SplitEntry(tuple(files), sources=tuple(sources), classes=classes_of(classes or {}), **said)


def classes_of(named: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {feature: tuple(names) for feature, names in named.items()}


CLASSES = keyed(listed(text), key=matching(NAME, "the name of a feature"))
_FILE = made(RecordFile, fields({"name": name, "records": whole(), "bytes": whole(), "checksum": text}))
_SOURCE = made(
    SourceObject,
    fields({"url": text}, {"version": text, "etag": text, "checksum": text, "size": maybe(whole())}),
)
_SPLIT = made(
    _entry,
    fields(
        {
            "files": listed(_FILE),
            "schema": SCHEMA,
            "plan": keyed(anything),
            "sources": listed(_SOURCE),
            "skipped": keyed(whole()),
            "ignored": whole(),
        },
        {"classes": CLASSES},
    ),
)
_DOCUMENT = fields(
    {
        "manifest": one_of(_VERSION),
        "format": one_of(*FORMATS),
        "name": matching(NAME, "a name of letters, digits and '_'"),
        "index_files": boolean,
        "splits": keyed(_SPLIT, key=SPLIT),
    }
)
