"""Which keys a shard had so far: none may come back. No I/O.

Shards are usually sorted. As long as every key is greater than the one before, it is new without being looked up,
and keeping the keys as they are costs nothing; at the first that is not, all become digests in a set. So do keys that
take more memory than digests would.
"""

from __future__ import annotations

from itertools import islice
from operator import lt

from xxhash import xxh3_128_digest

__all__ = ["Keys"]

_DIGEST_BYTES = 128  # that a digest takes in a set, about
_SLACK = 1 << 20  # characters of keys that may be kept whatever their number


class Keys:
    """A set of text that is quick while what is added ascends."""

    def __init__(self) -> None:
        self.size: int = 0  # characters of all keys
        self._count = 0
        self._greatest = ""
        self._ascending: list[list[str]] = []  # as they came, while there are no digests
        self._digests: set[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, key: str) -> bool:
        """Whether it is new."""
        return self.add_all([key])

    def add_all(self, keys: list[str]) -> bool:
        """Whether all are new, and unlike each other; none is added unless they are."""
        size = sum(map(len, keys))
        if self._digests is None:
            if self._ascend(keys) and self._is_light(size):
                self._ascending.append(keys)
                self._greatest = keys[-1]
                self._count += len(keys)
                self.size += size
                return True
            self._digests = {_digest(key) for each in self._ascending for key in each}
            self._ascending.clear()
        digests = {_digest(key) for key in keys}
        if len(digests) < len(keys) or not digests.isdisjoint(self._digests):
            return False
        self._digests |= digests
        self._count += len(keys)
        self.size += size
        return True

    def _is_light(self, size: int) -> bool:
        return self.size + size <= _SLACK or self.size + size <= _DIGEST_BYTES * self._count

    def _ascend(self, keys: list[str]) -> bool:
        first = not self._count or self._greatest < keys[0]
        return first and all(map(lt, keys, islice(keys, 1, None)))


def _digest(key: str) -> bytes:
    return xxh3_128_digest(key.encode("utf-8", "surrogateescape"))
