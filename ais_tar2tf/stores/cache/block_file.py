"""Reads and writes the file of one cached block. Each page has a checksum, so a part can be read and verified.

The file has this layout:

length bytes       the data of the block, in pages of 64 KiB; the last page may be shorter
8 bytes × pages    the xxh3 of each page, little-endian
8 bytes            the seal: the xxh3 of the pages' checksums, the length, and the label of the block

The label names the block. A reader computes the seal with the label of the block that it expects, so it refuses the
file of another block. This module must not decide which blocks are cached or evicted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
from pathlib import Path

import xxhash

from ais_tar2tf.options import KIB
from ais_tar2tf.stores.cache.block_cache import DamagedBlock

__all__ = ["PART", "BlockFileReader", "BlockFileWriter", "delete_abandoned", "new_part"]

PART = ".part"
"""The suffix of files that are being written."""

_PAGE = 64 * KIB  # the smallest part that can be verified
_CHECKSUM = struct.Struct("<Q")
_TRIES = 10  # how many temporary files are created until one is locked before a sweep finds it
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _seal(table: bytes, length: int, label: str) -> bytes:
    return _CHECKSUM.pack(xxhash.xxh3_64_intdigest(table + _CHECKSUM.pack(length) + label.encode()))


class BlockFileWriter:
    """A writer of one block. It writes a temporary file, which gets its final name when the block is complete.

    The writer keeps the temporary file locked. When the writer's process ends, the kernel unlocks the file. From then
    on, `delete_abandoned` deletes the file.

    Args:
        folder: A descriptor of the open folder that gets the file. The writer duplicates the descriptor.
        name: The final name of the file.
        label: Names the block, and is part of the seal.
    """

    def __init__(self, folder: int, name: str, label: str) -> None:
        self._name = name
        self._label = label
        self._folder = os.dup(folder)
        try:
            self._temporary, handle = new_part(folder)
        except BaseException:
            os.close(self._folder)
            raise
        self._file = open(handle, "wb", buffering=0)  # noqa: PTH123, SIM115  # closed by commit or abort
        self._length = 0
        self._checksums: list[int] = []
        self._page_hash = xxhash.xxh3_64()

    def add(self, data: memoryview) -> None:
        _write_all(self._file.fileno(), data)
        while data:
            piece = data[: _PAGE - self._length % _PAGE]
            self._page_hash.update(piece)
            self._length += len(piece)
            data = data[len(piece) :]
            if self._length % _PAGE == 0:
                self._end_page()

    def commit(self) -> None:
        if self._length % _PAGE:
            self._end_page()
        table = struct.pack(f"<{len(self._checksums)}Q", *self._checksums)
        _write_all(self._file.fileno(), memoryview(table + _seal(table, self._length, self._label)))
        self._file.close()
        os.replace(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._close_folder()

    def abort(self) -> None:
        self._file.close()
        if self._folder >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary, dir_fd=self._folder)
            self._close_folder()

    def _close_folder(self) -> None:
        os.close(self._folder)
        self._folder = -1

    def _end_page(self) -> None:
        self._checksums.append(self._page_hash.intdigest())
        self._page_hash.reset()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def new_part(folder: int, suffix: str = PART) -> tuple[str, int]:
    """Create a temporary file, lock it, and return its name and its descriptor. `folder` is a descriptor, too.

    Before the file is locked, a sweep can take it for abandoned and delete it. If so, another file is created.

    Raises:
        OSError: The file cannot be created or locked.
    """
    for _ in range(_TRIES - 1):
        with contextlib.suppress(BlockingIOError):  # a sweep has locked the file, and deletes it
            name, handle = _new_locked(folder, suffix)
            if os.fstat(handle).st_nlink:
                return name, handle
            os.close(handle)
    return _new_locked(folder, suffix)


def _new_locked(folder: int, suffix: str) -> tuple[str, int]:
    name = f".{secrets.token_hex(8)}{suffix}"
    handle = os.open(name, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        os.close(handle)
        raise
    return name, handle


def delete_abandoned(name: str, folder: int) -> bool:
    """Delete a temporary file that no process writes any more; return whether no process writes it.

    The file is deleted while it is locked, so that `new_part` notices this. `folder` is a descriptor of the open
    folder.
    """
    try:
        with open(os.open(name, _READ, dir_fd=folder), "rb") as file:  # noqa: PTH123  # opens a descriptor
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


class BlockFileReader:
    """A reader of the file of one block. Each page is verified before any of its bytes is returned.

    Raises:
        OSError: The file cannot be opened.
        DamagedBlock: The file has another length than expected, or its seal is not the seal of this block.
    """

    def __init__(self, path: Path, length: int, label: str) -> None:
        self._length = length
        self._page = b""  # the whole page from which a part was returned last
        self._page_number = -1
        self._file = open(os.open(path, _READ), "rb", buffering=0)  # noqa: PTH123, SIM115  # closed by close
        with contextlib.suppress(OSError):  # fails on a read-only disk
            os.utime(self._file.fileno())  # sets the time of last use, by which blocks are evicted
        try:
            self._checksums = self._read_table(label)
        except BaseException:
            self._file.close()
            raise

    def _read_table(self, label: str) -> tuple[int, ...]:
        pages = -(-self._length // _PAGE)
        size = _CHECKSUM.size * (pages + 1)
        if os.fstat(self._file.fileno()).st_size != self._length + size:
            raise DamagedBlock("the block has another length")
        data = os.pread(self._file.fileno(), size, self._length)
        table, seal = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
        if seal != _seal(table, self._length, label):
            raise DamagedBlock("the block's checksums are damaged")
        return struct.unpack(f"<{pages}Q", table)

    def read(self, offset: int, buffer: memoryview) -> int:
        page, within = divmod(offset, _PAGE)
        left = self._length - page * _PAGE
        if within or len(buffer) < min(_PAGE, left):
            return self._read_within(page, within, buffer)
        whole_pages = buffer[:left] if len(buffer) >= left else buffer[: len(buffer) // _PAGE * _PAGE]
        count = os.preadv(self._file.fileno(), [whole_pages], offset)
        if count != len(whole_pages):
            raise DamagedBlock("the block is cut short")
        for number, begin in enumerate(range(0, count, _PAGE), page):
            self._verify(number, whole_pages[begin : begin + _PAGE])
        return count

    def close(self) -> None:
        self._file.close()

    def _read_within(self, page: int, within: int, buffer: memoryview) -> int:
        """Read a part of a page. Keep the whole page, because the next read is probably in the same page."""
        if self._page_number != page:
            data = os.pread(self._file.fileno(), min(_PAGE, self._length - page * _PAGE), page * _PAGE)
            self._verify(page, data)
            self._page, self._page_number = data, page
        piece = self._page[within : within + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def _verify(self, page: int, data: bytes | memoryview) -> None:
        if xxhash.xxh3_64_intdigest(data) != self._checksums[page]:
            raise DamagedBlock("a page of the block is damaged")
