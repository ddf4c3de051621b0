"""Batches: objects, ranges of objects and members of shards in one tar.

This module must not read HTTP requests or write responses.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from ais_tar2tf.cluster.server.archives import end_mark, read_members, tar_entry
from ais_tar2tf.cluster.server.calls import whole_number
from ais_tar2tf.cluster.server.folder import BucketRoot
from ais_tar2tf.cluster.server.refusals import RefusedError, bad_request, not_served

__all__ = ["BatchEntry", "batch_pieces"]

_MISSING = "__404__/"  # the prefix of an entry's name when the object or member does not exist


@dataclass(frozen=True, slots=True)
class BatchEntry:
    """An entry of a batch. `member` is empty for an object; `length` is 0 for all bytes, negative for the rest."""

    bucket: str
    name: str
    member: str
    start: int
    length: int

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], bucket: str) -> BatchEntry:
        """Read an entry of a request; `bucket` is the bucket of entries that name none."""
        if not fields.get("objname"):
            raise bad_request("an entry of a batch has no objname")
        numbers = whole_number(fields, "start"), whole_number(fields, "length")
        bucket = str(fields.get("bucket") or bucket)
        return cls(bucket, str(fields["objname"]), str(fields.get("archpath") or ""), *numbers)

    @property
    def path(self) -> str:
        return f"{self.name}/{self.member}" if self.member else self.name


def batch_pieces(folder: BucketRoot, bucket: str, request: Mapping[str, Any]) -> Iterator[bytes]:
    """Return the pieces of a batch's tar.

    Only requests for a `.tar` with `strm` (streamed) and `coer` (continue after a missing entry) are served. With
    `onob`, names in the tar lack the bucket. A malformed request is refused at once; an entry whose range is outside
    of its object ends the tar early, because the response has begun.
    """
    fields: Any = request.get("in")
    if not isinstance(fields, list) or not fields:
        raise bad_request("a batch has no entries")
    if request.get("mime") not in (None, "", ".tar") or not request.get("strm") or not request.get("coer"):
        raise not_served("a batch that is not a streamed .tar with coer")
    if not all(isinstance(each, dict) for each in fields):
        raise bad_request("an entry of a batch is no JSON object")
    entries = [BatchEntry.from_json(each, bucket) for each in fields]
    return _pieces(folder, entries, short_names=bool(request.get("onob")))


def _pieces(folder: BucketRoot, entries: list[BatchEntry], *, short_names: bool) -> Iterator[bytes]:
    for entry in entries:
        name = entry.path if short_names else f"{entry.bucket}/{entry.path}"
        try:
            with folder.open(entry.bucket, entry.name) as stored:
                size, body = _open_entry(stored.file, entry)
                yield from tar_entry(name, size, body)
        except LookupError:
            yield from tar_entry(f"{_MISSING}{name}", 0, io.BytesIO())
        except RefusedError as refusal:
            if refusal.code != "ErrNotFound":
                raise
            yield from tar_entry(f"{_MISSING}{name}", 0, io.BytesIO())
    yield end_mark()


def _open_entry(file: io.FileIO, entry: BatchEntry) -> tuple[int, IO[bytes]]:
    """Return the length of an entry and a stream at its first byte.

    Raises:
        LookupError: The shard has no such member.
        RefusedError: The range is outside of the object or member.
    """
    size, body = file.seek(0, io.SEEK_END), _reader(file)
    file.seek(0)
    if entry.member:
        wanted = entry.member.removeprefix("/")
        found = next(read_members(body, entry.name, lambda name: name.removeprefix("/") == wanted), None)
        if found is None:
            raise LookupError(entry.member)
        size, body = found.size, found.body
    length = size if not entry.length else size - entry.start if entry.length < 0 else entry.length
    if entry.start < 0 or length < 0 or entry.start + length > size:
        raise RefusedError(416, f"{entry.path}: the range is not within its {size} bytes")
    if entry.start:
        body.seek(entry.start)
    return length, body


def _reader(file: io.FileIO) -> IO[bytes]:
    """Return a buffered stream; closing the stream leaves the file open."""
    return open(file.fileno(), "rb", closefd=False)
