"""The bottleneck is reported correctly for slow links, mappings and consumers, and exported for Prometheus."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.metrics import bottleneck, openmetrics, shares
from ais_tar2tf.base.monitoring.stats import Stats
from ais_tar2tf.fetch import fetcher
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.source.read_plan import plan_reading
from ais_tar2tf.stores.file import FileBody
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.tfdata.chunk_reader import ChunkReader
from ais_tar2tf.tfdata.liveness import NO_TOKEN
from ais_tar2tf.tfdata.request import DatasetRequest, Elements
from tests.support import shards as made
from tests.support.fault_server import PATIENCE
from tests.support.kinds_of_stores import new_name

RECORDS = 64
PAUSE = 0.02  # seconds, of a fake clock in most tests


@pytest.fixture
def watched_url() -> str:
    store = MemoryStore(new_name())
    store.put("a.tar", SHARD)
    return store.url("a.tar")


SHARD = made.labelled("a", RECORDS, lambda i: {"jpg": bytes(20_000), "cls": b"%d" % i})


@pytest.fixture
def path(tmp_path) -> str:
    (tmp_path / "a.tar").write_bytes(SHARD)
    return str(tmp_path / "a.tar")


class Clock:
    """A clock that a test advances, and that reports when it is read."""

    def __init__(self) -> None:
        self.now = 0.0
        self.looked = threading.Semaphore(0)

    def __call__(self) -> float:
        self.looked.release()
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    staged = Clock()
    monkeypatch.setattr(time, "perf_counter", staged)
    return staged


class SlowStore(MemoryStore):
    """A slow link: 20 kB at a time, each after the reader has begun to wait, and after an advance of the clock."""

    clock: Clock

    def open(self, name, start=0, stop=None, *, interrupt=None):
        body = super().open(name, start, stop, interrupt=interrupt)
        quick = body.readinto

        def slow(buffer):
            while not any(self._waits(each) for each in list(fetcher._open_fetchers)):
                assert self.clock.looked.acquire(timeout=PATIENCE)
            self.clock.now += PAUSE
            return quick(buffer[:20_000])

        body.readinto = slow
        return body

    def _waits(self, each) -> bool:
        with each._state.lock:
            return each._store is self and each._state.awaited is not None


def number_of(record):
    return tf.strings.to_number(record["cls"], tf.int32)


@pytest.mark.parametrize("as_dataset", [True, False])
def test_a_slow_link(watched_url, clock, as_dataset):
    source = t2t.open(watched_url, index=False, connections=1)
    slow = SlowStore(source.opened.shards.store._bucket)
    slow.clock = clock
    object.__setattr__(source.opened.shards, "store", slow)
    count = len(list(source.dataset(number_of))) if as_dataset else len(list(source.records()))
    assert count == RECORDS
    assert source.stats.network_seconds == pytest.approx(clock.now if not as_dataset else source.stats.seconds)
    assert bottleneck(source.stats) == "network"
    assert source.bottleneck.startswith("network holds it up, 100%")
    assert "connections=" in source.bottleneck


def test_a_slow_disk(path, clock, monkeypatch):
    """Local files are read without threads, and waiting for them counts, too."""
    quick = FileBody.readinto

    def slow(body, buffer):
        clock.now += PAUSE
        return quick(body, buffer)

    monkeypatch.setattr(FileBody, "readinto", slow)
    source = t2t.open(path, index=False)
    assert len(list(source.records())) == RECORDS
    assert source.stats.network_seconds == source.stats.seconds == pytest.approx(clock.now)
    assert bottleneck(source.stats) == "network"


def test_a_slow_mapping(path, clock):
    """Calls of the mapping overlap with reading ahead, during which the clock advances, too."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))

    def slowly(record):
        number = int(record["cls"].decode())  # a tensor has no `decode`, so this runs as Python
        clock.now += PAUSE
        return number

    assert len(list(source.dataset(slowly, output_types=tf.int32, output_shapes=(), parallel=1))) == RECORDS
    assert bottleneck(source.stats) == "parsing"
    assert "parallel=" in source.bottleneck


def test_a_slow_consumer(path, clock):
    source = t2t.open(path)
    for _ in source.records():
        clock.now += PAUSE
    assert source.stats.consumer_seconds == source.stats.seconds == pytest.approx(RECORDS * PAUSE)
    assert source.bottleneck.startswith("consumer holds it up, 100%")
    assert "training step" in source.bottleneck


def test_a_slow_consumer_of_chunks(path, clock, monkeypatch):
    """Consume chunk by chunk, as a dataset's graph does; in pure Python, a column is an array of objects."""
    monkeypatch.setenv("AIS_TAR2TF_NATIVE", "0")
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))
    request = DatasetRequest(
        plan_reading(source.opened, None), source.opened.account, Elements(("cls", "jpg", *KEY_AND_SHARD))
    )
    reader, state, token, count = ChunkReader(request), b"", NO_TOKEN, 0
    while True:
        state, token, _, _, _, *columns = reader.read_chunk(state, token)
        if not len(columns[0]):
            break
        count += len(columns[0])
        clock.now += PAUSE
    assert count == RECORDS
    assert source.stats.consumer_seconds == source.stats.seconds == pytest.approx(RECORDS / 4 * PAUSE)
    assert bottleneck(source.stats) == "consumer"


def slow_graph(record):
    matrix = tf.fill((500, 500), tf.cast(number_of(record), tf.float32))
    for _ in range(4):
        matrix = tf.tanh(matrix @ matrix)
    return tf.reduce_sum(matrix)


@pytest.mark.full
def test_a_slow_mapping_in_a_graph(path):
    """Measure with the real clock, because a graph cannot use another one."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))
    assert len(list(source.dataset(slow_graph, parallel=1))) == RECORDS
    assert bottleneck(source.stats) == "parsing"


@pytest.mark.full
@pytest.mark.parametrize("mapped", [True, False])
def test_a_slow_consumer_of_a_dataset(path, mapped):
    """Measure with the real clock."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))
    for _ in source.dataset(number_of if mapped else None):
        time.sleep(PAUSE)
    assert bottleneck(source.stats) == "consumer"


def test_the_shares_add_up(watched_url):
    source = t2t.open(watched_url)
    assert source.bottleneck == "nothing was read yet"
    list(source.records())
    before = source.stats.copy()
    list(source.dataset(number_of))
    assert sum(shares(source.stats).values()) == pytest.approx(1)
    assert source.stats.records_per_second > 0
    assert source.stats.megabytes_per_second > 0
    rest = source.stats.since(before)
    assert rest.records_emitted == RECORDS
    assert before.records_emitted == RECORDS
    assert rest.seconds == pytest.approx(source.stats.seconds - before.seconds)


def test_openmetrics_as_prometheus_reads_it():
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    stats = Stats(shards=3, bytes=7, skipped=Counter(MissingField=2), reading=2.0, network_wait=1.5, idle=1.0)
    said = openmetrics(stats, {"job": 'a "b"\\\n'})
    families = {family.name: family for family in parser.text_string_to_metric_families(said)}
    assert families["ais_tar2tf_bytes"].type == "counter"
    (sample,) = families["ais_tar2tf_shards"].samples
    assert (sample.name, sample.labels, sample.value) == ("ais_tar2tf_shards_total", {"job": 'a "b"\\\n'}, 3)
    (skipped,) = families["ais_tar2tf_skipped"].samples
    assert (skipped.labels["error"], skipped.value) == ("MissingField", 2)
    times = {sample.labels["where"]: sample.value for sample in families["ais_tar2tf_time_seconds"].samples}
    assert times == {"network": 1.5, "parsing": 0.5, "consumer": 1.0}
    assert list(parser.text_string_to_metric_families(openmetrics(Stats())))


def test_a_callback_for_fit(watched_url, tmp_path):
    pytest.importorskip("tensorboard")

    class Kept(tf.keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.logs = []

        def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  # Keras names it
            self.logs.append(dict(logs))

    source, said, kept = t2t.open(watched_url), [], Kept()
    dataset = source.dataset(lambda record: (tf.zeros(3), tf.cast(number_of(record), tf.float32)), batch=16)
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watch = t2t.Watch(source, tmp_path / "logs", say=said.append)
    model.fit(dataset, epochs=2, verbose=0, shuffle=False, callbacks=[watch, kept])
    assert [line.partition(":")[0] for line in said] == ["epoch 1", "epoch 2"]
    assert all("holds it up" in line for line in said)
    for logs in kept.logs:
        assert logs["input/records_per_second"] > 0
        assert sum(logs[f"input/{name}"] for name in ("network", "parsing", "consumer")) == pytest.approx(1)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "logs"))
    events.Reload()
    assert "input/records_per_second" in events.Tags()["tensors"]
    assert [event.step for event in events.Tensors("input/network")] == [0, 1]


def test_without_tensorboard_the_error_names_the_package(watched_url, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(t2t.errors.MissingDependency, match=r"ais_tar2tf\[tensorboard\]"):
        t2t.Watch(t2t.open(watched_url), tmp_path)
    assert t2t.Watch(t2t.open(watched_url))
