"""Hashes the first bytes of an object, to prove that another answer has the same content."""

from __future__ import annotations

from itertools import pairwise

import xxhash

__all__ = ["Differs", "Prefix"]

_KIND = "xxh3-128"


class Differs(Exception):
    """The object does not begin with the expected bytes. Never leaves `fetch`."""


class Prefix:
    """A running hash of an object's bytes, from its first byte on.

    `expected` is the `text` of an earlier Prefix. The hashes are compared once as many bytes were added.

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
        self.expected_size, self._expected_digest = _parsed(expected) if expected else (0, "")  # size in bytes

    @property
    def text(self) -> str:
        """The hash so far, as `xxh3-128:SIZE:DIGEST`."""
        return f"{_KIND}:{self.size}:{self._hash.hexdigest()}"

    @property
    def is_pending(self) -> bool:
        """Whether too few bytes were added for the comparison."""
        return self.size < self.expected_size

    def add(self, data: memoryview) -> None:
        """Add the next bytes of the object.

        Raises:
            Differs: The first bytes do not have the expected hash.
        """
        cut = self.expected_size - self.size
        cuts = (0, cut, len(data)) if 0 < cut <= len(data) else (0, len(data))
        for begin, end in pairwise(cuts):
            self._hash.update(data[begin:end])
            self.size += end - begin
            if 0 < self.expected_size == self.size and self._hash.hexdigest() != self._expected_digest:
                raise Differs


def _parsed(text: str) -> tuple[int, str]:
    """Return the size and the digest in a `Prefix.text`; for any other text, a pair that no prefix has."""
    kind, _, rest = text.partition(":")
    size, _, digest = rest.partition(":")
    return (int(size), digest) if kind == _KIND and size.isascii() and size.isdigit() and len(size) < 19 else (1, "")
