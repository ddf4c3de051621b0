"""Blocks in a folder that processes share: one folder an object, bounded in bytes, the longest unused go first.

dir/ab/cdef…/object.json         which content is here, as its store said it when the file was last touched
dir/ab/cdef…/0123456789abcdef-7  the eighth block of a content; `.….part` while it is written
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import xxhash

from ais_tar2tf import forking
from ais_tar2tf.cache._block import PART, FileReader, FileWriter, is_abandoned
from ais_tar2tf.cache._shelf import Known, Place
from ais_tar2tf.stores import Identity

__all__ = ["DiskShelf"]

_OBJECT = "object.json"
_SHARE = 4  # of the room that is left, a process takes one in so many before it looks again what others took
_ROOM = 16  # one in so many bytes of the bound are made free at once


@dataclass(frozen=True, slots=True)
class _File:
    age: int  # when it was used last
    size: int
    path: Path


class DiskShelf:
    def __init__(self, folder: str | os.PathLike[str], bound: int) -> None:
        self._folder = Path(folder).expanduser().absolute()
        self.bound: int = bound
        self._lock = forking.lock()
        self._left = 0  # bytes that may be written before looking again

    def __repr__(self) -> str:
        return f"DiskShelf({self._folder})"

    def known(self, key: str) -> Known | None:
        path = self._object(key) / _OBJECT
        try:
            said, vouched = json.loads(path.read_bytes()), path.stat().st_mtime
            version, etag, checksum, size = said["identity"]
            identity = Identity(str(version), str(etag), str(checksum), int(size))
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return Known(identity, vouched) if said.get("key") == key else None

    def vouch(self, key: str, identity: Identity) -> None:
        folder = self._object(key)
        known = self.known(key)
        if known is not None and known.identity == identity:
            os.utime(folder / _OBJECT)
            return
        folder.mkdir(parents=True, exist_ok=True)
        beside = folder / f".{secrets.token_hex(8)}.json{PART}"
        said = [identity.version, identity.etag, identity.checksum, identity.size]
        beside.write_text(json.dumps({"key": key, "identity": said}))
        beside.replace(folder / _OBJECT)

    def forget(self, key: str) -> None:
        with contextlib.suppress(OSError):
            for path in self._object(key).iterdir():
                if not path.name.endswith(PART):
                    path.unlink(missing_ok=True)

    def has(self, place: Place) -> bool:
        return self._path(place).exists()

    def reader(self, place: Place) -> FileReader:
        return FileReader(self._path(place), place.length, _what(place))

    def writer(self, place: Place) -> FileWriter | None:
        if not self._has_room(place.length):
            return None
        path = self._path(place)
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileWriter(path, _what(place))

    def discard(self, place: Place) -> None:
        with contextlib.suppress(OSError):
            self._path(place).unlink(missing_ok=True)

    def _object(self, key: str) -> Path:
        digest = xxhash.xxh3_128_hexdigest(key.encode("utf-8", "surrogateescape"))
        return self._folder / digest[:2] / digest[2:]

    def _path(self, place: Place) -> Path:
        return self._object(place.key) / f"{_digest(place.identity)}-{place.number}"

    def _has_room(self, size: int) -> bool:
        with self._lock:
            if self._left < size:
                free = self._sweep(size)
                self._left = max(free // _SHARE, size) if free >= size else 0
            if self._left < size:
                return False
            self._left -= size
            return True

    def _sweep(self, size: int) -> int:
        """Bytes that are free, after the longest unused blocks had to go where `size` was not."""
        files = sorted(self._files(), key=lambda file: file.age)
        free = self.bound - sum(file.size for file in files)
        wanted = max(size, self.bound // _ROOM)
        for file in files if free < size else ():
            if free >= wanted:
                break
            if file.path.name != _OBJECT and _unlinked(file.path):
                free += file.size
                with contextlib.suppress(OSError):
                    _remove_if_empty(file.path.parent)
        return free

    def _files(self) -> Iterator[_File]:
        """All that is here; what killed processes left is removed on the way."""
        for path in self._folder.glob("[0-9a-f][0-9a-f]/*/*"):
            with contextlib.suppress(OSError):
                if path.name.endswith(PART) and is_abandoned(path):
                    path.unlink(missing_ok=True)
                    continue
                status = path.stat()
                yield _File(status.st_mtime_ns, status.st_size, path)


def _unlinked(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False
    return True


def _remove_if_empty(folder: Path) -> None:
    """An object of which no block is left."""
    if all(path.name == _OBJECT for path in folder.iterdir()):
        (folder / _OBJECT).unlink(missing_ok=True)
        folder.rmdir()


def _digest(identity: Identity) -> str:
    said = "\0".join([identity.version, identity.etag, identity.checksum, str(identity.size)])
    return xxhash.xxh3_64_hexdigest(said.encode("utf-8", "surrogateescape"))


def _what(place: Place) -> str:
    return f"{place.number} {_digest(place.identity)} {place.key}"
