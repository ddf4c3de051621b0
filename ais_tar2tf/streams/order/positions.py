"""Positions: the places at which a stream of records can continue, and the text of them in a checkpoint. No I/O.

This module alone decides what the text of a position holds. To change that, raise `_FORMAT`, and keep reading the
texts of earlier formats in `Position.from_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

from ais_tar2tf.base.documents.sealed import parse_row, sealed_row
from ais_tar2tf.base.documents.structure import Check, Mismatch, any_whole, boolean, listed, maybe, row, text, whole
from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.stores import Identity

__all__ = ["Mark", "Position", "StreamPosition"]

_FORMAT = 1  # of a position's text


class StreamPosition(Protocol):
    """The position of a stream that reads one source or a mixture: a frozen dataclass whose text a checkpoint stores.

    `Position` describes the fields.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def epoch(self) -> int: ...
    @property
    def epochs_left(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def run(self) -> int: ...
    @property
    def count(self) -> int: ...

    def to_text(self) -> str: ...


def _identity(value: Any) -> Identity:
    """Parse the identity of a shard. Its last entry, the fingerprint of the content, may be missing: it was empty."""
    fingerprint = [text] * (isinstance(value, list) and len(value) == 5)
    return Identity(*row(text, text, text, maybe(whole()), *fingerprint)(value))


_MARK = row(whole(), whole(), boolean, _identity, whole())
# The checks of fields of a position; `whole()` checks the fields that are not here.
_CHECKS: Mapping[str, Check[Any]] = {"epochs_left": whole(-1), "seed": any_whole, "fingerprint": text}


@dataclass(frozen=True, slots=True)
class Mark:
    """The place at which a lane continues.

    Attributes:
        step: The step of the host's `Order` that the lane reads.
        offset: The offset of the next record's first header in the shard of that step.
        compressed: Whether the shard is compressed; if so, the offset counts decompressed bytes.
        identity: The content of the shard, as far as it is known.
        number: The number of the next record in its shard, if the archive gives its records numbers as keys; else 0.
    """

    step: int
    offset: int = 0
    compressed: bool = False
    identity: Identity = field(default_factory=Identity)
    number: int = 0

    def with_identity_of(self, other: Mark) -> Mark:
        """Return this mark with the identity that `other` knows, if both are marks of the same step."""
        if other.step != self.step:
            return self
        return replace(self, identity=self.identity.completed_by(other.identity))

    def to_json(self) -> list[Any]:
        """Return the mark as a list for JSON."""
        known = self.identity
        identity = [known.version, known.etag, known.checksum, known.size]
        if known.fingerprint:
            identity.append(known.fingerprint)
        return [self.step, self.offset, self.compressed, identity, self.number]

    @classmethod
    def from_json(cls, data: Any) -> Mark:
        """Parse a mark; raise Mismatch if it is damaged."""
        return cls(*_MARK(data))


@dataclass(frozen=True, slots=True)
class Position:
    """The place at which the stream of one host continues. Its text has a few hundred bytes, with every shuffle.

    A position in a shuffle window consists of the start of the window (`marks`, `lane` and `turn`), from which the
    window is read again, and of the number of the window's records that were returned (`emitted`).
    """

    epoch: int
    seed: int
    epochs_left: int  # epochs that follow this one; -1 if they never end
    marks: tuple[Mark, ...]  # one mark for each lane
    lane: int = 0  # the lane that the next records are read from
    turn: int = 0  # records that were taken from `lane` in its current turn
    window: int = 0  # the number of the window within the epoch
    emitted: int = 0  # records of the window that were returned
    skip: int = 0  # records to read and drop before the next one
    read_for_all: int = 0  # records of this epoch that were read for all hosts together, if hosts share a stream
    run: int = 0  # a number that identifies one iterator among those of a dataset
    count: int = 0  # records returned in this run
    fingerprint: str = ""  # the fingerprint of the plan that the position belongs to

    def to_text(self) -> str:
        """Return the text that a checkpoint stores."""
        fields = [getattr(self, name) for name in self.__slots__ if name != "marks"]
        return sealed_row([_FORMAT, [mark.to_json() for mark in self.marks], *fields])

    @classmethod
    def from_text(cls, saved: str) -> Position:
        """Parse the text of a position.

        Raises:
            CheckpointError: The text is damaged, of another format, or no position at all.
        """
        try:
            version, marks, *values = parse_row(saved, where="the checkpoint's position", fail=CheckpointError)
            if version == _FORMAT:
                names = [name for name in cls.__slots__ if name != "marks"]
                fields = row(*(_CHECKS.get(name, whole()) for name in names))(values)
                return cls(marks=tuple(listed(Mark.from_json)(marks)), **dict(zip(names, fields, strict=True)))
        except CheckpointError:
            raise
        except (ValueError, TypeError, Mismatch):
            pass
        raise CheckpointError(
            "the checkpoint's position is not one of this version of ais_tar2tf; begin again, or use start_at="
        )
