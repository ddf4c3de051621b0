"""The checksum of a whole object, against the one that its store states."""

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
    """A running hash of the algorithm that a store uses."""

    def __init__(self, running: _Hash) -> None:
        self._running = running
        self.update = running.update

    @classmethod
    def stated_by(cls, identity: Identity) -> Checksum | None:
        """None when the store states no checksum, or one of an algorithm that is not known here."""
        algorithm = identity.checksum.partition(":")[0]
        return cls(_HASHES[algorithm]()) if algorithm in _HASHES else None

    def hexdigest(self) -> str:
        """Return the digest of what came so far."""
        return self._running.hexdigest()

    def verify(self, identity: Identity, url: str) -> None:
        """Raises ChecksumMismatch unless all that came hashes to what the store says."""
        said, found = identity.checksum.partition(":")[2].lower(), self._running.hexdigest()
        if said != found:
            raise ChecksumMismatch(
                f"the store says its checksum is {said}, what came has {found}: damaged on the way or at rest",
                url=url,
            )
