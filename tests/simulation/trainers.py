"""The trainers' side: what each asks for, when, and what it does when an answer breaks off, by the package's rules.

A lane reads its shards in pieces: ranges over several connections, or the one answer of a single connection, which is
held back while its read-ahead is full. The records of the lanes are taken in turns, at a trainer's own rate.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Read, Shuffle
from ais_tar2tf.plan import Plan
from ais_tar2tf.retries import Tries
from tests.simulation.cluster import MB, Cluster, Events, Proxies, Target, Targets

__all__ = ["Client", "Run", "Trainer", "orders"]

_FAILURE = TransportError("the body broke off", url="ais://simulated")


@dataclass(frozen=True, kw_only=True)
class Client:
    """What all trainers are given. What the package has a default for has that one."""

    trainers: int = 1_000
    shards: int = 1_000_000
    shard_bytes: int = 100 * MB
    rate: float = 500 * MB  # that one trainer takes a second: eight GPUs and their decoders
    read: Read = field(default_factory=Read)
    shuffle: Shuffle | None = field(default_factory=Shuffle)
    seed: int = 1


def orders(client: Client, epoch: int = 0) -> list[Sequence[int]]:
    """Each trainer's shards, as `Plan` deals them; worked out once for all, which a test compares with Plan's own."""
    whole = Plan(client.shards, client.shuffle).order(epoch, client.seed).shards
    return [whole[host :: client.trainers] for host in range(client.trainers)]


@dataclass(eq=False, slots=True)
class _Request:
    """One answer of a store, or the next one that goes on where it broke off."""

    shard: int
    tries: Tries
    sender: Target | None = None  # None: a proxy has to be asked


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
        self.pieces: deque[_Piece] = deque()  # asked for or there, in order
        self._open = 0

    def _pieces_of_next(self) -> Iterator[_Piece]:
        for shard in self._shards:
            request = _Request(shard, Tries(self._read.retry))
            for begin in range(0, self._size, self._piece):
                if self._several:
                    request = _Request(shard, Tries(self._read.retry))
                yield _Piece(self, request, min(self._piece, self._size - begin))

    def ask(self) -> None:
        """For as much as connections and read-ahead allow."""
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
        if self.trainer.waits_for is self:
            self.trainer.go_on()

    @property
    def ended(self) -> bool:
        return not self.pieces


class Trainer:
    """Takes a piece from each lane in turn, and works on it for a while."""

    def __init__(self, run: Run, shards: Sequence[int]) -> None:
        self._run = run
        step = run.lanes
        self.lanes = [_Lane(run, self, iter(shards[lane::step])) for lane in range(step)]
        self._turn = 0
        self.waits_for: _Lane | None = None
        self.taken = 0  # bytes
        self.failed = ""

    def begin(self, _: object = None) -> None:
        for lane in self.lanes:
            lane.ask()
        self.go_on()

    def go_on(self, _: object = None) -> None:
        self.waits_for = None
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
            self.waits_for = lane
            return
        lane.pieces.popleft()
        self.taken += piece.size
        self._turn = (self._turn + 1) % len(lanes)
        self._run.note_taken(piece.size)
        lane.ask()
        self._run.events.at(self._run.events.now + piece.size / self._run.client.rate, self.go_on)


class Run:
    """Everybody, from the moment at which the first request may be sent."""

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
        self.taken_at: list[int] = []  # bytes, by seconds
        for trainer in self.trainers:
            self.events.at(self._random.random() * spread, trainer.begin)

    def until(self, time: float) -> Run:
        self.events.run(time)
        return self

    def kill(self, target: int, at: float) -> None:
        self.events.at(at, self._kill, target)

    def rates(self, begin: float, end: float) -> list[float]:
        """Bytes a second that each trainer takes between two times."""
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
            self._again(piece, progress=False)
        elif self.cluster.copies or target is self.targets.first_owner(piece.request.shard):
            piece.request.sender = target
            target.send(piece.size, piece)
        else:
            self._fail(piece.lane.trainer, "ShardNotFound")

    def _again(self, piece: _Piece, *, progress: bool) -> None:
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
            self._again(piece, progress=True)
