"""The file of one block: its bytes, and a checksum of every page of them, so that a part can be read and trusted.

length bytes     the data
u8 × pages       xxh3 of every 64 KiB of it, little-endian
u8               xxh3 of these, of the length and of what the block is of: a file in another's place is found, too
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import struct
from pathlib import Path

import xxhash

from ais_tar2tf.cache._shelf import Damaged
from ais_tar2tf.options import KIB

__all__ = ["PART", "FileReader", "FileWriter", "is_abandoned"]

PART = ".part"
_PAGE = 64 * KIB  # what has to be read to check one byte
_SUM = struct.Struct("<Q")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def _pages(length: int) -> int:
    return -(-length // _PAGE)


def _seal(table: bytes, length: int, what: str) -> bytes:
    return _SUM.pack(xxhash.xxh3_64_intdigest(table + _SUM.pack(length) + what.encode()))


class FileWriter:
    """Writes beside, renames when the block is whole. A lock says that the writer lives; the kernel lifts it.

    `folder` is open, and is opened once more for as long as this writes.
    """

    def __init__(self, folder: int, name: str, what: str) -> None:
        self._name = name
        self._what = what
        self._beside = f".{secrets.token_hex(8)}{PART}"
        handle = os.open(self._beside, _NEW, 0o600, dir_fd=folder)
        self._file = open(handle, "wb", buffering=0)  # noqa: PTH123, SIM115  # closed by commit or abort
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._folder = os.dup(folder)
        except BaseException:
            self._file.close()
            raise
        self._length = 0
        self._sums: list[int] = []
        self._running = xxhash.xxh3_64()

    def add(self, data: memoryview) -> None:
        _write_all(self._file.fileno(), data)
        at = 0
        while at < len(data):
            piece = data[at : at + _PAGE - self._length % _PAGE]
            self._running.update(piece)
            self._length += len(piece)
            at += len(piece)
            if self._length % _PAGE == 0:
                self._end_page()

    def commit(self) -> None:
        if self._length % _PAGE:
            self._end_page()
        table = struct.pack(f"<{len(self._sums)}Q", *self._sums)
        _write_all(self._file.fileno(), memoryview(table + _seal(table, self._length, self._what)))
        self._file.close()
        os.replace(self._beside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._close_folder()

    def abort(self) -> None:
        self._file.close()
        if self._folder >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._beside, dir_fd=self._folder)
            self._close_folder()

    def _close_folder(self) -> None:
        os.close(self._folder)
        self._folder = -1

    def _end_page(self) -> None:
        self._sums.append(self._running.intdigest())
        self._running.reset()


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def is_abandoned(name: str, folder: int) -> bool:
    """Whether the process that wrote this file of an open folder is gone."""
    try:
        with open(os.open(name, _READ, dir_fd=folder), "rb") as file:  # noqa: PTH123  # an open file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class FileReader:
    """A block's bytes, each page of them checked."""

    def __init__(self, path: Path, length: int, what: str) -> None:
        self._length = length
        self._scratch: bytes = b""
        self._scratch_page = -1
        self._file = open(os.open(path, _READ), "rb", buffering=0)  # noqa: PTH123, SIM115  # closed by close
        with contextlib.suppress(OSError):  # on a disk for reading only, blocks age
            os.utime(self._file.fileno())  # it is young again
        try:
            self._sums = self._table(what)
        except BaseException:
            self._file.close()
            raise

    def _table(self, what: str) -> tuple[int, ...]:
        pages = _pages(self._length)
        size = _SUM.size * (pages + 1)
        if os.fstat(self._file.fileno()).st_size != self._length + size:
            raise Damaged("the block has another length")
        data = os.pread(self._file.fileno(), size, self._length)
        table, seal = data[: -_SUM.size], data[-_SUM.size :]
        if seal != _seal(table, self._length, what):
            raise Damaged("the block's checksums are damaged")
        return struct.unpack(f"<{pages}Q", table)

    def read(self, at: int, buffer: memoryview) -> int:
        page, within = divmod(at, _PAGE)
        left = self._length - page * _PAGE
        if within or len(buffer) < min(_PAGE, left):
            return self._read_within(page, within, buffer)
        whole = buffer[:left] if len(buffer) >= left else buffer[: len(buffer) // _PAGE * _PAGE]
        count = os.preadv(self._file.fileno(), [whole], at)
        if count != len(whole):
            raise Damaged("the block is cut short")
        for number, begin in enumerate(range(0, count, _PAGE), page):
            self._check(number, whole[begin : begin + _PAGE])
        return count

    def close(self) -> None:
        self._file.close()

    def _read_within(self, page: int, within: int, buffer: memoryview) -> int:
        if self._scratch_page != page:
            data = os.pread(self._file.fileno(), min(_PAGE, self._length - page * _PAGE), page * _PAGE)
            self._check(page, data)
            self._scratch, self._scratch_page = data, page
        piece = self._scratch[within : within + len(buffer)]
        buffer[: len(piece)] = piece
        return len(piece)

    def _check(self, page: int, data: bytes | memoryview) -> None:
        if xxhash.xxh3_64_intdigest(data) != self._sums[page]:
            raise Damaged("a page of the block is damaged")
