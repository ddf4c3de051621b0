"""Order, shares and positions: pure functions, for any number of hosts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ais_tar2tf.base.hosts import hosts
from ais_tar2tf.errors import CheckpointError
from ais_tar2tf.options import EVEN, Shuffle
from ais_tar2tf.stores import Identity
from ais_tar2tf.streams.index.entry import Cut
from ais_tar2tf.streams.order import Mark, Plan, Position

COUNTS = st.lists(st.integers(0, 30), max_size=12)


def share_of(plan: Plan, counts: list[int], epoch: int = 0, seed: int = 5) -> list[tuple[int, int]]:
    """Return (shard, record) in one host's order, as `share`, `last_round` and `most` limit it."""
    order = plan.order(epoch, seed)
    cuts = [order.part(at) or Cut(0, counts[shard]) for at, shard in enumerate(order.shards)]
    passing = [(shard, r) for shard, cut in zip(order.shards, cuts, strict=True) for r in range(*cut)]
    turn, each = plan.share
    mine = passing[turn::each]
    if plan.last_round is not None and len(passing) % each:
        last = passing[len(passing) // each * each :]
        mine = mine[: len(passing) // each] + ([last[turn % len(last)]] if plan.last_round == "pad" else [])
    return mine[: plan.record_limit(epoch, seed)]


def shares(true_counts, n, **how) -> list[list[tuple[int, int]]]:
    return [share_of(Plan(len(true_counts), host=host, hosts=n, **how), true_counts) for host in range(n)]


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.integers(1, 70), st.booleans(), st.booleans())
def test_hosts_are_disjoint_and_complete(counts, n, shuffled, known):
    parts = shares(counts, n, shuffle=Shuffle() if shuffled else None, counts=counts if known else None)
    everything = Counter((shard, record) for shard, count in enumerate(counts) for record in range(count))
    assert Counter(record for part in parts for record in part) == everything


@settings(max_examples=150, deadline=None)
@given(COUNTS, st.integers(1, 70), st.sampled_from(EVEN), st.booleans(), st.booleans())
def test_hosts_get_equally_many_records_with_even(counts, n, even, shuffled, known):
    how = {"shuffle": Shuffle() if shuffled else None, "counts": counts if known else None, "even": even}
    parts = shares(counts, n, **how)
    total = sum(counts)
    assert len({len(part) for part in parts}) == 1
    found = Counter(record for part in parts for record in part)
    if even == "pad":
        assert set(found) == {(shard, record) for shard, count in enumerate(counts) for record in range(count)}
        assert sum(found.values()) == -(-total // n) * n
    else:
        assert set(found.values()) <= {1}
        if even == "drop" or not known:
            assert sum(found.values()) == total // n * n
        else:
            plain = shares(counts, n, shuffle=how["shuffle"])
            assert len(parts[0]) == min(map(len, plain))
            assert all(part == whole[: len(part)] for part, whole in zip(parts, plain, strict=True))


@settings(max_examples=100, deadline=None)
@given(COUNTS, st.integers(1, 40), st.sampled_from((None, *EVEN)), st.sampled_from([None, True, False]))
def test_a_reported_length_holds_for_every_epoch(counts, n, even, reshuffled):
    shuffle = None if reshuffled is None else Shuffle(reshuffle_each_epoch=reshuffled)
    for host in {0, n // 2, n - 1}:
        plan = Plan(len(counts), shuffle, host, n, even, counts)
        told = plan.length(5)
        if told is None:
            assert reshuffled
            assert even in (None, "stop")
        else:
            assert [len(share_of(plan, counts, epoch)) for epoch in range(3)] == [told] * 3
    assert Plan(len(counts), shuffle, 0, n, even).length(5) is None


def test_known_counts_change_only_even_shares():
    counts = [3, 0, 8, 5, 1]
    for n in (1, 2, 3, 5, 7, 64):
        assert shares(counts, n) == shares(counts, n, counts=counts)


def test_an_order_is_the_same_in_another_process():
    code = (
        "from ais_tar2tf.streams.order import Plan; from ais_tar2tf.options import Shuffle;"
        "print([list(Plan(20, Shuffle(), h, 3, e, c).order(4, 9).shards) for h in range(3)"
        " for e, c in ((None, None), ('pad', [7] * 20), ('drop', None))])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    here = [
        list(Plan(20, Shuffle(), host, 3, even, counts).order(4, 9).shards)
        for host in range(3)
        for even, counts in ((None, None), ("pad", [7] * 20), ("drop", None))
    ]
    assert json.loads(done.stdout) == here


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="0 <= i < n"):
        Plan(3, host=2, hosts=2)
    with pytest.raises(ValueError, match="even is one of pad, drop, stop"):
        Plan(3, even="equal")
    with pytest.raises(ValueError, match="counts of 2 shards"):
        Plan(3, counts=[1, 2])


# Positions


def test_positions_survive_as_text():
    marks = (Mark(3, 512, True, Identity("7", "e", "xxhash2:0", 10)), Mark(1))
    position = Position(2, 1 << 61, -1, marks, 1, 5, 7, 9, 3, 11, 13, 15, "key")
    assert Position.from_text(position.to_text()) == position
    assert len(position.to_text()) < 200


@pytest.mark.parametrize("text", ["", "{}", "[]", "[2,[],0]", "[1,[],0]", '[1,[["x"]],0,0,0,0,0,0,0,0,0,0,0,""]'])
def test_an_invalid_position_is_refused(text):
    with pytest.raises(CheckpointError, match="not one of this version"):
        Position.from_text(text)


def test_a_position_belongs_to_its_plan():
    plan = Plan(5, Shuffle(seed=1), 0, 2, names_digest="names")
    position = plan.begin(0, 1, 1)
    plan.check(position)
    others = [
        Plan(6, Shuffle(seed=1), 0, 2, names_digest="names"),
        Plan(5, Shuffle(seed=1, window=9), 0, 2, names_digest="names"),
        Plan(5, Shuffle(seed=1), 1, 2, names_digest="names"),
        Plan(5, Shuffle(seed=1), 0, 2, "pad", names_digest="names"),
        Plan(5, Shuffle(seed=1), 0, 2, names_digest="others"),
        Plan(5, None, 0, 2, names_digest="names"),
    ]
    for other in others:
        with pytest.raises(CheckpointError, match="of another dataset"):
            other.check(position)
    Plan(5, Shuffle(seed=2), 0, 2, names_digest="names").check(position)  # the position's seed is used
    Plan(5, Shuffle(seed=1), 0, 2, counts=[1] * 5, names_digest="names").check(position)  # an index may come later


# Hosts

CLUSTER = {"chief": ["c:1"], "worker": ["a:1", "b:1"], "evaluator": ["e:1"]}


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}, (3, 8)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, (1, 2)),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "4"}, (1, 4)),
        ({"JAX_PROCESS_ID": "2", "JAX_NUM_PROCESSES": "3"}, (2, 3)),
        ({"RANK": "5", "WORLD_SIZE": "6"}, (5, 6)),
        ({"RANK": "5", "WORLD_SIZE": "6", "HOROVOD_RANK": "5", "HOROVOD_SIZE": "6"}, (5, 6)),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "chief", "index": 0}})}, (0, 3)),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})}, (2, 3)),
        ({"TF_CONFIG": "{}", "RANK": "0", "WORLD_SIZE": "1"}, (0, 1)),
        ({"SLURM_NTASKS": "4", "RANK": "0", "WORLD_SIZE": "2"}, (0, 2)),
    ],
)
def test_the_environment_names_the_host(environ, place):
    assert hosts(environ) == place


@pytest.mark.parametrize(
    ("environ", "why"),
    [
        ({}, "does not say which host .*, HOROVOD_RANK with HOROVOD_SIZE, .*RANK with WORLD_SIZE, or say shard="),
        ({"SLURM_PROCID": "3"}, "does not say which host this is: SLURM_PROCID='3' is set, and SLURM_NTASKS is not"),
        ({"RANK": "1"}, "RANK='1' is set, and WORLD_SIZE is not; set both, or say shard=\\(i, n\\)$"),
        ({"WORLD_SIZE": "2", "RANK": ""}, "WORLD_SIZE='2' is set, and RANK is not; set both"),
        ({"RANK": "1", "SLURM_NTASKS": "4"}, "SLURM_NTASKS='4' is set, and SLURM_PROCID is not"),
        ({"RANK": "6", "WORLD_SIZE": "6"}, "name no host: of 4 hosts, the ranks are 0 to 3"),
        ({"RANK": "x", "WORLD_SIZE": "6"}, "name no host"),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "different things"),
        ({"TF_CONFIG": "{"}, "cannot be read"),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER})}, "cannot be read"),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 2}})}, "no share"),
        ({"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "evaluator", "index": 0}})}, "no share"),
    ],
)
def test_an_environment_that_does_not_name_the_host(environ, why):
    with pytest.raises(ValueError, match=why):
        hosts(environ)
