"""Statistics of reading, and the policy `on_error`: whether an error is raised, or a record or shard is skipped.

`Stats` holds the numbers. `Account` adds to these numbers from any thread, and applies the policy. This module must
not interpret the numbers: `metrics.py` does so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, NamedTuple

from ais_tar2tf.base import forking
from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.errors import OptionError, Tar2TFError, TransportError

__all__ = ["Account", "AutoChoice", "Busy", "OnError", "Stats"]

OnError = str | Callable[[Tar2TFError], bool | str | None]
"""`"raise"`, `"skip-record"`, `"skip-shard"`, or a callable that gets the error and decides.

To skip the faulty record or shard, a callable returns True or `"skip"`. To raise the error, it returns False, None or
`"raise"`.
"""

_CHOICES = ("raise", "skip-record", "skip-shard")
_DECISIONS = {True: True, "skip": True, False: False, None: False, "raise": False}


class AutoChoice(NamedTuple):
    """An automatic choice of a setting: the value, and the reason, such as the rate that was measured."""

    value: str
    why: str


@dataclass(slots=True)
class Stats:
    """The counters and times of reading.

    When reading has ended, `records_read == records_emitted + sum(skipped.values())`. A record that fails in decoding
    or in a mapping counts as read and skipped. A record whose error is raised does not count at all. If a shard is
    skipped, it counts once in `skipped` and once in `records_read`, because the number of its records is unknown.
    """

    shards: int = 0  # shards that were opened, also if skipped afterwards; a global shuffle counts none
    records_read: int = 0
    records_emitted: int = 0
    bytes: int = 0  # bytes of shards, read from the store or the cache
    cached: int = 0  # bytes of shards that came from the cache; they also count in `bytes`
    cache_faults: int = 0  # how often a block in the cache was damaged, or the cache failed to read or write
    skipped: Counter[str] = field(default_factory=Counter)  # the number of skips, by the class name of the error
    # Members without a field: directories, links, `._*`, .DS_Store, and names that the grouping does not split.
    ignored: int = 0
    left_out: int = 0  # objects in a listing that are not shards: documents, hidden files, pictures
    retries: int = 0  # requests that were sent again
    resumes: int = 0  # retries that began in the middle of a shard; they also count in `retries`
    network_wait: float = 0.0  # seconds that the reader waited for bytes
    reading: float = 0.0  # seconds spent waiting for chunks of records, including `network_wait`
    idle: float = 0.0  # seconds from the return of a chunk of records to the request for the next chunk
    mapping: float = 0.0  # seconds in which a mapping ran; for graphs, an estimate from some timed calls
    # The seed of the latest shuffled dataset, whether a user gave it, it was drawn, or it is options.SHARED_SEED.
    seed: int | None = None
    chosen: dict[str, AutoChoice] = field(default_factory=dict[str, AutoChoice])  # the latest choice of each setting

    @property
    def engine(self) -> str:
        """The engine that reads tars: `"native"`, or `"python"` where the native step cannot be used."""
        from ais_tar2tf.native import engine  # its import takes as long as that of this package

        return engine().name

    @property
    def seconds(self) -> float:
        """The seconds of all iterations. An iteration lasts from its first chunk to its last chunk."""
        return self.reading + self.idle

    @property
    def network_seconds(self) -> float:
        """The seconds spent waiting for bytes."""
        return min(self.network_wait, self.reading)

    @property
    def parsing_seconds(self) -> float:
        """The seconds spent turning bytes into records, and records into elements."""
        return self.reading - self.network_seconds + min(self.mapping, self.idle)

    @property
    def consumer_seconds(self) -> float:
        """The seconds in which the reader waited for the training step, or for a later stage of tf.data."""
        return self.idle - min(self.mapping, self.idle)

    @property
    def records_per_second(self) -> float:
        """The rate of emitted records."""
        return self.records_emitted / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        """The rate of bytes of shards, in units of 10^6 bytes a second."""
        return self.bytes / self.seconds / 1e6 if self.seconds else 0.0

    def since(self, before: Stats) -> Stats:
        """Return the numbers that were added since `before`, with the current `seed` and `chosen`.

        Args:
            before: An earlier copy of these statistics.
        """
        numbers = {each.name: getattr(self, each.name) - getattr(before, each.name) for each in _numbers()}
        skipped = self.skipped - before.skipped
        return Stats(**numbers, skipped=skipped, seed=self.seed, chosen=dict(self.chosen))

    def copy(self) -> Stats:
        """Return a snapshot of the statistics."""
        return self.since(Stats())


def _numbers() -> list[Field[Any]]:
    """Return the fields of `Stats` that are plain numbers, which can be added."""
    return [each for each in fields(Stats) if each.name not in ("skipped", "seed", "chosen")]


class Account:
    """Adds to the statistics of a run, from any thread, and applies the policy `on_error`."""

    def __init__(self, on_error: OnError = "raise") -> None:
        if not callable(on_error):
            check_choice("on_error", on_error, _CHOICES, " or a callable")
        self.stats: Stats = Stats()
        self.on_error: OnError = on_error
        self._lock = forking.lock()

    def with_new_stats(self) -> Account:
        """Return another account with the same policy, whose statistics begin at 0."""
        return Account(self.on_error)

    @property
    def raises(self) -> bool:
        """Whether every error is raised, so that no record is skipped."""
        return self.on_error == "raise"

    def add(self, **counts: float) -> None:
        """Add to the fields of `Stats` with these names."""
        with self._lock:
            for name, count in counts.items():
                setattr(self.stats, name, getattr(self.stats, name) + count)

    def merge(self, stats: Stats) -> None:
        """Add the statistics of another account, for example from another process."""
        with self._lock:
            for each in _numbers():
                setattr(self.stats, each.name, getattr(self.stats, each.name) + getattr(stats, each.name))
            self.stats.skipped.update(stats.skipped)
            self.stats.chosen.update(stats.chosen)

    def note_choices(self, choices: Mapping[str, AutoChoice]) -> None:
        """Record automatic choices, by the name of the setting."""
        with self._lock:
            self.stats.chosen.update(choices)

    def add_emitted(self, count: int) -> None:
        """Count records that were read and given to the caller."""
        self.add(records_read=count, records_emitted=count)

    def record_error(self, error: Tar2TFError) -> None:
        """Count a faulty record as skipped, or raise `error`, as the policy decides."""
        self._decide(error, skips=self.on_error in ("skip-record", "skip-shard"))

    def take_back(self, error: Tar2TFError) -> None:
        """Uncount a record that was counted as emitted, and failed later. Then do the same as `record_error`."""
        self.add(records_read=-1, records_emitted=-1)
        self.record_error(error)

    def shard_error(self, error: Tar2TFError) -> None:
        """Count the rest of a faulty shard as skipped, or raise the error, as the policy decides.

        The policy `skip-shard` raises the error, too, if the endpoint has never answered: skipping would skip every
        shard of that endpoint.
        """
        unanswered = isinstance(error, TransportError) and error.silence is not None
        self._decide(error, skips=self.on_error == "skip-shard" and not unanswered)

    def _decide(self, error: Tar2TFError, *, skips: bool) -> None:
        """Count a skip, or raise `error`. If `on_error` is a callable, the callable decides, otherwise `skips`."""
        if not (_decision(self.on_error, error) if callable(self.on_error) else skips):
            raise error
        with self._lock:
            self.stats.skipped[type(error).__name__] += 1
            self.stats.records_read += 1


def _decision(decide: Callable[[Tar2TFError], Any], error: Tar2TFError) -> bool:
    """Return whether the user's callable `decide` decides to skip."""
    answer = decide(error)
    if isinstance(answer, bool | str | None) and answer in _DECISIONS:
        return _DECISIONS[answer]
    raise OptionError(
        f"on_error returned {answer!r}: it returns True or 'skip' to skip, False, None or 'raise' to raise the error"
    ) from error


class Busy:
    """Adds to `Stats.mapping` the seconds in which at least one of several concurrent calls of a mapping runs."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._lock = forking.lock()
        self._active = 0
        self._since = 0.0

    def enter(self) -> None:
        """Note that a call of the mapping begins."""
        self._change(1)

    def leave(self) -> None:
        """Note that a call of the mapping has ended."""
        self._change(-1)

    def _change(self, calls: int) -> None:
        with self._lock:
            now = time.perf_counter()
            if self._active:
                self._account.add(mapping=now - self._since)
            self._since = now
            self._active += calls
