"""Computes the checksum of a whole object, and compares it with the checksum that the store states."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

import xxhash

from ais_tar2tf.errors import ChecksumMismatch
from ais_tar2tf.stores import Identity

__all__ = ["Checksum"]


class _Hash(Protocol):
    def update(self, data: bytes | bytearray | memoryview, /) -> object: ...
    def hexdigest(self) -> str: ...


_HASHES: dict[str, Callable[[], _Hash]] = {
    "xxhash": xxhash.xxh64,
    "xxhash2": xxhash.xxh64,
    "md5": lambda: hashlib.md5(usedforsecurity=False),
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
}


class Checksum:
    """A running hash by the algorithm of a store's checksum. `update(data)` adds the object's next bytes."""

    def __init__(self, running: _Hash) -> None:
        self._running = running
        self.update = running.update

    @classmethod
    def stated_by(cls, identity: Identity) -> Checksum | None:
        """Return a new hash by the algorithm of the stated checksum.

        Return None if no checksum is stated, or if its algorithm is unknown.
        """
        algorithm = identity.checksum.partition(":")[0]
        return cls(_HASHES[algorithm]()) if algorithm in _HASHES else None

    def hexdigest(self) -> str:
        """Return the digest of the bytes so far."""
        return self._running.hexdigest()

    def verify(self, identity: Identity, url: str) -> None:
        """Raise ChecksumMismatch unless the digest equals the checksum that `identity` states."""
        stated, found = identity.checksum.partition(":")[2].lower(), self._running.hexdigest()
        if stated != found:
            raise ChecksumMismatch(
                f"the store says its checksum is {stated}, what came has {found}: damaged on the way or at rest",
                url=url,
            )
