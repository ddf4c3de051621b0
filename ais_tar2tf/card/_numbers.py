"""Numbers that come one after the other: their count, range, mean, spread and histogram, in constant memory.

The histogram has a fixed number of equal bins; for a value outside, they are merged in pairs.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["Numbers"]

_BINS = 64  # even; between 32 and 64 of them are in use: more than a small plot can show
_BUFFER = 512  # numbers looked at together


class Numbers:
    """What a stream of numbers was like.

    >>> numbers = Numbers()
    >>> for each in (1, 2, 2, 5):
    ...     numbers.add(each)
    >>> numbers.count, numbers.low, numbers.high, numbers.mean
    (4, 1.0, 5.0, 2.5)
    """

    def __init__(self) -> None:
        self._waiting: list[float] = []
        self._count = 0
        self._strange = 0
        self._low, self._high = math.inf, -math.inf
        self._mean = self._squares = 0.0  # squares: the sum of squared distances from the mean
        self._integral = True
        self._begin, self._width = 0.0, 0.0
        self._bins = np.zeros(_BINS, np.int64)

    def add(self, value: float) -> None:
        self._waiting.append(float(value))
        if len(self._waiting) >= _BUFFER:
            self._flush()

    def add_many(self, values: np.ndarray[Any, Any]) -> None:
        """All of an array's values."""
        flat = values.reshape(-1).astype(np.float64)
        finite = flat[np.isfinite(flat)]
        self._strange += flat.size - finite.size
        if not finite.size:
            return
        self._combine(finite)
        self._bin(finite)

    @property
    def count(self) -> int:
        """How many there were, those without a finite value left out."""
        self._flush()
        return self._count

    @property
    def strange(self) -> int:
        """How many were infinite, or no numbers."""
        self._flush()
        return self._strange

    @property
    def low(self) -> float:
        self._flush()
        return self._low

    @property
    def high(self) -> float:
        self._flush()
        return self._high

    @property
    def mean(self) -> float:
        self._flush()
        return self._mean

    @property
    def spread(self) -> float:
        """The standard deviation."""
        self._flush()
        return math.sqrt(self._squares / self._count) if self._count else 0.0

    @property
    def integral(self) -> bool:
        """Whether all were whole numbers."""
        self._flush()
        return self._integral

    @property
    def total(self) -> float:
        return self.mean * self.count

    def bins(self) -> list[tuple[float, float, int]]:
        """(from, to, how many) of each bin in use, in order; the first begins at or below the lowest value."""
        self._flush()
        used = np.flatnonzero(self._bins)
        if not used.size:
            return []
        together = (
            max(1, round(1 / self._width)) if self._integral else 1
        )  # a whole number has one bin, not a part of one
        width, counts = self._width * together, self._bins.reshape(-1, together).sum(axis=1)
        return [
            (self._begin + at * width, self._begin + (at + 1) * width, int(counts[at]))
            for at in range(int(used[0]) // together, int(used[-1]) // together + 1)
        ]

    def quantile(self, share: float) -> float:
        """About the value below which `share` of them lie: exact to a bin."""
        wanted, passed = share * self.count, 0
        for begin, end, count in self.bins():
            if count and passed + count >= wanted:
                inside = begin + (end - begin) * (wanted - passed) / count
                return min(max(inside, self._low), self._high)
            passed += count
        return self._high

    def to_json(self) -> dict[str, Any]:
        if not self.count:
            return {"count": 0, "not_finite": self.strange}
        return {
            "count": self.count,
            "not_finite": self.strange,
            "min": self.low,
            "max": self.high,
            "mean": self.mean,
            "std": self.spread,
            "about_median": self.quantile(0.5),
        }

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self.add_many(np.asarray(waiting))

    def _combine(self, values: np.ndarray[Any, Any]) -> None:
        count, mean = values.size, float(values.mean())
        apart, together = mean - self._mean, self._count + count
        self._squares += float(((values - mean) ** 2).sum()) + apart * apart * self._count * count / together
        self._mean += apart * count / together
        self._count = together
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        self._integral = self._integral and bool((values == np.rint(values)).all())

    def _bin(self, values: np.ndarray[Any, Any]) -> None:
        low, high = float(values.min()), float(values.max())
        if not self._width:
            self._width = _first_width(low, high)
            if self._integral:  # bins that can be put together to one for each whole number
                self._width = max(self._width, 2 / _BINS)
            step = max(self._width, 1.0) if self._integral else self._width
            self._begin = math.floor(low / step) * step
        while high >= self._begin + _BINS * self._width:
            self._widen(upward=True)
        while low < self._begin:
            self._widen(upward=False)
        places = ((values - self._begin) / self._width).astype(np.int64).clip(0, _BINS - 1)
        self._bins += np.bincount(places, minlength=_BINS)

    def _widen(self, *, upward: bool) -> None:
        merged = self._bins.reshape(-1, 2).sum(axis=1)
        nothing = np.zeros(_BINS // 2, np.int64)
        if not upward:
            self._begin -= _BINS * self._width
        self._bins = np.concatenate((merged, nothing) if upward else (nothing, merged))
        self._width *= 2


def _first_width(low: float, high: float) -> float:
    """A power of two, so that whole numbers keep bins of their own while there are few; half of the bins are used."""
    across = max(high - low, abs(high) * 1e-9, abs(low) * 1e-9)
    return 2.0 ** math.ceil(math.log2(across / (_BINS / 2))) if across else 1.0
