"""Words that come one after the other, and how often each did: exact while they are few, given up when many."""

from __future__ import annotations

from collections import Counter

__all__ = ["Words"]


class Words:
    """Counts of at most `most` different words; one more, and only their number is told."""

    def __init__(self, most: int, longest: int) -> None:
        self._most, self._longest = most, longest
        self.counts: Counter[str] = Counter()
        self.given_up: bool = False
        self.total: int = 0

    def add(self, word: str) -> None:
        self.total += 1
        if self.given_up:
            return
        if len(word) > self._longest or (word not in self.counts and len(self.counts) >= self._most):
            self.given_up = True
            self.counts.clear()
            return
        self.counts[word] += 1

    def common(self, most: int | None = None) -> list[tuple[str, int]]:
        """The most frequent first; equals by name, so that the same data give the same card."""
        return sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
