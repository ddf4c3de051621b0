"""Where the time goes: the line is right of a slow link, mapping and consumer; and what Prometheus reads of it."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf import fetch
from ais_tar2tf.account import Stats
from ais_tar2tf.records import NAMES
from ais_tar2tf.stores.file import FileBody
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.tfdata.chunks import Chunks, Request
from ais_tar2tf.tfdata.tokens import NO_TOKEN
from ais_tar2tf.watching import bottleneck, openmetrics, shares
from faults import PATIENCE
from places import new_name

RECORDS = 64
PAUSE = 0.02  # seconds; of a staged clock, but where a test is of the real one


@pytest.fixture
def url() -> str:
    store = MemoryStore(new_name())
    store.put("a.tar", SHARD)
    return store.url("a.tar")


SHARD = made.labelled("a", RECORDS, lambda i: {"jpg": bytes(20_000), "cls": b"%d" % i})


@pytest.fixture
def path(tmp_path) -> str:
    (tmp_path / "a.tar").write_bytes(SHARD)
    return str(tmp_path / "a.tar")


class Clock:
    """Goes on when it is told to, and tells when somebody looks at it."""

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
    """A link that gives 20 kB at a time, each when its reader has begun to wait for it, and later by the clock."""

    clock: Clock

    def open(self, name, start=0, stop=None, *, interrupt=None):
        body = super().open(name, start, stop, interrupt=interrupt)
        quick = body.readinto

        def slow(buffer):
            while not any(self._waits(each) for each in list(fetch._open_fetches)):
                assert self.clock.looked.acquire(timeout=PATIENCE)
            self.clock.now += PAUSE
            return quick(buffer[:20_000])

        body.readinto = slow
        return body

    def _waits(self, each) -> bool:
        with each._lock:
            return each._store is self and each._receiving.hungry is not None


def number_of(record):
    return tf.strings.to_number(record["cls"], tf.int32)


@pytest.mark.parametrize("as_dataset", [True, False])
def test_a_slow_link(url, clock, as_dataset):
    source = t2t.open(url, index=False, connections=1)
    slow = SlowStore(source._shards.store._bucket)
    slow.clock = clock
    object.__setattr__(source._shards, "store", slow)
    count = len(list(source.dataset(number_of))) if as_dataset else len(list(source.records()))
    assert count == RECORDS
    assert source.stats.network_seconds == pytest.approx(clock.now if not as_dataset else source.stats.seconds)
    assert bottleneck(source.stats) == "network"
    assert source.bottleneck.startswith("network holds it up, 100%")
    assert "connections=" in source.bottleneck


def test_a_slow_disk(path, clock, monkeypatch):
    """Local files are read without threads; what they are waited for counts as well."""
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
    """Calls overlap with reading ahead: of what the file is read in, a few pieces, the clock goes on within, too."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))

    def slowly(record):
        number = int(record["cls"].decode())  # a tensor has no decode: this runs as Python
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


def test_a_slow_consumer_of_chunks(path, clock):
    """Chunk by chunk, as a dataset's graph asks for them."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))
    request = Request(source.reading(None), source._account, ("cls", "jpg", *NAMES), frozenset())
    chunks, state, token, count = Chunks(request), b"", NO_TOKEN, 0
    while True:
        state, token, _, _, _, *columns = chunks.step(state, token)
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
    """By the real clock, as a graph has no other."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))
    assert len(list(source.dataset(slow_graph, parallel=1))) == RECORDS
    assert bottleneck(source.stats) == "parsing"


@pytest.mark.full
@pytest.mark.parametrize("mapped", [True, False])
def test_a_slow_consumer_of_a_dataset(path, mapped):
    """By the real clock."""
    source = t2t.open(path, limits=t2t.options.Limits(chunk_records=4))
    for _ in source.dataset(number_of if mapped else None):
        time.sleep(PAUSE)
    assert bottleneck(source.stats) == "consumer"


def test_the_shares_are_all_there_is(url):
    source = t2t.open(url)
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


def test_a_callback_for_fit(url, tmp_path):
    pytest.importorskip("tensorboard")

    class Kept(tf.keras.callbacks.Callback):
        def __init__(self):
            super().__init__()
            self.logs = []

        def on_epoch_end(self, epoch, logs=None):  # noqa: ARG002  # Keras names it
            self.logs.append(dict(logs))

    source, said, kept = t2t.open(url), [], Kept()
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


def test_without_tensorboard_it_says_what_to_install(url, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(t2t.errors.MissingDependency, match=r"ais_tar2tf\[tensorboard\]"):
        t2t.Watch(t2t.open(url), tmp_path)
    assert t2t.Watch(t2t.open(url))
