"""Run the simulation with few trainers: every byte is counted, runs are repeatable, and the package's rules hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ais_tar2tf.options import MIB, Read, Retry, Shuffle
from ais_tar2tf.streams.order import Plan
from tests.simulation import scenarios
from tests.simulation.cluster import GB, MB, Cluster, Events, Target
from tests.simulation.trainers import Client, Run, orders

FEW = Client(trainers=6, shards=50, shard_bytes=30 * MB, rate=200 * MB)
SMALL = Cluster(targets=5, target_bandwidth=GB)
RANGES = Read(connections=8, range_bytes=MIB)
FOREVER = 1_000.0


@pytest.mark.parametrize("shuffle", [None, Shuffle(), Shuffle(shards=3, reshuffle_each_epoch=False)])
@pytest.mark.parametrize("epoch", [0, 3])
def test_trainers_read_the_shards_of_their_plan(shuffle, epoch):
    client = replace(FEW, shuffle=shuffle)
    dealt = orders(client, epoch)
    for host in range(client.trainers):
        plan = Plan(client.shards, shuffle, host, client.trainers)
        assert list(dealt[host]) == list(plan.order(epoch, client.seed).shards)


@pytest.mark.parametrize("shuffle", [None, Shuffle()])
@pytest.mark.parametrize("read", [Read(), RANGES, Read(connections=1)])
@pytest.mark.parametrize("dies_at", [None, 0.2])
def test_every_requested_byte_arrives_once(shuffle, read, dies_at):
    """Every requested byte arrives once, also when a target dies and others have copies."""
    run = Run(replace(FEW, shuffle=shuffle, read=read), SMALL)
    if dies_at is not None:
        run.kill(2, dies_at)
    run.until(FOREVER)
    shards = [len(dealt) for dealt in orders(run.client)]
    assert [trainer.taken for trainer in run.trainers] == [count * FEW.shard_bytes for count in shards]
    sent = sum(target.sent for target in run.targets.all)
    assert sent == sum(run.taken_at) == FEW.shards * FEW.shard_bytes
    assert not run.failures
    assert (run.retries > 0) == (dies_at is not None)


def test_one_answer_is_one_redirect():
    whole = Run(FEW, SMALL).until(FOREVER)
    assert whole.proxies.requests == FEW.shards
    in_ranges = Run(replace(FEW, read=RANGES), SMALL).until(FOREVER)
    assert in_ranges.proxies.requests == FEW.shards * -(-FEW.shard_bytes // MIB)


def test_runs_with_one_seed_are_equal():
    def outcome(seed: int) -> list[object]:
        run = Run(replace(FEW, seed=seed), SMALL)
        run.kill(1, 0.4)
        run.until(30.0)
        return [run.taken_at, run.retries, run.proxies.requests, [t.sent for t in run.targets.all]]

    assert outcome(4) == outcome(4) != outcome(5)


def test_a_target_sends_at_most_its_bandwidth():
    events = Events()
    ended: list[tuple[str, float]] = []
    target = Target(events, 100.0, 60.0, lambda what: ended.append((what, events.now)))
    target.send(60.0, "first")  # alone: limited by the connection
    events.at(0.5, lambda _: target.send(100.0, "second"))  # from now on, both streams share the bandwidth
    events.run(FOREVER)
    assert ended == [("first", pytest.approx(1.1)), ("second", pytest.approx(0.5 + 0.6 + 70 / 60))]


def test_tries_outlast_the_notice_of_a_death():
    """The default tries outlast the notice of a death, even with the shortest delays. Eight tries do not."""

    def shortest(retry: Retry) -> float:
        return sum(retry.delay(tried, lambda: 0.0) for tried in range(1, retry.attempts))

    assert shortest(Retry()) > Cluster().notice > shortest(Retry(attempts=8))
    found = scenarios.death(replace(FEW, trainers=60, shards=4_000), replace(SMALL, targets=8))
    eight, ours, no_copies = found.values()
    assert eight.errors == {"TransportError"}
    assert not ours.failed
    assert no_copies.errors == {"ShardNotFound"}


def test_the_other_findings():
    client = replace(FEW, trainers=40, shards=100_000)
    cluster = replace(SMALL, target_bandwidth=10 * GB, proxy_workers=1, redirect=0.0008)
    assert scenarios.seconds_to_begin(client, cluster, listing=True) == pytest.approx(
        40 * 10 * cluster.list_page, 0.01
    )
    assert scenarios.seconds_to_begin(client, cluster, listing=False) == 0
    small_ranges, *_, ours = scenarios.redirects(replace(client, rate=500 * MB), cluster, [40]).values()
    assert small_ranges[0].mean < 0.8 < 0.95 < ours[0].mean
    slow = scenarios.slow_target(client, cluster)
    assert slow["one of 100 slow"].slowest < slow["slow one removed"].slowest
    half, whole = scenarios.cached(client, [0.5, 1.0])
    assert half.dealt_anew < 0.05
    assert half.same_order == 0
    assert 0.05 < half.own_shards < 0.5
    assert whole.same_order == whole.own_shards == 1
