"""Routes. A route decides to which split each record goes. This module must not do I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from ais_tar2tf.errors import OptionError
from ais_tar2tf.recordfiles.export.fingerprints import fingerprint
from ais_tar2tf.recordfiles.export.splits import SPLIT_NAME
from ais_tar2tf.records import Record, Records

__all__ = ["FunctionRoute", "KeyRoute", "RatioRoute", "Route", "SingleRoute", "route_of"]

_HASHES = 2**64  # the number of different hashes of a key


@dataclass(frozen=True)
class SingleRoute:
    """Sends every record to one split."""

    names: tuple[str, ...]

    def split_numbers(self, records: Records) -> list[int | None]:
        """Return, for each record, the index of its split in `names`, or None if the record is left out."""
        return [0] * len(records)

    def plan_entry(self) -> Any:
        """Return JSON values that describe the route in the plan of an export."""
        return list(self.names)


@dataclass(frozen=True)
class RatioRoute:
    """Divides records by ratios. A hash of a record's key and of the seed decides the split of the record.

    So the split of a record does not depend on other records.
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    seed: int

    def split_numbers(self, records: Records) -> list[int | None]:
        ends = [share * _HASHES for share in accumulate(self.shares)]
        ends[-1] = float("inf")
        hashes = map(self._hash, records.column("__key__"))
        return [next(at for at, end in enumerate(ends) if each < end) for each in hashes]

    def _hash(self, key: str) -> int:
        return xxh3_64_intdigest(key.encode("utf-8", "surrogateescape"), self.seed & (_HASHES - 1))

    def plan_entry(self) -> Any:
        return {"ratios": dict(zip(self.names, self.shares, strict=True)), "seed": self.seed}


@dataclass(frozen=True)
class FunctionRoute:
    """Sends a record to the first split whose function returns a true value. If none does, the record is left out."""

    names: tuple[str, ...]
    functions: tuple[Callable[[Record], Any], ...]

    def split_numbers(self, records: Records) -> list[int | None]:
        return [next((at for at, wants in enumerate(self.functions) if wants(record)), None) for record in records]

    def plan_entry(self) -> Any:
        return {"functions": list(map(fingerprint, self.functions)), "names": list(self.names)}


@dataclass(frozen=True)
class KeyRoute:
    """Sends a record to the split that lists its key; leaves out records whose keys are not listed."""

    names: tuple[str, ...]
    split_of: Mapping[str, int]

    def split_numbers(self, records: Records) -> list[int | None]:
        return [self.split_of.get(key) for key in records.column("__key__")]

    def plan_entry(self) -> Any:
        text = "\n".join(f"{at} {key}" for key, at in sorted(self.split_of.items()))
        return {"keys": xxh3_128_hexdigest(text.encode("utf-8", "surrogateescape")), "names": list(self.names)}


Route = SingleRoute | RatioRoute | FunctionRoute | KeyRoute


def route_of(splits: Mapping[str, Any] | str, seed: int = 0) -> Route:
    """Return the route that the option `split` or the option `splits` of an export describes.

    Args:
        splits: The name of the only split; or a dict from the names of splits to ratios, to functions of a record, or
            to lists of keys.
        seed: The seed of a route by ratios.

    Raises:
        OptionError: `splits` is none of these, the name of a split is not valid, the ratios do not add up to 1, or
            two splits list the same key.
    """
    given: dict[str, Any] = {splits: None} if isinstance(splits, str) else dict(splits)
    names = tuple(given)
    for name in names:
        if not re.fullmatch(SPLIT_NAME, name):
            raise OptionError(f"{name!r} is no name for a split: letters, digits, '_', '.', '-'")
    if isinstance(splits, str):
        return SingleRoute(names)
    values = list(given.values())
    if values and all(callable(value) for value in values):
        return FunctionRoute(names, tuple(values))
    if values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return _ratio_route(names, [float(value) for value in values], seed)
    if values and all(isinstance(value, Iterable) and not isinstance(value, str | bytes) for value in values):
        return _key_route(names, values)
    raise OptionError("splits are ratios, functions of a record, or lists of keys, the same kind for all of them")


def _ratio_route(names: tuple[str, ...], shares: list[float], seed: int) -> RatioRoute:
    if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):  # written with `not`, so that NaN is refused, too
        raise OptionError(f"ratios are not negative and add up to 1, not to {sum(shares):g}")
    return RatioRoute(names, tuple(shares), seed)


def _key_route(names: tuple[str, ...], keys: list[Iterable[str]]) -> KeyRoute:
    split_of: dict[str, int] = {}
    for at, listed in enumerate(keys):
        for key in listed:
            if split_of.setdefault(key, at) != at:
                raise OptionError(f"key {key!r} is listed in {names[split_of[key]]!r} and in {names[at]!r}")
    return KeyRoute(names, split_of)
