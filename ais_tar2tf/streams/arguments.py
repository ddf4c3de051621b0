"""Checks options that users may give in short forms, such as `shuffle=True` or `shard="env"`.

Each function returns the full form of an option, for example a `Shuffle`.

This module decides no order and opens no shard.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from ais_tar2tf.base.hosts import hosts
from ais_tar2tf.errors import OptionError
from ais_tar2tf.options import (
    TUNED_CONNECTIONS,
    Read,
    ReadKeywords,
    Shuffle,
    check_effect,
    whole_number,
)
from ais_tar2tf.streams.order import NAMED
from ais_tar2tf.streams.order.seeds import Seed, choose_seed

__all__ = [
    "checked_slice",
    "epochs_of",
    "host_of",
    "read_options",
    "seed_of",
    "shuffle_option",
]

_SMALLEST_WINDOW = 2  # the fewest records in the window of a shuffle: a window of one record shuffles nothing


def read_options(**given: Unpack[ReadKeywords]) -> Read:
    """Return the given options as a `Read`. An option that is None or missing gets its default.

    If `connections` is not given, the number of connections is increased, up to TUNED_CONNECTIONS, as long as this
    makes reading faster.
    """
    named: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if "connections" not in named:
        named["most_connections"] = TUNED_CONNECTIONS
    return Read(**named)


def epochs_of(repeat: Any) -> int:
    """Return the number of epochs that `repeat=` asks for. -1 means endlessly, as in tf.data.

    >>> epochs_of(None), epochs_of(-1), epochs_of(3)
    (-1, -1, 3)
    """
    if repeat is None:
        return -1
    epochs = whole_number("repeat", repeat)
    if epochs < 1 and epochs != -1:
        raise OptionError(f"repeat is 1 or more, or None for ever, not {epochs}")
    return epochs


def checked_slice(which: slice) -> slice:
    """Return the slice with its numbers as Python's own int; None stays None. Refuse the step 0."""
    start, stop, step = (
        None if each is None else whole_number(f"the {name} of a slice of records", each)
        for name, each in (("begin", which.start), ("end", which.stop), ("step", which.step))
    )
    if step == 0:
        raise OptionError("the step of a slice of records is not 0: it is 1 for every record, 2 for every other one")
    return slice(start, stop, step)


def seed_of(shuffle: Shuffle | None, *, shared: bool = False) -> Seed:
    """Return the seed of an order. An order without a shuffle has the seed 0.

    `shared` says whether several hosts share the order. If `shuffle` has no seed, a shared order gets SHARED_SEED
    on all hosts; any other order gets a random seed.
    """
    return Seed(0) if shuffle is None else choose_seed(shuffle.seed, shared=shared)


def shuffle_option(shuffle: bool | int | str | Shuffle | None, seed: int | None) -> Shuffle | None:
    """Return the shuffle that `shuffle=` and `seed=` describe together; return None for no shuffle.

    A seed without a shuffle is refused.
    """
    if shuffle is None or shuffle is False:
        check_effect("seed", seed, "without shuffle=", "say shuffle=True, or leave it out")
        return None
    if isinstance(shuffle, Shuffle):
        if None not in (seed, shuffle.seed) and seed != shuffle.seed:
            raise OptionError(f"seed={seed} and Shuffle(seed={shuffle.seed}) differ: give one of them")
        return shuffle if seed is None else replace(shuffle, seed=seed)
    if isinstance(shuffle, str):
        if shuffle not in NAMED:
            names = " or ".join(map(repr, NAMED))
            raise OptionError(f"shuffle is True, a window in records, a Shuffle or {names}, not {shuffle!r}")
        return replace(NAMED[shuffle], seed=seed)
    return Shuffle(seed=seed) if shuffle is True else Shuffle(window=_window(shuffle), seed=seed)


def _window(shuffle: Any) -> int:
    """Return a window in records. Refuse a window that is too small for two records to change places."""
    window = whole_number("shuffle", shuffle)
    if window < _SMALLEST_WINDOW:
        raise OptionError(
            f"shuffle={window} shuffles nothing: a number is a window in records, {_SMALLEST_WINDOW} or more; "
            f"shuffle=True is a window of {Shuffle().window:,} records, and shuffle=False is no shuffle"
        )
    return window


def host_of(shard: Any) -> tuple[int, int]:
    """Return the number of this host, from 0 on, and how many hosts there are.

    Args:
        shard: The option `shard=`: these two numbers as a pair, a tf.distribute.InputContext that states them, "env"
            if environment variables state them, or None for a single host.
    """
    if shard is None:
        return 0, 1
    if isinstance(shard, str):
        if shard != "env":
            raise OptionError(f"shard is (i, n), an InputContext or 'env', not {shard!r}")
        return hosts()
    if hasattr(shard, "input_pipeline_id"):  # a tf.distribute.InputContext
        return shard.input_pipeline_id, shard.num_input_pipelines
    try:
        host, count = shard
    except (TypeError, ValueError):
        raise OptionError(f"shard is (i, n), an InputContext or 'env', not {shard!r}") from None
    return whole_number("the i of shard=(i, n)", host), whole_number("the n of shard=(i, n)", count)
