"""The state of a local file. A comparison of two states shows whether the file was written to in between. No I/O."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["FileState"]

_KIND = "file"


@dataclass(frozen=True, slots=True)
class FileState:
    """The fields of a file's `stat` that show whether the file was written to.

    Every write changes `modified` and `status_changed`. A program can set `modified` back to an earlier time, but not
    `status_changed`. New permissions, owners and hard links change `status_changed`, too, but not the content.
    """

    device: int
    inode: int
    size: int
    modified: int  # mtime in nanoseconds
    status_changed: int  # ctime in nanoseconds
    others: str  # permissions, owner and number of hard links

    @classmethod
    def from_stat(cls, status: os.stat_result) -> FileState:
        """Return the state that a result of `os.stat` describes."""
        others = f"{status.st_mode:x}.{status.st_uid:x}.{status.st_gid:x}.{status.st_nlink:x}"
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(status.st_dev, status.st_ino, status.st_size, *times, others)

    @property
    def version(self) -> str:
        """A text of `inode` and `modified`, which are the same on every host that mounts the file.

        Every write changes this text, unless a program sets `modified` back afterwards.
        """
        return f"{self.inode:x}-{self.modified:x}"

    @property
    def fingerprint(self) -> str:
        """The fields `status_changed` and `others` as a text, for positions. Every write changes this text."""
        return f"{_KIND}:{self.status_changed:x}:{self.others}"

    def difference(self, now: FileState) -> str:
        """Describe how the later state `now` shows that the file was written to or replaced.

        Return "" if `now` shows no write and no replacement.
        """
        for name in ("device", "inode", "size", "modified"):
            if getattr(self, name) != getattr(now, name):
                return f"its {_NAMES[name]} was {getattr(self, name):,} and is {getattr(now, name):,}"
        if now.fits(self.fingerprint):
            return ""
        return "its status changed, and neither its permissions, its owner nor its links did"

    def fits(self, fingerprint: str) -> bool:
        """Return whether the content may be the same as in the earlier state from which `fingerprint` was made.

        A new `status_changed` alone means that the file was written to. If `others` differs, too, new permissions,
        owners or links may explain the new `status_changed`, and the content may be the same. If `fingerprint` was
        not made from a file's state, it proves nothing, so return True.
        """
        kind, _, rest = fingerprint.partition(":")
        status_changed, _, others = rest.partition(":")
        return kind != _KIND or status_changed == f"{self.status_changed:x}" or others != self.others


_NAMES = {
    "device": "device number",
    "inode": "inode number",
    "size": "size",
    "modified": "time of modification (ns)",
}
