"""A list of very many short texts that takes little more memory than their bytes. No I/O."""

from __future__ import annotations

from array import array

__all__ = ["Texts"]


class Texts:
    """Texts by their number, in the order in which they were added.

    >>> texts = Texts()
    >>> texts.add("a.jpg")
    >>> texts.add("b.jpg")
    >>> texts[1], len(texts)
    ('b.jpg', 2)
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        begin = self._ends[number - 1] if number else 0
        return self._bytes[begin : self._ends[number]].decode("utf-8", "surrogateescape")

    def add(self, text: str) -> None:
        """Add one text at the end."""
        self._bytes += text.encode("utf-8", "surrogateescape")
        self._ends.append(len(self._bytes))
