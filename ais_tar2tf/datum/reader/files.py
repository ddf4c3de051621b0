"""A folder of record files that Datum wrote, with the two JSON documents that describe them (`datum.metadata`).

This module opens the folder and finds records. It must not decode records.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.datum.metadata import MAPPING, SHARD_INFO, flat_features, parse_counts, parse_schema, read_json
from ais_tar2tf.errors import ExportError, SchemaError
from ais_tar2tf.options import Read
from ais_tar2tf.recordfiles.export.destinations import Destination, open_destination
from ais_tar2tf.recordfiles.export.manifest import Manifest, RecordFile, SplitEntry
from ais_tar2tf.recordfiles.export.splits import SplitRange, split_ranges
from ais_tar2tf.recordfiles.loading.random_access import RecordFiles, RecordSequence
from ais_tar2tf.recordfiles.loading.stored_files import Files, files_at
from ais_tar2tf.values.schema import Schema

__all__ = ["RecordDirectory", "open_record_directory"]


@dataclass(frozen=True)
class RecordDirectory:
    """A folder of record files that Datum wrote."""

    where: str
    schema: Schema
    flat_features: dict[str, int]  # the number of dimensions of each feature that is stored flat
    counts: dict[str, dict[str, int]]  # the number of examples by split and file
    files: Files
    folder: Destination

    def ranges(self, instruction: str) -> list[SplitRange]:
        """Return the ranges of records that an instruction such as `"train[:10%]+val"` selects."""
        totals = {split: sum(files.values()) for split, files in self.counts.items()}
        try:
            return split_ranges(instruction, totals)
        except ValueError as error:
            raise SchemaError(f"{self.where}: {error}") from error

    def records(self, ranges: list[SplitRange]) -> RecordSequence:
        """Return the records in `ranges`; raise ExportError when one of their files is missing."""
        records = RecordSequence(RecordFiles(self.files, self._manifest()), ranges)
        for file, _, _ in records.spans():
            if self.folder.size(file.name) is None:
                raise ExportError(f"{self.folder.url(file.name)}: {SHARD_INFO} names this file, and it is not there")
        return records

    def _manifest(self) -> Manifest:
        splits = {
            split: SplitEntry(tuple(RecordFile(name, count, 0, "") for name, count in files.items()))
            for split, files in self.counts.items()
        }
        return Manifest("tfrecord", "datum", splits)


def open_record_directory(path: str | os.PathLike[str]) -> RecordDirectory:
    """Open the folder at `path` and read its two documents. Record files are opened only when a dataset is iterated.

    Raises:
        ExportError: A document is missing.
        SchemaError: A document is damaged.
    """
    where = location_text(path)
    folder = open_destination(where)
    documents = {}
    for name in (SHARD_INFO, MAPPING):
        data = folder.read(name)
        if data is None:
            raise ExportError(f"{folder.url(name)}: there is no such file, so no export was finished there")
        documents[name] = read_json(data, folder.url(name))
    return RecordDirectory(
        where=where,
        schema=parse_schema(documents[MAPPING], folder.url(MAPPING)),
        flat_features={name: len(documents[MAPPING][name]["shape"]) for name in flat_features(documents[MAPPING])},
        counts=parse_counts(documents[SHARD_INFO], folder.url(SHARD_INFO)),
        files=files_at(where, Read()),
        folder=folder,
    )
