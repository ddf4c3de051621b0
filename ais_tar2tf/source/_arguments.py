"""What users say in a word or a number, as the options that it means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ais_tar2tf.environment import hosts
from ais_tar2tf.errors import OptionError
from ais_tar2tf.nearest import check_choice
from ais_tar2tf.options import (
    EVEN,
    TUNED_CONNECTIONS,
    Limits,
    Read,
    Retry,
    Shuffle,
    Timeouts,
    Tls,
    check_effect,
    shuffle_window,
    whole_number,
)
from ais_tar2tf.plan.seeds import Seed, choose_seed

__all__ = ["check_batching", "check_even", "check_unmapped", "host_of", "read_options", "seed_of", "shuffle_option"]


def read_options(
    *,
    timeouts: Timeouts | None = None,
    retry: Retry | None = None,
    limits: Limits | None = None,
    connections: int | None = None,
    tls: Tls | None = None,
    allow_missing_end: bool = False,
    allow_concatenated: bool = False,
) -> Read:
    """The options that were given, and defaults for the others."""
    given = {"timeouts": timeouts, "retry": retry, "limits": limits, "connections": connections, "tls": tls}
    named = {name: value for name, value in given.items() if value is not None}
    if connections is None:
        named["most_connections"] = TUNED_CONNECTIONS
    return Read(**named, allow_missing_end=allow_missing_end, allow_concatenated=allow_concatenated)  # type: ignore[arg-type]


def seed_of(how: Shuffle | None, *, shared: bool = False) -> Seed:
    """Return the seed of an order; an order without a shuffle has a fixed one.

    `shared` says that hosts split the order, so that all of them need the same seed.
    """
    return Seed(0) if how is None else choose_seed(how.seed, shared=shared)


def shuffle_option(shuffle: bool | int | str | Shuffle | None, seed: int | None) -> Shuffle | None:
    """Return the shuffle that `shuffle=` and `seed=` say together; None for an order that is not shuffled."""
    if shuffle is None or shuffle is False:
        check_effect("seed", seed, "without shuffle=", "say shuffle=True, or leave it out")
        return None
    if isinstance(shuffle, Shuffle):
        if None not in (seed, shuffle.seed) and seed != shuffle.seed:
            raise OptionError(f"seed={seed} and Shuffle(seed={shuffle.seed}) differ: give one of them")
        return shuffle if seed is None else replace(shuffle, seed=seed)
    if isinstance(shuffle, str):
        if shuffle != "global":
            raise OptionError(f"shuffle is True, a window in records, a Shuffle or 'global', not {shuffle!r}")
        return Shuffle(whole=True, seed=seed)
    return Shuffle(seed=seed) if shuffle is True else Shuffle(window=shuffle_window(shuffle), seed=seed)


def check_batching(batch: int | None, *, drop_remainder: bool) -> None:
    """Refuse what has no effect without batches."""
    if batch is None:
        check_effect("drop_remainder", drop_remainder, "without batch=", "say batch=, or leave it out")


def check_even(even: str | None, shard: Any) -> None:
    """Refuse equal shares of hosts where there are no shares, or of no known kind."""
    if shard is None:
        check_effect("even", even, "without shard=", "say shard=(i, n), or leave it out")
    if even is not None:
        check_choice("even", even, EVEN)


def check_unmapped(*, parallel: int | None, **of_results: Any) -> None:
    """Refuse what has no effect where nothing is mapped. -1 is tf.data's AUTOTUNE, which is how it is anyway."""
    for name, value in {"parallel": None if parallel == -1 else parallel, **of_results}.items():
        check_effect(name, value, "without map= or decode=", "it is about what a mapping returns; leave it out")


def host_of(shard: Any) -> tuple[int, int]:
    """(this host, all hosts) of a pair, a tf.distribute.InputContext, "env", or None for one host alone."""
    if shard is None:
        return 0, 1
    if isinstance(shard, str):
        if shard != "env":
            raise OptionError(f"shard is (i, n), an InputContext or 'env', not {shard!r}")
        return hosts()
    if hasattr(shard, "input_pipeline_id"):  # a tf.distribute.InputContext
        return shard.input_pipeline_id, shard.num_input_pipelines
    try:
        host, of_hosts = shard
    except (TypeError, ValueError):
        raise OptionError(f"shard is (i, n), an InputContext or 'env', not {shard!r}") from None
    return whole_number("the i of shard=(i, n)", host), whole_number("the n of shard=(i, n)", of_hosts)
