"""Buckets and objects as folders and files; it must not know of HTTP, nor reach outside its root.

Everything but `Upload.write` and `Folder.erase` runs on the server's loop: opening and renaming take microseconds,
and on one thread they need no lock to be seen together with the version.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ais_tar2tf import forking
from ais_tar2tf.errors import FolderMissing
from ais_tar2tf.server.checksums import Content
from ais_tar2tf.server.refusals import (
    LONGEST_BUCKET,
    RefusedError,
    bad_bucket_name,
    bad_request,
    bucket_exists,
    no_bucket,
    no_object,
)
from ais_tar2tf.server.versions import Versions

__all__ = ["TEMPORARY", "Folder", "Stored", "Upload"]

TEMPORARY = ".~ais-"  # begins the names of unfinished uploads and of buckets that are being erased

_BUCKET = re.compile(rf"[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{LONGEST_BUCKET - 1}}}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stored:
    """An open object: its bytes, and what is known of them."""

    file: io.FileIO
    content: Content
    version: int


class Folder:
    """The root directory."""

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
        except RefusedError:
            return False
        return True

    def bucket(self, name: str) -> Path:
        """Give the real path of a bucket that is there."""
        _check_bucket_name(name)
        path = _real(self.root / name)
        if not (self.inside(path) and path.is_dir()):
            raise no_bucket(name)
        return path

    def create(self, name: str) -> None:
        _check_bucket_name(name)
        try:
            (self.root / name).mkdir()
        except FileExistsError as error:
            raise bucket_exists(name) from error

    def detach(self, name: str) -> Path:
        """Take a bucket out of sight at once; `erase` what this returns."""
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
            content = Content.of(str(path), os.fstat(file.fileno()))
            yield Stored(file, content, self.versions.seen(bucket, name, content))

    def delete(self, bucket: str, name: str) -> None:
        path = self._locate(bucket, name)
        with _open_regular(path, bucket, name):
            path.unlink()
        self.versions.forget(bucket, name)
        self._prune(path, bucket)

    @contextmanager
    def upload(self, bucket: str, name: str) -> Generator[Upload]:
        """Give a place to write to. What is not committed when the block ends was never there."""
        path = self._locate(bucket, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with Upload(path) as upload:
                yield upload
        finally:
            self._prune(path, bucket)

    def commit(self, bucket: str, name: str, upload: Upload) -> tuple[Content, int]:
        """Publish an upload in the place of what was there; give what is there now, and its version."""
        before: Content | None = None
        with suppress(OSError):
            before = Content.of(str(upload.path), upload.path.stat())
        content = upload.publish()
        return content, self.versions.replaced(bucket, name, before, content)

    # Paths

    def inside(self, path: Path) -> bool:
        """Say whether a real path is below the root."""
        return self.root in path.parents

    def _locate(self, bucket: str, name: str) -> Path:
        base, parts = self.bucket(bucket), name.split("/")
        if any(part in ("", ".", "..") or part.startswith(TEMPORARY) or "\0" in part for part in parts):
            raise bad_request(f"object name {name!r} is invalid: no part may be empty, '.', '..' or hold a NUL")
        path = _real(base.joinpath(*parts))
        if not self.inside(path):
            raise no_object(bucket, name)
        return path

    def _prune(self, path: Path, bucket: str) -> None:
        """Remove the folders that an object leaves empty: they would stand in the way of objects of their name."""
        base = _real(self.root / bucket)
        with suppress(OSError):  # the first that is not empty ends it
            for parent in path.parents:
                if base not in parent.parents:
                    break
                parent.rmdir()


class Upload:
    """A temporary file beside the object that it becomes. Writing happens on other threads, one at a time."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
        self._file = self._temporary.open("xb")
        self._hasher = xxhash.xxh64()
        self._lock = forking.lock()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was not published. Waits for a write that is under way when its request was cancelled."""
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

    def publish(self) -> Content:
        self._file.flush()
        # The kernel stamps files with a coarse clock. A fine stamp differs from that of any later change in place.
        now = time.time_ns()
        os.utime(self._file.fileno(), ns=(now, now))
        content = Content.of(str(self.path), os.fstat(self._file.fileno()))
        self._file.close()
        self._temporary.replace(self.path)
        return content


def _check_bucket_name(name: str) -> None:
    if not _BUCKET.fullmatch(name) or ".." in name:
        raise bad_bucket_name(name)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError where links go in a circle


def _open_regular(path: Path, bucket: str, name: str) -> io.FileIO:
    try:
        if not path.is_file():  # opening a pipe would wait for its other end
            raise no_object(bucket, name)
        return io.FileIO(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise no_object(bucket, name) from error
