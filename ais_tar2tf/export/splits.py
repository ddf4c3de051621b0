"""Which split a record goes to, and which records a split's expression means: pure functions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from ais_tar2tf.errors import OptionError
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import Record

__all__ = [
    "SPLIT_NAME",
    "Lists",
    "Part",
    "Predicates",
    "Ratios",
    "Route",
    "Single",
    "cut_out",
    "described",
    "no_split",
    "parts_of",
    "route_of",
    "share_of",
]

SPLIT_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""A regular expression: the name is part of files' names."""
_HASHES = 2**64


@dataclass(frozen=True)
class Single:
    """Every record goes to one split."""

    names: tuple[str, ...]

    def of(self, records: Sequence[Record]) -> list[int | None]:
        return [0] * len(records)


@dataclass(frozen=True)
class Ratios:
    """By a hash of seed and key: a record stays in its split when others come or go."""

    names: tuple[str, ...]
    shares: tuple[float, ...]
    seed: int

    def of(self, records: Sequence[Record]) -> list[int | None]:
        ends = [share * _HASHES for share in accumulate(self.shares)]
        ends[-1] = float("inf")
        return [next(at for at, end in enumerate(ends) if self._place(record) < end) for record in records]

    def _place(self, record: Record) -> int:
        return xxh3_64_intdigest(record["__key__"].encode("utf-8", "surrogateescape"), self.seed & (_HASHES - 1))


@dataclass(frozen=True)
class Predicates:
    """The first split whose function says yes; a record that no function wants is left out, and counted."""

    names: tuple[str, ...]
    wanted: tuple[Callable[[Record], Any], ...]

    def of(self, records: Sequence[Record]) -> list[int | None]:
        return [next((at for at, wants in enumerate(self.wanted) if wants(record)), None) for record in records]


@dataclass(frozen=True)
class Lists:
    """Explicit keys; a record whose key stands in no list is left out, and counted."""

    names: tuple[str, ...]
    split_of: Mapping[str, int]

    def of(self, records: Sequence[Record]) -> list[int | None]:
        return [self.split_of.get(record["__key__"]) for record in records]


Route = Single | Ratios | Predicates | Lists


def route_of(splits: Mapping[str, Any] | str, seed: int = 0) -> Route:
    """From what the user said: a name, {name: ratio}, {name: function} or {name: keys}."""
    given: dict[str, Any] = {splits: None} if isinstance(splits, str) else dict(splits)
    names = tuple(given)
    for name in names:
        if not re.fullmatch(SPLIT_NAME, name):
            raise OptionError(f"{name!r} is no name for a split: letters, digits, '_', '.', '-'")
    values = list(given.values())
    if isinstance(splits, str):
        return Single(names)
    if values and all(callable(value) for value in values):
        return Predicates(names, tuple(values))
    if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return _ratios(names, [float(value) for value in values], seed)
    if values and all(isinstance(value, Iterable) and not isinstance(value, str | bytes) for value in values):
        return _lists(names, values)
    raise OptionError("splits are ratios, functions of a record, or lists of keys, the same kind for all of them")


def _ratios(names: tuple[str, ...], shares: list[float], seed: int) -> Ratios:
    if min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise OptionError(f"ratios are not negative and add up to 1, not to {sum(shares):g}")
    return Ratios(names, tuple(shares), seed)


def _lists(names: tuple[str, ...], keys: list[Iterable[str]]) -> Lists:
    split_of: dict[str, int] = {}
    for at, listed in enumerate(keys):
        for key in listed:
            if split_of.setdefault(key, at) != at:
                raise OptionError(f"key {key!r} is listed in {names[split_of[key]]!r} and in {names[at]!r}")
    return Lists(names, split_of)


def described(route: Route) -> Any:
    """What tells one way of splitting from another."""
    if isinstance(route, Ratios):
        return {"ratios": dict(zip(route.names, route.shares, strict=True)), "seed": route.seed}
    if isinstance(route, Lists):
        text = "\n".join(f"{at} {key}" for key, at in sorted(route.split_of.items()))
        return {"keys": xxh3_128_hexdigest(text.encode("utf-8", "surrogateescape")), "names": list(route.names)}
    if isinstance(route, Predicates):
        return {"functions": [_function(each) for each in route.wanted], "names": list(route.names)}
    return list(route.names)


def _function(function: Callable[..., Any]) -> str:
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', type(function).__qualname__)}"


# Expressions: "train[:10%]+val".

_INSTRUCTION = re.compile(
    r"\s*(?P<name>[A-Za-z0-9_][A-Za-z0-9_.-]*?)\s*(\[\s*(?P<start>-?[\d_.]+%?)?\s*:\s*(?P<stop>-?[\d_.]+%?)?\s*\])?\s*"
)


@dataclass(frozen=True, slots=True)
class Part:
    """Records `start` to `stop` of a split."""

    split: str
    start: int
    stop: int


def parts_of(expression: str, counts: Mapping[str, int]) -> list[Part]:
    """The records that an expression means, as TFDS reads it.

    >>> parts_of("train[:10%]+val[-5:]", {"train": 50, "val": 20})
    [Part(split='train', start=0, stop=5), Part(split='val', start=15, stop=20)]
    """
    return [_part(each, expression, counts) for each in expression.split("+")]


def share_of(parts: Sequence[Part], host: int, hosts: int, even: str | None = None) -> list[Part]:
    """Return the part of each part that one of several hosts reads.

    All hosts together read every record once; the numbers of their records differ by at most one. With `even` all
    hosts read equally many: "drop" and "stop" leave out fewer than n records, "pad" begins again behind the last one.

    >>> share_of([Part("train", 0, 5), Part("val", 0, 5)], 1, 3)
    [Part(split='train', start=3, stop=5), Part(split='val', start=0, stop=1)]
    >>> share_of([Part("train", 0, 5)], 1, 2, "pad")
    [Part(split='train', start=3, stop=5), Part(split='train', start=0, stop=1)]
    """
    if not 0 <= host < hosts:
        raise OptionError(f"shard=(i, n) needs 0 <= i < n, not ({host}, {hosts})")
    total = sum(part.stop - part.start for part in parts)
    if even is None:
        return cut_out(parts, total * host // hosts, total * (host + 1) // hosts)
    each = -(-total // hosts) if even == "pad" else total // hosts
    begin = total * host // hosts if even == "stop" else host * each % max(1, total)
    shares = cut_out(parts, begin, min(begin + each, total))
    return [*shares, *cut_out(parts, 0, begin + each - total)] if begin + each > total else shares


def cut_out(parts: Sequence[Part], begin: int, end: int) -> list[Part]:
    """Return records `begin` to `end` of all parts together. A part of which nothing is left stays, without records.

    >>> cut_out([Part("train", 0, 5), Part("val", 0, 5)], 4, 6)
    [Part(split='train', start=4, stop=5), Part(split='val', start=0, stop=1)]
    """
    cut: list[Part] = []
    at = 0
    for part in parts:
        size = part.stop - part.start
        start, stop = min(max(begin - at, 0), size), min(end - at, size)
        cut.append(Part(part.split, part.start + start, part.start + max(start, stop)))
        at += size
    return cut


def _part(text: str, expression: str, counts: Mapping[str, int]) -> Part:
    if text.strip() in counts:
        return Part(text.strip(), 0, counts[text.strip()])
    found = _INSTRUCTION.fullmatch(text)
    if found is None:
        raise OptionError(f"{expression!r} is no split: one looks like 'train', 'train[:60%]' or 'train[100:]+val'")
    name = found["name"]
    if name not in counts:
        raise no_split(name, counts)
    total = counts[name]
    start, stop = _edge(found["start"], total, 0), _edge(found["stop"], total, total)
    return Part(name, start, max(start, stop))


def no_split(name: str, known: Iterable[str]) -> OptionError:
    """Make the error for a split that is not there."""
    names = list(known)
    return OptionError(
        f"there is no split {name!r}; there are: {', '.join(names) or 'none'}{suggestion(name, names)}"
    )


def _edge(text: str | None, total: int, default: int) -> int:
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
