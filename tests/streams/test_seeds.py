"""Hosts that share a shuffled dataset without a seed: their shares are disjoint and complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.options import SHARED_SEED, Shuffle
from ais_tar2tf.streams.arguments import seed_of
from ais_tar2tf.streams.order.seeds import Seed, choose_seed
from tests.servers.process import free_ports
from tests.support import shards as made

ROOT = Path(__file__).parents[2]
HOSTS, SHARDS, EACH = 3, 10, 200
EVERYTHING = Counter(range(SHARDS * EACH))


@pytest.fixture(scope="module")
def seed_folder(tmp_path_factory) -> Path:
    """Write 2,000 records in ten shards of different sizes, without an index, and with one in `indexed/`."""
    path = tmp_path_factory.mktemp("seeds")
    (path / "indexed").mkdir()
    first = 0
    for number in range(SHARDS):
        count = EACH - 45 + 10 * number
        shard = made.labelled(f"s{number}", count, lambda i, first=first: {"cls": b"%d" % (first + i)})
        for place in (path, path / "indexed"):
            (place / f"{number}.tar").write_bytes(shard)
        first += count
    assert first == SHARDS * EACH
    t2t.index(f"{path}/indexed/{{0..9}}.tar")
    t2t.open(f"{path}/{{0..9}}.tar").export(path / "out", shard_records=300)
    return path


def start(script: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\nimport conftest\n{script}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answers(processes: list[subprocess.Popen[str]]) -> list[dict]:
    try:
        texts = [process.communicate(timeout=250) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    for process, (_, err) in zip(processes, texts, strict=True):
        assert process.returncode == 0, err[-3000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in texts]


HOST = """
import json
import tensorflow as tf
import ais_tar2tf as t2t
from ais_tar2tf.options import Shuffle

folder, host, hosts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
shard = (host, hosts)
plain, indexed = (t2t.open(f"{folder}/{sub}{{0..9}}.tar") for sub in ("", "indexed/"))
context = tf.distribute.InputContext(num_input_pipelines=hosts, input_pipeline_id=host)
number = lambda record: tf.strings.to_number(record["cls"], tf.int32)

def seen(dataset):
    return [int(each) for each in dataset.as_numpy_iterator()]

found = {}
for name, src in (("plain", plain), ("indexed", indexed)):
    for even in (None, "pad", "drop", "stop"):
        found[f"{name}, {even}"] = seen(src.dataset(number, shuffle=True, shard=shard, even=even))
    found[f"{name}, window"] = seen(src.dataset(number, shuffle=64, shard="env"))
    found[f"{name}, Shuffle"] = seen(src.dataset(number, shuffle=Shuffle(window=64, shards=2), shard=context))
    found[f"{name}, .shuffle()"] = seen(src.dataset(number, shard=shard).shuffle())
    found[f"{name}, .shuffle().shard()"] = seen(src.dataset(number).shuffle(100).shard(hosts, host))
    mixture = t2t.mix([src, src.select("cls")], at_end="drop")
    found[f"{name}, mixture"] = seen(mixture.dataset(number, shuffle=True, shard=shard))
found["indexed, global"] = seen(indexed.dataset(number, shuffle="global", shard=shard))
epochs = plain.dataset(number, shuffle=True, shard=shard)
found["epochs"] = [seen(epochs), seen(epochs)]
found["repeated"] = seen(plain.dataset(number, shuffle=True, shard=shard, repeat=2))
written = t2t.load(f"{folder}/out").dataset("train", shuffle=True, shard=shard)
found["written"] = [int(each["cls"]) for each in written.as_numpy_iterator()]
print(json.dumps({"found": found, "seeds": [plain.stats.seed, indexed.stats.seed, mixture.stats.seed]}))
"""


@pytest.mark.timeout(300)  # three processes import TensorFlow, on two cores
def test_three_processes_without_a_seed(seed_folder):
    hosts = [
        start(HOST, str(seed_folder), str(host), str(HOSTS), SLURM_PROCID=str(host), SLURM_NTASKS=str(HOSTS))
        for host in range(HOSTS)
    ]
    told = answers(hosts)
    assert all(each["seeds"] == [SHARED_SEED] * 3 for each in told)
    names = set(told[0]["found"]) - {"epochs", "repeated"}
    assert len(names) == 20
    for name in names:
        parts = [each["found"][name] for each in told]
        found = Counter(number for part in parts for number in part)
        twice = sum((found - EVERYTHING).values())
        missing = len(EVERYTHING - found)
        sizes = {len(part) for part in parts}
        if name.endswith("pad"):
            assert (missing, len(sizes)) == (0, 1), name
            assert twice == max(sizes) * HOSTS - 2000 < HOSTS
        elif name.endswith(("drop", "stop")):
            assert (twice, len(sizes)) == (0, 1), name
            assert missing == 2000 - min(sizes) * HOSTS
            assert "indexed, stop" in name or missing < HOSTS
        elif name.endswith("mixture"):
            assert found == EVERYTHING + EVERYTHING
        else:
            assert found == EVERYTHING, name
        assert any(part != sorted(part) for part in parts), name
    for epoch in range(2):
        of_epoch = [each["found"]["epochs"][epoch] for each in told]
        assert Counter(number for part in of_epoch for number in part) == EVERYTHING
    assert told[0]["found"]["epochs"][0] != told[0]["found"]["epochs"][1]
    for each in told:
        assert each["found"]["repeated"] == each["found"]["epochs"][0] + each["found"]["epochs"][1]


WORKER = """
import json
import tensorflow as tf
import ais_tar2tf as t2t
from ais_tar2tf import datum

strategy = tf.distribute.MultiWorkerMirroredStrategy()
src = t2t.open(sys.argv[1] + "/{0..9}.tar")
pair = lambda record: tf.reshape(tf.strings.to_number(record["cls"], tf.int32), (1,))

def seen(distributed):
    parts = [part for each in distributed for part in strategy.experimental_local_results(each)]
    return [number for part in parts for number in part.numpy().ravel().tolist()]

distribute, by_function = strategy.experimental_distribute_dataset, strategy.distribute_datasets_from_function
written = t2t.load(sys.argv[1] + "/out").dataset("train", shuffle=True)
numbers = written.map(lambda each: tf.strings.to_number(each["cls"], tf.int32)).batch(8)
print(json.dumps({
    "auto": seen(distribute(src.dataset(pair, shuffle=True, batch=8))),
    "auto, .shuffle()": seen(distribute(src.dataset(pair).shuffle().batch(8))),
    "auto, written": seen(distribute(numbers)),
    "context": seen(by_function(lambda context: src.dataset(pair, shuffle=True, batch=8, shard=context))),
}))
"""


@pytest.mark.timeout(300)
def test_workers_of_a_strategy_without_a_seed(seed_folder):
    """Workers share a seed also when tf.data splits the dataset by itself."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    configs = [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}) for index in (0, 1)
    ]
    told = answers([start(WORKER, str(seed_folder), TF_CONFIG=config) for config in configs])
    for name in told[0]:
        found = Counter(number for each in told for number in each[name])
        assert found == EVERYTHING, name


def test_an_unshared_dataset_draws_its_own_seed(seed_folder):
    """A seed is drawn when the dataset is created, reported, and repeats the order."""
    src = t2t.open(f"{seed_folder}/{{0..9}}.tar")

    def keys(dataset) -> list[bytes]:
        return [each["__key__"] for each in dataset.as_numpy_iterator()]

    assert src.stats.seed is None
    first, seed = keys(src.dataset(shuffle=True)), src.stats.seed
    second = keys(src.dataset(shuffle=True))
    assert seed != src.stats.seed
    assert first != second
    assert keys(src.dataset(shuffle=True, seed=seed)) == first
    assert src.stats.seed == seed
    assert keys(src.dataset().shuffle(seed=src.stats.seed)) == first
    dataset = src.dataset().shuffle()
    assert keys(dataset) != first
    drawn = src.stats.seed
    assert len({drawn, seed, SHARED_SEED}) == 3
    assert src.stats.copy().seed == src.stats.since(src.stats.copy()).seed == drawn
    assert "seed" not in t2t.openmetrics(src.stats)


def test_a_given_seed_is_kept(seed_folder):
    src = t2t.open(f"{seed_folder}/{{0..9}}.tar")
    given = src.dataset(shuffle=True, seed=5)
    whole = [each["__key__"] for each in given.as_numpy_iterator()]
    second = [each["__key__"] for each in src.dataset(shuffle=True, seed=5).shard(4, 1).as_numpy_iterator()]
    assert second == whole[1::4]
    assert src.stats.seed == 5
    src.dataset(shuffle=Shuffle(seed=8), shard=(0, 2))
    assert src.stats.seed == 8
    assert seed_of(None, shared=True) == Seed(0)
    assert choose_seed(3, shared=True) == Seed(3)
    assert choose_seed(None, shared=False).drawn


def test_a_checkpoint_with_another_seed_is_resumed_with_it(seed_folder, tmp_path):
    """Such a checkpoint comes from a version in which each host drew its own seed."""
    src = t2t.open(f"{seed_folder}/{{0..9}}.tar")
    before = iter(src.dataset(shuffle=True, seed=123456, shard=(1, 3), repeat=2).batch(32))
    next(before)
    path = tf.train.Checkpoint(iterator=before).save(str(tmp_path / "c"))
    rest = [batch["__key__"].numpy().tolist() for batch in before]
    again = iter(src.dataset(shuffle=True, shard=(1, 3), repeat=2).batch(32))
    tf.train.Checkpoint(iterator=again).restore(path)
    assert [batch["__key__"].numpy().tolist() for batch in again] == rest


@pytest.mark.parametrize("kind", ["tfrecord", "tar"])
def test_shares_of_record_files(seed_folder, tmp_path, kind):
    t2t.open(f"{seed_folder}/{{0..2}}.tar").export(tmp_path / "out", format=kind, shard_records=100)
    loaded = t2t.load(tmp_path / "out")
    total = len(loaded)
    for shuffle in (None, 50):
        parts = [loaded.dataset("train", shuffle=shuffle, shard=(host, 4), batch=7) for host in range(4)]
        sizes = [sum(len(each["cls"]) for each in part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        found = Counter(int(cls) for part in parts for each in part for cls in each["cls"].numpy())
        assert found == Counter(range(total))
        policies = {part.options().experimental_distribute.auto_shard_policy for part in parts}
        assert policies == {tf.data.experimental.AutoShardPolicy.OFF}
    with pytest.raises(t2t.errors.OptionError, match="needs 0 <= i < n"):
        loaded.dataset("train", shard=(4, 4))
