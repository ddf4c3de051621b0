"""The hidden folder in which files are written, and its journal: what an export that is run again goes on from.

The journal is a line of JSON for each fact, written and synced before anything relies on it:
the plan, each source shard that was read to its end, each file that is whole and on disk, and `complete`.
Each line carries a checksum; lines at the end that were being written when the machine stopped are left out.
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

from ais_tar2tf import owned
from ais_tar2tf.documents import parse_lines, sealed_line
from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.export.splits import SPLIT_NAME
from ais_tar2tf.forking import at_fork
from ais_tar2tf.options import Limits
from ais_tar2tf.owned import sync
from ais_tar2tf.structure import Check, anything, fields, keyed, listed, made, matching, maybe, row, text, whole

__all__ = [
    "FILE",
    "SHARD",
    "SPLIT",
    "WORK",
    "FinishedFile",
    "Identified",
    "Place",
    "SourceShard",
    "WorkFolder",
    "write_synced",
]

Place = tuple[int, int]
"""(input shard, number of a record in it): where the next record stands."""

Identified = tuple[str, str, str, int | None]
"""A source shard's version, etag, checksum and size, as far as its store tells them."""

_JOURNAL = "journal"
_LOCK = "lock"

WORK = owned.Layout(
    re.compile(
        rf"{_JOURNAL}|{_LOCK}|description|empty|\.({_JOURNAL}|description)\.new|{SPLIT_NAME}-\d{{5,}}\.(part|idx)"
        rf"|{SPLIT_NAME}\.side"
    ),
    folders=((re.compile(r"segments-\w{8}"), owned.Layout(re.compile(r"\d{7,}-\d+\.segment"))),),
)
"""What stands in a work folder; nothing else in it is ever deleted."""


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


# What journals and descriptions hold.

SPLIT: Check[str] = matching(re.compile(SPLIT_NAME), "the name of a split")
_IDENTIFIED = row(text, text, text, maybe(whole()))
_SEEN = row(text, whole(), whole(), whole())
_OBSERVED = fields({"records": whole(), "features": keyed(_SEEN)})
FILE: Check[FinishedFile] = made(
    FinishedFile,
    fields(
        {
            "split": SPLIT,
            "number": whole(),
            "records": whole(),
            "bytes": whole(),
            "checksum": text,
            "end": row(whole(), whole()),
        },
        {"identity": _IDENTIFIED},
    ),
)
SHARD: Check[SourceShard] = made(
    SourceShard,
    fields(
        {"at": whole(), "url": text, "identity": _IDENTIFIED, "records": whole(), "ignored": whole()},
        {"skipped": keyed(whole()), "observed": listed(_OBSERVED)},
    ),
)
_FACT = fields({}, {"plan": anything, "file": FILE, "shard": SHARD, "complete": anything}, strict=True)


class WorkFolder:
    """One export's work: locked while it is open, so that two never write the same files."""

    def __init__(self, path: Path, plan: dict[str, Any], *, start_over: bool = False, private: bool = False) -> None:
        self.path: Path = path
        self.files: list[FinishedFile] = []
        self.shards: dict[int, SourceShard] = {}
        self.complete: bool = False
        self._journal: int | None = None
        self._lock: int = -1
        try:
            owned.claim(path, WORK, fail=ExportError, mode=0o700 if private else 0o777)
            self._lock = _locked(path)
            if start_over:
                (path / _JOURNAL).unlink(missing_ok=True)
            self._begin(json.loads(json.dumps(plan)))
        except Tar2TFError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise ExportError(f"{path.parent}: nothing can be written there ({error.strerror or error})") from error
        at_fork(self)

    def forked(self) -> None:
        """A child writes nothing here, and its copy of the lock must not outlive its parent's export."""
        self.close()

    def _begin(self, plan: dict[str, Any]) -> None:
        """Take over what the journal says: it is of the same plan, or empty."""
        journal = self.path / _JOURNAL
        facts = self._facts(journal) or [{"plan": plan}]
        if facts[0] != {"plan": plan} and not any("file" in fact for fact in facts):
            facts = [{"plan": plan}]  # it failed before anything was done that could be used
        if facts[0] != {"plan": plan}:
            raise ExportError(
                f"{self.path.parent}: an export with another plan was begun there and did not end; "
                "exists='replace' starts over"
            )
        for fact in facts[1:]:
            self._learn(fact)
        self._clear()
        write_synced(journal, b"".join(sealed_line(_as_json(fact)) for fact in facts))
        self._journal = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)

    def _facts(self, journal: Path) -> list[dict[str, Any]]:
        """The lines of the journal that are whole."""
        try:
            return parse_lines(_lines(journal), _FACT, where=str(journal), fail=ExportError)
        except ExportError as error:
            raise ExportError(f"{error}; exists='replace' starts over") from error

    def _learn(self, fact: dict[str, Any]) -> None:
        if "file" in fact:
            self.files.append(fact["file"])
        elif "shard" in fact:
            self.shards[fact["shard"].at] = fact["shard"]
        elif fact.get("complete") is True:
            self.complete = True

    def _clear(self) -> None:
        """What the journal does not know is a leftover: of a file half written, or of segments."""
        known = {file.part for file in self.files} | {_JOURNAL, _LOCK}
        owned.clear(self.path, WORK, fail=ExportError, keep=known)
        for file in self.files:
            part = self.path / file.part
            if part.is_symlink() or (part.exists() and not part.is_file()):
                raise ExportError(f"{part}: this is no file that an export wrote; exists='replace' starts over")

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
        os.write(self._journal, sealed_line(fact))
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
        with contextlib.suppress(OSError):
            owned.remove(self.path, WORK, fail=ExportError)


def _as_json(fact: dict[str, Any]) -> dict[str, Any]:
    return {name: asdict(said) if name in ("file", "shard") else said for name, said in fact.items()}


def _lines(journal: Path) -> Iterator[bytes]:
    """The lines of a journal, if there is one, none of them longer than a document may be."""
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


def _locked(folder: Path) -> int:
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ExportError(f"{folder.parent}: another export is writing there now; wait for it, or end it") from None
    return handle


def write_synced(path: Path, data: bytes) -> None:
    """Replace a small file at once: written beside, on disk, renamed."""
    beside = path.with_name(f".{path.name}.new")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    with open(handle, "wb") as file:  # noqa: PTH123  # an open file: never through a link that stands there
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync(path.parent)
