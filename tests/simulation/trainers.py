"""Simulate the trainers: when they request which bytes, and how they retry, by the package's rules.

A lane reads its shards in pieces. With several connections, a piece is a range request; with a single connection, it
is a part of one answer, which waits while the read-ahead is full. A trainer consumes the lanes' pieces in turn, at
its own rate.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ais_tar2tf.base.retries import Tries
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Read, Shuffle
from ais_tar2tf.streams.order import Plan
from tests.simulation.cluster import MB, Cluster, Events, Proxies, Target, Targets

__all__ = ["Client", "Run", "Trainer", "orders"]

_FAILURE = TransportError("the body broke off", url="ais://simulated")


@dataclass(frozen=True, kw_only=True)
class Client:
    """The settings of all trainers, with the package's defaults where it has any."""

    trainers: int = 1_000
    shards: int = 1_000_000
    shard_bytes: int = 100 * MB
    rate: float = 500 * MB  # bytes per second that one trainer consumes: eight GPUs and their decoders
    read: Read = field(default_factory=Read)
    shuffle: Shuffle | None = field(default_factory=Shuffle)
    seed: int = 1


def orders(client: Client, epoch: int = 0) -> list[Sequence[int]]:
    """Return each trainer's shards as `Plan` deals them, computed once for all trainers.

    A test compares with Plan.
    """
    whole = Plan(client.shards, client.shuffle).order(epoch, client.seed).shards
    return [whole[host :: client.trainers] for host in range(client.trainers)]


@dataclass(eq=False, slots=True)
class _Request:
    """A request, which is retried until it has been answered completely."""

    shard: int
    tries: Tries
    sender: Target | None = None  # None: ask a proxy first


@dataclass(eq=False, slots=True)
class _Piece:
    lane: _Lane
    request: _Request
    size: int
    ready: bool = False


class _Lane:
    def __init__(self, run: Run, trainer: Trainer, shards: Iterator[int]) -> None:
        self._run = run
        self.trainer = trainer
        client, self._read = run.client, run.read_of_lane
        self._several = self._read.connections > 1
        self._size = client.shard_bytes
        self._piece = min(self._read.range_bytes, self._read.limits.read_ahead_bytes)
        self._most = self._read.limits.read_ahead_bytes // self._piece
        self._shards = shards
        self._planning = self._pieces_of_next()
        self.pieces: deque[_Piece] = deque()  # requested or received, in order
        self._open = 0

    def _pieces_of_next(self) -> Iterator[_Piece]:
        for shard in self._shards:
            request = _Request(shard, Tries(self._read.retry))
            for begin in range(0, self._size, self._piece):
                if self._several:
                    request = _Request(shard, Tries(self._read.retry))
                yield _Piece(self, request, min(self._piece, self._size - begin))

    def ask(self) -> None:
        """Request as many pieces as connections and read-ahead allow."""
        while self._open < self._read.connections and len(self.pieces) < self._most:
            piece = next(self._planning, None)
            if piece is None:
                return
            self.pieces.append(piece)
            self._open += 1
            self._run.request(piece)

    def arrived(self, piece: _Piece) -> None:
        piece.ready = True
        self._open -= 1
        self.ask()
        if self.trainer.waiting_for is self:
            self.trainer.proceed()

    @property
    def ended(self) -> bool:
        return not self.pieces


class Trainer:
    """Consumes a piece of each lane in turn, which takes some time."""

    def __init__(self, run: Run, shards: Sequence[int]) -> None:
        self._run = run
        step = run.lanes
        self.lanes = [_Lane(run, self, iter(shards[lane::step])) for lane in range(step)]
        self._turn = 0
        self.waiting_for: _Lane | None = None
        self.taken = 0  # bytes
        self.failed = ""

    def begin(self, _: object = None) -> None:
        for lane in self.lanes:
            lane.ask()
        self.proceed()

    def proceed(self, _: object = None) -> None:
        self.waiting_for = None
        lanes = self.lanes
        for _turn in range(len(lanes)):
            lane = lanes[self._turn]
            if not lane.ended:
                break
            self._turn = (self._turn + 1) % len(lanes)
        else:
            return  # the epoch is over
        if self.failed:
            return
        piece = lane.pieces[0]
        if not piece.ready:
            self.waiting_for = lane
            return
        lane.pieces.popleft()
        self.taken += piece.size
        self._turn = (self._turn + 1) % len(lanes)
        self._run.note_taken(piece.size)
        lane.ask()
        self._run.events.at(self._run.events.now + piece.size / self._run.client.rate, self.proceed)


class Run:
    """A simulation of all trainers and the cluster."""

    def __init__(self, client: Client, cluster: Cluster, *, spread: float = 1.0) -> None:
        self.client = client
        self.cluster = cluster
        self.lanes = Plan(client.shards, client.shuffle).lanes
        self.read_of_lane = client.read.of_lane(self.lanes)
        self.events = Events()
        self.targets = Targets(cluster, self.events, self._sent)
        self.proxies = Proxies(cluster.proxy_workers)
        self._random = random.Random(client.seed)
        self.trainers = [Trainer(self, shards) for shards in orders(client)]
        self.failures: list[tuple[float, str]] = []
        self.retries = 0
        self.taken_at: list[int] = []  # bytes in each second
        for trainer in self.trainers:
            self.events.at(self._random.random() * spread, trainer.begin)

    def until(self, time: float) -> Run:
        self.events.run(time)
        return self

    def kill(self, target: int, at: float) -> None:
        self.events.at(at, self._kill, target)

    def rates(self, begin: float, end: float) -> list[float]:
        """Return the bytes per second that each trainer consumes between two times."""
        self.until(begin)
        before = [trainer.taken for trainer in self.trainers]
        self.until(end)
        return [(trainer.taken - was) / (end - begin) for trainer, was in zip(self.trainers, before, strict=True)]

    def request(self, piece: _Piece) -> None:
        sender = piece.request.sender
        if sender is not None and sender.alive:
            sender.send(piece.size, piece)
            return
        answered = self.proxies.answer_at(self.events.now, self.cluster.redirect)
        self.events.at(answered + 2 * self.cluster.round_trip, self._redirected, piece)

    def note_taken(self, size: int) -> None:
        second = int(self.events.now)
        if second >= len(self.taken_at):
            self.taken_at += [0] * (second + 1 - len(self.taken_at))
        self.taken_at[second] += size

    def _redirected(self, piece: _Piece) -> None:
        target = self.targets.owner(piece.request.shard)
        if not target.alive:
            self._retry(piece, progress=False)
        elif self.cluster.copies or target is self.targets.first_owner(piece.request.shard):
            piece.request.sender = target
            target.send(piece.size, piece)
        else:
            self._fail(piece.lane.trainer, "ShardNotFound")

    def _retry(self, piece: _Piece, *, progress: bool) -> None:
        piece.request.sender = None
        delay = piece.request.tries.after_failure(_FAILURE, self._random.random, progress=progress)
        if delay is None:
            self._fail(piece.lane.trainer, "TransportError")
            return
        self.retries += 1
        self.events.at(self.events.now + delay, self.request, piece)

    def _fail(self, trainer: Trainer, error: str) -> None:
        if not trainer.failed:
            trainer.failed = error
            self.failures.append((self.events.now, error))

    def _sent(self, piece: _Piece) -> None:
        piece.request.tries.failed = 0
        piece.lane.arrived(piece)

    def _kill(self, target: int) -> None:
        for piece in self.targets.kill(target):
            self._retry(piece, progress=True)
