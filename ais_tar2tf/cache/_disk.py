"""Blocks in a folder that processes share: one folder an object, bounded in bytes, the longest unused go first.

dir/.ais_tar2tf                  marks the folder as ours: any other one that is not empty is refused
dir/ab/cdef…/object.json         which content is here, as its store stated it when the file was last touched
dir/ab/cdef…/0123456789abcdef-7  the eighth block of a content; `.….part` while it is written

Files are private to the user, never reached through links, and deleted only under names of this layout.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf import forking, owned
from ais_tar2tf.cache._block import PART, FileReader, FileWriter, is_abandoned
from ais_tar2tf.cache._download import Downloads
from ais_tar2tf.cache._shelf import Damaged, Known, Place
from ais_tar2tf.documents import OPEN, document_bytes, parse_document, read_handle
from ais_tar2tf.errors import StoreError, Tar2TFError
from ais_tar2tf.options import Limits
from ais_tar2tf.owned import Layout
from ais_tar2tf.stores import Identity
from ais_tar2tf.structure import fields, row, text, whole

__all__ = ["DiskShelf"]

_OBJECT = "object.json"
_SHARE = 4  # of the room that is left, a process takes one in so many before it looks again what others took
_ROOM = 16  # one in so many bytes of the bound are made free at once
_PRIVATE = 0o700
_NONE = re.compile(r"(?!)")
_IN_THE_WAY = re.compile(r"[0-9a-f]{2}")  # a file where a folder of ours belongs: it stays, and nothing is kept there
_BLOCKS = Layout(re.compile(r"object\.json|[0-9a-f]{16}-\d+|\.[0-9a-f]{16}(\.json)?\.part"))
_LAYOUT = Layout(
    _IN_THE_WAY, ((re.compile(r"[0-9a-f]{2}"), Layout(_NONE, ((re.compile(r"[0-9a-f]{30}"), _BLOCKS),))),)
)
_STATED = fields({"identity": row(text, text, text, whole())}, {"key": text, "object": text}, strict=True)


_downloads: weakref.WeakValueDictionary[str, Downloads] = weakref.WeakValueDictionary()  # by folder


@dataclass(frozen=True, slots=True)
class _File:
    age: int  # when it was used last
    size: int
    folder: tuple[str, str]  # of its object
    name: str


class DiskShelf:
    """Blocks in a folder.

    Raises:
        StoreError: The folder holds something else.
    """

    def __init__(self, folder: str | os.PathLike[str], bound: int) -> None:
        self._folder = Path(os.path.realpath(Path(folder).expanduser()))
        self.bound: int = bound
        self._lock = forking.lock()
        self._left = 0  # bytes that may be written before looking again
        self.downloads: Downloads = _downloads.setdefault(str(self._folder), Downloads())
        self._claimed = False
        with contextlib.suppress(OSError):  # where nothing can be kept, everything is read from the store
            owned.check(self._folder, _LAYOUT, fail=self._refused)

    def __repr__(self) -> str:
        return f"DiskShelf({self._folder})"

    def known(self, key: str) -> Known | None:
        digest = _digest_of(key)
        try:
            with self._object(digest) as folder:
                handle = os.open(_OBJECT, OPEN | os.O_NOFOLLOW, dir_fd=folder)
                vouched = os.fstat(handle).st_mtime
                where = f"{self._folder}/{digest[0]}/{digest[1]}/{_OBJECT}"
                most = Limits().document_bytes
                data = read_handle(handle, most=most, limit="document_bytes", where=where, fail=Damaged)
                said: dict[str, Any] = parse_document(data, _STATED, where=where, fail=Damaged)
        except (OSError, Tar2TFError):
            return None
        if said.get("key") != key and said.get("object") != "".join(digest):  # earlier versions stated the key
            return None
        return Known(Identity(*said["identity"]), vouched)

    def vouch(self, key: str, identity: Identity) -> None:
        known, digest = self.known(key), _digest_of(key)
        stated = {"object": "".join(digest), "identity": [*_stated(identity)]}
        with self._object(digest, make=True) as folder:
            if known is not None and known.identity == identity:
                os.utime(_OBJECT, dir_fd=folder, follow_symlinks=False)
                return
            beside = f".{secrets.token_hex(8)}.json{PART}"
            with open(os.open(beside, _NEW, 0o600, dir_fd=folder), "wb") as file:  # noqa: PTH123  # an open file
                file.write(document_bytes(stated, indent=None))
            os.replace(beside, _OBJECT, src_dir_fd=folder, dst_dir_fd=folder)

    def forget(self, key: str) -> None:
        with contextlib.suppress(OSError), self._object(_digest_of(key)) as folder:
            for name in _files(folder):
                if not name.endswith(PART):
                    _unlinked(name, folder)

    def has(self, place: Place) -> bool:
        return self._path(place).exists()

    def reader(self, place: Place) -> FileReader:
        return FileReader(self._path(place), place.length, _what(place))

    def writer(self, place: Place) -> FileWriter | None:
        if not self._has_room(place.length):
            return None
        with self._object(_digest_of(place.key), make=True) as folder:
            return FileWriter(folder, _block(place), _what(place))

    def discard(self, place: Place) -> None:
        with contextlib.suppress(OSError), self._object(_digest_of(place.key)) as folder:
            _unlinked(_block(place), folder)

    def _path(self, place: Place) -> Path:
        return self._folder.joinpath(*_digest_of(place.key), _block(place))

    @contextlib.contextmanager
    def _object(self, digest: tuple[str, str], *, make: bool = False) -> Generator[int]:
        """The open folder of an object; no link leads to another one."""
        if make and not self._claimed:
            owned.claim(self._folder, _LAYOUT, fail=_foreign, mode=_PRIVATE)
            self._claimed = True
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(owned.opened(self._folder, fail=_foreign))
            except FileNotFoundError:
                self._claimed = False  # somebody took it away
                raise
            for name in digest:
                if make:
                    owned.make_below(name, folder, mode=_PRIVATE)
                folder = stack.enter_context(owned.opened(name, fail=_foreign, below=folder))
            yield folder

    def _refused(self, reason: str) -> StoreError:
        return StoreError(f"no cache: {reason.removeprefix(f'{self._folder}: ')}", url=str(self._folder))

    # Room.

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
            if file.name != _OBJECT and self._dropped(file):
                free += file.size
        return free

    def _dropped(self, file: _File) -> bool:
        try:
            with self._object(file.folder) as folder:
                dropped = _unlinked(file.name, folder)
                is_empty = all(name == _OBJECT for name in _files(folder))
                if is_empty:
                    _unlinked(_OBJECT, folder)
        except FileNotFoundError:  # another process was faster
            return True
        except OSError:
            return False
        if is_empty:
            with contextlib.suppress(OSError):
                self._folder.joinpath(*file.folder).rmdir()
        return dropped

    def _files(self) -> Iterator[_File]:
        """All that is here; what killed processes left is removed on the way."""
        for digest in self._objects():
            with contextlib.suppress(OSError), self._object(digest) as folder:
                for name in _files(folder):
                    with contextlib.suppress(OSError):
                        if name.endswith(PART) and is_abandoned(name, folder):
                            _unlinked(name, folder)
                            continue
                        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        yield _File(status.st_mtime_ns, status.st_size, digest, name)

    def _objects(self) -> Iterator[tuple[str, str]]:
        with contextlib.suppress(OSError):
            for first in _folders(self._folder, 2):
                for second in _folders(self._folder / first, 30):
                    yield first, second


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def _folders(path: Path, digits: int) -> list[str]:
    with os.scandir(path) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [name for name in found if re.fullmatch(rf"[0-9a-f]{{{digits}}}", name)]


def _files(folder: int) -> list[str]:
    """The names of our own files in an open folder of an object."""
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return [name for name in found if _BLOCKS.files.fullmatch(name)]


def _unlinked(name: str, folder: int) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _foreign(reason: str) -> OSError:
    return OSError(reason)


def _digest_of(key: str) -> tuple[str, str]:
    """The two folders of an object."""
    digest = xxhash.xxh3_128_hexdigest(key.encode("utf-8", "surrogateescape"))
    return digest[:2], digest[2:]


def _stated(identity: Identity) -> tuple[str, str, str, int | None]:
    return identity.version, identity.etag, identity.checksum, identity.size


def _digest(identity: Identity) -> str:
    stated = "\0".join(map(str, _stated(identity)))
    return xxhash.xxh3_64_hexdigest(stated.encode("utf-8", "surrogateescape"))


def _block(place: Place) -> str:
    return f"{_digest(place.identity)}-{place.number}"


def _what(place: Place) -> str:
    return f"{place.number} {_digest(place.identity)} {place.key}"
