"""Mixtures: several sources, the *parts* of the mixture, become one stream of records.

For each record, a random draw decides from which part the record comes. A draw depends only on its number in the
epoch, on the epoch, and on the seed of the draws. So the position of a mixture holds the number of the next draw, and
a position in each part. This module must not decide the order of the records within a part.
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

from ais_tar2tf.base.documents import structure
from ais_tar2tf.base.documents.sealed import parse_row, sealed_row
from ais_tar2tf.base.documents.structure import Mismatch, any_whole, boolean, listed, row, whole
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import CheckpointError, OptionError
from ais_tar2tf.options import Limits, Read, Shuffle
from ais_tar2tf.records import Record, Records
from ais_tar2tf.streams.datasets import Reading, position_after, size_of
from ais_tar2tf.streams.order import StreamPosition, strategy_of
from ais_tar2tf.streams.order.permutations import random_state
from ais_tar2tf.streams.reader.base import Stream

__all__ = ["AT_END", "MixedReading", "checked_weights"]

AT_END = ("stop", "drop", "repeat")
"""The choices for a part without more records: the epoch ends, the part is left out, or the part begins again."""

_FORMAT = "mix-1"  # of the text of a position
_DRAWS = 4096  # draws that are made at once
_PASS = 1 << 32  # added to a part's epoch each time the part begins again, so that the part is shuffled anew

_PLACE = row(structure.text, whole(), whole(), whole(), boolean)
_NUMBERS = row(whole(), any_whole, whole(-1), whole(), whole(), whole())


@dataclass(frozen=True, slots=True)
class _PartPosition:
    """The position in one part.

    Attributes:
        at: A position of the part's stream, at or before the next record.
        skip: The number of records from `at` to the next record.
        passes: How often the part was read to its end in this epoch. Each reading of the part is called a pass.
        given: The number of the part's records that this pass has returned.
        ended: Whether this epoch returns no more records of the part.
    """

    at: StreamPosition
    skip: int = 0
    passes: int = 0
    given: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _MixedPosition:
    """The position in a mixture. Fields with the names of fields of `Position` have the same meanings."""

    epoch: int
    seed: int
    epochs_left: int
    places: tuple[_PartPosition, ...]
    draws: int = 0  # the number of draws that were made in this epoch
    run: int = 0
    count: int = 0
    fingerprint: str = ""

    def to_text(self) -> str:
        """Return the text that a checkpoint stores."""
        places = [[each.at.to_text(), each.skip, each.passes, each.given, each.ended] for each in self.places]
        fields = [self.epoch, self.seed, self.epochs_left, self.draws, self.run, self.count, self.fingerprint]
        return sealed_row([_FORMAT, places, *fields])


@dataclass(frozen=True)
class MixedReading:
    """The description of a mixture: its parts, and how they are mixed.

    Attributes:
        parts: The parts; each is the reading of one source.
        weights: How often each part is drawn, relative to the other parts.
        draw_seed: The seed of the draws. The order within a part has another seed.
        at_end: What happens when a part has no more records: one of `AT_END`.
    """

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
    def fingerprint(self) -> str:
        made = json.dumps([[part.fingerprint for part in self.parts], self.weights, self.draw_seed, self.at_end])
        return hashlib.blake2b(made.encode(), digest_size=6).hexdigest()

    def begin(self, epoch: int, seed: int, epochs: int) -> _MixedPosition:
        places = tuple(_PartPosition(self.begin_part(number, epoch, seed)) for number in range(len(self.parts)))
        return _MixedPosition(epoch, seed, epochs - 1 if epochs > 0 else -1, places, fingerprint=self.fingerprint)

    def begin_part(self, number: int, epoch: int, seed: int, passes: int = 0) -> StreamPosition:
        """Return the position where a part begins after it was read to its end `passes` times in this epoch."""
        return self.parts[number].begin(epoch + passes * _PASS, seed + number, 1)

    def next_epoch(self, at: _MixedPosition) -> _MixedPosition | None:
        """Return the start of the epoch that follows the epoch of `at`; None after the last epoch."""
        if at.epochs_left == 0:
            return None
        following = self.begin(at.epoch + 1, at.seed, -1)
        return replace(following, epochs_left=max(-1, at.epochs_left - 1), run=at.run, count=at.count)

    def parse(self, text: str) -> _MixedPosition:
        try:
            version, places, *numbers, fingerprint = parse_row(
                text, where="the checkpoint's position", fail=CheckpointError
            )
            if version == _FORMAT and fingerprint == self.fingerprint:
                epoch, seed, left, draws, run, count = _NUMBERS(numbers)
                parsed = tuple(
                    _PartPosition(part.parse(at), *rest)
                    for part, (at, *rest) in zip(self.parts, listed(_PLACE)(places), strict=True)
                )
                return _MixedPosition(epoch, seed, left, parsed, draws, run, count, fingerprint)
        except CheckpointError:
            raise
        except (ValueError, TypeError, Mismatch):
            pass
        raise CheckpointError(
            "the checkpoint is of another dataset: other sources, weights, another seed or at_end; make the mixture "
            "as it was made when the checkpoint was saved, or use start_at="
        )

    def open(self, at: _MixedPosition, account: Account) -> MixedStream:
        return MixedStream(self, at, account)

    def seek(self, at: _MixedPosition, records: int, account: Account) -> StreamPosition:
        return position_after(self, at, records, account)

    def length(self, seed: int) -> int | None:
        """Return the number of records in an epoch; None if it is unknown or depends on the draws.

        It depends on the draws unless all parts are read to their ends exactly once, as with `at_end="drop"`.
        """
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

    def shuffled(self, how: Shuffle | None) -> MixedReading:
        """Return the same mixture with each part shuffled. The windows of all parts share the bytes of one window."""
        of_part = strategy_of(how).among(len(self.parts))
        return replace(self, parts=tuple(part.shuffled(of_part) for part in self.parts))

    def without_fields(self) -> MixedReading:
        return replace(self, parts=tuple(part.without_fields() for part in self.parts))

    @property
    def from_files(self) -> bool:
        return all(part.from_files for part in self.parts)

    def in_blocks(self) -> None:
        return None  # a mixture takes its records one by one


class _Part:
    """One part of an open mixture. It returns its records one by one, and knows its position after each record."""

    def __init__(self, reading: Reading, place: _PartPosition, account: Account) -> None:
        self._reading = reading
        self._account = account
        self._stream: Stream | None = None
        self._chunk: list[Record] = []
        self._taken = 0  # the number of records of the chunk that were returned
        self._place = place  # the position of the chunk's first record

    @property
    def place(self) -> _PartPosition:
        """The position of the next record."""
        return replace(self._place, skip=self._place.skip + self._taken, given=self._place.given + self._taken)

    @property
    def closed(self) -> bool:
        """Whether the stream of this part was closed from outside, such as by the session of its source."""
        return self._stream is not None and self._stream.closed

    @property
    def chunk_bytes(self) -> int:
        """The approximate size of a chunk of this part, in bytes."""
        return self._reading.read.limits.chunk_bytes if self._stream is None else self._stream.chunk_bytes

    def take(self) -> Record | None:
        """Return the next record; None at the end of this pass."""
        if self._taken == len(self._chunk) and not self._fill():
            return None
        record = self._chunk[self._taken]
        self._chunk[self._taken] = {}  # so that the memory is free as soon as the caller drops the record
        self._taken += 1
        return record

    def begin(self, at: StreamPosition) -> None:
        """Begin the next pass of this part at the position `at`."""
        self.close()
        self._place = _PartPosition(at, passes=self._place.passes + 1)

    def end(self) -> None:
        """Close the stream, and note that this epoch returns no more records of this part."""
        self._place = replace(self.place, passes=self._place.passes + 1, ended=True)
        self.close()

    def close(self) -> None:
        """Close the stream."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._chunk, self._taken = None, [], 0

    def _fill(self) -> bool:
        """Read the next chunk; return whether it has records."""
        if self._stream is None:
            self._stream = self._reading.open(self._place.at, self._account)
            self._stream.discard(self._place.skip)
        else:
            self._place = replace(self.place, at=self._stream.position, skip=0)
        self._chunk, self._taken = [], 0
        self._chunk = [*self._stream.next_chunk()]
        return bool(self._chunk)


class MixedStream(Stream):
    """The open stream of a mixture."""

    def __init__(self, reading: MixedReading, at: _MixedPosition, account: Account) -> None:
        self._reading = reading
        self._account = account
        self._limits: Limits = reading.read.limits
        self._closed = False
        self._failure: Exception | None = None
        self._go_to(at)

    @property
    def position(self) -> _MixedPosition:
        return replace(self._at, draws=self._draws, places=tuple(part.place for part in self._parts))

    @property
    def closed(self) -> bool:
        return self._closed or any(part.closed for part in self._parts)

    @property
    def chunk_bytes(self) -> int:
        return min(self._limits.chunk_bytes, sum(part.chunk_bytes for part in self._parts))

    def next_in_epoch(self, most: int | None = None, *, full: bool = False) -> Records:
        del full  # chunks are always full
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

    def _go_to(self, at: _MixedPosition) -> None:
        """Continue at a position, with new parts. The streams of the parts are opened when they are needed."""
        self._at = at
        self._draws = at.draws
        self._drawn: list[float] = []  # the latest block of `_DRAWS` draws
        self._block = -1  # the number of this block in the epoch
        self._parts = [
            _Part(part, place, self._account) for part, place in zip(self._reading.parts, at.places, strict=True)
        ]
        self._over = False
        self._update_weights()

    def _close_parts(self) -> None:
        for part in self._parts:
            part.close()

    def _update_weights(self) -> None:
        """Let the next draws choose only among the parts that have not ended."""
        self._alive = [number for number, part in enumerate(self._parts) if not part.place.ended]
        self._sums = list(accumulate(self._reading.weights[number] for number in self._alive))

    def _drawn_records(self, most: int) -> list[Record]:
        """Return the next chunk: up to `most` records, and fewer if they have `chunk_bytes` or the epoch ends."""
        chunk: list[Record] = []
        size, most_bytes = 0, self.chunk_bytes
        while len(chunk) < most and size < most_bytes:
            try:
                record = self._next()
            except Exception as error:
                if not chunk:
                    raise
                self._failure = error  # the next call raises it, after this call has returned the records before it
                break
            if record is None:
                break
            chunk.append(record)
            size += size_of(record)
        return chunk

    def _next(self) -> Record | None:
        """Return the record of the next draw; None at the end of the epoch."""
        while self._alive and not self._over:
            number = self._alive[bisect_right(self._sums, self._draw() * self._sums[-1], hi=len(self._alive) - 1)]
            record = self._parts[number].take()
            if record is not None:
                self._draws += 1
                return record
            self._apply_rule(number)
        return None

    def _draw(self) -> float:
        """Return the next draw, a number in [0, 1). The caller counts the draw in `_draws` when it is used."""
        block, within = divmod(self._draws, _DRAWS)
        if block != self._block:
            numbers = random_state(self._reading.draw_seed, self._at.epoch, block)
            self._drawn = numbers.random_sample(_DRAWS).tolist()
            self._block = block
        return self._drawn[within]

    def _apply_rule(self, number: int) -> None:
        """Do what `at_end` says for a part that has no more records.

        If the epoch does not end, the same draw then decides among the parts that remain.
        """
        part, place = self._parts[number], self._parts[number].place
        if self._reading.at_end == "stop":
            self._over = True
        elif self._reading.at_end == "drop" or not place.given:  # an empty part cannot be repeated
            part.end()
            self._update_weights()
        elif all(each is part or each.place.passes for each in self._parts):
            self._over = True
        else:
            part.begin(self._reading.begin_part(number, self._at.epoch, self._at.seed, place.passes + 1))


def checked_weights(weights: Sequence[float] | None, count: int) -> tuple[float, ...]:
    """Return the weights of `count` sources; by default they are equal.

    Raises:
        OptionError: The weights are not positive numbers, or not as many as sources.
    """
    given: list[Any] = [1.0] * count if weights is None else list(weights)
    if len(given) != count or not all(map(_is_weight, given)):
        raise OptionError(f"weights are {count} positive numbers, one for each source, not {weights!r}")
    return tuple(map(float, given))


def _is_weight(weight: Any) -> bool:
    """Return whether a value is a positive, finite number of Python or NumPy. A bool is none."""
    is_number = hasattr(weight, "__float__") and not isinstance(weight, bool | np.bool_)
    return is_number and 0 < float(weight) < float("inf")
