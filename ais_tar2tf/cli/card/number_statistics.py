"""Statistics of a stream of numbers: count, range, mean, standard deviation and histogram, in constant memory.

The histogram has a fixed number of bins of equal width. When a value lies outside of all bins, the bins are merged in
pairs until they include the value. This module must not do I/O.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["NumberStatistics", "NumberSummary"]

_BINS = 64  # an even number, because bins are merged in pairs; a small plot can hardly show more than 64
_BUFFER = 512  # numbers that `add` collects before it counts them together


@dataclass(frozen=True, slots=True)
class NumberSummary:
    """The summary of a stream of numbers.

    Attributes:
        count: How many numbers were finite.
        not_finite: How many numbers were infinite or NaN.
        low: The lowest finite number.
        high: The highest finite number.
        mean: The mean of the finite numbers.
        spread: The standard deviation of the finite numbers.
    """

    count: int
    not_finite: int
    low: float
    high: float
    mean: float
    spread: float


class NumberStatistics:
    """The statistics of a stream of numbers.

    >>> numbers = NumberStatistics()
    >>> for each in (1, 2, 2, 5):
    ...     numbers.add(each)
    >>> summary = numbers.summary
    >>> summary.count, summary.low, summary.high, summary.mean
    (4, 1.0, 5.0, 2.5)
    """

    def __init__(self) -> None:
        self._waiting: list[float] = []
        self._count = 0
        self._not_finite = 0
        self._low, self._high = math.inf, -math.inf
        self._mean = self._squares = 0.0  # `_squares`: the sum of the squared distances from the mean
        self._integral = True  # whether all numbers so far are whole
        self._begin, self._width = 0.0, 0.0  # the begin of the first bin, and the width of each bin
        self._bins = np.zeros(_BINS, np.int64)

    def add(self, value: float) -> None:
        self._waiting.append(float(value))
        if len(self._waiting) >= _BUFFER:
            self._flush()

    def add_many(self, values: np.ndarray[Any, Any]) -> None:
        """Add all values of an array."""
        flat = values.reshape(-1).astype(np.float64)
        finite = flat[np.isfinite(flat)]
        self._not_finite += flat.size - finite.size
        if not finite.size:
            return
        self._combine(finite)
        self._bin(finite)

    @property
    def summary(self) -> NumberSummary:
        """The summary of all numbers so far."""
        self._flush()
        spread = math.sqrt(self._squares / self._count) if self._count else 0.0
        return NumberSummary(self._count, self._not_finite, self._low, self._high, self._mean, spread)

    def bins(self) -> list[tuple[float, float, int]]:
        """Return (begin, end, count) of each bin, from the lowest to the highest bin that is not empty."""
        self._flush()
        used = np.flatnonzero(self._bins)
        if not used.size:
            return []
        # If all numbers are whole and bins are narrower than 1, merge all bins of the same whole number.
        merged = max(1, round(1 / self._width)) if self._integral else 1
        width, counts = self._width * merged, self._bins.reshape(-1, merged).sum(axis=1)
        return [
            (self._begin + at * width, self._begin + (at + 1) * width, int(counts[at]))
            for at in range(int(used[0]) // merged, int(used[-1]) // merged + 1)
        ]

    def quantile(self, share: float) -> float:
        """Return the value below which a fraction `share` of the numbers lies, with the precision of one bin."""
        wanted, passed = share * self.summary.count, 0
        for begin, end, count in self.bins():
            if count and passed + count >= wanted:
                inside = begin + (end - begin) * (wanted - passed) / count
                return min(max(inside, self._low), self._high)
            passed += count
        return self._high

    def to_json(self) -> dict[str, Any]:
        found = self.summary
        if not found.count:
            return {"count": 0, "not_finite": found.not_finite}
        return {
            "count": found.count,
            "not_finite": found.not_finite,
            "min": found.low,
            "max": found.high,
            "mean": found.mean,
            "std": found.spread,
            "about_median": self.quantile(0.5),
        }

    def _flush(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self.add_many(np.asarray(waiting))

    def _combine(self, values: np.ndarray[Any, Any]) -> None:
        """Add finite values to the count, the range, the mean and the squares."""
        count, mean = values.size, float(values.mean())
        distance, total = mean - self._mean, self._count + count
        self._squares += float(((values - mean) ** 2).sum()) + distance * distance * self._count * count / total
        self._mean += distance * count / total
        self._count = total
        self._low, self._high = min(self._low, float(values.min())), max(self._high, float(values.max()))
        self._integral = self._integral and bool((values == np.rint(values)).all())

    def _bin(self, values: np.ndarray[Any, Any]) -> None:
        """Add finite values to the histogram."""
        low, high = float(values.min()), float(values.max())
        if not self._width:
            self._width = _first_width(low, high)
            if self._integral:  # half of the bins then cover 1 or more, so `bins` can merge those of a whole number
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
        """Merge the bins in pairs, and add empty bins above or below them."""
        merged = self._bins.reshape(-1, 2).sum(axis=1)
        nothing = np.zeros(_BINS // 2, np.int64)
        if not upward:
            self._begin -= _BINS * self._width
        self._bins = np.concatenate((merged, nothing) if upward else (nothing, merged))
        self._width *= 2


def _first_width(low: float, high: float) -> float:
    """Return the width that the bins have at first, so that the first numbers use about half of the bins at most.

    The width is a power of two. So if the width is less than 1, several bins together have exactly the width 1, and
    `bins` can merge them.
    """
    across = max(high - low, abs(high) * 1e-9, abs(low) * 1e-9)
    return 2.0 ** math.ceil(math.log2(across / (_BINS / 2))) if across else 1.0
