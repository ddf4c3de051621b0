"""Files that were written, as streams and by ranges, whether they lie in a folder or in a store."""

from __future__ import annotations

import io
import random
import time
from pathlib import Path
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.errors import TransportError
from ais_tar2tf.export.places import read_whole
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.stores import Store, open_store, split_url
from ais_tar2tf.stores.file import translated

__all__ = ["Files", "FolderFiles", "StoreFiles", "files_at"]

_BUFFER = 1 * MIB
_READ_AHEAD = 16 * MIB  # of one stream from a store


class FolderFiles:
    """Files of a local folder."""

    local: bool = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def url(self, name: str) -> str:
        return str(self._path / name)

    def stream(self, name: str) -> io.BufferedReader[Any]:
        try:
            return io.BufferedReader(io.FileIO(self._path / name), _BUFFER)
        except OSError as error:
            raise translated(error, self.url(name)) from error

    def read(self, name: str, start: int, stop: int) -> bytes:
        with self.stream(name) as file:
            file.seek(start)
            return file.read(stop - start)


class StoreFiles:
    """Files below a prefix of a store. Streams are read ahead, and go on where a connection broke."""

    local: bool = False

    def __init__(self, store: Store, prefix: str, read: Read) -> None:
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._read = read

    def url(self, name: str) -> str:
        return self._store.url(self._prefix + name)

    def stream(self, name: str) -> io.BufferedReader[Any]:
        return io.BufferedReader(_FetchedFile(self._store, self._prefix + name, self._read), _BUFFER)

    def read(self, name: str, start: int, stop: int) -> bytes:
        tried = 0
        while True:
            try:
                return read_whole(self._store, self._prefix + name, start, stop)
            except TransportError as error:
                tried += 1
                if tried >= self._read.retry.attempts:
                    raise
                time.sleep(self._read.retry.delay(tried, random.random, asked=error.retry_after))


Files = FolderFiles | StoreFiles


def files_at(where: str, read: Read, *, endpoint: str | None = None, token: str | None = None) -> Files:
    """The files of a folder or below a URL."""
    scheme, bucket, name = split_url(where)
    if scheme == "file":
        return FolderFiles(Path(name))
    return StoreFiles(open_store(scheme, bucket, read, endpoint=endpoint, token=token), name, read)


class _FetchedFile(io.RawIOBase):
    """One object, as `Fetch` brings it."""

    def __init__(self, store: Store, name: str, read: Read) -> None:
        self._fetch = Fetch(store, iter([Span(name)]), read, Account(), read_ahead_bytes=_READ_AHEAD)
        self._fetch.next_shard()
        self._block = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block and not self._ended:
            self._block = self._fetch.read()
            self._ended = not self._block
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._block = memoryview(b"")
            self._fetch.close()
        super().close()
