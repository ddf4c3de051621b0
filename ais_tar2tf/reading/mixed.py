"""Several readings as one stream: each record is of the source that a seeded draw says.

What is drawn depends on the seed, the epoch and the number of the draw alone, so a position holds one number for all
draws, and one position a source.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from ais_tar2tf import structure
from ais_tar2tf.account import Account
from ais_tar2tf.documents import parse_row, sealed_row
from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.options import Limits, Read, Shuffle
from ais_tar2tf.reader.epochs import EpochStream
from ais_tar2tf.reading import At, Reading, Stream, passed, size_of
from ais_tar2tf.records import Record, Records
from ais_tar2tf.structure import Mismatch, any_whole, boolean, listed, row, whole

__all__ = ["AT_END", "MixedReading", "checked_weights"]

AT_END = ("stop", "drop", "repeat")  # what becomes of the mixture when one of its sources has no more
_FORMAT = "mix-1"  # of a position's text
_DRAWS = 4096  # made at once
_PASS = 1 << 32  # of a source that is read again: its epoch is so much later for every time


_PLACE = row(structure.text, whole(), whole(), whole(), boolean)
_NUMBERS = row(whole(), any_whole, whole(-1), whole(), whole(), whole())


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one source is: `skip` records behind a position."""

    at: At
    skip: int = 0
    passes: int = 0  # how often it was read to its end
    given: int = 0  # records in this pass
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _Position:
    epoch: int
    seed: int
    epochs_left: int  # behind this one; -1: for ever
    places: tuple[_Place, ...]
    draws: int = 0  # made in this epoch
    run: int = 0
    count: int = 0
    key: str = ""

    def to_text(self) -> str:
        places = [[each.at.to_text(), each.skip, each.passes, each.given, each.ended] for each in self.places]
        fields = [self.epoch, self.seed, self.epochs_left, self.draws, self.run, self.count, self.key]
        return sealed_row([_FORMAT, places, *fields])


@dataclass(frozen=True)
class MixedReading:
    """Readings, and how often each is drawn."""

    parts: tuple[Reading, ...]
    weights: tuple[float, ...]
    draw_seed: int
    at_end: str

    @property
    def url(self) -> str:
        return self.parts[0].url

    @property
    def read(self) -> Read:
        return self.parts[0].read

    @property
    def key(self) -> str:
        made = json.dumps([[part.key for part in self.parts], self.weights, self.draw_seed, self.at_end])
        return hashlib.blake2b(made.encode(), digest_size=6).hexdigest()

    def begin(self, epoch: int, seed: int, epochs: int) -> _Position:
        places = tuple(_Place(self.begin_part(number, epoch, seed, 0)) for number in range(len(self.parts)))
        return _Position(epoch, seed, epochs - 1 if epochs > 0 else -1, places, key=self.key)

    def begin_part(self, number: int, epoch: int, seed: int, passes: int) -> At:
        return self.parts[number].begin(epoch + passes * _PASS, seed + number, 1)

    def next_epoch(self, at: _Position) -> _Position | None:
        """The start of the epoch behind that of `at`; None behind the last."""
        if at.epochs_left == 0:
            return None
        following = self.begin(at.epoch + 1, at.seed, -1)
        return replace(following, epochs_left=max(-1, at.epochs_left - 1), run=at.run, count=at.count)

    def parse(self, text: str) -> _Position:
        try:
            version, places, *numbers, key = parse_row(text, where="the checkpoint's position", fail=CheckpointError)
            if version == _FORMAT and key == self.key:
                epoch, seed, left, draws, run, count = _NUMBERS(numbers)
                parsed = tuple(
                    _Place(part.parse(at), *rest)
                    for part, (at, *rest) in zip(self.parts, listed(_PLACE)(places), strict=True)
                )
                return _Position(epoch, seed, left, parsed, draws, run, count, key)
        except CheckpointError:
            raise
        except (ValueError, TypeError, Mismatch):
            pass
        raise CheckpointError(
            "the checkpoint is of another dataset: other sources, weights, another seed or at_end; make the mixture "
            "as it was made when the checkpoint was saved, or use start_at="
        )

    def open(self, at: _Position, account: Account) -> MixedStream:
        return MixedStream(self, at, account)

    def behind(self, at: _Position, records: int, account: Account) -> At:
        return passed(self, at, records, account)

    def length(self, seed: int) -> int | None:
        """Which source runs out first depends on what is drawn; that all are read to their end, on nothing."""
        lengths = [part.length(seed + number) for number, part in enumerate(self.parts)]
        if self.at_end != "drop" or None in lengths:
            return None
        return sum(length or 0 for length in lengths)

    @property
    def described(self) -> dict[str, Any]:
        sources = {
            f"{name} of source {number}": value
            for number, part in enumerate(self.parts, 1)
            for name, value in part.described.items()
        }
        return {"weights": list(self.weights), "seed of draws": self.draw_seed, "at_end": self.at_end, **sources}

    def shuffled(self, how: Shuffle) -> MixedReading:
        """Each source by itself; together their windows are no larger than one."""
        each = how if how.whole else replace(how, window_bytes=max(1, how.window_bytes // len(self.parts)))
        return replace(self, parts=tuple(part.shuffled(each) for part in self.parts))

    def without_fields(self) -> MixedReading:
        return replace(self, parts=tuple(part.without_fields() for part in self.parts))


class _Part:
    """One source: its records one by one, and where it is between two of them."""

    def __init__(self, reading: Reading, place: _Place, account: Account) -> None:
        self._reading = reading
        self._account = account
        self._stream: Stream | None = None
        self._chunk: list[Record] = []
        self._taken = 0
        self._place = place

    @property
    def place(self) -> _Place:
        return replace(self._place, skip=self._place.skip + self._taken, given=self.given)

    @property
    def ended(self) -> bool:
        return self._place.ended

    @property
    def closed(self) -> bool:
        return self._stream is not None and self._stream.closed

    @property
    def chunk_bytes(self) -> int:
        return self._reading.read.limits.chunk_bytes if self._stream is None else self._stream.chunk_bytes

    def take(self) -> Record | None:
        """The next record; None at the end of this pass."""
        if self._taken == len(self._chunk) and not self._fill():
            return None
        record = self._chunk[self._taken]
        self._chunk[self._taken] = {}  # handed out: not held here any longer
        self._taken += 1
        return record

    def begin(self, at: At) -> None:
        """Read it again, from there."""
        self.close()
        self._place = _Place(at, passes=self._place.passes + 1)

    def end(self) -> None:
        self._place = replace(self.place, passes=self._place.passes + 1, ended=True)
        self.close()

    @property
    def given(self) -> int:
        return self._place.given + self._taken

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._chunk, self._taken = None, [], 0

    def _fill(self) -> bool:
        if self._stream is None:
            self._stream = self._reading.open(self._place.at, self._account)
            self._stream.discard(self._place.skip)
        else:
            self._place = replace(self._place, at=self._stream.position, skip=0, given=self.given)
        self._chunk, self._taken = [], 0
        self._chunk = [*self._stream.next_chunk()]
        return bool(self._chunk)


class MixedStream(EpochStream):
    """The records of a mixture from a position on."""

    def __init__(self, reading: MixedReading, at: _Position, account: Account) -> None:
        self._reading = reading
        self._account = account
        self._limits: Limits = reading.read.limits
        self._closed = False
        self._failure: Exception | None = None
        self._go_to(at)

    @property
    def position(self) -> _Position:
        return replace(self._at, draws=self._draws, places=tuple(part.place for part in self._parts))

    @property
    def closed(self) -> bool:
        return self._closed or any(part.closed for part in self._parts)

    @property
    def chunk_bytes(self) -> int:
        return min(self._limits.chunk_bytes, sum(part.chunk_bytes for part in self._parts))

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        del full  # each chunk is as full as it may be
        if self._failure is not None:
            raise self._failure
        chunk = self._drawn_records(min(most or self._limits.chunk_records, self._limits.chunk_records))
        self._at = replace(self._at, count=self._at.count + len(chunk))
        return Records(chunk)

    def begin_next_epoch(self) -> bool:
        following = self._reading.next_epoch(self.position)
        if following is None:
            return False
        self._close_parts()
        self._go_to(following)
        return True

    def close(self) -> None:
        self._closed = True
        self._close_parts()

    def _go_to(self, at: _Position) -> None:
        self._at = at
        self._draws = at.draws
        self._drawn: list[float] = []
        self._drawn_from = -1  # which block of draws that is
        self._parts = [
            _Part(part, place, self._account) for part, place in zip(self._reading.parts, at.places, strict=True)
        ]
        self._over = False
        self._weigh()

    def _close_parts(self) -> None:
        for part in self._parts:
            part.close()

    def _weigh(self) -> None:
        self._alive = [number for number, part in enumerate(self._parts) if not part.ended]
        self._sums = list(accumulate(self._reading.weights[number] for number in self._alive))

    def _drawn_records(self, most: int) -> list[Record]:
        chunk: list[Record] = []
        size, most_bytes = 0, self.chunk_bytes
        while len(chunk) < most and size < most_bytes:
            try:
                record = self._next()
            except Exception as error:
                if not chunk:
                    raise
                self._failure = error  # it comes behind the records before it, in the next call
                break
            if record is None:
                break
            chunk.append(record)
            size += size_of(record)
        return chunk

    def _next(self) -> Record | None:
        """The record of the next draw; None at the end of the epoch."""
        while self._alive and not self._over:
            number = self._alive[bisect_right(self._sums, self._draw() * self._sums[-1], hi=len(self._alive) - 1)]
            record = self._parts[number].take()
            if record is not None:
                self._draws += 1
                return record
            self._run_out(number)
        return None

    def _draw(self) -> float:
        block, within = divmod(self._draws, _DRAWS)
        if block != self._drawn_from:
            self._drawn = _uniform(self._reading.draw_seed, self._at.epoch, block)
            self._drawn_from = block
        return self._drawn[within]

    def _run_out(self, number: int) -> None:
        """What the rule says of a source that has no more; the same draw is then made among those that are left."""
        part, rule = self._parts[number], self._reading.at_end
        if rule == "stop":
            self._over = True
        elif rule == "drop" or not part.given:  # what is empty cannot be repeated
            part.end()
            self._weigh()
        elif all(each is part or each.place.passes for each in self._parts):
            self._over = True
        else:
            passes = part.place.passes + 1
            part.begin(self._reading.begin_part(number, self._at.epoch, self._at.seed, passes))


def _uniform(*words: int) -> list[float]:
    """Draws in [0, 1) that depend on `words` alone; RandomState's streams never change."""
    seeds = [part for word in words for part in (word & 0xFFFFFFFF, (word >> 32) & 0xFFFFFFFF)]
    drawn: list[float] = np.random.RandomState(seeds).random_sample(_DRAWS).tolist()
    return drawn


def checked_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """One positive number a source; equal ones where none are given."""
    given: list[Any] = [1.0] * count if weights is None else list(weights)
    if len(given) != count or not all(map(_is_weight, given)):
        raise OptionError(f"weights are {count} positive numbers, one for each source, not {weights!r}")
    return tuple(map(float, given))


def _is_weight(weight: Any) -> bool:
    """Whether it is a positive number: Python's or NumPy's, and neither True nor infinite."""
    is_number = hasattr(weight, "__float__") and not isinstance(weight, bool | np.bool_)
    return is_number and 0 < float(weight) < float("inf")
