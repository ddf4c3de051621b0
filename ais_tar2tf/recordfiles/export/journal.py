"""The work folder of an export, and its journal, from which an interrupted export is resumed.

The journal is a text file. Each line states one fact, as JSON with a checksum:

| key of the line | fact |
|---|---|
| `plan` | always the first line: the options and sources of the export |
| `shard` | an input shard was read to its end (`SourceShard`) |
| `file` | a record file is finished and synced to disk (`FinishedFile`) |
| `complete` | all record files are finished |

A line is synced to disk before anything relies on it. Cut or damaged lines at the end of the journal are ignored: the
machine stopped while they were being written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ais_tar2tf.base.documents import folders as owned
from ais_tar2tf.base.documents import structure as expect
from ais_tar2tf.base.documents.folders import sync
from ais_tar2tf.base.documents.sealed import parse_lines, sealed_line
from ais_tar2tf.base.documents.structure import Check
from ais_tar2tf.base.forking import at_fork
from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.export.fingerprints import is_same_plan
from ais_tar2tf.recordfiles.export.os_errors import raise_export_errors
from ais_tar2tf.recordfiles.export.splits import SPLIT_NAME

__all__ = [
    "FILE",
    "NO_IDENTITY",
    "SHARD",
    "SPLIT",
    "WORK",
    "FinishedFile",
    "IdentityTuple",
    "ResumePoint",
    "SourceShard",
    "WorkFolder",
    "write_synced",
]

ResumePoint = tuple[int, int]
"""The first record that is not in a finished file: (number of its input shard, its number in this shard)."""

IdentityTuple = tuple[str, str, str, int | None]
"""A source shard's version, ETag, checksum and size, as far as its store states them."""

NO_IDENTITY: IdentityTuple = ("", "", "", None)

_JOURNAL = "journal"
_LOCK = "lock"

WORK = owned.Layout(
    re.compile(
        rf"{_JOURNAL}|{_LOCK}|description|empty|\.({_JOURNAL}|description)\.new|{SPLIT_NAME}-\d{{5,}}\.(part|idx)"
        rf"|{SPLIT_NAME}\.side"
    ),
    folders=((re.compile(r"segments-\w{8}"), owned.Layout(re.compile(r"\d{7,}-\d+\.segment"))),),
)
"""The files of a work folder; nothing else in it is ever deleted."""


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """A finished record file that has no final name yet."""

    split: str
    number: int
    records: int
    bytes: int
    checksum: str
    end: ResumePoint  # the point after its last record
    identity: IdentityTuple = NO_IDENTITY  # the identity of the shard with its last record

    @property
    def part(self) -> str:
        """The name of the file in the work folder."""
        return f"{self.split}-{self.number:05d}.part"


@dataclass(frozen=True, slots=True)
class SourceShard:
    """An input shard that was read to its end."""

    at: int  # its number in the export
    url: str
    identity: IdentityTuple
    records: int
    ignored: int
    skipped: dict[str, int] = field(default_factory=dict[str, int])
    observed: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """The `SplitStatistics` of its records, by split, as JSON."""


# Checks of the lines of a journal, which the descriptions of staged parts use, too.

SPLIT: Check[str] = expect.matching(re.compile(SPLIT_NAME), "the name of a split")
_IDENTITY = expect.row(expect.text, expect.text, expect.text, expect.maybe(expect.whole()))
_FEATURE = expect.row(expect.text, expect.whole(), expect.whole(), expect.whole())
_OBSERVED = expect.fields({"records": expect.whole(), "features": expect.keyed(_FEATURE)})
FILE: Check[FinishedFile] = expect.made(
    FinishedFile,
    expect.fields(
        {
            "split": SPLIT,
            "number": expect.whole(),
            "records": expect.whole(),
            "bytes": expect.whole(),
            "checksum": expect.text,
            "end": expect.row(expect.whole(), expect.whole()),
        },
        {"identity": _IDENTITY},
    ),
)
SHARD: Check[SourceShard] = expect.made(
    SourceShard,
    expect.fields(
        {
            "at": expect.whole(),
            "url": expect.text,
            "identity": _IDENTITY,
            "records": expect.whole(),
            "ignored": expect.whole(),
        },
        {"skipped": expect.keyed(expect.whole()), "observed": expect.listed(_OBSERVED)},
    ),
)
JOURNAL_LINE = expect.fields(
    {}, {"plan": expect.anything, "file": FILE, "shard": SHARD, "complete": expect.anything}, strict=True
)


class WorkFolder:
    """The work folder of one export. It is locked while it is open, so two processes never write the same files.

    Args:
        path: The folder, which is created if it does not exist.
        plan: The options and sources of the export. Finished files of another plan are an error.
        start_over: Delete an existing journal, and the files that it lists.
        private: Create the folder so that only its owner can read it.
    """

    def __init__(self, path: Path, plan: dict[str, Any], *, start_over: bool = False, private: bool = False) -> None:
        self.path: Path = path
        self.files: list[FinishedFile] = []
        self.shards: dict[int, SourceShard] = {}
        self.complete: bool = False
        self._journal: int | None = None
        self._lock: int = -1
        try:
            with raise_export_errors(path.parent, "nothing can be written there"):
                owned.claim(path, WORK, fail=ExportError, mode=0o700 if private else 0o777)
                self._lock = _lock_folder(path)
                if start_over:
                    (path / _JOURNAL).unlink(missing_ok=True)
                self._open_journal(json.loads(json.dumps(plan)))
        except Tar2TFError:
            self.close()
            raise
        at_fork(self)

    def forked(self) -> None:
        """Close the folder in a forked child: the child's copy of the lock would outlive the export."""
        self.close()

    def _open_journal(self, plan: dict[str, Any]) -> None:
        """Restore the state that the journal records, and open it for appending."""
        journal = self.path / _JOURNAL
        facts = self._read_facts(journal) or [{"plan": plan}]
        is_same = facts[0].keys() == {"plan"} and is_same_plan(facts[0]["plan"], plan)
        if not is_same and not any("file" in fact for fact in facts):
            facts = [{"plan": plan}]  # no file was finished: there is nothing to resume
        elif not is_same:
            raise ExportError(
                f"{self.path.parent}: an export with another plan was begun there and did not end; "
                "exists='replace' starts over"
            )
        for fact in facts[1:]:
            self._apply(fact)
        self._delete_leftovers()
        write_synced(journal, b"".join(sealed_line(_as_json(fact)) for fact in facts))
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _read_facts(self, journal: Path) -> list[dict[str, Any]]:
        """Return the complete lines of the journal."""
        try:
            return parse_lines(_lines(journal), JOURNAL_LINE, where=str(journal), fail=ExportError)
        except ExportError as error:
            raise ExportError(f"{error}; exists='replace' starts over") from error

    def _apply(self, fact: dict[str, Any]) -> None:
        """Add a fact to the state of the export."""
        if "file" in fact:
            self.files.append(fact["file"])
        elif "shard" in fact:
            self.shards[fact["shard"].at] = fact["shard"]
        elif fact.get("complete") is True:
            self.complete = True

    def _delete_leftovers(self) -> None:
        """Delete files that the journal does not list: unfinished record files, and segments."""
        keep = {file.part for file in self.files} | {_JOURNAL, _LOCK}
        owned.clear(self.path, WORK, fail=ExportError, keep=keep)
        for file in self.files:
            part = self.path / file.part
            if part.is_symlink() or (part.exists() and not part.is_file()):
                raise ExportError(f"{part}: this is no file that an export wrote; exists='replace' starts over")

    def file_finished(self, file: FinishedFile) -> None:
        """Record that a file is finished and synced to disk."""
        self._record({"file": file})

    def shard_finished(self, shard: SourceShard) -> None:
        """Record that an input shard was read to its end."""
        self._record({"shard": shard}, sync=False)  # the line of the next finished file syncs both lines

    def all_finished(self) -> None:
        """Record that all files are finished."""
        self._record({"complete": True})

    def resume_point(self, split: str) -> ResumePoint:
        """Return the point after the last record in the finished files of a split."""
        return max((file.end for file in self.files if file.split == split), default=(0, 0))

    def _record(self, fact: dict[str, Any], *, sync: bool = True) -> None:
        """Apply a fact and append it to the journal."""
        if self._journal is None:
            raise ExportError(f"{self.path.parent}: this export was begun by another process, or has ended")
        self._apply(fact)
        os.write(self._journal, sealed_line(_as_json(fact)))
        if sync:
            os.fsync(self._journal)

    def write(self, name: str, data: bytes) -> Path:
        """Write a small file into the folder and sync it to disk; return its path."""
        write_synced(self.path / name, data)
        return self.path / name

    def close(self) -> None:
        """Close the journal and release the lock."""
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Delete the folder after all files are published."""
        with contextlib.suppress(OSError):
            owned.remove(self.path, WORK, fail=ExportError)


def _as_json(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: asdict(value) if name in ("file", "shard") else value for name, value in fact.items()}


def _lines(journal: Path) -> Iterator[bytes]:
    """Yield the lines of a journal, each cut at `Limits.document_bytes`; none if there is no journal."""
    try:
        file = journal.open("rb")
    except FileNotFoundError:
        return
    limits = Limits()
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > limits.journal_bytes:
            raise ExportError(
                f"{journal}: no regular file, or over {limits.journal_bytes:,} bytes, Limits.journal_bytes"
            )
        while line := file.readline(limits.document_bytes):
            yield line


def _lock_folder(folder: Path) -> int:
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ExportError(f"{folder.parent}: another export is writing there now; wait for it, or end it") from None
    return handle


def write_synced(path: Path, data: bytes) -> None:
    """Replace a small file atomically: write a temporary file, sync it, rename it."""
    temporary = path.with_name(f".{path.name}.new")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with open(handle, "wb") as file:  # noqa: PTH123  # a file descriptor: O_NOFOLLOW refuses a symbolic link
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)
