"""The frequencies of words, in constant memory: exact, unless there are too many different words."""

from __future__ import annotations

from collections import Counter

__all__ = ["WordCounts"]


class WordCounts:
    """Counts how often each word occurs.

    Args:
        most: The maximum number of different words. With more words, `overflowed` is set, and `counts` stays empty.
        longest: The maximum number of characters. A longer word has the same effect as too many words.
    """

    def __init__(self, most: int, longest: int) -> None:
        self._most, self._longest = most, longest
        self.counts: Counter[str] = Counter()
        self.overflowed: bool = False
        self.total: int = 0

    def add(self, word: str) -> None:
        self.total += 1
        if self.overflowed:
            return
        if len(word) > self._longest or (word not in self.counts and len(self.counts) >= self._most):
            self.overflowed = True
            self.counts.clear()
            return
        self.counts[word] += 1

    def common(self, most: int | None = None) -> list[tuple[str, int]]:
        """Return the `most` most frequent words as (word, count); words with equal counts in alphabetical order."""
        return sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
