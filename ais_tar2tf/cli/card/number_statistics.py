"""Statistics of a stream of numbers: count, range, mean, standard deviation and histogram, in constant memory.

The histogram has a fixed number of bins of equal width. When a value lies outside of all bins, the bins are merged in
pairs until they include the value. All finite numbers are counted, up to the largest float; no sum or difference of
them overflows. This module must not do I/O.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["NumberStatistics", "NumberSummary"]

_BINS = 64  # an even number, because bins are merged in pairs; a small plot can hardly show more than 64
_BUFFER = 512  # the number of values that `add` collects before they are counted together
_MOST = 2.0**1000  # numbers beyond ±_MOST are counted in the first or last bin, so that no edge of a bin is infinite


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
        self._mean = self._spread = 0.0
        self._integral = True  # whether all numbers so far are whole
        self._begin, self._width = 0.0, 0.0  # the begin of the first bin; the width of each bin, 0 at first
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
        self._bin(finite.clip(-_MOST, _MOST))

    @property
    def summary(self) -> NumberSummary:
        """The summary of all numbers so far."""
        self._flush()
        return NumberSummary(self._count, self._not_finite, self._low, self._high, self._mean, self._spread)

    def bins(self) -> list[tuple[float, float, int]]:
        """Return (begin, end, count) of each bin, in ascending order. Empty bins at both ends are left out."""
        self._flush()
        used = np.flatnonzero(self._bins)
        if not used.size:
            return []
        # If all numbers are whole and bins are narrower than 1, merge the bins that cover the width 1.
        merged = max(1, round(1 / self._width)) if self._integral else 1
        width, counts = self._width * merged, self._bins.reshape(-1, merged).sum(axis=1)
        first, last = int(used[0]) // merged, int(used[-1]) // merged
        edges = [self._begin + at * width for at in range(first, last + 2)]
        edges[0], edges[-1] = min(edges[0], self._low), max(edges[-1], self._high)
        return list(zip(edges, edges[1:], counts[first : last + 1].tolist(), strict=False))

    def quantile(self, share: float) -> float:
        """Return the value below which a fraction `share` of the numbers lies, with the precision of one bin."""
        wanted, passed = share * self.summary.count, 0
        for begin, end, count in self.bins():
            if count and passed + count >= wanted:
                inside = begin + (end - begin) * ((wanted - passed) / count)
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
        """Add finite values to the count, the range, the mean and the standard deviation."""
        low, high = float(values.min()), float(values.max())
        self._low, self._high = min(self._low, low), max(self._high, high)
        scale = _power_of_two(max(abs(low), abs(high)))
        scaled = values / scale
        mean, spread = float(scaled.mean()) * scale, float(scaled.std()) * scale
        before, count = self._count, self._count + values.size
        half = mean / 2 - self._mean / 2  # half of the difference of the means; the whole difference may overflow
        step = half * (values.size / count)
        self._mean = min(max(self._mean + step + step, self._low), self._high)
        apart = half * (2 * math.sqrt(before * values.size) / count)
        self._spread = math.hypot(
            self._spread * math.sqrt(before / count), spread * math.sqrt(values.size / count), apart
        )
        self._count = count
        self._integral = self._integral and bool((values == np.rint(values)).all())

    def _bin(self, values: np.ndarray[Any, Any]) -> None:
        """Add finite values to the histogram."""
        low, high = float(values.min()), float(values.max())
        if not self._width:
            self._width = _first_width(low, high)
            if self._integral:  # half of the bins then cover the width 1 or more, so `bins` can merge them
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


def _power_of_two(number: float) -> float:
    """Return the largest power of two that is at most `number`; 1 for 0."""
    return math.ldexp(1.0, math.frexp(number)[1] - 1) if number else 1.0


def _first_width(low: float, high: float) -> float:
    """Return the first width of a bin, so that numbers from `low` to `high` use at most about half of the bins.

    The width is a power of two. So if the width is less than 1, several bins together have exactly the width 1, and
    `bins` can merge them. If the numbers are almost equal, their range is taken to be a billionth of the largest
    number. With much narrower bins, rounding could make the two edges of a bin equal.
    """
    across = max(high - low, abs(high) * 1e-9, abs(low) * 1e-9)
    if not across:
        return 1.0
    return max(2.0 ** math.ceil(math.log2(across) - math.log2(_BINS / 2)), sys.float_info.min)
