"""The set of the keys that were read from a shard so far, which shows whether a key comes twice.

This module must do no I/O.

The keys of most shards are sorted. As long as each key is greater than the key before, every key is new: no lookup is
needed, and the keys are kept as they are given. As soon as a key is not greater than the key before, a set with the
digests of all keys replaces them. The set also replaces the keys as soon as they take much memory, and more memory
than their digests would take.
"""

from __future__ import annotations

from itertools import islice
from operator import lt

from xxhash import xxh3_128_digest

__all__ = ["KeySet", "decode_joined"]

_DIGEST_BYTES = 128  # the memory that a digest takes in a set, approximately
_KEPT_CHARACTERS = 1 << 20  # up to so many characters of keys are kept, even if digests take less


class KeySet:
    """A set of keys to which adding is fast while the keys ascend."""

    def __init__(self) -> None:
        self.size: int = 0  # characters of all keys
        self._count = 0
        self._greatest = ""
        self._ascending: list[list[str] | bytes] = []  # what was added; empty as soon as there are digests
        self._digests: set[bytes] | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, key: str) -> bool:
        """Add a key, and return whether it was new."""
        return self.add_all([key])

    def add_all(self, keys: list[str]) -> bool:
        """Add keys if all of them are new and different from each other; return whether they were added."""
        if not keys:
            return True
        size = sum(map(len, keys))
        if self._digests is None and self._ascend(keys) and self._is_light(size):
            self._ascending.append(keys)
            self._greatest = keys[-1]
        else:
            if self._digests is None:
                lists = (decode_joined(each) if isinstance(each, bytes) else each for each in self._ascending)
                self._digests = {_digest(key) for each in lists for key in each}
                self._ascending.clear()
            digests = {_digest(key) for key in keys}
            if len(digests) < len(keys) or not digests.isdisjoint(self._digests):
                return False
            self._digests |= digests
        self._count += len(keys)
        self.size += size
        return True

    def add_ascending(self, joined: bytes, count: int) -> bool:
        """Add ascending ASCII keys, each followed by a NUL, if all of them are new; return whether they were."""
        size = len(joined) - count
        first, last = joined[: joined.index(b"\0")], joined[joined.rfind(b"\0", 0, -1) + 1 : -1]
        follows = not self._count or self._greatest < first.decode()
        if self._digests is not None or not follows or not self._is_light(size):
            return self.add_all(decode_joined(joined))
        self._ascending.append(joined)
        self._greatest = last.decode()
        self._count += count
        self.size += size
        return True

    def _is_light(self, size: int) -> bool:
        """Return whether `size` more characters of keys may be kept.

        All keys together, including the new keys, may have `_KEPT_CHARACTERS` characters. The keys may have more
        characters if the digests of the earlier keys would take at least as many bytes.
        """
        return self.size + size <= max(_KEPT_CHARACTERS, _DIGEST_BYTES * self._count)

    def _ascend(self, keys: list[str]) -> bool:
        follow = not self._count or self._greatest < keys[0]
        return follow and all(map(lt, keys, islice(keys, 1, None)))


def decode_joined(joined: bytes) -> list[str]:
    """Return the keys in a text of ASCII keys with a NUL after each."""
    return joined[:-1].decode().split("\0")


def _digest(key: str) -> bytes:
    return xxh3_128_digest(key.encode("utf-8", "surrogateescape"))
