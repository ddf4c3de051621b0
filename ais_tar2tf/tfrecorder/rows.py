"""The rows of a CSV file of examples: the split of each row, and the order of the rows. Both are drawn by a seed.

To bound memory, this module must not hold all rows. It holds one byte for each row, and one window of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ais_tar2tf.base.csv_files import CsvRow
from ais_tar2tf.errors import OptionError
from ais_tar2tf.streams.order import permutation

__all__ = ["SPLITS", "assign_splits", "shuffled", "split_ratios"]

SPLITS = ("train", "eval", "test")
_SUM_TOLERANCE = 1e-6  # 0.7 + 0.2 + 0.1 is not 1 in floating point
_WINDOW = 10_000  # rows that are permuted together
_ASSIGNMENT_STREAM = 1  # makes splits use other random numbers than the order of the rows, which has the same seed


def split_ratios(ratio: float | Sequence[float]) -> dict[str, float]:
    """Return the ratio of each split.

    `ratio` is the ratio of train, or a sequence with the ratios of train, eval and test. Without a ratio of eval, the
    split eval gets the rest. Without a ratio of test, there is no split test.

    >>> split_ratios(0.75), split_ratios([0.5, 0.25, 0.25])
    ({'train': 0.75, 'eval': 0.25}, {'train': 0.5, 'eval': 0.25, 'test': 0.25})
    """
    ratios = [float(each) for each in (ratio if isinstance(ratio, Iterable) else [ratio])]
    if len(ratios) == 1:
        ratios.append(1 - ratios[0])
    if not 2 <= len(ratios) <= len(SPLITS) or min(ratios) < 0 or not abs(sum(ratios) - 1) <= _SUM_TOLERANCE:
        raise OptionError(
            "examples_train_eval_test_ratio is a share of train, or two or three shares that are not negative and "
            f"add up to 1, not {ratio!r}"
        )
    return dict(zip(SPLITS, ratios, strict=False))


def assign_splits(count: int, ratios: dict[str, float], seed: int) -> bytes:
    """Draw the splits of `count` rows, so that the sizes of the splits have these ratios.

    Return one byte for each row: the number of its split, which is an index in `SPLITS`.
    """
    ends = [round(count * end) for end in np.cumsum(list(ratios.values())).tolist()]
    ends[-1] = count
    sizes = np.diff([0, *ends])
    splits = np.repeat(np.arange(len(sizes), dtype=np.uint8), sizes)
    np.random.RandomState([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, _ASSIGNMENT_STREAM]).shuffle(splits)
    return splits.tobytes()


def shuffled(rows: Iterator[CsvRow], seed: int) -> Iterator[CsvRow]:
    """Yield the rows in a random order: `_WINDOW` consecutive rows at a time are permuted."""
    window: list[CsvRow] = []
    number = 0
    for row in rows:
        window.append(row)
        if len(window) == _WINDOW:
            yield from (window[at] for at in permutation(len(window), seed, number))
            window, number = [], number + 1
    yield from (window[at] for at in permutation(len(window), seed, number))
