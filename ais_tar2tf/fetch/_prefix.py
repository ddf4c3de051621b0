"""A hash of the first bytes of an object: what proves that a second answer goes on with the content of the first."""

from __future__ import annotations

from itertools import pairwise

import xxhash

__all__ = ["Differs", "Prefix"]

_KIND = "xxh3-128"


class Differs(Exception):
    """The object does not begin with the bytes that were expected. Never seen outside `fetch`."""


class Prefix:
    """Hashes an object from its start on. `expected`, the `text` of another prefix, is compared on the way.

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
        self._expected_size, self._expected = _parsed(expected) if expected else (-1, "")

    @property
    def text(self) -> str:
        """`xxh3-128:SIZE:DIGEST`."""
        return f"{_KIND}:{self.size}:{self._hash.hexdigest()}"

    @property
    def is_pending(self) -> bool:
        """Whether the bytes that are expected are still to come."""
        return self.size < self._expected_size

    @property
    def expected_size(self) -> int:
        return max(0, self._expected_size)

    def add(self, data: memoryview) -> None:
        """Take the next bytes.

        Raises:
            Differs: So many bytes came as `expected` was made of, and they are others.
        """
        cut = self._expected_size - self.size
        cuts = (0, cut, len(data)) if 0 < cut <= len(data) else (0, len(data))
        for begin, end in pairwise(cuts):
            self._hash.update(data[begin:end])
            self.size += end - begin
            if self.size == self._expected_size and self._hash.hexdigest() != self._expected:
                raise Differs


def _parsed(text: str) -> tuple[int, str]:
    """Return what `Prefix.text` was made of; what it did not make is equal to no prefix."""
    kind, _, rest = text.partition(":")
    size, _, digest = rest.partition(":")
    return (int(size), digest) if kind == _KIND and size.isascii() and size.isdigit() and len(size) < 19 else (1, "")
