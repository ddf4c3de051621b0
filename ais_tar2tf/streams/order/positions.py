"""Positions: the places at which a stream of records can continue, and the texts that checkpoints store for them.

This module must not do I/O. It decides what the text of a `Position` contains; `streams/datasets/mixture.py` decides
it for mixtures. To change the content, raise `_FORMAT`, and let `Position.from_text` still parse the texts of earlier
formats.
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

_FORMAT = 1  # the number of the format of a position's text


class StreamPosition(Protocol):
    """The position of a stream that reads one source or a mixture.

    Each class with this interface is a frozen dataclass. A checkpoint stores the text that `to_text` returns. The
    class `Position` explains the properties.
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
    """Parse the identity of a shard from the list of its fields. An empty fingerprint is left out of the list."""
    fingerprint = [text] * (isinstance(value, list) and len(value) == 5)
    return Identity(*row(text, text, text, maybe(whole()), *fingerprint)(value))


_MARK = row(whole(), whole(), boolean, _identity, whole())
# The checks of a position's fields. A field that is not listed here is checked by `whole()`.
_CHECKS: Mapping[str, Check[Any]] = {"epochs_left": whole(-1), "seed": any_whole, "fingerprint": text}


@dataclass(frozen=True, slots=True)
class Mark:
    """The place at which a lane continues.

    Attributes:
        step: The step of the host's `Order` that the lane reads.
        offset: The offset in the shard of the next record, that is, of the header of its first member.
        compressed: Whether the shard is compressed. If it is, `offset` counts decompressed bytes.
        identity: The identity of the shard's content. Fields that are not known are empty.
        number: The number of the next record in its shard if records have numbers as keys; otherwise 0.
    """

    step: int
    offset: int = 0
    compressed: bool = False
    identity: Identity = field(default_factory=Identity)
    number: int = 0

    def with_identity_of(self, other: Mark) -> Mark:
        """Return this mark, with its identity completed by the identity of `other` if both have the same step."""
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
        """Parse the list that `to_json` returns. Raise Mismatch if the list is damaged."""
        return cls(*_MARK(data))


@dataclass(frozen=True, slots=True)
class Position:
    """The place at which the stream of one host continues. Its text has about a hundred bytes for each lane.

    A position inside a shuffle window consists of two parts. `marks`, `lane` and `turn` are the start of the window.
    `emitted` is the number of records of the window that were returned already. To continue, a stream reads the
    window again from its start, and leaves out these records.
    """

    epoch: int
    seed: int
    epochs_left: int  # the number of epochs after this epoch; -1 for endless epochs
    marks: tuple[Mark, ...]  # one mark for each lane
    lane: int = 0  # the lane from which the next records are read
    turn: int = 0  # records that were read from the lane `lane` since its turn began
    window: int = 0  # the number of the window within the epoch
    emitted: int = 0  # records of the window that were returned already
    skip: int = 0  # records to read and drop at the marks, before the next record is returned
    read_for_all: int = 0  # records of the epoch that were read, if all hosts read one stream and share its records
    run: int = 0  # a number that identifies one iterator among all iterators of a dataset
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
            CheckpointError: The text is damaged, has another format, or is not the text of a position.
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
