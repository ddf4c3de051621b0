"""The account of a run: what was read, handed out and skipped, and who decides what an error costs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, NamedTuple

from ais_tar2tf import forking
from ais_tar2tf.errors import OptionError, Tar2TFError, TransportError
from ais_tar2tf.nearest import check_choice

__all__ = ["Account", "Busy", "Choice", "OnError", "Stats"]

OnError = str | Callable[[Tar2TFError], bool | str | None]
"""`"raise"`, `"skip-record"`, `"skip-shard"`, or a callable that gets the error and decides.

A callable returns True or `"skip"` to skip what the error is about; False, None or `"raise"` to raise the error.
"""

_CHOICES = ("raise", "skip-record", "skip-shard")
_DECISIONS = {True: True, "skip": True, False: False, None: False, "raise": False}


class Choice(NamedTuple):
    """What reading chose by itself for one of its numbers, and what was measured then."""

    value: str
    why: str


@dataclass(slots=True)
class Stats:
    """What happened so far. `records_read == records_emitted + sum(skipped.values())` at the end of a run.

    A record on which decoding or a mapping fails is skipped, and so read; one whose error is raised is in no count.
    A shard that was given up counts as one, in `skipped` as well as in `records_read`: how many records it
    had, nobody knows.
    """

    shards: int = 0  # opened, or given up
    records_read: int = 0
    records_emitted: int = 0
    bytes: int = 0  # of shards, from the store or the cache
    cached: int = 0  # of these, from the cache
    cache_faults: int = 0  # pieces that the cache had damaged, or could not read or keep: the store had them
    skipped: Counter[str] = field(default_factory=Counter)  # by the name of the error
    ignored: int = 0  # members that are no field: directories, links, `._*`, .DS_Store, those a grouping leaves out
    left_out: int = 0  # objects in a listing that are no shards: documents, hidden files, pictures
    retries: int = 0  # requests made again
    resumes: int = 0  # of which went on in the middle of a shard
    network_wait: float = 0.0  # seconds that the reader waited for bytes
    reading: float = 0.0  # seconds spent in making records, that wait included
    idle: float = 0.0  # seconds between two chunks of records, in which nobody wanted one
    mapping: float = 0.0  # seconds in which a mapping ran; of graphs, a sample divided by how many run at once
    seed: int | None = None  # of the order of the latest shuffled dataset: given, drawn, or options.SHARED_SEED
    chosen: dict[str, Choice] = field(default_factory=dict[str, Choice])  # what nobody gave, latest: "connections", …

    @property
    def seconds(self) -> float:
        """Of all iterations, from the first chunk of each to its last."""
        return self.reading + self.idle

    @property
    def network_seconds(self) -> float:
        """Waiting for bytes."""
        return min(self.network_wait, self.reading)

    @property
    def parsing_seconds(self) -> float:
        """Making records of bytes, and elements of records."""
        return self.reading - self.network_seconds + min(self.mapping, self.idle)

    @property
    def consumer_seconds(self) -> float:
        """Everything was ready, and nobody took it: the training step, or what was put behind the dataset."""
        return self.idle - min(self.mapping, self.idle)

    @property
    def records_per_second(self) -> float:
        return self.records_emitted / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6 if self.seconds else 0.0

    def since(self, before: Stats) -> Stats:
        """What happened between `before`, a copy, and now."""
        numbers = {each.name: getattr(self, each.name) - getattr(before, each.name) for each in _numbers()}
        skipped = self.skipped - before.skipped
        return Stats(**numbers, skipped=skipped, seed=self.seed, chosen=dict(self.chosen))

    def copy(self) -> Stats:
        """As it is now; these go on counting."""
        return self.since(Stats())


def _numbers() -> list[Field[Any]]:
    return [each for each in fields(Stats) if each.name not in ("skipped", "seed", "chosen")]


class Account:
    """Counts, and applies `on_error`. Fetching threads count too, so counting takes a lock."""

    def __init__(self, on_error: OnError = "raise") -> None:
        if not callable(on_error):
            check_choice("on_error", on_error, _CHOICES, " or a callable")
        self.stats: Stats = Stats()
        self.on_error: OnError = on_error
        self._lock = forking.lock()

    def twin(self) -> Account:
        """The same decisions, counted apart."""
        return Account(self.on_error)

    @property
    def raises(self) -> bool:
        """Whether nothing is ever skipped."""
        return self.on_error == "raise"

    def add(self, **counts: float) -> None:
        with self._lock:
            for name, count in counts.items():
                setattr(self.stats, name, getattr(self.stats, name) + count)

    def merge(self, stats: Stats) -> None:
        """Add what was counted elsewhere, as by another process."""
        with self._lock:
            for each in _numbers():
                setattr(self.stats, each.name, getattr(self.stats, each.name) + getattr(stats, each.name))
            self.stats.skipped.update(stats.skipped)
            self.stats.chosen.update(stats.chosen)

    def chose(self, choices: Mapping[str, Choice]) -> None:
        with self._lock:
            self.stats.chosen.update(choices)

    def emitted(self, count: int) -> None:
        self.add(records_read=count, records_emitted=count)

    def record_error(self, error: Tar2TFError) -> None:
        """Returns when the record is to be skipped; raises the error otherwise."""
        self._decide(error, skips=self.on_error in ("skip-record", "skip-shard"))

    def take_back(self, error: Tar2TFError) -> None:
        """As `record_error`, for a record that was counted as handed out."""
        self.add(records_read=-1, records_emitted=-1)
        self.record_error(error)

    def shard_error(self, error: Tar2TFError) -> None:
        """Return when the rest of the shard is to be skipped; raise the error otherwise.

        That an endpoint has never answered is no fault of the shard: all others would be skipped, too.
        """
        unanswered = isinstance(error, TransportError) and error.silence is not None
        self._decide(error, skips=self.on_error == "skip-shard" and not unanswered)

    def _decide(self, error: Tar2TFError, *, skips: bool) -> None:
        if not (_decision(self.on_error, error) if callable(self.on_error) else skips):
            raise error
        with self._lock:
            self.stats.skipped[type(error).__name__] += 1
            self.stats.records_read += 1


def _decision(decide: Callable[[Tar2TFError], Any], error: Tar2TFError) -> bool:
    """Return whether a function of the user's skips what an error is about."""
    said = decide(error)
    if isinstance(said, bool | str | None) and said in _DECISIONS:
        return _DECISIONS[said]
    raise OptionError(
        f"on_error returned {said!r}: it returns True or 'skip' to skip, False, None or 'raise' to raise the error"
    ) from error


class Busy:
    """Counts the seconds in which at least one of several calls at once is under way."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._lock = forking.lock()
        self._active = 0
        self._since = 0.0

    def enter(self) -> None:
        with self._lock:
            self._tell()
            self._active += 1

    def leave(self) -> None:
        with self._lock:
            self._tell()
            self._active -= 1

    def _tell(self) -> None:
        now = time.perf_counter()
        if self._active:
            self._account.add(mapping=now - self._since)
        self._since = now
