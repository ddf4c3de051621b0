"""Many things in one tar: objects, ranges of them, members of shards; it must not know of HTTP."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

from ais_tar2tf.server.archives import begin_entry, end_mark, read_members
from ais_tar2tf.server.calls import whole_number
from ais_tar2tf.server.folder import Folder
from ais_tar2tf.server.refusals import RefusedError, bad_request, no_batch

__all__ = ["batch_pieces"]

_MISSING = "__404__/"  # begins the name of what is not there


@dataclass(frozen=True, slots=True)
class _Asked:
    bucket: str
    name: str
    member: str
    start: int
    length: int

    @classmethod
    def of(cls, said: Mapping[str, Any], bucket: str) -> _Asked:
        if not said.get("objname"):
            raise bad_request("an entry of a batch has no objname")
        numbers = whole_number(said, "start"), whole_number(said, "length")
        return cls(str(said.get("bucket") or bucket), str(said["objname"]), str(said.get("archpath") or ""), *numbers)

    @property
    def shown(self) -> str:
        return f"{self.name}/{self.member}" if self.member else self.name


def batch_pieces(folder: Folder, bucket: str, asked: Mapping[str, Any]) -> Iterator[bytes]:
    """The tar, piece by piece. Served is a stream that goes on where something is missing, and nothing else."""
    entries: Any = asked.get("in")
    if not isinstance(entries, list) or not entries:
        raise bad_request("a batch has no entries")
    if asked.get("mime") not in (None, "", ".tar") or not asked.get("strm") or not asked.get("coer"):
        raise no_batch("that is not a streamed .tar with coer")
    if not all(isinstance(each, dict) for each in entries):
        raise bad_request("an entry of a batch is no JSON object")
    items = [_Asked.of(each, bucket) for each in entries]
    return _pieces(folder, items, short=bool(asked.get("onob")))


def _pieces(folder: Folder, items: list[_Asked], *, short: bool) -> Iterator[bytes]:
    for item in items:
        shown = item.shown if short else f"{item.bucket}/{item.shown}"
        try:
            with folder.open(item.bucket, item.name) as stored:
                size, body = _found(stored.file, item)
                yield from begin_entry(shown, size, body)
        except LookupError:
            yield from begin_entry(f"{_MISSING}{shown}", 0, io.BytesIO())
        except RefusedError as refusal:
            if refusal.code != "ErrNotFound":
                raise
            yield from begin_entry(f"{_MISSING}{shown}", 0, io.BytesIO())
    yield end_mark()


def _found(file: io.FileIO, item: _Asked) -> tuple[int, IO[bytes]]:
    """The bytes of one entry; LookupError where the shard has no such member."""
    size, body = file.seek(0, io.SEEK_END), _reader(file)
    file.seek(0)
    if item.member:
        wanted = item.member.removeprefix("/")
        found = next(read_members(body, item.name, lambda name: name.removeprefix("/") == wanted), None)
        if found is None:
            raise LookupError(item.member)
        size, body = found.size, found.body
    length = size if not item.length else size - item.start if item.length < 0 else item.length
    if item.start < 0 or length < 0 or item.start + length > size:
        raise RefusedError(416, f"{item.shown}: the range is not within its {size} bytes")
    if item.start:
        body.seek(item.start)
    return length, body


def _reader(file: io.FileIO) -> IO[bytes]:
    """Buffered; closing it leaves the file open."""
    return open(file.fileno(), "rb", closefd=False)
