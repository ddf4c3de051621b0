"""Read files of an export as streams and by ranges, from a folder or from a store.

`bound` binds files to their entries in a manifest. Reading a bound file fails if it has another length than the
manifest states, or if it was replaced since it was bound (in a store: since it was first read).
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ais_tar2tf.base.file_state import FileState
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.monitoring.waits import repeat_and_report
from ais_tar2tf.errors import ObjectChanged, StoreError
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.recordfiles.formats.base import RecordFile
from ais_tar2tf.stores import Body, Identity, Store, TokenSource, open_store, split_url
from ais_tar2tf.stores.file import file_error

__all__ = ["Files", "FolderFiles", "StoreFiles", "files_at"]

_BUFFER = 1 * MIB
_READ_AHEAD = 16 * MIB  # for each stream from a store
_AGAIN = "load the export again"


class FolderFiles:
    """Files of a local folder."""

    local: bool = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bound: dict[str, tuple[RecordFile, FileState]] = {}

    def url(self, name: str) -> str:
        """Return the path or URL of a file."""
        return str(self._path / name)

    def bound(self, described: Iterable[RecordFile]) -> FolderFiles:
        """Return the same files, bound to their entries in a manifest and to their present state."""
        files = FolderFiles(self._path)
        for each in described:
            with contextlib.suppress(OSError):  # reading the file raises this error again
                state = FileState.from_stat((self._path / each.name).stat())
                files._bound[each.name] = (each, state)
        return files

    def check(self, name: str) -> None:
        """Raise ObjectChanged if a bound file has been replaced."""
        if name in self._bound:
            try:
                self._check_state(name, (self._path / name).stat())
            except OSError as error:
                raise file_error(error, self.url(name)) from error

    check_remote = check

    def raw(self, name: str) -> io.RawIOBase:
        """Open a file as an unbuffered stream."""
        try:
            file = _WatchedFile(self._path / name, lambda status: self._check_state(name, status))
        except OSError as error:
            raise file_error(error, self.url(name)) from error
        try:
            file.check()
        except StoreError:
            file.close()
            raise
        return file

    def stream(self, name: str) -> io.BufferedReader[Any]:
        """Open a file as a buffered stream."""
        return io.BufferedReader(self.raw(name), _BUFFER)

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes of a file from `start` to `stop`."""
        with self.stream(name) as file:
            file.seek(start)
            return file.read(stop - start)

    def _check_state(self, name: str, status: os.stat_result) -> None:
        if name not in self._bound:
            return
        described, bound_state = self._bound[name]
        difference = bound_state.difference(FileState.from_stat(status))
        if difference:
            raise ObjectChanged(
                f"the file was replaced or written to since the export was loaded: {difference}; {_AGAIN}",
                url=self.url(name),
            )
        _check_size(described, bound_state.size, self.url(name))


class _WatchedFile(io.FileIO):
    """A local file whose state is checked after every read."""

    def __init__(self, path: Path, check: Callable[[os.stat_result], None]) -> None:
        super().__init__(path)
        self._check = check

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer) or 0
        self.check()
        return count

    def check(self) -> None:
        self._check(os.fstat(self.fileno()))


class StoreFiles:
    """Files below a prefix of a store. Streams are read ahead, and resumed after a broken connection."""

    local: bool = False

    def __init__(self, store: Store, prefix: str, read: Read) -> None:
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._read = read
        self._described: dict[str, RecordFile] = {}
        self._identities: dict[str, Identity] = {}  # of bound files, from their first read on

    def url(self, name: str) -> str:
        """Return the path or URL of a file."""
        return self._store.url(self._prefix + name)

    def bound(self, described: Iterable[RecordFile]) -> StoreFiles:
        """Return the same files, bound to their entries in a manifest."""
        files = StoreFiles(self._store, self._prefix, self._read)
        files._described = {each.name: each for each in described}
        return files

    def check(self, name: str) -> None:
        """Do nothing: each read checks the file itself, without another request."""

    def check_remote(self, name: str) -> None:
        """Ask the store whether a bound file has been replaced; if so, raise ObjectChanged."""
        found = self._store.head(self._prefix + name).identity
        if name in self._identities:
            self._identities[name].check(found, self.url(name))
        self._note(name, found)

    def raw(self, name: str) -> io.RawIOBase:
        """Open a file as an unbuffered stream."""
        return _FetchedFile(
            self._store,
            ShardRange(self._prefix + name, identity=self._identities.get(name, Identity())),
            self._read,
            lambda found: self._note(name, found),
        )

    def stream(self, name: str) -> io.BufferedReader[Any]:
        """Open a file as a buffered stream."""
        return io.BufferedReader(self.raw(name), _BUFFER)

    def read(self, name: str, start: int, stop: int) -> bytes:
        """Return the bytes of a file from `start` to `stop`."""
        return repeat_and_report(lambda: self._read_once(name, start, stop), self._read.retry, self.url(name))

    def _read_once(self, name: str, start: int, stop: int) -> bytes:
        with contextlib.closing(self._store.open(self._prefix + name, start, stop)) as body:
            identity = self._identities.get(name)
            if identity is not None:
                identity.prove(body.info.identity, self.url(name))
            self._note(name, body.info.identity)
            return _range_of(body, start, stop, self.url(name))

    def _note(self, name: str, found: Identity) -> None:
        """Store the identity of a bound file at its first read."""
        described = self._described.get(name)
        if described is not None:
            _check_size(described, found.size, self.url(name))
            self._identities.setdefault(name, replace(found, fingerprint=""))


Files = FolderFiles | StoreFiles


def files_at(where: str, read: Read, *, endpoint: str | None = None, token: TokenSource | None = None) -> Files:
    """Return the files in a folder or below a URL."""
    scheme, bucket, name = split_url(where)
    if scheme == "file":
        return FolderFiles(Path(name))
    return StoreFiles(open_store(scheme, bucket, read, endpoint=endpoint, token=token), name, read)


def _check_size(described: RecordFile, size: int | None, url: str) -> None:
    is_known = bool(described.checksum)  # other programs' documents may state no length
    if is_known and size is not None and size != described.bytes:
        raise ObjectChanged(
            f"the file has {size:,} bytes, and its manifest says {described.bytes:,}: it was replaced since that was "
            f"written, or is damaged; {_AGAIN}, or verify() says more",
            url=url,
        )


def _range_of(body: Body, start: int, stop: int, url: str) -> bytes:
    """Return the bytes from `start` to `stop`. A store without range requests also sends the bytes before `start`."""
    data, at = bytearray(), body.start
    buffer = memoryview(bytearray(min(_BUFFER, stop - at)))
    while at < stop:
        count = body.readinto(buffer[: stop - at])
        if not count:
            raise StoreError(f"the object ends before byte {stop:,}", url=url)
        data += buffer[max(0, start - at) : count]
        at += count
    return bytes(data)


class _FetchedFile(io.RawIOBase):
    """A stream of one object, downloaded by a `Fetcher`.

    `on_identity` is called with the identity of the object when its first bytes have arrived.
    """

    def __init__(self, store: Store, span: ShardRange, read: Read, on_identity: Callable[[Identity], None]) -> None:
        self._fetch = Fetcher(store, iter([span]), read, Account(), read_ahead_bytes=_READ_AHEAD)
        self._fetch.next_shard()
        self._on_identity = on_identity
        self._begun = False
        self._block = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block and not self._ended:
            self._block = self._fetch.read()
            self._ended = not self._block
            if not self._begun:
                self._begun = True
                self._on_identity(self._fetch.identity)
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._block = memoryview(b"")
            self._fetch.close()
        super().close()
