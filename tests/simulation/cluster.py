"""Simulate the cluster: proxies that redirect, and targets that divide their bandwidth among their streams."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import xxhash

__all__ = ["Cluster", "Events", "Proxies", "Target", "Targets"]

MB = 1_000_000
GB = 1_000 * MB


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Assumptions about a cluster. Times are in seconds, sizes in bytes."""

    targets: int = 100
    target_bandwidth: float = 10 * GB  # bytes per second of network and disks together
    connection_bandwidth: float = 1.2 * GB  # bytes per second of one TCP connection: 10 Gbit/s
    round_trip: float = 0.0005
    proxy_workers: int = 16  # requests that all proxies answer concurrently: the cores of one machine
    redirect: float = 0.0004  # time of a worker: 40,000 redirects per second
    list_page: float = 0.1  # time of a worker for 10,000 names, which it requests from all targets and merges
    notice: float = 20.0  # until the cluster notices a target's death; until then, clients are redirected to it
    slowest: float = 1.0  # the share of its bandwidth that the first target has: a failing disk, a bad cable
    copies: bool = True  # whether other targets have a dead target's objects, by erasure coding


class Events:
    """Planned events, in the order of their times, and at equal times in the order of planning."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._number = 0

    def at(self, time: float, action: Callable[[Any], None], what: Any = None) -> None:
        self._number += 1
        heapq.heappush(self._planned, (time, self._number, action, what))

    def run(self, until: float) -> None:
        while self._planned and self._planned[0][0] <= until:
            self.now, _, action, what = heapq.heappop(self._planned)
            action(what)


class Proxies:
    """Workers with one queue. Requests arrive in the order of time, so the time of each answer is known at once."""

    def __init__(self, workers: int) -> None:
        self._free_at = [0.0] * workers
        self.requests = 0

    def answer_at(self, now: float, takes: float) -> float:
        self.requests += 1
        begun = max(now, self._free_at[0])
        heapq.heapreplace(self._free_at, begun + takes)
        return begun + takes


@dataclass(eq=False)
class Target:
    """Sends to all its streams at one rate: its bandwidth divided by their number, or a connection's limit.

    `_served` is the number of bytes that a stream would have got if it had existed from the start. Each stream ends
    when this number reaches a value computed at the stream's start.
    """

    events: Events
    bandwidth: float
    connection_bandwidth: float
    done: Callable[[Any], None]
    alive: bool = True
    sent: float = 0.0
    max_streams: int = 0
    _served: float = 0.0
    _since: float = 0.0
    _streams: list[tuple[float, int, float, Any]] = field(default_factory=list)
    _number: int = 0
    _woken_at: float = float("inf")

    def send(self, size: float, what: Any) -> None:
        self._pass_time()
        self._number += 1
        heapq.heappush(self._streams, (self._served + size, self._number, size, what))
        self.max_streams = max(self.max_streams, len(self._streams))
        self._plan_wake()

    def die(self) -> list[Any]:
        """Stop sending, and return the broken streams."""
        self._pass_time()
        self.alive = False
        broken = [what for *_, what in sorted(self._streams, key=lambda stream: stream[1])]
        self._streams.clear()
        return broken

    @property
    def _rate(self) -> float:
        return min(self.connection_bandwidth, self.bandwidth / len(self._streams))

    def _pass_time(self) -> None:
        if self._streams:
            self._served += (self.events.now - self._since) * self._rate
        self._since = self.events.now

    def _plan_wake(self) -> None:
        """Plan the next end of a stream.

        If more streams start before, the event comes too early and plans the next.
        """
        end = self.events.now + max(0.0, self._streams[0][0] - self._served) / self._rate
        if end < self._woken_at:
            self._woken_at = end
            self.events.at(end, self._wake, end)

    def _wake(self, planned: float) -> None:
        if planned != self._woken_at:
            return
        self._woken_at = float("inf")
        self._pass_time()
        ended: list[Any] = []
        while self._streams and self._streams[0][0] <= self._served + 1:  # tolerates a rounding error of a byte
            _, _, size, what = heapq.heappop(self._streams)
            self.sent += size
            ended.append(what)
        if self._streams:
            self._plan_wake()
        for what in ended:
            self.done(what)


class Targets:
    """All targets, and which of them has which shard."""

    def __init__(self, cluster: Cluster, events: Events, done: Callable[[Any], None]) -> None:
        self.all = [
            Target(
                events,
                cluster.target_bandwidth * (cluster.slowest if number == 0 else 1.0),
                cluster.connection_bandwidth,
                done,
            )
            for number in range(cluster.targets)
        ]
        self._died_at: float | None = None
        self._notice = cluster.notice
        self._events = events

    def kill(self, which: int) -> list[Any]:
        self._died_at = self._events.now
        return self.all[which].die()

    def owner(self, shard: int) -> Target:
        """Return the target that a proxy redirects to. After a death was noticed, this is a target with a copy."""
        target = self.first_owner(shard)
        noticed = self._died_at is not None and self._events.now >= self._died_at + self._notice
        return self._next_alive(shard) if noticed and not target.alive else target

    def first_owner(self, shard: int) -> Target:
        return self.all[xxhash.xxh3_64_intdigest(shard.to_bytes(8, "little")) % len(self.all)]

    def _next_alive(self, shard: int) -> Target:
        alive = [target for target in self.all if target.alive]
        return alive[xxhash.xxh3_64_intdigest(shard.to_bytes(8, "little"), seed=1) % len(alive)]
