"""A directory of record files with its two documents, as the core reads record files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ais_tar2tf.datum.metadata import MAPPING, SHARD_INFO, counts_of, read_json, reshaped, schema_of
from ais_tar2tf.errors import ExportError, SchemaError
from ais_tar2tf.export.manifest import Manifest, RecordFile, SplitEntry
from ais_tar2tf.export.places import Destination, place_of
from ais_tar2tf.export.shelf import Records, Shelf
from ais_tar2tf.export.splits import Part, parts_of
from ais_tar2tf.export.streams import Files, files_at
from ais_tar2tf.locations import location_text
from ais_tar2tf.options import Read
from ais_tar2tf.schema import Schema

__all__ = ["Directory", "open_directory"]


@dataclass(frozen=True)
class Directory:
    where: str
    schema: Schema
    reshaped: dict[str, int]  # features that are stored flat, with their sizes in another: how many sizes
    counts: dict[str, dict[str, int]]
    files: Files
    place: Destination

    def parts(self, instruction: str) -> list[Part]:
        """The examples that `"train[:10%]+val"` means."""
        totals = {split: sum(files.values()) for split, files in self.counts.items()}
        try:
            return parts_of(instruction, totals)
        except ValueError as error:
            raise SchemaError(f"{self.where}: {error}") from error

    def records(self, parts: list[Part]) -> Records:
        records = Records(Shelf(self.files, self._manifest()), parts)
        for file, _, _ in records.spans():
            if self.place.size(file.name) is None:
                raise ExportError(f"{self.place.url(file.name)}: {SHARD_INFO} names this file, and it is not there")
        return records

    def _manifest(self) -> Manifest:
        splits = {
            split: SplitEntry(tuple(RecordFile(name, count, 0, "") for name, count in files.items()))
            for split, files in self.counts.items()
        }
        return Manifest("tfrecord", "datum", splits)


def open_directory(path: str | os.PathLike[str]) -> Directory:
    """Reads the documents; the record files are opened when a dataset is iterated."""
    where = location_text(path)
    place = place_of(where)
    documents = {}
    for name in (SHARD_INFO, MAPPING):
        data = place.read(name)
        if data is None:
            raise ExportError(f"{place.url(name)}: there is no such file, so no export was finished there")
        documents[name] = read_json(data, place.url(name))
    return Directory(
        where=where,
        schema=schema_of(documents[MAPPING], place.url(MAPPING)),
        reshaped={name: len(documents[MAPPING][name]["shape"]) for name in reshaped(documents[MAPPING])},
        counts=counts_of(documents[SHARD_INFO], place.url(SHARD_INFO)),
        files=files_at(where, Read()),
        place=place,
    )
