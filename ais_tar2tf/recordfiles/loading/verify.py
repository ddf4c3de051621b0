"""Verify an export: compare the checksum and the number of records of every file with its manifest."""

from __future__ import annotations

import io
from array import array
from dataclasses import dataclass

from ais_tar2tf.base.documents.sealed import parse_json
from ais_tar2tf.base.monitoring.progress import Progress, progress_for
from ais_tar2tf.errors import ArchiveError, ExportError, ShardNotFound, TruncatedArchive
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.recordfiles.export.metadata import FEATURES, metadata
from ais_tar2tf.recordfiles.formats.base import RecordFile, RecordFormat
from ais_tar2tf.recordfiles.formats.byte_files import HashedStream
from ais_tar2tf.recordfiles.formats.dali_index import offsets_in
from ais_tar2tf.recordfiles.loading.stored_files import Files

__all__ = ["Verified", "verify"]

_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """Counts of the files that were verified without a fault."""

    files: int
    records: int
    bytes: int


def verify(files: Files, manifest: Manifest, progress: bool | None = None) -> Verified:
    """Verify the files of all splits, DALI's indexes, and the document of features that TFDS reads.

    Raises:
        ArchiveError: A file is damaged, cut or too long. The error names the file and the offset of the fault; if the
            number of records is wrong, the offset is the end of the file.
        ChecksumMismatch: A file has other bytes than its manifest states.
        ExportError: An index or the document of features does not describe the files.
        ShardNotFound: A file is missing.
    """
    listed = [file for _, entry in sorted(manifest.splits.items()) for file in entry.files]
    size = sum(file.bytes for file in listed)
    with progress_for("verify", len(listed), progress, unit="files", size=size, counted="") as shown:
        for file in listed:
            _verify_file(files, manifest.record_format, file, shown, index=manifest.index_files)
            shown.add_shard()
    _verify_features(files, manifest)
    return Verified(len(listed), sum(file.records for file in listed), size)


def _verify_file(
    files: Files, record_format: RecordFormat, file: RecordFile, progress: Progress, *, index: bool
) -> None:
    url = files.url(file.name)
    hashed = HashedStream(files.raw(file.name), lambda count: progress.add(0, count))
    with io.BufferedReader(hashed, _READ) as stream:
        scan = record_format.scan(stream, url)
        while stream.read(_READ):
            pass
    if hashed.size < file.bytes:
        raise TruncatedArchive(f"the file should have {file.bytes:,} bytes", shard=url, offset=hashed.size)
    if hashed.size > file.bytes:
        raise ArchiveError("the file goes on after its end", shard=url, offset=file.bytes)
    if scan.records != file.records:
        raise ArchiveError(f"{scan.records:,} records, not {file.records:,}", shard=url, offset=hashed.size)
    hashed.check(file.checksum, url)
    if index:
        _verify_index(files, file, scan.offsets)


def _verify_index(files: Files, file: RecordFile, offsets: array[int]) -> None:
    name = f"{file.name}.idx"
    with files.stream(name) as lines:
        listed = offsets_in(lines, file, url=files.url(name))
    if listed[:-1] != offsets:
        raise ExportError(
            f"{files.url(name)}: the index is damaged: its records begin elsewhere than those of its file; "
            "export again, or delete it"
        )


def _verify_features(files: Files, manifest: Manifest) -> None:
    """Compare `features.json`, if it exists, with the schema of the manifest."""
    described = metadata(manifest).get(FEATURES)
    if described is None:
        return
    url, max_bytes = files.url(FEATURES), Limits().document_bytes
    try:
        with files.stream(FEATURES) as stream:
            data = stream.read(max_bytes + 1)
    except ShardNotFound:
        return
    if len(data) > max_bytes:
        raise ExportError(f"{url}: the document has over {max_bytes:,} bytes, Limits.document_bytes")
    found = parse_json(data, where=url, fail=ExportError)
    if found != parse_json(described, where=url, fail=ExportError):
        raise ExportError(
            f"{url}: it describes other features than the manifest, so TFDS would read other values; export again"
        )
