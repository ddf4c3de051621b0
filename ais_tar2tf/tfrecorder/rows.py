"""A CSV of examples: rows in a seeded order, and the split of each. One byte a row is held, and a window of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ais_tar2tf import csv_files
from ais_tar2tf.errors import OptionError
from ais_tar2tf.plan import permutation

__all__ = ["SPLITS", "Row", "assigned", "count_rows", "rows_of", "shares_of", "shuffled"]

SPLITS = ("train", "eval", "test")
_SUM_TOLERANCE = 1e-6  # 0.7 + 0.2 + 0.1 is not 1 in floating point
_WINDOW = 10_000  # rows that are permuted together
_ASSIGNMENT = 1  # a word of the seed, so that order and assignment are drawn apart


@dataclass(frozen=True, slots=True)
class Row:
    number: int  # of its line, as editors count
    cells: list[str]


def shares_of(ratio: float | Sequence[float]) -> dict[str, float]:
    """Split → share. A number, one or two shares give train and eval, three add test.

    >>> shares_of(0.75), shares_of([0.5, 0.25, 0.25])
    ({'train': 0.75, 'eval': 0.25}, {'train': 0.5, 'eval': 0.25, 'test': 0.25})
    """
    shares = [float(each) for each in (ratio if isinstance(ratio, Iterable) else [ratio])]
    if len(shares) == 1:
        shares.append(1 - shares[0])
    if not 2 <= len(shares) <= len(SPLITS) or min(shares) < 0 or not abs(sum(shares) - 1) <= _SUM_TOLERANCE:
        raise OptionError(
            "examples_train_eval_test_ratio is a share of train, or two or three shares that are not negative and "
            f"add up to 1, not {ratio!r}"
        )
    return dict(zip(SPLITS, shares, strict=False))


def count_rows(path: str | os.PathLike[str]) -> int:
    return sum(1 for _ in rows_of(path))


def rows_of(path: str | os.PathLike[str]) -> Iterator[Row]:
    """The rows of a CSV file; empty lines are none."""
    return (Row(number, cells) for number, cells in csv_files.rows_of(path))


def assigned(count: int, shares: dict[str, float], seed: int) -> bytes:
    """The number of its split for each of `count` rows, a byte each: exact shares, drawn by `seed`."""
    ends = [round(count * end) for end in np.cumsum(list(shares.values())).tolist()]
    ends[-1] = count
    sizes = np.diff([0, *ends])
    drawn = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
    np.random.RandomState([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, _ASSIGNMENT]).shuffle(drawn)
    return drawn.tobytes()


def shuffled(rows: Iterator[Row], seed: int) -> Iterator[Row]:
    """The rows, each window of them permuted."""
    window: list[Row] = []
    number = 0
    for row in rows:
        window.append(row)
        if len(window) == _WINDOW:
            yield from (window[at] for at in permutation(len(window), seed, number))
            window, number = [], number + 1
    yield from (window[at] for at in permutation(len(window), seed, number))
