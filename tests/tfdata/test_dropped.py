"""When Python drops datasets and iterators, their threads and sockets end, without a call of `close`."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.base import periodic
from ais_tar2tf.tfdata.liveness import NO_TOKEN, LivenessTokens, can_observe_tokens, free_unused, number_of
from tests.support import shards as made
from tests.support.fault_server import PATIENCE, Fault, FaultServer, ais
from tests.support.leftovers import END_SECONDS, left_running, our_threads

RECORDS, EACH = 60, 50_000  # so many that a stream and its threads wait until more records are read
URL = "ais://bucket/s-{0..1}.tar"


@pytest.fixture(scope="module")
def large_record_server() -> Iterator[FaultServer]:
    draw = np.random.default_rng(0)
    with FaultServer() as found:
        for shard in range(2):
            records = made.labelled(
                f"s{shard}", RECORDS, lambda number: {"bin": draw.bytes(EACH), "cls": b"%d" % number}
            )
            found.add(f"bucket/s-{shard}.tar", ais(records))
        yield found


@pytest.fixture
def all_ends(large_record_server: FaultServer) -> Iterator[None]:
    """Check that, within seconds, all new threads of ours and all connections to the server end."""
    gc.collect()
    before = our_threads()
    assert _left(large_record_server) == 0
    yield
    gc.collect()
    assert left_running(before) == []
    assert _left(large_record_server) == 0
    assert _registered_at_last() == []


def _left(server: FaultServer) -> int:
    """Return the number of connections that do not end."""
    deadline = time.monotonic() + END_SECONDS
    while server.connections and time.monotonic() < deadline:
        time.sleep(0.01)
    return server.connections


def _registered_at_last() -> list[object]:
    """Return the objects that the thread of `periodic` still calls when it should have ended."""
    deadline = time.monotonic() + END_SECONDS
    while periodic._caller._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return [] if periodic._caller._thread is None else list(periodic._caller._registered)


def opened(server: FaultServer, **options: Any) -> t2t.Source:
    limits = t2t.options.Limits(chunk_records=4, read_ahead_bytes=256 * 1024)
    return t2t.open(URL, endpoint=server.url, limits=limits, **options)


def plain(server: FaultServer) -> Any:
    return opened(server).dataset()


def mapped(server: FaultServer) -> Any:
    return opened(server).dataset(lambda record: tf.strings.length(record["bin"]), batch=2)


def mapped_in_python(server: FaultServer) -> Any:
    return opened(server).dataset(lambda record: len(record["bin"]), output_types=tf.int64, output_shapes=())


def chain(server: FaultServer) -> Any:
    return plain(server).map(lambda record: record["bin"]).batch(2).prefetch(2).repeat().take(50)


def shuffled(server: FaultServer) -> Any:
    return opened(server).dataset(shuffle=16, seed=1, repeat=None).small_checkpoints().batch(2)


def zipped(server: FaultServer) -> Any:
    """Return a dataset made by tf.data's own `zip`."""
    return tf.data.Dataset.zip((plain(server), plain(server))).shuffle(3)


def mixture(server: FaultServer) -> Any:
    return t2t.mix([opened(server), opened(server)], seed=0).dataset()


def cached(server: FaultServer) -> Any:
    return opened(server, cache="memory").dataset()


KINDS = [plain, mapped, mapped_in_python, chain, shuffled, zipped, mixture, cached]


@pytest.mark.usefixtures("all_ends")
@pytest.mark.parametrize("make", KINDS)
def test_a_dataset_that_is_abandoned_early_and_dropped(
    large_record_server: FaultServer, make: Callable[[FaultServer], Any]
) -> None:
    for _ in range(3):
        dataset = make(large_record_server)
        for _ in dataset:
            break
        del dataset


@pytest.mark.usefixtures("all_ends")
def test_ten_datasets(large_record_server: FaultServer) -> None:
    before = our_threads()
    datasets = [plain(large_record_server) for _ in range(10)]
    iterators = [iter(dataset) for dataset in datasets]
    for iterator in iterators:
        next(iterator)
    assert len(our_threads() - before) >= 10  # so that there are threads that can end
    del iterator, iterators, datasets


@pytest.mark.usefixtures("all_ends")
def test_a_dataset_that_was_never_iterated(large_record_server: FaultServer) -> None:
    """The schema's sample was read over a connection that was kept for the dataset."""
    mapped(large_record_server)


@pytest.mark.usefixtures("all_ends")
def test_an_iterator_that_is_dropped_while_its_dataset_lives(large_record_server: FaultServer) -> None:
    before = our_threads()
    dataset = plain(large_record_server)
    iterator = iter(dataset)
    next(iterator)
    del iterator
    assert left_running(before) == []
    assert len(list(dataset)) == 2 * RECORDS  # the dataset still gives all its records


@pytest.mark.usefixtures("all_ends")
def test_one_of_two_iterators_continues(large_record_server: FaultServer) -> None:
    dataset = plain(large_record_server)
    one, other = iter(dataset), iter(dataset)
    seen = [next(one)["__key__"].numpy()]
    next(other)
    asked = len(large_record_server.requests)
    del other
    assert len(our_threads()) > 0
    seen += [record["__key__"].numpy() for record in one]
    assert len(seen) == len(set(seen)) == 2 * RECORDS
    assert len(large_record_server.requests) - asked <= 4  # the other shard; the open stream was not opened again
    del one


@pytest.mark.usefixtures("all_ends")
def test_a_loop_in_a_graph(large_record_server: FaultServer) -> None:
    dataset = plain(large_record_server)

    @tf.function
    def first(records: tf.data.Dataset) -> tf.Tensor:
        key = tf.constant("")
        for record in records:
            key = record["__key__"]
            break
        return key

    assert first(dataset).numpy().startswith(b"s0")


@pytest.mark.usefixtures("all_ends")
def test_a_fit_that_ends_early(large_record_server: FaultServer) -> None:
    import keras

    def pair(record: dict[str, Any]) -> Any:
        return tf.strings.to_number(record["cls"])[None], tf.strings.to_number(record["cls"])[None]

    train = opened(large_record_server).dataset(pair, repeat=None).batch(4).prefetch(2)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(
        train,
        epochs=2,
        steps_per_epoch=3,
        validation_data=opened(large_record_server).dataset(pair).batch(4),
        validation_steps=1,
        verbose=0,
    )
    del train


@pytest.mark.usefixtures("all_ends")
def test_an_iterator_of_a_strategy(large_record_server: FaultServer) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    for _ in strategy.experimental_distribute_dataset(plain(large_record_server).batch(2)):
        break


@pytest.mark.usefixtures("all_ends")
def test_records_of_a_loop_that_ends_early(large_record_server: FaultServer) -> None:
    for _ in range(3):
        for _ in opened(large_record_server).records():
            break


@pytest.mark.usefixtures("all_ends")
def test_a_mapping_that_fails(large_record_server: FaultServer) -> None:
    def wrong(_: Any) -> Any:
        raise ValueError

    for _ in range(3):
        with pytest.raises(t2t.errors.MappingError):
            list(opened(large_record_server).dataset(wrong, output_types=tf.int64, output_shapes=()))


@pytest.mark.usefixtures("all_ends")
def test_loaded_record_files(large_record_server: FaultServer, tmp_path: Path) -> None:
    opened(large_record_server).export(str(tmp_path / "out"), shard_records=50)
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            large_record_server.add(f"web/{file.relative_to(tmp_path)}", ais(file.read_bytes()))
    for _ in range(3):
        for _ in t2t.load("ais://web/out/", endpoint=large_record_server.url).dataset("train"):
            break


# Iterators that are dropped while they wait for a silent server

STALLED = Fault(after=5 * EACH, then="stall")


def _waiting(server: FaultServer) -> Any:
    """Return a dataset whose iterators wait for 200 seconds in the middle of the first shard."""
    timeouts = t2t.options.Timeouts(idle=200, slow=200)
    limits = t2t.options.Limits(chunk_records=2)
    source = t2t.open(URL, endpoint=server.url, timeouts=timeouts, limits=limits, connections=1)
    dataset = source.dataset()
    server.script["bucket/s-0.tar"].append(STALLED)
    return dataset


@pytest.mark.usefixtures("all_ends")
def test_a_drop_while_the_server_is_silent(large_record_server: FaultServer) -> None:
    stalls = len(large_record_server.stalls)
    dataset = _waiting(large_record_server).batch(2).prefetch(1)
    iterator = iter(dataset)
    next(iterator)
    _until(lambda: _reads(dataset))
    del iterator
    _until(lambda: len(large_record_server.stalls) > stalls)


@pytest.mark.usefixtures("all_ends")
def test_a_living_iterator_continues_when_another_is_dropped(large_record_server: FaultServer) -> None:
    """Waiting streams of living iterators are closed, too: TensorFlow does not tell which iterator was dropped."""
    dataset = _waiting(large_record_server)
    iterator, other = iter(dataset), iter(dataset.skip(0))
    seen = [next(iterator)["__key__"].numpy()]
    _until(lambda: _reads(dataset))
    del other
    seen += [record["__key__"].numpy() for record in iterator]
    assert len(seen) == len(set(seen)) == 2 * RECORDS


def _reads(dataset: Any) -> bool:
    """Return whether a chunk has been read for a while."""
    active = dataset.source._reader.active_reads
    return any(time.monotonic() - began > 1 for began, _ in list(active._begun.values()))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Exact resume with tokens in the state


@pytest.mark.usefixtures("all_ends")
def test_a_restored_iterator_continues_after_the_saved_one_was_dropped(
    large_record_server: FaultServer, tmp_path: Path
) -> None:
    before = our_threads()
    dataset = plain(large_record_server)
    iterator = iter(dataset)
    first = [next(iterator)["__key__"].numpy() for _ in range(20)]
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    rest = [record["__key__"].numpy() for record in iterator]
    del iterator
    assert left_running(before) == []
    for _ in range(2):
        restored = iter(dataset)
        tf.train.Checkpoint(iterator=restored).restore(saved).assert_consumed()
        assert [record["__key__"].numpy() for record in restored] == rest
    assert len(set(first + rest)) == 2 * RECORDS


# LivenessTokens


def test_this_tensorflow_shows_when_it_frees_a_token() -> None:
    assert can_observe_tokens()


def test_a_token_lives_as_long_as_its_iterator() -> None:
    tokens = LivenessTokens()
    token = tokens.current(NO_TOKEN)
    number = number_of(token)
    assert tokens.current(token) is token
    assert tokens.current(token.view()) is token  # TensorFlow returns another array on the same memory
    assert number_of(tokens.current(token.copy())) != number  # as in an iterator that was restored from a checkpoint
    assert tokens.is_held(number)
    del token
    assert not tokens.is_held(number)


def test_tokens_of_a_million_chunks_are_one_array() -> None:
    """A chain of views would grow with each chunk, and be destroyed recursively."""
    seen = set[int]()

    def step(given: Any) -> Any:
        token = tokens.current(given)
        seen.add(id(token))
        return token

    tokens = LivenessTokens()

    def scan(state: Any, _: Any) -> Any:
        token = tf.ensure_shape(tf.numpy_function(step, [state], tf.int64), (1,))
        return token, 0

    assert sum(1 for _ in tf.data.Dataset.range(20_000).scan(tf.constant(NO_TOKEN), scan)) == 20_000
    assert len(seen) == 1
    free_unused()
    assert not tokens._held


@pytest.mark.parametrize("stage", [lambda dataset: dataset, lambda dataset: dataset.batch(4).prefetch(2)])
def test_the_garbage_collector_inside_a_reading_call(stage: Callable[[Any], Any]) -> None:
    """The garbage collector drops an iterator inside the call for which the iterator's end waits."""
    inside, collect, collected = (threading.Event() for _ in range(3))
    hold: list[bool] = []

    def grouping(name: str) -> tuple[str, str]:
        if hold and threading.current_thread() is not threading.main_thread() and not inside.is_set():
            inside.set()
            collect.wait(200)
            gc.collect()
            collected.set()
        key, _, field = name.partition(".")
        return key, field

    url = "memory://collected/s-{0..3}.tar"
    rows = [{"__key__": f"{number:05d}", "txt": "x" * 2000} for number in range(2000)]
    t2t.pack(rows, "memory://collected/s-{}.tar", shard_records=500, create=True, exists="replace")
    source = t2t.open(url, grouping=grouping, limits=t2t.options.Limits(chunk_records=4))
    gc.disable()
    try:
        cycle: list[Any] = [iter(stage(source.dataset()))]
        cycle.append(cycle)
        next(cycle[0])
        hold.append(True)
        while not inside.wait(0.2):
            next(cycle[0])
        del cycle
        collect.set()
        assert collected.wait(100)
    finally:
        gc.enable()
    assert _registered_at_last() == []


# Iterators that the garbage collector frees in the middle of their callback

FREED_IN_ITS_CALLBACK = """
import gc, os, threading
import tensorflow as tf
from ais_tar2tf.tfdata.iterators import ErrorTranslatingDataset

gc.disable()
cycle, called, dropped, freed = [], threading.Event(), threading.Event(), threading.Event()

def callback(number):
    if number == 5:
        called.set()
        dropped.wait()
        cycle.clear()
        gc.collect()
        freed.set()
    return number

numbers = tf.data.Dataset.range(10).map(lambda n: tf.numpy_function(callback, [n], tf.int64)).prefetch(1)
iterator = iter(ErrorTranslatingDataset(numbers))
while not called.wait(0.1):
    next(iterator)
references = [REFERENCE]
references.append(references)
cycle.append(references)
del iterator, references
dropped.set()
os._exit(0 if freed.wait(20) else 1)
"""


@pytest.mark.parametrize("reference", ["iterator", "iterator._iterator_resource"])
def test_the_garbage_collector_frees_an_iterator_in_its_callback(reference: str) -> None:
    """The tensor may also have another owner than the iterator, such as a checkpoint."""
    script = FREED_IN_ITS_CALLBACK.replace("REFERENCE", reference)
    assert subprocess.run([sys.executable, "-c", script], timeout=120).returncode == 0
