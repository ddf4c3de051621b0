"""The state of a local file while it is read: whether somebody wrote to it meanwhile. No I/O."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["FileState"]

_KIND = "file"


@dataclass(frozen=True, slots=True)
class FileState:
    """What `stat` says of a file.

    Every write changes `modified` and `status_changed`, and a program can set back only the first. New permissions,
    owners and hard links change `status_changed`, too, and leave the content alone.
    """

    device: int
    inode: int
    size: int
    modified: int  # in nanoseconds, as `status_changed`
    status_changed: int
    others: str  # permissions, owners and hard links

    @classmethod
    def of(cls, status: os.stat_result) -> FileState:
        others = f"{status.st_mode:x}.{status.st_uid:x}.{status.st_gid:x}.{status.st_nlink:x}"
        times = (status.st_mtime_ns, status.st_ctime_ns)
        return cls(status.st_dev, status.st_ino, status.st_size, *times, others)

    @property
    def version(self) -> str:
        """What stays the same on every host that mounts the file, and when permissions change."""
        return f"{self.inode:x}-{self.modified:x}"

    @property
    def seen(self) -> str:
        """What a position adds to the version."""
        return f"{_KIND}:{self.status_changed:x}:{self.others}"

    def difference(self, now: FileState) -> str:
        """Return what shows that the file was written to since, or is another one; empty if nothing does."""
        for name in ("device", "inode", "size", "modified"):
            if getattr(self, name) != getattr(now, name):
                return f"its {_NAMES[name]} was {getattr(self, name):,} and is {getattr(now, name):,}"
        return "its status changed, and neither its permissions, its owner nor its links did" * (
            not now.fits(self.seen)
        )

    def fits(self, seen: str) -> bool:
        """Whether the file may have the content that it had when it was in the state `seen`."""
        kind, _, rest = seen.partition(":")
        status_changed, _, others = rest.partition(":")
        return kind != _KIND or status_changed == f"{self.status_changed:x}" or others != self.others


_NAMES = {
    "device": "device number",
    "inode": "inode number",
    "size": "size",
    "modified": "time of modification (ns)",
}
