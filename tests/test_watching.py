"""Where the time goes: the line is right of a slow link, mapping and consumer; and what Prometheus reads of it."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.account import Stats
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.watching import bottleneck, openmetrics, shares
from places import new_name

RECORDS = 64
PAUSE = 0.02


@pytest.fixture
def url() -> str:
    store = MemoryStore(new_name())
    store.put("a.tar", made.labelled("a", RECORDS, lambda i: {"jpg": bytes(20_000), "cls": b"%d" % i}))
    return store.url("a.tar")


class SlowStore(MemoryStore):
    """A link that gives 20 kB at a time."""

    def open(self, name, start=0, stop=None, *, interrupt=None):
        body = super().open(name, start, stop, interrupt=interrupt)
        quick = body.readinto

        def slow(buffer):
            threading.Event().wait(PAUSE)
            return quick(buffer[:20_000])

        body.readinto = slow
        return body


def slow_link(url: str) -> t2t.Source:
    source = t2t.open(url, index=False)
    slow = SlowStore(source._shards.store._bucket)
    object.__setattr__(source._shards, "store", slow)
    return source


def number_of(record):
    return tf.strings.to_number(record["cls"], tf.int32)


def slowly(record):
    time.sleep(PAUSE)
    return int(record["cls"].decode())  # a tensor has no decode: this runs as Python


def slow_graph(record):
    matrix = tf.fill((500, 500), tf.cast(number_of(record), tf.float32))
    for _ in range(4):
        matrix = tf.tanh(matrix @ matrix)
    return tf.reduce_sum(matrix)


@pytest.mark.parametrize("as_dataset", [True, False])
def test_a_slow_link(url, as_dataset):
    source = slow_link(url)
    count = len(list(source.dataset(number_of))) if as_dataset else len(list(source.records()))
    assert count == RECORDS
    assert bottleneck(source.stats) == "network"
    assert source.bottleneck.startswith("network holds it up, ")
    assert "connections=" in source.bottleneck


def test_a_slow_mapping(url):
    source = t2t.open(url, limits=t2t.options.Limits(chunk_records=4))
    assert len(list(source.dataset(slowly, output_types=tf.int32, output_shapes=(), parallel=2))) == RECORDS
    assert bottleneck(source.stats) == "parsing"
    assert "parallel=" in source.bottleneck


def test_a_slow_mapping_in_a_graph(url):
    source = t2t.open(url, limits=t2t.options.Limits(chunk_records=4))
    assert len(list(source.dataset(slow_graph, parallel=1))) == RECORDS
    assert bottleneck(source.stats) == "parsing"


@pytest.mark.parametrize("mapped", [True, False])
def test_a_slow_consumer(url, mapped):
    source = t2t.open(url, limits=t2t.options.Limits(chunk_records=4))
    for _ in source.dataset(number_of if mapped else None):
        time.sleep(PAUSE)
    assert bottleneck(source.stats) == "consumer"
    assert "training step" in source.bottleneck


def test_a_slow_reader_of_records(url):
    source = t2t.open(url)
    for _ in source.records():
        time.sleep(PAUSE / 4)
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
