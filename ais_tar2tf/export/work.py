"""The hidden folder in which files are written, and its journal: what an export that is run again goes on from.

The journal is a line of JSON for each fact, written and synced before anything relies on it:
the plan, each source shard that was read to its end, each file that is whole and on disk, and `complete`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import ExportError
from ais_tar2tf.forking import at_fork

__all__ = [
    "FinishedFile",
    "Identified",
    "Place",
    "SourceShard",
    "WorkFolder",
    "file_of",
    "shard_of",
    "sync",
    "write_synced",
]

Place = tuple[int, int]
"""(input shard, number of a record in it): where the next record stands."""

Identified = tuple[str, str, str, int | None]
"""A source shard's version, etag, checksum and size, as far as its store tells them."""

_JOURNAL = "journal"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A file that is whole, still under the name that it has in the work folder."""

    split: str
    number: int
    records: int
    bytes: int
    checksum: str
    end: Place  # behind its last record
    identity: Identified = ("", "", "", None)  # of the shard with its last record

    @property
    def part(self) -> str:
        return f"{self.split}-{self.number:05d}.part"


@dataclass(frozen=True, slots=True)
class SourceShard:
    """A source shard that was read to its end: what it was, and what became of its records."""

    at: int
    url: str
    identity: Identified
    records: int
    ignored: int
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    observed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])  # by split


def file_of(data: dict[str, Any]) -> FinishedFile:
    """From JSON."""
    facts: dict[str, Any] = {**data, "end": tuple(data["end"]), "identity": tuple(data["identity"])}
    return FinishedFile(**facts)


def shard_of(data: dict[str, Any]) -> SourceShard:
    """From JSON."""
    facts: dict[str, Any] = {**data, "identity": tuple(data["identity"])}
    return SourceShard(**facts)


class WorkFolder:
    """One export's work: locked while it is open, so that two never write the same files."""

    def __init__(self, path: Path, plan: dict[str, Any], *, start_over: bool = False) -> None:
        self.path: Path = path
        self.files: list[FinishedFile] = []
        self.shards: dict[int, SourceShard] = {}
        self.complete: bool = False
        self._journal: int | None = None
        self._lock: int = -1
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(path)
            if start_over:
                (path / _JOURNAL).unlink(missing_ok=True)
            self._begin(json.loads(json.dumps(plan)))
        except OSError as error:
            self.close()
            if isinstance(error, ExportError):
                raise
            raise ExportError(f"{path.parent}: nothing can be written there ({error.strerror or error})") from error
        at_fork(self)

    def forked(self) -> None:
        """A child writes nothing here, and its copy of the lock must not outlive its parent's export."""
        self.close()

    def _begin(self, plan: dict[str, Any]) -> None:
        """Take over what the journal says: it is of the same plan, or empty."""
        journal = self.path / _JOURNAL
        facts = _whole_lines(journal) or [{"plan": plan}]
        if facts[0] != {"plan": plan}:
            raise ExportError(
                f"{self.path.parent}: an export with another plan was begun there and did not end; "
                "exists='replace' starts over"
            )
        for fact in facts[1:]:
            self._learn(fact)
        self._clear()
        write_synced(journal, b"".join(map(_line, facts)))
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def _learn(self, fact: dict[str, Any]) -> None:
        if "file" in fact:
            self.files.append(file_of(fact["file"]))
        elif "shard" in fact:
            shard = shard_of(fact["shard"])
            self.shards[shard.at] = shard
        else:
            self.complete = True

    def _clear(self) -> None:
        """What the journal does not know is a leftover: of a file half written, or of segments."""
        known = {file.part for file in self.files} | {_JOURNAL, _LOCK}
        for entry in self.path.iterdir():
            if entry.name not in known:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()

    def file_finished(self, file: FinishedFile) -> None:
        self.files.append(file)
        self._tell({"file": asdict(file)})

    def shard_finished(self, shard: SourceShard) -> None:
        self.shards[shard.at] = shard
        self._tell({"shard": asdict(shard)}, sync=False)  # a file's line behind it syncs both

    def all_finished(self) -> None:
        self.complete = True
        self._tell({"complete": True})

    def place_of(self, split: str) -> Place:
        """Behind the last record of a split that stands in a finished file."""
        return max((file.end for file in self.files if file.split == split), default=(0, 0))

    def _tell(self, fact: dict[str, Any], *, sync: bool = True) -> None:
        if self._journal is None:
            raise ExportError(f"{self.path.parent}: this export was begun by another process, or has ended")
        os.write(self._journal, _line(fact))
        if sync:
            os.fsync(self._journal)

    def write(self, name: str, data: bytes) -> Path:
        """A small file beside the others, on disk."""
        write_synced(self.path / name, data)
        return self.path / name

    def close(self) -> None:
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """All is published."""
        shutil.rmtree(self.path, ignore_errors=True)


def _line(fact: dict[str, Any]) -> bytes:
    return json.dumps(fact, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _whole_lines(journal: Path) -> list[dict[str, Any]]:
    """The facts; a line that was cut off ends them."""
    facts: list[dict[str, Any]] = []
    with contextlib.suppress(FileNotFoundError, ValueError):
        for line in journal.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            facts.append(json.loads(line))
    return facts


def _locked(folder: Path) -> int:
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ExportError(f"{folder.parent}: another export is writing there now; wait for it, or end it") from None
    return handle


def write_synced(path: Path, data: bytes) -> None:
    """Replace a small file at once: written beside, on disk, renamed."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """What a file holds, or the names in a folder, are on disk, too."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
