"""The manifest of an export: a document that lists the files with their checksums, the schema, and the input shards.

The manifest is the last document that an export publishes, and the first that a reader reads. This module must not do
I/O. It checks every entry of a document that it parses, because the document may be damaged or hostile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import reduce
from typing import Any

from ais_tar2tf.base.documents import structure as expect
from ais_tar2tf.base.documents.sealed import document_bytes, parse_document
from ais_tar2tf.base.documents.structure import Check, Mismatch
from ais_tar2tf.errors import ExportError, SchemaError
from ais_tar2tf.recordfiles.export.journal import SPLIT, IdentityTuple
from ais_tar2tf.recordfiles.formats import FORMATS, find_format
from ais_tar2tf.recordfiles.formats.base import RecordFile, RecordFormat
from ais_tar2tf.streams.index.shards import MANIFEST_NAME
from ais_tar2tf.values.schema import Schema

__all__ = [
    "CLASSES",
    "MANIFEST",
    "NAME",
    "SCHEMA",
    "Manifest",
    "RecordFile",
    "SourceObject",
    "SplitEntry",
    "frozen_classes",
]

MANIFEST = MANIFEST_NAME
NAME = re.compile(r"[A-Za-z0-9_]+")
"""Matches a valid name of an export. The names of all files of the export begin with this name."""

_VERSION = 1  # the number of the document's format


@dataclass(frozen=True, slots=True)
class SourceObject:
    """A shard that the export read, and the identity that the shard's store stated when the shard was read."""

    url: str
    version: str = ""
    etag: str = ""
    checksum: str = ""
    size: int | None = None

    @property
    def identity(self) -> IdentityTuple:
        """The object's version, ETag, checksum and size."""
        return (self.version, self.etag, self.checksum, self.size)


@dataclass(frozen=True)
class SplitEntry:
    """The entry of one split in the manifest: the files of the split in order, and how they were written.

    `schema` fits the records of the files. `plan` is the plan of the export: all options and sources that decide the
    content of the files. `sources` are the shards that the export read.
    """

    files: tuple[RecordFile, ...]
    schema: Schema = field(default_factory=Schema)
    plan: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: tuple[SourceObject, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict[str, int])  # number of skipped records, by kind of error
    ignored: int = 0  # how many members of the input shards are not fields
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """For each feature that holds the numbers of classes: the names of the classes, in the order of the numbers."""

    @property
    def records(self) -> int:
        """The number of records in all files."""
        return sum(file.records for file in self.files)

    @property
    def bytes(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.bytes for file in self.files)


@dataclass(frozen=True)
class Manifest:
    """The manifest of an export, with an entry for each split.

    All splits have the same record format. The names of all files begin with `name`, the name of the export.
    `index_files` says whether the export wrote an index for NVIDIA DALI next to each file.
    """

    format: str
    name: str
    splits: dict[str, SplitEntry]
    index_files: bool = False

    @property
    def record_format(self) -> RecordFormat:
        """The format of all files."""
        return find_format(self.format)

    @property
    def schema(self) -> Schema:
        """The schema that fits the records of all splits."""
        entries = [entry.schema for _, entry in sorted(self.splits.items())]
        return reduce(Schema.merge, entries) if entries else Schema()

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """For each feature that holds the numbers of classes: the names of the classes.

        The dict is empty if splits have different classes.
        """
        entries = list(self.splits.values())
        if any(entry.classes != entries[0].classes for entry in entries):
            return {}
        return dict(entries[0].classes) if entries else {}

    def to_json(self) -> bytes:
        """Return the manifest as a document."""
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
        """Parse and check a document; return its manifest.

        Args:
            data: The document.
            where: The file or URL of the document, for errors.

        Raises:
            ExportError: The document is damaged, of another version, or of another program.
            UnsafeName: The document names a file outside of the document's folder.
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
    **others: Any,
) -> SplitEntry:
    return SplitEntry(tuple(files), sources=tuple(sources), classes=frozen_classes(classes or {}), **others)


def frozen_classes(classes: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the same dict from features to names of classes, with each list of names as a tuple."""
    return {feature: tuple(names) for feature, names in classes.items()}


CLASSES = expect.keyed(expect.listed(expect.text), key=expect.matching(NAME, "the name of a feature"))
_FILE = expect.made(
    RecordFile,
    expect.fields({"name": expect.name, "records": expect.whole(), "bytes": expect.whole(), "checksum": expect.text}),
)
_SOURCE = expect.made(
    SourceObject,
    expect.fields(
        {"url": expect.text},
        {"version": expect.text, "etag": expect.text, "checksum": expect.text, "size": expect.maybe(expect.whole())},
    ),
)
_SPLIT = expect.made(
    _entry,
    expect.fields(
        {
            "files": expect.listed(_FILE),
            "schema": SCHEMA,
            "plan": expect.keyed(expect.anything),
            "sources": expect.listed(_SOURCE),
            "skipped": expect.keyed(expect.whole()),
            "ignored": expect.whole(),
        },
        {"classes": CLASSES},
    ),
)
_DOCUMENT = expect.fields(
    {
        "manifest": expect.one_of(_VERSION),
        "format": expect.one_of(*FORMATS),
        "name": expect.matching(NAME, "a name of letters, digits and '_'"),
        "index_files": expect.boolean,
        "splits": expect.keyed(_SPLIT, key=SPLIT),
    }
)
