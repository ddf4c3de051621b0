"""Names of splits, and expressions such as `train[:10%]+val` that stand for ranges of their records.

This module must not do I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import OptionError

__all__ = ["SPLIT_NAME", "SplitRange", "host_ranges", "slice_ranges", "split_ranges", "unknown_split"]

SPLIT_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""The regular expression for the name of a split, which is part of the names of files."""

_EDGE = r"-?(?:\d+(?:_\d+)*|\d+(?:\.\d+)?%)"  # a number of records, or a percentage
_TERM = re.compile(
    rf"\s*(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*?)\s*(\[\s*(?P<start>{_EDGE})?\s*:\s*(?P<stop>{_EDGE})?\s*\])?\s*"
)


@dataclass(frozen=True, slots=True)
class SplitRange:
    """Records `start` to `stop` of a split."""

    split: str
    start: int
    stop: int


def split_ranges(expression: str, counts: Mapping[str, int]) -> list[SplitRange]:
    """Return the ranges that an expression stands for.

    Expressions are written as in TFDS, but some slices mean something else than in TFDS:

    * `train[:100]` is all records of a split of 50, and `train[:]` is all of any split. TFDS refuses both.
    * `train[-0:]` is empty, and so is `train[-1%:]` of 20 records, since 1% of 20 is rounded to 0. In TFDS, both are
      the whole split.
    * In `train[10%:50]`, 50 is a number of records. In TFDS, it is 50%.

    Args:
        expression: One or more terms joined by `+`, each a split or a slice of it, in records or percent.
        counts: The number of records by split.

    Raises:
        OptionError: The expression is malformed, or names an unknown split.

    >>> split_ranges("train[:10%]+val[-5:]", {"train": 50, "val": 20})
    [SplitRange(split='train', start=0, stop=5), SplitRange(split='val', start=15, stop=20)]
    """
    return [_term_range(term, expression, counts) for term in expression.split("+")]


def _term_range(term: str, expression: str, counts: Mapping[str, int]) -> SplitRange:
    if term.strip() in counts:
        return SplitRange(term.strip(), 0, counts[term.strip()])
    found = _TERM.fullmatch(term)
    if found is None:
        raise OptionError(f"{expression!r} is no split: one looks like 'train', 'train[:60%]' or 'train[100:]+val'")
    name = found["name"]
    if name not in counts:
        raise unknown_split(name, counts)
    total = counts[name]
    start, stop = _edge(found["start"], total, 0), _edge(found["stop"], total, total)
    return SplitRange(name, start, max(start, stop))


def _edge(text: str | None, total: int, default: int) -> int:
    """Return the number of the record at which a slice of `total` records begins or ends."""
    if text is None:
        return default
    if text.endswith("%"):
        percent = float(text[:-1].replace("_", ""))
        if abs(percent) > 100:
            raise OptionError(f"{text} is more than a whole split")
        edge = round(percent * total / 100)
    else:
        edge = int(text.replace("_", ""))
    edge = total + edge if text.startswith("-") else edge
    return min(max(edge, 0), total)


def unknown_split(name: str, existing: Iterable[str]) -> OptionError:
    """Return the error for a split that does not exist."""
    names = list(existing)
    return OptionError(
        f"there is no split {name!r}; there are: {', '.join(names) or 'none'}{suggestion(name, names)}"
    )


def host_ranges(ranges: Sequence[SplitRange], host: int, hosts: int, even: str | None = None) -> list[SplitRange]:
    """Return the ranges of records that one of several hosts reads.

    The hosts together read every record once, and the numbers of their records differ by at most one. With `even`,
    all hosts read the same number of records: "drop" and "stop" leave out fewer than `hosts` records, and "pad" adds
    fewer than `hosts` records, which are repeated from the beginning.

    >>> host_ranges([SplitRange("train", 0, 5), SplitRange("val", 0, 5)], 1, 3)
    [SplitRange(split='train', start=3, stop=5), SplitRange(split='val', start=0, stop=1)]
    >>> host_ranges([SplitRange("train", 0, 5)], 1, 2, "pad")
    [SplitRange(split='train', start=3, stop=5), SplitRange(split='train', start=0, stop=1)]
    """
    if not 0 <= host < hosts:
        raise OptionError(f"shard=(i, n) needs 0 <= i < n, not ({host}, {hosts})")
    total = sum(each.stop - each.start for each in ranges)
    if even is None:
        return slice_ranges(ranges, total * host // hosts, total * (host + 1) // hosts)
    count = -(-total // hosts) if even == "pad" else total // hosts
    begin = total * host // hosts if even == "stop" else host * count % max(1, total)
    end = begin + count
    chosen = slice_ranges(ranges, begin, min(end, total))
    return [*chosen, *slice_ranges(ranges, 0, end - total)] if end > total else chosen


def slice_ranges(ranges: Sequence[SplitRange], begin: int, end: int) -> list[SplitRange]:
    """Return records `begin` to `end` of all ranges together. A range without such a record becomes an empty range.

    >>> slice_ranges([SplitRange("train", 0, 5), SplitRange("val", 0, 5)], 4, 6)
    [SplitRange(split='train', start=4, stop=5), SplitRange(split='val', start=0, stop=1)]
    """
    sliced: list[SplitRange] = []
    at = 0
    for each in ranges:
        size = each.stop - each.start
        start, stop = min(max(begin - at, 0), size), min(end - at, size)
        sliced.append(SplitRange(each.split, each.start + start, each.start + max(start, stop)))
        at += size
    return sliced
