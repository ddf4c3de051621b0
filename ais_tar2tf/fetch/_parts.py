"""What fetching is about: spans of shards, the parts that they are asked for in, and the blocks that came. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ais_tar2tf.errors import StoreError, TransportError
from ais_tar2tf.fetch._islands import Islands
from ais_tar2tf.fetch._prefix import Prefix
from ais_tar2tf.stores import Identity

__all__ = ["Block", "Part", "Shard", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """One shard to be fetched, `start` to `stop` (None: its end); `identity` binds it to what was seen before."""

    name: str
    start: int = 0
    identity: Identity = field(default_factory=Identity)
    stop: int | None = None
    begins: Callable[[], Sequence[int]] | None = field(default=None, compare=False)
    """Offsets of records in it, rising, the last one's end among them: where an index knows them."""
    bound: bool = (
        False  # reading goes on with the content of `identity`, or not at all: a position or an index says so
    )


class Block(NamedTuple):
    """Bytes that came: those of `buffer` from `begin` to `end`."""

    buffer: memoryview
    begin: int
    end: int
    seen: str = ""  # a hash of the shard up to here, where its store states no strong validator


@dataclass(slots=True, eq=False)
class Shard:
    """What is known of a shard while it is fetched."""

    span: Span
    identity: Identity
    size: int | None = None
    answered: bool = False
    planned: int = 0  # offset up to which parts were made
    whole: bool = False  # every part was made, or will be when the reader is there
    ranged: bool = False  # its store answered with less than all of it
    unproved: bool = False  # its store states no strong validator: one answer brings all of it
    seen: str = ""  # a hash of what was delivered of it, if so
    jumps: bool = False  # it is asked for in windows, for what is behind one may not be wanted
    window: int = 0  # bytes of the next one
    windows: int = 0  # since the last jump
    landed: int = 0  # where that jump led
    islands: Islands | None = None

    @property
    def is_bound(self) -> bool:
        """Whether an answer has to state the strong validator of what came before."""
        return (self.answered or self.span.bound) and not self.unproved

    @property
    def base(self) -> int:
        """Where the one body of a shard without a strong validator begins: what a position has seen comes again."""
        return 0 if self.span.identity.seen else self.span.start

    @property
    def end(self) -> int | None:
        """Where reading ends, once the size is known."""
        if self.size is None or self.span.stop is None:
            return self.size
        return min(self.size, self.span.stop)


@dataclass(slots=True, eq=False)
class Part:
    """A range of one shard, and the blocks of it that have come."""

    shard: Shard
    start: int
    stop: int | None  # None: to the end, wherever that is
    place: int  # bytes planned before it, over all shards: what the bound of the read-ahead counts in
    small: bool = False  # it may go together with others, where a store gives many ranges at once
    begun: bool = False
    given_up: bool = False
    blocks: deque[Block] = field(default_factory=deque[Block])
    held: list[Block] = field(default_factory=list[Block])  # until they are proved to be of the content asked for
    prefix: Prefix | None = None  # of the shard, as far as it was received; None: its store states a strong validator
    received: int = 0
    held_back: float = 0.0  # seconds for which its reader took nothing
    delivered: int = 0
    done: bool = False
    error: StoreError | None = None
    trouble: TransportError | None = None  # that the last try ended with, before another one

    @property
    def at(self) -> int:
        """Offset of the next byte that it will deliver."""
        return self.start + self.delivered

    @property
    def is_drained(self) -> bool:
        return self.done and not self.blocks and self.error is None

    def take(self) -> Block:
        block = self.blocks.popleft()
        self.delivered += block.end - block.begin
        return block
