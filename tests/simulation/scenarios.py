"""The scenarios. Each runs with and without the setting that solves its problem."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ais_tar2tf.options import MIB, Limits, Read, Retry, Shuffle
from ais_tar2tf.streams.order import Plan
from tests.simulation.cluster import MB, Cluster, Events, Proxies
from tests.simulation.trainers import Client, Run

__all__ = ["Hits", "Rates", "Survival", "cached", "death", "redirects", "seconds_to_begin", "skew", "slow_target"]

_WARM, _END = 1.0, 2.0  # rates are measured between these seconds: about ten pieces of each lane
_DEATH_AT, _DEATH_END = 3.0, 36.0
_DEATH_RATE = 50 * MB  # a lower rate, so that more seconds can be simulated
_EIGHT = Retry(attempts=8)
_RANGES_8 = Read(connections=8, range_bytes=8 * MIB)  # two connections and small ranges for each of four lanes


@dataclass(frozen=True)
class Rates:
    """The rates that trainers got, as shares of the data rate that they consume."""

    mean: float
    slowest: float
    redirects: float  # per second


@dataclass(frozen=True)
class Survival:
    taken: Sequence[int]  # bytes that trainers consumed in each second
    failed: int
    errors: frozenset[str]


@dataclass(frozen=True)
class Hits:
    """The shares of a trainer's shards that are in its cache, in the second and later epochs."""

    dealt_anew: float
    same_order: float
    own_shards: float


def seconds_to_begin(client: Client, cluster: Cluster, *, listing: bool) -> float:
    """Return the seconds until the last trainer knows its shards. A template needs no requests."""
    if not listing:
        return 0.0
    events, proxies = Events(), Proxies(cluster.proxy_workers)
    pages = -(-client.shards // client.read.limits.listing_page)
    takes = cluster.list_page * client.read.limits.listing_page / Limits().listing_page

    def next_page(left: int) -> None:
        if left:
            events.at(proxies.answer_at(events.now, takes) + 2 * cluster.round_trip, next_page, left - 1)

    for _ in range(client.trainers):
        events.at(0.0, next_page, pages)
    events.run(float("inf"))
    return events.now


def _rates(client: Client, cluster: Cluster) -> Rates:
    run = Run(client, cluster, spread=_WARM / 2)
    run.until(_WARM)
    before = run.proxies.requests
    rates = run.rates(_WARM, _END)
    redirects = (run.proxies.requests - before) / (_END - _WARM)
    return Rates(sum(rates) / len(rates) / client.rate, min(rates) / client.rate, redirects)


def redirects(client: Client, cluster: Cluster, trainers: Sequence[int]) -> dict[str, list[Rates]]:
    """Increase the number of trainers, which request small ranges, the default ranges, or whole shards."""
    ways = {
        "a lane's two connections, 8 MiB": replace(client, read=_RANGES_8),
        "in order, 8 MiB": replace(client, shuffle=None, read=Read(range_bytes=8 * MIB)),
        "in order, default": replace(client, shuffle=None),
        "shuffled, default": client,
    }
    return {name: [_rates(replace(way, trainers=count), cluster) for count in trainers] for name, way in ways.items()}


def death(client: Client, cluster: Cluster) -> dict[str, Survival]:
    """Let a target die, which the cluster notices only later."""
    calmer = replace(client, rate=_DEATH_RATE)
    eight = replace(calmer, read=replace(client.read, retry=_EIGHT))
    ways = {
        "8 tries": (eight, cluster),
        f"{Retry().attempts} tries (default)": (calmer, cluster),
        f"{Retry().attempts} tries, no copies": (calmer, replace(cluster, copies=False)),
    }
    return {name: _survival(*way) for name, way in ways.items()}


def _survival(client: Client, cluster: Cluster) -> Survival:
    run = Run(client, cluster)
    run.kill(cluster.targets // 3, _DEATH_AT)
    run.until(_DEATH_END)
    errors = frozenset(error for _, error in run.failures)
    return Survival(run.taken_at[: int(_DEATH_END)], len(run.failures), errors)


def skew(client: Client, cluster: Cluster, loads: Sequence[float]) -> dict[str, list[Rates]]:
    """Increase the load of the targets, some of which get more requests than others."""
    full = cluster.targets * cluster.target_bandwidth / client.trainers
    deep = replace(client.read, limits=replace(client.read.limits, read_ahead_bytes=128 * MIB))
    ways = {
        "one shard at a time": replace(client, shuffle=None),
        "four shards at once (Shuffle)": client,
        "four shards, 128 MiB read-ahead": replace(client, read=deep),
    }
    return {name: [_rates(replace(way, rate=full * load), cluster) for load in loads] for name, way in ways.items()}


def slow_target(client: Client, cluster: Cluster) -> dict[str, Rates]:
    """Reduce one target's bandwidth to a tenth, or remove the target."""
    return {
        "all targets fast": _rates(client, cluster),
        "one of 100 slow": _rates(client, replace(cluster, slowest=0.1)),
        "slow one removed": _rates(client, replace(cluster, targets=cluster.targets - 1)),
    }


def cached(client: Client, shares: Sequence[float], *, epochs: int = 4, host: int = 7) -> list[Hits]:
    """Return the hits of a least-recently-used cache for one trainer, for several sizes of the cache."""
    seed, how = client.seed, client.shuffle or Shuffle()
    anew = Plan(client.shards, how, host, client.trainers)
    same = replace(anew, shuffle=replace(how, reshuffle_each_epoch=False))
    mine = anew.order(0, seed).shards
    own = Plan(len(mine), how)
    orders = [
        [anew.order(epoch, seed).shards for epoch in range(epochs)],
        [same.order(epoch, seed).shards for epoch in range(epochs)],
        [[mine[at] for at in own.order(epoch, seed).shards] for epoch in range(epochs)],
    ]
    return [Hits(*(_hits(order, int(share * len(mine))) for order in orders)) for share in shares]


def _hits(epochs: Sequence[Sequence[int]], most: int) -> float:
    cache: OrderedDict[int, None] = OrderedDict()
    for shard in epochs[0]:
        _use(cache, shard, most)
    later = list(_later(epochs))
    return sum(_use(cache, shard, most) for shard in later) / len(later)


def _later(epochs: Sequence[Sequence[int]]) -> Iterator[int]:
    for epoch in epochs[1:]:
        yield from epoch


def _use(cache: OrderedDict[int, None], shard: int, most: int) -> bool:
    """Put a shard into the cache. Return whether it was cached before."""
    hit = shard in cache
    cache[shard] = None
    cache.move_to_end(shard)
    if len(cache) > most:
        cache.popitem(last=False)
    return hit
