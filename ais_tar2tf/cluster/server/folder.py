"""Buckets and objects as folders and files. It must not know HTTP, nor reach outside its root.

Everything here runs on the event loop, except for `Upload.write`, `BucketRoot.erase` and what listings read. Opening
and renaming take microseconds. Because they run on one thread, a file and its version number change together without
a lock.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import time
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ais_tar2tf.base import forking
from ais_tar2tf.cluster.server import refusals
from ais_tar2tf.cluster.server.checksums import FileIdentity
from ais_tar2tf.errors import FolderMissing

__all__ = ["TEMPORARY", "BucketRoot", "Stored", "Upload"]

VERSIONS = 1_000_000  # remembered names, some 300 bytes each; an evicted name begins again at 1
TEMPORARY = ".~ais-"  # the prefix of unfinished uploads and of buckets that are being erased

_BUCKET = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{refusals.LONGEST_BUCKET - 1}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stored:
    """An open object: its file, the identity of its content, and its version number."""

    file: io.FileIO
    content: FileIdentity
    version: int


class BucketRoot:
    """The directory whose sub-folders are the buckets."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.root: Path = _real(Path(directory))
        if not self.root.is_dir():
            raise FolderMissing(f"{directory}: not a directory; make it, with a sub-folder for every bucket")
        self.versions: Versions = Versions()

    # Buckets

    def buckets(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir() if self._has(path.name))

    def _has(self, name: str) -> bool:
        try:
            self.bucket(name)
        except refusals.RefusedError:
            return False
        return True

    def bucket(self, name: str) -> Path:
        """Return the real path of a bucket; refuse a bucket that does not exist."""
        _check_bucket_name(name)
        path = _real(self.root / name)
        if not (self.inside(path) and path.is_dir()):
            raise refusals.no_bucket(name)
        return path

    def create(self, name: str) -> None:
        _check_bucket_name(name)
        try:
            (self.root / name).mkdir()
        except FileExistsError as error:
            raise refusals.bucket_exists(name) from error

    def detach(self, name: str) -> Path:
        """Rename a bucket so that it is no longer visible, and return its path, for `erase`."""
        self.bucket(name)
        self.versions.forget_bucket(name)
        return (self.root / name).rename(self.root / f"{TEMPORARY}{secrets.token_hex(8)}")

    @staticmethod
    def erase(doomed: Path) -> None:
        if doomed.is_symlink():
            doomed.unlink()
        else:
            shutil.rmtree(doomed)

    # Objects

    @contextmanager
    def open(self, bucket: str, name: str) -> Generator[Stored]:
        path = self._locate(bucket, name)
        with _open_regular(path, bucket, name) as file:
            content = FileIdentity.from_stat(str(path), os.fstat(file.fileno()))
            yield Stored(file, content, self.versions.record(bucket, name, content))

    def delete(self, bucket: str, name: str) -> None:
        path = self._locate(bucket, name)
        with _open_regular(path, bucket, name):
            path.unlink()
        self.versions.forget(bucket, name)
        self._prune(path, bucket)

    @contextmanager
    def upload(self, bucket: str, name: str) -> Generator[Upload]:
        """Open an upload. Unless it is committed, nothing of it remains after the block."""
        path = self._locate(bucket, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with Upload(path) as upload:
                yield upload
        finally:
            self._prune(path, bucket)

    def commit(self, bucket: str, name: str, upload: Upload) -> tuple[FileIdentity, int]:
        """Publish an upload, replacing an existing object; return the new content and its version number."""
        before: FileIdentity | None = None
        with suppress(OSError):
            before = FileIdentity.from_stat(str(upload.path), upload.path.stat())
        content = upload.publish()
        return content, self.versions.replaced(bucket, name, before, content)

    # Paths

    def inside(self, path: Path) -> bool:
        """Return whether a real path is below the root."""
        return self.root in path.parents

    def _locate(self, bucket: str, name: str) -> Path:
        base, parts = self.bucket(bucket), name.split("/")
        if any(part in ("", ".", "..") or part.startswith(TEMPORARY) or "\0" in part for part in parts):
            raise refusals.bad_request(
                f"object name {name!r} is invalid: a part is empty, '.', '..', begins with {TEMPORARY} or holds a NUL"
            )
        path = _real(base.joinpath(*parts))
        if not self.inside(path):
            raise refusals.no_object(bucket, name)
        return path

    def _prune(self, path: Path, bucket: str) -> None:
        """Remove the folders that an object leaves empty: an object could not have the name of such a folder."""
        base = _real(self.root / bucket)
        with suppress(OSError):  # raised by the first folder that is not empty
            for parent in path.parents:
                if base not in parent.parents:
                    break
                parent.rmdir()


class Versions:
    """A bounded map from names to the last known content and its version number. It does not read files.

    As in AIStore, an object's version is 1, 2, 3 … and grows when the object is overwritten. A file that was changed
    by another program counts as overwritten, too.
    """

    def __init__(self, *, entries: int = VERSIONS) -> None:
        self._entries = entries
        self._last: OrderedDict[tuple[str, str], tuple[FileIdentity, int]] = OrderedDict()

    def peek(self, bucket: str, name: str, content: FileIdentity) -> int:
        """Return the version number of an object with this content, without recording it.

        Listings use this, because they visit every name.
        """
        last, version = self._last.get((bucket, name), (content, 1))
        return version if last == content else version + 1

    def record(self, bucket: str, name: str, content: FileIdentity) -> int:
        """Return the version number of an object with this content, and record both."""
        version = self.peek(bucket, name, content)
        self._remember((bucket, name), content, version)
        return version

    def replaced(self, bucket: str, name: str, before: FileIdentity | None, content: FileIdentity) -> int:
        """Return the new version number after an object was overwritten; `before` is None when it is new."""
        version = 1 if before is None else self.peek(bucket, name, before) + 1
        self._remember((bucket, name), content, version)
        return version

    def _remember(self, key: tuple[str, str], content: FileIdentity, version: int) -> None:
        self._last[key] = content, version
        self._last.move_to_end(key)
        if len(self._last) > self._entries:
            self._last.popitem(last=False)

    def forget(self, bucket: str, name: str) -> None:
        self._last.pop((bucket, name), None)

    def forget_bucket(self, bucket: str) -> None:
        for key in [key for key in self._last if key[0] == bucket]:
            del self._last[key]


class Upload:
    """A temporary file in the folder of the object that it becomes. Other threads write to it, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        self._file = self._temporary.open("xb")
        self._hasher = xxhash.xxh64()
        self._lock = forking.lock()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the file unless it was published. A cancelled request may still be writing; wait for that."""
        with self._lock, suppress(OSError):
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def write(self, chunk: bytes) -> None:
        with self._lock:
            if not self._file.closed:
                self._file.write(chunk)
                self._hasher.update(chunk)

    @property
    def checksum(self) -> str:
        return self._hasher.hexdigest()

    def publish(self) -> FileIdentity:
        self._file.flush()
        # The kernel sets file times with a coarse clock. A precise time differs from that of any later change.
        now = time.time_ns()
        os.utime(self._file.fileno(), ns=(now, now))
        content = FileIdentity.from_stat(str(self.path), os.fstat(self._file.fileno()))
        self._file.close()
        self._temporary.replace(self.path)
        return content


def _check_bucket_name(name: str) -> None:
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise refusals.bad_bucket_name(name)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for circular links


def _open_regular(path: Path, bucket: str, name: str) -> io.FileIO:
    try:
        if not path.is_file():  # opening a named pipe would block
            raise refusals.no_object(bucket, name)
        return io.FileIO(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise refusals.no_object(bucket, name) from error
