"""Files that were written, as streams and by ranges, whether they lie in a folder or in a store.

Files that were bound to their descriptions in a manifest stay the ones that it describes: of the same length, and the
same from one read to the next.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ChecksumMismatch, ObjectChanged, StoreError
from ais_tar2tf.export.manifest import RecordFile
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import MIB, Read
from ais_tar2tf.retries import repeat
from ais_tar2tf.stores import Body, Identity, Store, TokenSource, open_store, split_url
from ais_tar2tf.stores.file import FileState, translated
from ais_tar2tf.waits import Wait

__all__ = ["Files", "FolderFiles", "Hashed", "StoreFiles", "files_at"]

_BUFFER = 1 * MIB
_READ_AHEAD = 16 * MIB  # of one stream from a store
_AGAIN = "load the export again"


class Hashed(io.RawIOBase):
    """A stream whose bytes are counted and hashed while they are read; `note` is called with each count."""

    def __init__(
        self, stream: io.RawIOBase | io.BufferedIOBase, note: Callable[[int], None] = lambda _: None
    ) -> None:
        self._stream = stream
        self._note = note
        self._digest = xxhash.xxh3_128()
        self.size: int = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer) or 0
        self._digest.update(memoryview(buffer)[:count])
        self.size += count
        self._note(count)
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()

    @property
    def checksum(self) -> str:
        return f"xxh3-128:{self._digest.hexdigest()}"

    def check(self, described: RecordFile, url: str) -> None:
        """Raise ChecksumMismatch if these are not all bytes of the file that a manifest describes."""
        if described.checksum and self.checksum != described.checksum:
            raise ChecksumMismatch(
                f"the file's checksum is {self.checksum}, not {described.checksum}: it was replaced since its "
                "manifest was written, or is damaged",
                url=url,
            )


class FolderFiles:
    """Files of a local folder."""

    local: bool = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bound: dict[str, tuple[RecordFile, FileState]] = {}

    def url(self, name: str) -> str:
        return str(self._path / name)

    def bound(self, described: Iterable[RecordFile]) -> FolderFiles:
        """Return these files, each to be read only while it is the one that is there now."""
        files = FolderFiles(self._path)
        for each in described:
            with contextlib.suppress(OSError):  # reading it will tell
                state = FileState.of((self._path / each.name).stat())
                files._bound[each.name] = (each, state)
        return files

    def check(self, name: str) -> None:
        """Raise ObjectChanged if a bound file is another one now."""
        if name in self._bound:
            try:
                self._check_state(name, (self._path / name).stat())
            except OSError as error:
                raise translated(error, self.url(name)) from error

    ask = check

    def raw(self, name: str) -> io.RawIOBase:
        """The file from its start."""
        try:
            file = _WatchedFile(self._path / name, lambda status: self._check_state(name, status))
        except OSError as error:
            raise translated(error, self.url(name)) from error
        try:
            file.check()
        except StoreError:
            file.close()
            raise
        return file

    def stream(self, name: str) -> io.BufferedReader[Any]:
        return io.BufferedReader(self.raw(name), _BUFFER)

    def read(self, name: str, start: int, stop: int) -> bytes:
        with self.stream(name) as file:
            file.seek(start)
            return file.read(stop - start)

    def _check_state(self, name: str, status: os.stat_result) -> None:
        if name not in self._bound:
            return
        described, known = self._bound[name]
        difference = known.difference(FileState.of(status))
        if difference:
            raise ObjectChanged(
                f"the file was replaced or written to since the export was loaded: {difference}; {_AGAIN}",
                url=self.url(name),
            )
        _check_size(described, known.size, self.url(name))


class _WatchedFile(io.FileIO):
    """A file whose state is checked behind every read."""

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
    """Files below a prefix of a store. Streams are read ahead, and go on where a connection broke."""

    local: bool = False

    def __init__(self, store: Store, prefix: str, read: Read) -> None:
        self._store = store
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._read = read
        self._described: dict[str, RecordFile] = {}
        self._identities: dict[str, Identity] = {}  # of the files that are described, once they were read

    def url(self, name: str) -> str:
        return self._store.url(self._prefix + name)

    def bound(self, described: Iterable[RecordFile]) -> StoreFiles:
        """Return these files, each to be read only as long as it has the length that is described."""
        files = StoreFiles(self._store, self._prefix, self._read)
        files._described = {each.name: each for each in described}
        return files

    def check(self, name: str) -> None:
        """Each read checks what it reads."""

    def ask(self, name: str) -> None:
        """Raise ObjectChanged if the store says that a bound file is another one now."""
        found = self._store.head(self._prefix + name).identity
        if name in self._identities:
            self._identities[name].check(found, self.url(name))
        self._note(name, found)

    def raw(self, name: str) -> io.RawIOBase:
        """The file from its start."""
        return _FetchedFile(
            self._store,
            Span(self._prefix + name, identity=self._identities.get(name, Identity())),
            self._read,
            lambda found: self._note(name, found),
        )

    def stream(self, name: str) -> io.BufferedReader[Any]:
        return io.BufferedReader(self.raw(name), _BUFFER)

    def read(self, name: str, start: int, stop: int) -> bytes:
        with Wait(self.url(name)) as wait:
            return repeat(
                lambda: self._read_once(name, start, stop),
                self._read.retry,
                pause=time.sleep,
                draw=random.random,
                failed=wait.because,
            )

    def _read_once(self, name: str, start: int, stop: int) -> bytes:
        body = self._store.open(self._prefix + name, start, stop)
        try:
            known = self._identities.get(name)
            if known is not None:
                known.prove(body.info.identity, self.url(name))
            self._note(name, body.info.identity)
            return _range_of(body, start, stop, self.url(name))
        finally:
            body.close()

    def _note(self, name: str, found: Identity) -> None:
        """Bind the file to the content that it was first read with."""
        described = self._described.get(name)
        if described is not None:
            _check_size(described, found.size, self.url(name))
            self._identities.setdefault(name, replace(found, seen=""))


Files = FolderFiles | StoreFiles


def files_at(where: str, read: Read, *, endpoint: str | None = None, token: TokenSource | None = None) -> Files:
    """The files of a folder or below a URL."""
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
    """Return the bytes from `start` to `stop`. A store that knows no ranges sends what comes before them, too."""
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
    """One object, as `Fetch` brings it; `note` is called with its identity when its first bytes are there."""

    def __init__(self, store: Store, span: Span, read: Read, note: Callable[[Identity], None]) -> None:
        self._fetch = Fetch(store, iter([span]), read, Account(), read_ahead_bytes=_READ_AHEAD)
        self._fetch.next_shard()
        self._note = note
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
                self._note(self._fetch.identity)
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def close(self) -> None:
        if not self.closed:
            self._block = memoryview(b"")
            self._fetch.close()
        super().close()
