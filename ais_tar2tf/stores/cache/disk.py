"""A block cache in a folder that processes may share.

dir/.ais_tar2tf                  marks the folder as ours; any other folder that is not empty is refused
dir/ab/cdef…/object.json         the identity of one object; its time of modification says when that was confirmed
dir/ab/cdef…/0123456789abcdef-7  block 7 of a content; `.….part` while it is written

`ab` and `cdef…` are the digest of the object's key, `0123456789abcdef` that of the content's identity. Files are
private to the user, never reached through links, and deleted only under names of this layout.
"""

from __future__ import annotations

import contextlib
import os
import re
import weakref
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf.base import forking
from ais_tar2tf.base.documents import folders as owned
from ais_tar2tf.base.documents.folders import Layout
from ais_tar2tf.base.documents.sealed import OPEN, document_bytes, parse_document, read_handle
from ais_tar2tf.base.documents.structure import fields, row, text, whole
from ais_tar2tf.errors import StoreError, Tar2TFError
from ais_tar2tf.options import Limits
from ais_tar2tf.stores import Identity
from ais_tar2tf.stores.cache.block_cache import BlockId, Confirmed, DamagedBlock
from ais_tar2tf.stores.cache.block_file import PART, BlockFileReader, BlockFileWriter, delete_abandoned, new_part
from ais_tar2tf.stores.cache.download import Downloads

__all__ = ["DiskBlockCache"]

_OBJECT = "object.json"
_CLAIMED_PART = 4  # a process claims a quarter of the free room before it looks again at what others have written
_EVICTED_PART = 16  # eviction makes at least a sixteenth of the bound free
_PRIVATE = 0o700
_NOTHING = re.compile(r"(?!)")
_BLOCKS = Layout(re.compile(r"object\.json|[0-9a-f]{16}-\d+|\.[0-9a-f]{16}(\.json)?\.part"))
_OBSTRUCTION = re.compile(r"[0-9a-f]{2}")  # a file in the place of a folder of ours: it stays, and caches nothing
_LAYOUT = Layout(
    _OBSTRUCTION, ((re.compile(r"[0-9a-f]{2}"), Layout(_NOTHING, ((re.compile(r"[0-9a-f]{30}"), _BLOCKS),))),)
)
_DOCUMENT = fields({"identity": row(text, text, text, whole())}, {"key": text, "object": text}, strict=True)


_downloads: weakref.WeakValueDictionary[str, Downloads] = weakref.WeakValueDictionary()  # by folder


@dataclass(frozen=True, slots=True)
class _CachedFile:
    """A file of the cache, as a sweep finds it."""

    last_used: int  # in nanoseconds
    size: int
    digest: tuple[str, str]  # of its object
    name: str


class DiskBlockCache:
    """A `BlockCache` in a folder.

    Raises:
        StoreError: The folder holds files that are not ours.
    """

    def __init__(self, folder: str | os.PathLike[str], bound: int) -> None:
        self._folder = Path(os.path.realpath(Path(folder).expanduser()))
        self.bound: int = bound
        self._lock = forking.lock()
        self._claimed_bytes = 0  # may be written before the next sweep
        self.downloads: Downloads = _downloads.setdefault(str(self._folder), Downloads())
        self._is_marked = False
        with contextlib.suppress(OSError):  # an unusable folder caches nothing, and everything comes from the store
            owned.check(self._folder, _LAYOUT, fail=self._refused)

    def __repr__(self) -> str:
        return f"DiskBlockCache({self._folder})"

    def confirmed(self, key: str) -> Confirmed | None:
        digest = _digest_of(key)
        try:
            with self._opened(digest) as folder:
                handle = os.open(_OBJECT, OPEN | os.O_NOFOLLOW, dir_fd=folder)
                time = os.fstat(handle).st_mtime
                where = f"{self._folder}/{digest[0]}/{digest[1]}/{_OBJECT}"
                most = Limits().document_bytes
                data = read_handle(handle, most=most, limit="document_bytes", where=where, fail=DamagedBlock)
                found: dict[str, Any] = parse_document(data, _DOCUMENT, where=where, fail=DamagedBlock)
        except (OSError, Tar2TFError):
            return None
        if found.get("key") != key and found.get("object") != "".join(digest):  # earlier versions wrote the key
            return None
        return Confirmed(Identity(*found["identity"]), time)

    def confirm(self, key: str, identity: Identity) -> None:
        before, digest = self.confirmed(key), _digest_of(key)
        document = {"object": "".join(digest), "identity": [*_kept_fields(identity)]}
        with self._opened(digest, make=True) as folder:
            if before is not None and before.identity == identity:
                os.utime(_OBJECT, dir_fd=folder, follow_symlinks=False)
                return
            temporary, handle = new_part(folder, f".json{PART}")  # locked, so that no sweep deletes it
            with open(handle, "wb") as file:  # noqa: PTH123  # an open file
                file.write(document_bytes(document, indent=None))
                file.flush()
                os.replace(temporary, _OBJECT, src_dir_fd=folder, dst_dir_fd=folder)

    def forget(self, key: str) -> None:
        with contextlib.suppress(OSError), self._opened(_digest_of(key)) as folder:
            for name in _files(folder):
                if not name.endswith(PART):
                    _delete(name, folder)

    def has(self, block: BlockId) -> bool:
        return self._path(block).exists()

    def reader(self, block: BlockId) -> BlockFileReader:
        return BlockFileReader(self._path(block), block.length, _label(block))

    def writer(self, block: BlockId) -> BlockFileWriter | None:
        if not self._has_room(block.length):
            return None
        with self._opened(_digest_of(block.content.key), make=True) as folder:
            return BlockFileWriter(folder, _file_name(block), _label(block))

    def discard(self, block: BlockId) -> None:
        with contextlib.suppress(OSError), self._opened(_digest_of(block.content.key)) as folder:
            _delete(_file_name(block), folder)

    def _path(self, block: BlockId) -> Path:
        return self._folder.joinpath(*_digest_of(block.content.key), _file_name(block))

    @contextlib.contextmanager
    def _opened(self, digest: tuple[str, str], *, make: bool = False) -> Generator[int]:
        """Yield a descriptor of an object's folder, which is reached through no link."""
        if make and not self._is_marked:
            owned.claim(self._folder, _LAYOUT, fail=OSError, mode=_PRIVATE)
            self._is_marked = True
        with contextlib.ExitStack() as stack:
            try:
                folder = stack.enter_context(owned.opened(self._folder, fail=OSError))
            except FileNotFoundError:
                self._is_marked = False  # somebody deleted the folder
                raise
            for name in digest:
                if make:
                    owned.make_below(name, folder, mode=_PRIVATE)
                folder = stack.enter_context(owned.opened(name, fail=OSError, below=folder))
            yield folder

    def _refused(self, reason: str) -> StoreError:
        return StoreError(f"no cache: {reason.removeprefix(f'{self._folder}: ')}", url=str(self._folder))

    def _has_room(self, size: int) -> bool:
        """Claim room for a block. Claims are larger than a block, because a sweep looks at every file."""
        with self._lock:
            if self._claimed_bytes < size:
                free = self._sweep(size)
                self._claimed_bytes = max(free // _CLAIMED_PART, size) if free >= size else 0
            if self._claimed_bytes < size:
                return False
            self._claimed_bytes -= size
            return True

    def _sweep(self, size: int) -> int:
        """Evict the least recently used blocks unless `size` bytes are free; return how many are free then."""
        files = sorted(self._files(), key=lambda file: file.last_used)
        free = self.bound - sum(file.size for file in files)
        wanted = max(size, self.bound // _EVICTED_PART)
        for file in files if free < size else ():
            if free >= wanted:
                break
            if file.name != _OBJECT and self._evict(file):
                free += file.size
        return free

    def _evict(self, file: _CachedFile) -> bool:
        """Delete a block, and with the last block the folder of its object; return whether the block is gone."""
        try:
            with self._opened(file.digest) as folder:
                is_gone = _delete(file.name, folder)
                is_empty = all(name == _OBJECT for name in _files(folder))
                if is_empty:
                    _delete(_OBJECT, folder)
        except FileNotFoundError:  # another process was faster
            return True
        except OSError:
            return False
        if is_empty:
            with contextlib.suppress(OSError):
                self._folder.joinpath(*file.digest).rmdir()
        return is_gone

    def _files(self) -> Iterator[_CachedFile]:
        """Yield all files, and delete temporary files that killed processes left."""
        for digest in self._digests():
            with contextlib.suppress(OSError), self._opened(digest) as folder:
                for name in _files(folder):
                    with contextlib.suppress(OSError):
                        if name.endswith(PART) and delete_abandoned(name, folder):
                            continue
                        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        yield _CachedFile(status.st_mtime_ns, status.st_size, digest, name)

    def _digests(self) -> Iterator[tuple[str, str]]:
        """Yield the digest of each object that has a folder."""
        with contextlib.suppress(OSError):
            for first in _folders(self._folder, 2):
                for second in _folders(self._folder / first, 30):
                    yield first, second


def _folders(path: Path, digits: int) -> list[str]:
    with os.scandir(path) as entries:
        found = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return [name for name in found if re.fullmatch(rf"[0-9a-f]{{{digits}}}", name)]


def _files(folder: int) -> list[str]:
    """Return the names of our own files in an open folder of an object."""
    with os.scandir(folder) as entries:
        found = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
    return [name for name in found if _BLOCKS.files.fullmatch(name)]


def _delete(name: str, folder: int) -> bool:
    """Delete a file of an open folder; return whether it is gone."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _digest_of(key: str) -> tuple[str, str]:
    """Return the names of the two nested folders of an object."""
    digest = xxhash.xxh3_128_hexdigest(key.encode("utf-8", "surrogateescape"))
    return digest[:2], digest[2:]


def _kept_fields(identity: Identity) -> tuple[str, str, str, int | None]:
    return identity.version, identity.etag, identity.checksum, identity.size


def _identity_digest(identity: Identity) -> str:
    fields = "\0".join(map(str, _kept_fields(identity)))
    return xxhash.xxh3_64_hexdigest(fields.encode("utf-8", "surrogateescape"))


def _file_name(block: BlockId) -> str:
    return f"{_identity_digest(block.content.identity)}-{block.number}"


def _label(block: BlockId) -> str:
    return f"{block.number} {_identity_digest(block.content.identity)} {block.content.key}"
