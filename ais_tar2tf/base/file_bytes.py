"""`FileBytes`: the bytes of an open file, which are read when somebody slices it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import NoReturn
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from ais_tar2tf.base.file_state import FileState
from ais_tar2tf.errors import ObjectChanged, StoreError, TransportError
from ais_tar2tf.native import TarLibrary, Walked

__all__ = ["FileBytes", "raise_unread"]


class FileBytes:
    """An open file, whose slices are bytes. The file stays open as long as somebody refers to this object.

    Files are not mapped into memory: a file that becomes shorter while it is mapped ends the process. A slice is read
    when it is made, and the state of the file is checked afterwards.

    Args:
        path: The path of the file.
        shown: The path as errors name it.

    Attributes:
        shown: The path as errors name it.
        state: The state of the file when it was opened.

    Raises:
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path, shown: str) -> None:
        self.shown: str = shown
        self._file = path.open("rb", buffering=0)
        self.state: FileState = self._current_state()
        _open_files[self._file.fileno()] = self

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # otherwise it could not be opened
            self._file.close()

    def __len__(self) -> int:
        return self.state.size

    def __getitem__(self, which: slice) -> bytes:
        (data,) = self.read([which.start], [which.stop - which.start])
        return data

    @property
    def numbers(self) -> npt.NDArray[np.int64]:
        """The descriptor and the state of the file, as the native operation reads them."""
        state = self.state
        others = [int(number, 16) for number in state.others.split(".")]
        known = (state.device, state.inode, state.size, state.modified, state.status_changed, *others)
        return np.array([number % 2**64 for number in (self._file.fileno(), *known)], np.uint64).view(np.int64)

    def readinto(self, buffer: memoryview, start: int) -> int:
        """Read bytes from `start` on into a buffer; return their number, which is 0 at the end of the file."""
        with self._errors():
            count = os.preadv(self._file.fileno(), [buffer], start)
        self.check()
        return count

    def read(self, starts: list[int], sizes: list[int]) -> list[bytes]:
        """Return the bytes of some ranges.

        Raises:
            TransportError: A range cannot be read.
            ObjectChanged: Somebody wrote to the file since it was opened.
        """
        pread, descriptor = os.pread, self._file.fileno()
        with self._errors():
            found = [pread(descriptor, size, start) for start, size in zip(starts, sizes, strict=True)]
            if [*map(len, found)] != sizes:  # the file has become shorter, or a range has more than 2 GiB
                found = [self._read(start, size) for start, size in zip(starts, sizes, strict=True)]
        self.check()
        return found

    def walk(self, library: TarLibrary, start: int, stop: int, enough: int, **most: int) -> Walked | None:
        """Find members of a tar without reading their bodies; see `TarLibrary.walk_file`.

        Raises:
            ObjectChanged: Somebody wrote to the file since it was opened.
        """
        found = library.walk_file(self._file.fileno(), start, stop, enough, **most)
        self.check()
        return found

    def check(self) -> None:
        """Raise ObjectChanged if somebody wrote to the file since it was opened."""
        now = self._current_state()
        if now != self.state and (difference := self.state.difference(now)):
            raise ObjectChanged(
                f"the file was written to while it was read: {difference}; start this shard again", url=self.shown
            )

    def _read(self, start: int, size: int) -> bytes:
        data = bytearray(size)
        done = 0
        while done < size:  # the system reads at most 2 GiB at once
            count = os.preadv(self._file.fileno(), [memoryview(data)[done:]], start + done)
            if not count:
                self.check()
                raise TransportError(f"it ended {size - done:,} bytes early", url=self.shown)
            done += count
        return bytes(data)

    def _current_state(self) -> FileState:
        return FileState.from_stat(os.fstat(self._file.fileno()))

    @contextlib.contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            raise TransportError(f"reading failed ({error})", url=self.shown) from error


_open_files: WeakValueDictionary[int, FileBytes] = WeakValueDictionary()  # by their descriptors


def raise_unread(descriptors: Iterable[int]) -> NoReturn:
    """Raise the error for open files that the native operation could not read.

    Raises:
        ObjectChanged: Somebody wrote to one of the files since it was opened.
        TransportError: The files are unchanged.
    """
    files = [_open_files[int(descriptor)] for descriptor in descriptors]
    for file in files:
        file.check()
    raise TransportError("reading failed", url=", ".join(file.shown for file in files))
