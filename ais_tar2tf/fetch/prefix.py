"""Hashes the first bytes of an object, to prove that a later answer begins with the same bytes.

This module must not do I/O.
"""

from __future__ import annotations

from itertools import pairwise

import xxhash

__all__ = ["Differs", "Prefix"]

_KIND = "xxh3-128"


class Differs(Exception):
    """The object does not begin with the expected bytes. Users never see this error: `fetch` catches it."""


class Prefix:
    """A running hash of an object's bytes, from its first byte on.

    `expected` is the `text` of an earlier Prefix; if it is empty, nothing is compared. Once this Prefix has hashed as
    many bytes as the earlier Prefix, it compares the two hashes.

    >>> earlier = Prefix()
    >>> earlier.add(memoryview(b"the same"))
    >>> later = Prefix(earlier.text)
    >>> later.add(memoryview(b"the same, and more"))
    >>> later.is_pending
    False
    """

    def __init__(self, expected: str = "") -> None:
        self.size: int = 0
        self._hash = xxhash.xxh3_128()
        # `expected_size` is the number of bytes that the earlier Prefix hashed.
        self.expected_size, self._expected_digest = _parsed(expected) if expected else (0, "")

    @property
    def text(self) -> str:
        """The number of bytes that were added, and the hash of these bytes, as `xxh3-128:SIZE:DIGEST`."""
        return f"{_KIND}:{self.size}:{self._hash.hexdigest()}"

    @property
    def is_pending(self) -> bool:
        """Whether more bytes must be added before the hashes can be compared."""
        return self.size < self.expected_size

    def add(self, data: memoryview) -> None:
        """Add the next bytes of the object.

        Raises:
            Differs: The hash of the object's first bytes is not the expected hash.
        """
        cut = self.expected_size - self.size
        cuts = (0, cut, len(data)) if 0 < cut <= len(data) else (0, len(data))
        for begin, end in pairwise(cuts):
            self._hash.update(data[begin:end])
            self.size += end - begin
            if 0 < self.expected_size == self.size and self._hash.hexdigest() != self._expected_digest:
                raise Differs


def _parsed(text: str) -> tuple[int, str]:
    """Return the size and the digest in a `Prefix.text`. For any other text, return a pair that fits no bytes."""
    kind, _, rest = text.partition(":")
    size, _, digest = rest.partition(":")
    return (int(size), digest) if kind == _KIND and size.isascii() and size.isdigit() and len(size) < 19 else (1, "")
