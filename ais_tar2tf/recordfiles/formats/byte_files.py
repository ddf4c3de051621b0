"""Reads and writes files of bytes: in pieces, with a checksum, or mapped into memory.

A thread writes encoded records while the caller encodes the next records. This module must not know any file format.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import shutil
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf.base.forking import at_fork
from ais_tar2tf.errors import ChecksumMismatch
from ais_tar2tf.options import KIB

__all__ = ["ConcatenatedWriter", "HashedStream", "PiecesFile", "checksum_of", "copy_stream", "mapped_file"]

_ALGORITHM = "xxh3-128"
_READ_BYTES = 1 << 20
# Pieces whose average size is smaller than this are joined before a write: copying them is faster than passing each
# piece to the system.
_LARGE_PIECE_BYTES = 4_096
_MAX_PIECES = 512  # pieces in one call of writev; Linux allows 1,024
_MIN_DEFERRED_BYTES = 256 * KIB  # to write fewer bytes costs less than to hand them over to the thread
_PENDING_WRITES = 2  # the write in progress and the next write, of some 2 MB each


class PiecesFile:
    """A file that is written piece by piece. Small pieces are joined. Large pieces are not copied.

    Args:
        path: The file.
        overwrite: True: overwrite an existing file from its start; bytes of the old file after the last written byte
            stay. False: create the file, or empty an existing file.
        hashed: Compute `digest`, the hash of all written bytes.
    """

    def __init__(self, path: Path, *, overwrite: bool = False, hashed: bool = True) -> None:
        self._file = path.open("r+b" if overwrite else "wb", buffering=0)
        self.digest: xxhash.xxh3_128 | None = xxhash.xxh3_128() if hashed else None

    def write(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Append `pieces` to the file."""
        if sum(map(len, pieces)) < _LARGE_PIECE_BYTES * len(pieces):
            pieces = [b"".join(pieces)]
        for begin in range(0, len(pieces), _MAX_PIECES):
            self._write(pieces[begin : begin + _MAX_PIECES])

    def _write(self, pieces: Sequence[bytes | memoryview]) -> None:
        if self.digest is not None:
            for piece in pieces:
                self.digest.update(piece)
        total = sum(map(len, pieces))
        written = os.writev(self._file.fileno(), pieces)
        if written < total:  # happens after a signal, or when the disk is nearly full
            rest = memoryview(b"".join(pieces))[written:]
            while rest:
                rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        self._file.close()


class ConcatenatedWriter:
    """Writes encoded records to a file, one after another.

    Args:
        path: The file.
        end: The bytes that follow the last record, such as the end mark of a tar.
    """

    def __init__(self, path: Path, end: bytes) -> None:
        self._file = PiecesFile(path)
        self._write_behind = _WriteBehind(self._file.write)
        self._end = end

    def append(self, pieces: Sequence[bytes | memoryview], sizes: Sequence[int]) -> None:
        del sizes  # the writers of other formats need the sizes of records
        self._write_behind.add(pieces)

    def close(self) -> str:
        """Write the end of the file, close the file, and return its checksum."""
        self._write_behind.drain()
        if self._end:
            self._file.write([self._end])
        self.abandon()  # only closes the file, because everything is written
        assert self._file.digest is not None
        return f"{_ALGORITHM}:{self._file.digest.hexdigest()}"

    def abandon(self) -> None:
        """Close the file without finishing it. Pending writes are cancelled."""
        self._write_behind.close()
        self._file.close()


class _WriteBehind:
    """Calls `write` once for each call of `add`, in the same order. Large writes run in a thread.

    An error of a write in the thread is raised by a later call of `add` or `drain`.
    """

    def __init__(self, write: Callable[[Sequence[bytes | memoryview]], None]) -> None:
        self._write = write
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()
        at_fork(self)

    def forked(self) -> None:
        """Drop the thread and its writes in a forked child, because the child has no such thread."""
        self._pool = None
        self._pending.clear()

    def add(self, pieces: Sequence[bytes | memoryview]) -> None:
        """Write `pieces`, now or later.

        Pieces of `_MIN_DEFERRED_BYTES` or more in all are written later, in the thread. Fewer bytes are written
        before this method returns. Memoryviews of any size are also written before this method returns, because the
        caller may release their memory afterwards.
        """
        deferred = not isinstance(pieces[0], memoryview) and sum(map(len, pieces)) >= _MIN_DEFERRED_BYTES
        if not deferred:
            self.drain()
            self._write(pieces)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="ais_tar2tf-write")
        while len(self._pending) >= _PENDING_WRITES:
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._write, pieces))

    def drain(self) -> None:
        """Wait until all added pieces are written."""
        while self._pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """End the thread. Writes that have not begun are cancelled."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


class HashedStream(io.RawIOBase):
    """A stream that counts and hashes the bytes read from it.

    Args:
        stream: The stream to read from.
        on_read: Called with the number of bytes of each read.
    """

    def __init__(self, stream: io.RawIOBase, on_read: Callable[[int], None] = lambda _: None) -> None:
        self._stream = stream
        self._on_read = on_read
        self._digest = xxhash.xxh3_128()
        self.size: int = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        self.size += count
        self._on_read(count)
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()

    def check(self, expected: str, url: str) -> None:
        """Compare the checksum of all bytes that were read with the checksum in a manifest.

        Args:
            expected: The checksum in the manifest. If it is empty, nothing is compared.
            url: The URL of the file, for the error.

        Raises:
            ChecksumMismatch: The checksums differ.
        """
        found = f"{_ALGORITHM}:{self._digest.hexdigest()}"
        if expected and found != expected:
            raise ChecksumMismatch(
                f"the file's checksum is {found}, not {expected}: it was replaced since its "
                "manifest was written, or is damaged",
                url=url,
            )


def copy_stream(stream: io.BufferedReader[Any], folder: Path) -> Path:
    """Copy a stream to a file in `folder`, and return the file's path, for libraries that read only from a path."""
    path = folder / "file"
    with path.open("wb") as copy:
        shutil.copyfileobj(stream, copy, _READ_BYTES)
    return path


@contextlib.contextmanager
def mapped_file(path: str | Path) -> Generator[Any]:
    """Yield the bytes of a file, mapped into memory."""
    with Path(path).open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def checksum_of(path: Path) -> str:
    """Return the checksum of a file as `ALGORITHM:HEX`."""
    digest = xxhash.xxh3_128()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return f"{_ALGORITHM}:{digest.hexdigest()}"
