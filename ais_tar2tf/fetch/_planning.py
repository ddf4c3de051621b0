"""In which ranges shards are asked for, and how far ahead. No I/O, no threads: every call is made under one lock.

Parts stand in delivery order, also across shards. A shard that is read through is planned as far as the read-ahead
reaches. One that is jumped about in is asked for in small windows, as the reader comes to them, and in the islands
around the records that follow, where it is known where these begin.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator

from ais_tar2tf.errors import StoreError
from ais_tar2tf.fetch._islands import Islands
from ais_tar2tf.fetch._parts import Block, Part, Shard, Span
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import KIB, MIB, Read
from ais_tar2tf.stores import Body, Ranges, Store

__all__ = ["BLOCK", "TOGETHER_BYTES", "Planning"]

BLOCK = 2 * MIB  # large enough that a system call and a numpy pass cost little, small enough for the cache
TOGETHER_BYTES = 2 * MIB  # of all ranges in one request, where a store gives many: they are held at once
_FIRST_WINDOW = 8 * KIB  # behind a jump: a label and some headers
_LEAST_WINDOW = 4 * KIB
_MOST_WINDOW = 256 * KIB  # to begin with; half of what a jump leaves out at least
_SHRINKING = (
    8  # a window that was enough is tried smaller by so much of it: too large costs bytes, too small a request
)
_AHEAD_OF_JUMPS = 4 * MIB  # where much is jumped over, reading far ahead would fetch just that
_BEHIND_WINDOW = 2  # blocks that workers fetch behind a window as large as one
_ISLANDS = 64  # planned at most; when half of them are left, the next ones are


class Planning:
    """The parts that are planned, and where the reader is among them."""

    def __init__(
        self,
        store: Store,
        spans: Iterator[Span],
        read: Read,
        tuning: Tuning,
        most_ahead: int,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._spans = spans
        self._read = read
        self._tuning = tuning
        self._most_ahead = max(BLOCK, most_ahead)
        self._changed = changed
        self._waiting: deque[Part] = deque()  # of the parts, the ones that no worker has begun
        self._planning: Shard | None = None
        self._no_more = False
        self._planned = 0  # bytes, over all shards
        self._consumed = 0
        self._unproved = False  # the shard that answered last has no strong validator
        self._window = 0  # what the last shard ended with, if it was jumped about in: the next one begins with it
        self.parts: deque[Part] = deque()  # in delivery order; the first is being delivered
        self.failed: Exception | None = None  # what `spans` raised
        self.current: Shard | None = None
        self.delivered: int = 0  # offset in the current shard

    @property
    def ahead(self) -> int:
        """Bytes that may be under way: what is this stream's, as far as it pays off."""
        return max(BLOCK, min(self._most_ahead, self._tuning.read_ahead))

    def clear(self) -> None:
        self.parts.clear()
        self._waiting.clear()

    # What the reader wants.

    def next_shard(self) -> Span | None:
        """Go to the next shard; None behind the last."""
        while not self.parts:
            if not self._plan():
                if self.failed is not None:
                    raise self.failed
                return None
        self.current = shard = self.parts[0].shard
        self.delivered = shard.landed = shard.span.start
        return shard.span

    def leave(self) -> list[Part]:
        """Forget the parts of the current shard; those, for the requests under way."""
        shard = self.current
        if shard is None:
            return []
        given_up = self._give_up_all(shard)
        self._window = shard.window if shard.landed != shard.span.start else 0
        self.current = None
        return given_up

    def due(self) -> Part | None:
        """The part with the next bytes of the current shard, which may still have to come; None at its end."""
        shard = self.current
        while True:
            while self.parts and self.parts[0].shard is shard and self.parts[0].is_drained:
                self.parts.popleft()
                self._changed()
            part = self.parts[0] if self.parts and self.parts[0].shard is shard else None
            if shard is not None and shard.jumps and (part is None or part.start > self.delivered):
                if shard.end is not None and self.delivered >= shard.end:
                    return None
                return self._window_at(shard, part)
            if part is not None or shard is None or shard.whole or not self._plan():
                return part

    def take(self, part: Part) -> Block | None:
        """The first block of the part, or what is left of it behind a jump."""
        lag = self.delivered - part.at
        block = part.take()
        if not part.shard.jumps:
            self._consumed += block.end - block.begin
        self._changed()
        part.shard.seen = block.seen
        block = Block(block.buffer, block.begin + lag, block.end)
        self.delivered += max(0, block.end - block.begin)
        return block if block.begin < block.end else None

    def jump(self, count: int) -> tuple[int, list[Part]]:
        """Leave out `count` bytes if that pays: how many, and what was given up for it."""
        shard, limit = self.current, self._read.jump_bytes
        if shard is None or not shard.ranged or not limit or count - self._arrived(shard) < limit:
            return 0, []
        assert shard.end is not None
        count = min(count, shard.end - self.delivered)
        target = self.delivered + count
        given_up = self._give_up_before(shard, target) if shard.jumps else self._begin_jumps(shard)
        if shard.windows == 1:
            shard.window = max(_LEAST_WINDOW, shard.window - shard.window // _SHRINKING)
        elif shard.windows:
            shard.window = min(self.delivered - shard.landed, _MOST_WINDOW)
        shard.windows, shard.landed, self.delivered = 0, target, target
        if shard.islands is not None:
            self._plan_islands(shard, shard.islands)
        return count, given_up

    def _arrived(self, shard: Shard) -> int:
        """Bytes of the current shard that wait to be read, without a hole."""
        arrived, at = 0, self.delivered
        for part in self.parts:
            if part.shard is not shard or part.at > at:
                break
            arrived += sum(block.end - block.begin for block in part.blocks)
            at = part.start + part.received
        return arrived

    # Jumping about.

    def _begin_jumps(self, shard: Shard) -> list[Part]:
        self._most_ahead = min(self._most_ahead, _AHEAD_OF_JUMPS)
        shard.window = shard.window or _FIRST_WINDOW
        self._ask_in_windows(shard)
        return self._give_up_all(shard)

    def _ask_in_windows(self, shard: Shard) -> None:
        shard.jumps = shard.whole = True
        if self._planning is shard:
            self._planning = None
        begins = shard.span.begins
        if begins is not None:
            shard.islands = Islands(begins())

    def _window_at(self, shard: Shard, following: Part | None) -> Part:
        """What is behind a jump, or behind the window there, which was too small: then twice as much.

        No window is larger than a block, for the reader may be the one who fetches it, and then nobody makes room.
        """
        assert shard.end is not None
        end = shard.end if following is None else min(shard.end, following.start)
        size = min(BLOCK, shard.window << min(shard.windows, 32))
        if shard.islands is not None and self.delivered != shard.landed:
            shard.islands.reach_farther()
        shard.windows += 1
        part = Part(shard, self.delivered, min(end, self.delivered + size), self._consumed)
        self.parts.appendleft(part)
        if size == BLOCK:  # much was read without a jump
            for place in range(1, _BEHIND_WINDOW + 1):
                start = self.delivered + place * BLOCK
                self._insert(shard, start, min(end, start + BLOCK), place, small=False)
        return part

    def _plan_islands(self, shard: Shard, islands: Islands) -> None:
        """The one that the reader landed on, and those around the next records."""
        stop = islands.land(self.delivered)
        planned = [part for part in self.parts if part.shard is shard]
        if stop is not None and (not planned or planned[0].start > self.delivered):
            following = planned[0].start if planned else stop
            planned[:0] = self._insert(shard, self.delivered, min(stop, following), 0)
        if not planned or len(planned) > _ISLANDS // 2:
            return
        behind = planned[-1].stop or 0
        for start, stop in islands.ahead(behind, _ISLANDS - len(planned), TOGETHER_BYTES):
            planned += self._insert(shard, start, stop, len(planned))
        self._changed()

    def _insert(self, shard: Shard, start: int, stop: int, place: int, *, small: bool = True) -> list[Part]:
        """A part of the current shard, behind so many others of it; none where it would be empty."""
        assert shard.end is not None
        part = Part(shard, start, min(stop, shard.end), self._consumed, small=small)
        if start >= (part.stop or 0):
            return []
        self.parts.insert(place, part)
        before = set(map(id, itertools.islice(self.parts, place)))
        self._waiting.insert(sum(id(each) in before for each in self._waiting), part)
        return [part]

    def _give_up_before(self, shard: Shard, target: int) -> list[Part]:
        """Forget the parts of the current shard that end before the target of a jump."""
        given_up: list[Part] = []
        while self.parts and self.parts[0].shard is shard:
            stop = self.parts[0].stop
            if stop is None or stop > target:
                break
            given_up.append(self._give_up(self.parts.popleft()))
        return given_up

    def _give_up_all(self, shard: Shard) -> list[Part]:
        """Forget the parts of the current shard."""
        given_up: list[Part] = []
        while self.parts and self.parts[0].shard is shard:
            given_up.append(self._give_up(self.parts.popleft()))
        shard.whole = True
        if self._planning is shard:
            self._planning = None
        self._consumed = self.parts[0].place if self.parts else self._planned
        self._changed()
        return given_up

    def _give_up(self, part: Part) -> Part:
        part.given_up = True
        if part in self._waiting:
            self._waiting.remove(part)
        return part

    # What workers want.

    def claim(self) -> list[Part]:
        """The earliest part that nobody has begun and that the bound allows, with others that go together with it."""
        if not self._waiting:
            self.fill()
        if not self._waiting or self._waiting[0].place - self._consumed >= self.ahead:
            return []
        parts = self.begin(self._waiting[0])
        self.fill()  # for the next worker
        return parts

    def begin(self, part: Part) -> list[Part]:
        """Somebody fetches this part now, and what comes next, if its store does well to give that with it."""
        part.begun = True
        if part not in self._waiting:  # a window, which the reader made for itself
            return [part]
        self._waiting.remove(part)
        parts = [part]
        if not isinstance(self._store, Ranges) or not part.small:
            return parts
        size = part_size(part)
        while len(parts) < self._store.ranges_at_once:
            if not self._waiting and not (self._can_plan() and self._plan()):
                break
            more = self._waiting[0]
            size += part_size(more)
            elsewhere = more.shard is not part.shard and not self._store.across_objects
            if not more.small or elsewhere or size > TOGETHER_BYTES:
                break
            more.begun = True
            parts.append(self._waiting.popleft())
        return parts

    def has_room(self, part: Part, size: int) -> bool:
        """Whether the bound of the read-ahead allows so many more bytes of the part."""
        ahead = part.place + part.received - self._consumed
        return ahead <= 0 or ahead + size <= self.ahead

    def fill(self) -> None:
        """Plan as far as the read-ahead reaches."""
        while self._can_plan() and self._plan():
            pass

    def note_received(self, part: Part) -> None:
        if part.stop is None and not part.given_up:
            self._planned = max(self._planned, part.place + part.received)

    def note_end(self, part: Part) -> None:
        """All of the part has come, or all that will."""
        if part.shard.size is None and not part.given_up:
            part.shard.whole = True
            if self._planning is part.shard:
                self._planning = None
            self._planned = max(self._planned, part.place + part.received)

    def note_answer(self, part: Part, body: Body) -> None:
        """The first answer of a shard tells its size, and whether ranges are honoured."""
        shard = part.shard
        shard.answered = True
        if shard.size is not None or part.given_up:
            return
        shard.identity = shard.identity.completed_by(body.info.identity)
        self._unproved = shard.unproved
        shard.size = size = self._size_told(part, body)
        end = shard.end
        if size is None or end is None:
            part.stop = shard.span.stop  # all of it comes in this answer
            return
        answered = size if body.stop is None else body.stop
        shard.ranged = answered < size and not shard.unproved
        if part.stop is None or part.stop > end or answered > part.stop:
            part.stop = end  # or the store knows no ranges: this answer brings all that is left
        self._note_planned(part, part.stop)
        if shard.window and not shard.whole and not shard.unproved:
            shard.windows = 1
            self._ask_in_windows(shard)
        self.fill()

    def _size_told(self, part: Part, body: Body) -> int | None:
        if body.info.size is not None or body.stop is None:
            return body.info.size
        if part.stop is None:  # "bytes 5-9/*" to a request without an end
            return body.stop
        raise StoreError(
            "the server gives ranges without saying how long the object is; read it with connections=1",
            url=self._store.url(body.info.name),
        )

    # Shards that are read through.

    def _can_plan(self) -> bool:
        if self._waiting or self._planned - self._consumed >= self.ahead:
            return False
        if self._planning is not None and self._planning.size is None:
            return False
        jumps = self.current is not None and self.current.jumps
        return not (jumps and self.parts and self.parts[-1].shard is not self.current)  # one shard ahead is enough

    def _plan(self) -> bool:
        """Make the next part if it can be told which; False when there is nothing more to plan."""
        if self._no_more:
            return False
        shard = self._planning or self._begin_shard()
        if shard is None:
            self._no_more = True
            return False
        self._planning = shard
        part = Part(shard, shard.planned, self._stop_of_next(shard), self._planned)
        part.small = shard.size is not None and part.start == shard.span.start and self._is_small(part)
        self.parts.append(part)
        self._waiting.append(part)
        if shard.size is not None:  # else what comes next is not known before its first answer
            self._note_planned(part, part.stop if part.stop is not None else shard.size)
        self._changed()
        return True

    def _begin_shard(self) -> Shard | None:
        try:
            span = next(self._spans, None)
        except Exception as error:  # noqa: BLE001  # it may be a worker that plans: the reader raises this
            self.failed, span = error, None
        if span is None:
            return None
        shard = Shard(span, span.identity, self._size_known(span), planned=span.start)
        shard.unproved = bool(span.identity.seen) and not span.identity.is_strong
        if shard.size is None and self._asks_for_ranges(shard):
            shard.window = self.current.window if self.current is not None and self.current.jumps else self._window
        return shard

    @staticmethod
    def _is_small(part: Part) -> bool:
        return part.stop == part.shard.span.stop and 0 < part_size(part) <= TOGETHER_BYTES // 2

    def _asks_for_ranges(self, shard: Shard) -> bool:
        return self._over_connections(shard) or shard.span.stop is not None

    def _over_connections(self, shard: Shard) -> bool:
        """Whether several requests bring the shard: not where nothing would prove that they are of one content."""
        return self._read.connections > 1 and not (shard.unproved or self._unproved)

    def _stop_of_next(self, shard: Shard) -> int | None:
        """Where the next part of it ends; None: with the shard."""
        if not self._asks_for_ranges(shard):
            return None
        stops = [shard.span.stop, shard.end]
        if self._over_connections(shard):
            stops.append(shard.planned + self._tuning.range_bytes)
        if shard.window:
            stops.append(shard.planned + shard.window)
        return min((stop for stop in stops if stop is not None), default=None)

    def _size_known(self, span: Span) -> int | None:
        """Beforehand, of a few bytes of a shard that an index knows: what comes next can then be asked for, too."""
        size = span.identity.size
        if size is None or span.stop is None or span.stop > size:
            return None
        return size if span.stop - span.start <= self._read.range_bytes else None

    def _note_planned(self, part: Part, stop: int) -> None:
        """`part` reaches to `stop`: what was planned, and whether the shard is planned whole, follow."""
        shard = part.shard
        self._planned = part.place + (stop - part.start)
        shard.planned = stop
        if shard.end is not None and stop >= shard.end:
            shard.whole = True
            if self._planning is shard:
                self._planning = None


def part_size(part: Part) -> int:
    """Of a part whose end is known."""
    return 0 if part.stop is None else part.stop - part.start
