"""Several devices, several processes and tf.data's service: records are never shared twice, and nobody waits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf import datum
from ais_tar2tf.options import Shuffle
from tests.servers.process import free_ports
from tests.support import shards as made

ROOT = Path(__file__).parents[2]
SHARDS, EACH = 5, 9
service = tf.data.experimental.service


@pytest.fixture(scope="module")
def numbered_url(tmp_path_factory) -> str:
    """Write five shards of nine records, 45 together, and their index."""
    folder = tmp_path_factory.mktemp("distributed")
    for number in range(SHARDS):
        shard = made.labelled(f"s{number}", EACH, lambda i, n=number: {"cls": b"%d" % (n * EACH + i)})
        (folder / f"{number}.tar").write_bytes(shard)
    t2t.index(f"{folder}/{{0..4}}.tar")
    return f"{folder}/{{0..4}}.tar"


def start(script: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\nimport conftest\n{script}"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> dict:
    with process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


SHARED = """
import json, os
import tensorflow as tf
import ais_tar2tf as t2t
from ais_tar2tf.options import Shuffle

def number(record):
    value = tf.strings.to_number(record["cls"], tf.int32)
    return tf.reshape(value, (1,)), tf.cast(value, tf.float32)

def seen(strategy, distributed):
    found = []
    for inputs, _ in distributed:
        for part in strategy.experimental_local_results(inputs):
            found.append(part.numpy().ravel().tolist())
    return found

source = t2t.open(sys.argv[1])
"""

MIRRORED = (
    SHARED
    + """
def fitted(strategy, dataset):
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    steps = []
    class Count(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps.append(batch)
    model.fit(dataset, epochs=2, verbose=0, shuffle=False, callbacks=[Count()])
    return steps

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
dataset = source.dataset(number, shuffle=Shuffle(window=8, seed=2), batch=6)
print(json.dumps({
    "replicas": strategy.num_replicas_in_sync,
    "seen": seen(strategy, strategy.experimental_distribute_dataset(dataset)),
    "steps": fitted(strategy, dataset),
}))
"""
)


def test_mirrored_devices_share_batches(numbered_url):
    found = answer(start(MIRRORED, numbered_url))
    assert found["replicas"] == 2
    assert sorted(n for part in found["seen"] for n in part) == list(range(SHARDS * EACH))
    assert found["steps"] == [*range(8)] * 2


@pytest.fixture
def numbers_folder(tmp_path) -> Path:
    """Export 45 examples with Datum's API, x: 0…44, in several files."""
    configs = datum.configs.TFRWriteConfigs(splits={"train": {"count": SHARDS * EACH}})
    configs.shard_size = 570
    configs.generator = lambda count, **_: ({"x": number} for number in range(count))
    datum.export.export_to_tfrecord("-", tmp_path / "numbers", "custom", configs)
    assert len(list((tmp_path / "numbers").glob("train-*"))) > 2
    return tmp_path / "numbers"


WORKER = (
    SHARED
    + """
from ais_tar2tf import datum

strategy = tf.distribute.MultiWorkerMirroredStrategy()
def plain(**how):
    return source.dataset(number, shuffle=Shuffle(window=8, seed=2), batch=4, **how)
@tf.function
def total(numbers):
    return strategy.reduce("SUM", strategy.run(tf.reduce_sum, (numbers,)), axis=None)

def summed():
    even = strategy.distribute_datasets_from_function(lambda context: plain(shard=context, even="drop"))
    return [int(total(numbers)) for numbers, _ in even]

def by_datum(context):
    configs = datum.configs.DatasetConfigs(batch_size_train=8)
    configs.read_config.input_context = context
    configs.drop_remainder = False
    return datum.load(sys.argv[2], configs).train_fn("train", shuffle=False).map(lambda each: (each["x"], each["x"]))

print(json.dumps({
    "hosts": t2t.hosts(),
    "given": seen(strategy, strategy.experimental_distribute_dataset(plain(shard="env"))),
    "context": seen(strategy, strategy.distribute_datasets_from_function(lambda context: plain(shard=context))),
    "auto": seen(strategy, strategy.experimental_distribute_dataset(plain())),
    "datum, context": seen(strategy, strategy.distribute_datasets_from_function(by_datum)),
    "datum, auto": seen(strategy, strategy.experimental_distribute_dataset(by_datum(None))),
    "even": seen(strategy, strategy.experimental_distribute_dataset(plain(shard="env", even="pad"))),
    "sums": summed(),
}))
"""
)


@pytest.mark.timeout(300)  # two processes import TensorFlow, on a busy machine one after the other
def test_two_workers(numbered_url, numbers_folder):
    """Two workers share by TF_CONFIG, by an InputContext, or by tf.data's own auto-sharding."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    configs = [
        json.dumps({"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}) for index in (0, 1)
    ]
    processes = [start(WORKER, numbered_url, str(numbers_folder), TF_CONFIG=config) for config in configs]
    try:
        found = [answer(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert [each["hosts"] for each in found] == [[0, 2], [1, 2]]
    everything = Counter(range(SHARDS * EACH))
    for how in ("given", "context", "auto", "datum, context", "datum, auto"):
        parts = [[n for part in each[how] for n in part] for each in found]
        assert Counter(parts[0]) + Counter(parts[1]) == everything, how
        assert all(parts)
    even = [[n for part in each["even"] for n in part] for each in found]
    assert [len(part) for part in even] == [23, 23]
    assert set(even[0]) | set(even[1]) == set(everything)
    sums = found[0]["sums"]
    assert found[1]["sums"] == sums  # both workers took part in each step
    assert len(sums) == 6
    assert sum(everything) - sum(sums) in everything  # one record of 45 was dropped


# tf.data's service


def test_workers_in_this_process_read_shards(numbered_url):
    dispatcher = service.DispatchServer()
    address = dispatcher.target.partition("://")[2]
    workers = [service.WorkerServer(service.WorkerConfig(dispatcher_address=address)) for _ in range(2)]
    dataset = t2t.open(numbered_url).dataset(batch=4, shuffle=Shuffle(window=8, seed=2))
    distributed = dataset.apply(service.distribute("parallel_epochs", dispatcher.target))
    found = Counter(int(cls) for batch in distributed for cls in batch["cls"].numpy())
    assert found == Counter(list(range(SHARDS * EACH)) * len(workers))


REMOTE = """
import os
import tensorflow as tf
service = tf.data.experimental.service
worker = service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
os._exit(0)  # also when whoever started it was killed: a worker whose dispatcher is gone keeps a core busy
"""


@pytest.fixture(scope="module")
def remote() -> Iterator[str]:
    """Start a dispatcher whose only worker is another process, and return its target."""
    dispatcher = service.DispatchServer()
    with start(REMOTE, dispatcher.target.partition("://")[2]) as worker:
        try:
            assert worker.stdout.readline() == "ready\n"
            yield dispatcher.target
        finally:
            worker.kill()


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="without /proc TensorFlow has the word")
@pytest.mark.parametrize("mapped", [False, True])
def test_a_remote_worker_is_refused(numbered_url, remote, mapped):
    dataset = t2t.open(numbered_url).dataset((lambda r: tf.strings.length(r["cls"])) if mapped else None, batch=4)
    distributed = dataset.apply(service.distribute("parallel_epochs", remote))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"reads its shards in the process that made it.*Export"):
        list(distributed)


def test_exported_files_are_read_by_a_remote_worker(numbered_url, remote, tmp_path):
    path = str(tmp_path / "all.record")
    with tf.io.TFRecordWriter(path) as writer:
        for record in t2t.open(numbered_url).records():
            writer.write(record["cls"])
    distributed = tf.data.TFRecordDataset(path).apply(service.distribute("parallel_epochs", remote))
    assert sorted(int(each) for each in distributed.as_numpy_iterator()) == list(range(SHARDS * EACH))
