"""Whether files are what their manifest says: every checksum and every count. The first fault is raised."""

from __future__ import annotations

import io
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.documents import parse_json
from ais_tar2tf.errors import ArchiveError, ExportError, ShardNotFound, TruncatedArchive
from ais_tar2tf.export.array_files import ArrayFile
from ais_tar2tf.export.framing import FRAME_BYTES, HEADER_BYTES, check_frame, payload_length, read_exactly
from ais_tar2tf.export.index_lines import offsets_in
from ais_tar2tf.export.manifest import Manifest, RecordFile
from ais_tar2tf.export.metadata import FEATURES, metadata
from ais_tar2tf.export.streams import Files, Hashed
from ais_tar2tf.options import Limits
from ais_tar2tf.progress import Progress, progress_for
from ais_tar2tf.records import Grouper

__all__ = ["Verified", "frames", "local_copy", "verify"]

_READ = 1 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """What was looked at, and found right."""

    files: int
    records: int
    bytes: int


def verify(files: Files, manifest: Manifest, progress: bool | None = None) -> Verified:
    """Read every file of every split, the indexes beside them, and what TFDS reads of their features.

    Raises a typed error with the file and offset of the first fault.
    """
    listed = [file for _, entry in sorted(manifest.splits.items()) for file in entry.files]
    size = sum(file.bytes for file in listed)
    with progress_for("verify", len(listed), progress, unit="files", size=size, counted="") as shown:
        for file in listed:
            _verify(files, manifest.format, file, shown, index=manifest.index_files)
            shown.shard()
    _verify_features(files, manifest)
    return Verified(len(listed), sum(file.records for file in listed), size)


def _verify(files: Files, kind: str, file: RecordFile, progress: Progress, *, index: bool) -> None:
    url = files.url(file.name)
    offsets = array("Q")
    hashed = Hashed(files.raw(file.name), lambda count: progress.add(0, count))
    with io.BufferedReader(hashed, _READ) as stream:
        if kind == "tfrecord":
            offsets.extend(offset for offset, _ in frames(stream, url))
            records = len(offsets)
        elif kind == "tar":
            records = _tar_records(stream, url)
        else:
            records = _array_records(stream, url)
        while stream.read(_READ):
            pass
    if hashed.size < file.bytes:
        raise TruncatedArchive(f"the file should have {file.bytes:,} bytes", shard=url, offset=hashed.size)
    if hashed.size > file.bytes:
        raise ArchiveError("the file goes on behind its end", shard=url, offset=file.bytes)
    if records != file.records:
        raise ArchiveError(f"{records:,} records, not {file.records:,}", shard=url, offset=hashed.size)
    hashed.check(file, url)
    if index:
        _verify_index(files, file, offsets)


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
    """features.json, if it is there, describes the features of the manifest."""
    described = metadata(manifest).get(FEATURES)
    if described is None:
        return
    url, most = files.url(FEATURES), Limits().document_bytes
    try:
        with files.stream(FEATURES) as stream:
            data = stream.read(most + 1)
    except ShardNotFound:
        return
    if len(data) > most:
        raise ExportError(f"{url}: the document has over {most:,} bytes, Limits.document_bytes")
    found = parse_json(data, where=url, fail=ExportError)
    if found != parse_json(described, where=url, fail=ExportError):
        raise ExportError(
            f"{url}: it describes other features than the manifest, so TFDS would read other values; export again"
        )


def frames(stream: io.BufferedReader[Any], url: str) -> Iterator[tuple[int, bytes]]:
    """(offset, payload) of each record of a TFRecord file, both checksums proved."""
    offset = 0
    while header := stream.read(HEADER_BYTES):
        length = payload_length(header, file=url, offset=offset)
        rest = read_exactly(stream, length + FRAME_BYTES - HEADER_BYTES)
        yield offset, check_frame(header + rest, file=url, offset=offset)
        offset += FRAME_BYTES + length


def _tar_records(stream: io.BufferedReader[Any], url: str) -> int:
    grouper = Grouper(url, Account(), Limits())
    archive = ShardArchive(url, Limits(), wanted=grouper.wants)
    records = 0
    while block := stream.read(_READ):
        for members in archive.feed(memoryview(block)):
            records += len(grouper.add(members).records)
    archive.finish()
    return records + len(grouper.finish().records)


def _array_records(stream: io.BufferedReader[Any], url: str) -> int:
    with tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder:
        file = ArrayFile(local_copy(stream, Path(folder)), url)
        for number in range(file.records):
            file.read(number)
        file.close()
        return file.records


def local_copy(stream: io.BufferedReader[Any], folder: Path) -> Path:
    """For libraries that open paths only."""
    path = folder / "file"
    with path.open("wb") as copy:
        while block := stream.read(_READ):
            copy.write(block)
    return path
