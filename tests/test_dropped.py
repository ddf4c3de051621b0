"""Datasets and iterators that Python drops: their threads and sockets end with them, though nobody closed them."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf import lookout
from ais_tar2tf.tfdata.tokens import NO_TOKEN, Tokens, free_unused, number_of, observed
from faults import PATIENCE, Fault, FaultServer, ais
from leftovers import ENDED, left_running, our_threads

RECORDS, EACH = 60, 50_000  # so many that a stream waits, with its threads, until the next records are wanted
URL = "ais://bucket/s-{0..1}.tar"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    draw = np.random.default_rng(0)
    with FaultServer() as found:
        for shard in range(2):
            records = made.labelled(
                f"s{shard}", RECORDS, lambda number: {"bin": draw.bytes(EACH), "cls": b"%d" % number}
            )
            found.add(f"bucket/s-{shard}.tar", ais(records))
        yield found


@pytest.fixture
def all_ends(server: FaultServer) -> Iterator[None]:
    """Within seconds there is no thread of ours more than before, and no connection to the server."""
    gc.collect()
    before = our_threads()
    assert _left(server) == 0
    yield
    gc.collect()
    assert left_running(before) == []
    assert _left(server) == 0
    assert _watched_at_last() == []


def _left(server: FaultServer) -> int:
    """Connections that stay."""
    deadline = time.monotonic() + ENDED
    while server.connections and time.monotonic() < deadline:
        time.sleep(0.01)
    return server.connections


def _watched_at_last() -> list[object]:
    """Return what the thread of `lookout` still watches when it should have ended."""
    deadline = time.monotonic() + ENDED
    while lookout._lookout._thread is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    return [] if lookout._lookout._thread is None else list(lookout._lookout._watched)


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
    """By a function of tf.data that knows nothing of us."""
    return tf.data.Dataset.zip((plain(server), plain(server))).shuffle(3)


def mixture(server: FaultServer) -> Any:
    return t2t.mix([opened(server), opened(server)], seed=0).dataset()


def cached(server: FaultServer) -> Any:
    return opened(server, cache="memory").dataset()


KINDS = [plain, mapped, mapped_in_python, chain, shuffled, zipped, mixture, cached]


@pytest.mark.usefixtures("all_ends")
@pytest.mark.parametrize("make", KINDS)
def test_a_dataset_that_is_left_early_and_dropped(server: FaultServer, make: Callable[[FaultServer], Any]) -> None:
    for _ in range(3):
        dataset = make(server)
        for _ in dataset:
            break
        del dataset


@pytest.mark.usefixtures("all_ends")
def test_ten_datasets(server: FaultServer) -> None:
    before = our_threads()
    datasets = [plain(server) for _ in range(10)]
    iterators = [iter(dataset) for dataset in datasets]
    for iterator in iterators:
        next(iterator)
    assert len(our_threads() - before) >= 10  # so that there is something to end
    del iterator, iterators, datasets


@pytest.mark.usefixtures("all_ends")
def test_a_dataset_that_was_never_iterated(server: FaultServer) -> None:
    """The schema's sample was read, over a connection that was kept for the dataset."""
    mapped(server)


@pytest.mark.usefixtures("all_ends")
def test_an_iterator_that_is_dropped_while_its_dataset_lives(server: FaultServer) -> None:
    before = our_threads()
    dataset = plain(server)
    iterator = iter(dataset)
    next(iterator)
    del iterator
    assert left_running(before) == []
    assert len(list(dataset)) == 2 * RECORDS  # it goes on as if nothing had been


@pytest.mark.usefixtures("all_ends")
def test_of_two_iterators_one_goes_on(server: FaultServer) -> None:
    dataset = plain(server)
    one, other = iter(dataset), iter(dataset)
    seen = [next(one)["__key__"].numpy()]
    next(other)
    asked = len(server.requests)
    del other
    assert len(our_threads()) > 0
    seen += [record["__key__"].numpy() for record in one]
    assert len(seen) == len(set(seen)) == 2 * RECORDS
    assert len(server.requests) - asked <= 4  # the other shard: the stream that was open was not opened again
    del one


@pytest.mark.usefixtures("all_ends")
def test_a_loop_in_a_graph(server: FaultServer) -> None:
    dataset = plain(server)

    @tf.function
    def first(records: tf.data.Dataset) -> tf.Tensor:
        key = tf.constant("")
        for record in records:
            key = record["__key__"]
            break
        return key

    assert first(dataset).numpy().startswith(b"s0")


@pytest.mark.usefixtures("all_ends")
def test_a_fit_that_ends_early(server: FaultServer) -> None:
    import keras

    def pair(record: dict[str, Any]) -> Any:
        return tf.strings.to_number(record["cls"])[None], tf.strings.to_number(record["cls"])[None]

    train = opened(server).dataset(pair, repeat=None).batch(4).prefetch(2)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    model.fit(
        train,
        epochs=2,
        steps_per_epoch=3,
        validation_data=opened(server).dataset(pair).batch(4),
        validation_steps=1,
        verbose=0,
    )
    del train


@pytest.mark.usefixtures("all_ends")
def test_an_iterator_of_a_strategy(server: FaultServer) -> None:
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    for _ in strategy.experimental_distribute_dataset(plain(server).batch(2)):
        break


@pytest.mark.usefixtures("all_ends")
def test_records_of_a_loop_that_ends_early(server: FaultServer) -> None:
    for _ in range(3):
        for _ in opened(server).records():
            break


@pytest.mark.usefixtures("all_ends")
def test_a_mapping_that_fails(server: FaultServer) -> None:
    def wrong(_: Any) -> Any:
        raise ValueError

    for _ in range(3):
        with pytest.raises(t2t.errors.MappingError):
            list(opened(server).dataset(wrong, output_types=tf.int64, output_shapes=()))


@pytest.mark.usefixtures("all_ends")
def test_loaded_record_files(server: FaultServer, tmp_path: Path) -> None:
    opened(server).export(str(tmp_path / "out"), shard_records=50)
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            server.add(f"web/{file.relative_to(tmp_path)}", ais(file.read_bytes()))
    for _ in range(3):
        for _ in t2t.load("ais://web/out/", endpoint=server.url).dataset("train"):
            break


# An iterator that is dropped while it waits for a server that sends nothing any more.

STALLED = Fault(after=5 * EACH, then="stall")


def _waiting(server: FaultServer) -> Any:
    """A dataset whose iterators wait for 200 seconds in the middle of the first shard."""
    timeouts = t2t.options.Timeouts(idle=200, slow=200)
    limits = t2t.options.Limits(chunk_records=2)
    source = t2t.open(URL, endpoint=server.url, timeouts=timeouts, limits=limits, connections=1)
    dataset = source.dataset()
    server.script["bucket/s-0.tar"].append(STALLED)
    return dataset


@pytest.mark.usefixtures("all_ends")
def test_a_drop_while_nothing_comes(server: FaultServer) -> None:
    stalls = len(server.stalls)
    dataset = _waiting(server).batch(2).prefetch(1)
    iterator = iter(dataset)
    next(iterator)
    _until(lambda: _reads(dataset))
    del iterator
    _until(lambda: len(server.stalls) > stalls)


@pytest.mark.usefixtures("all_ends")
def test_an_iterator_that_lives_reads_on_when_another_is_dropped(server: FaultServer) -> None:
    """Its stream is closed, too, when it waits: TensorFlow does not tell which is which."""
    dataset = _waiting(server)
    iterator, other = iter(dataset), iter(dataset.skip(0))
    seen = [next(iterator)["__key__"].numpy()]
    _until(lambda: _reads(dataset))
    del other
    seen += [record["__key__"].numpy() for record in iterator]
    assert len(seen) == len(set(seen)) == 2 * RECORDS


def _reads(dataset: Any) -> bool:
    """Return whether a chunk has been read for a while."""
    under_way = dataset.source._chunks.under_way
    return any(time.monotonic() - began > 1 for began, _ in list(under_way._begun.values()))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Exact resume, with tokens in the state.


@pytest.mark.usefixtures("all_ends")
def test_a_restored_iterator_goes_on_after_the_saved_one_was_dropped(server: FaultServer, tmp_path: Path) -> None:
    before = our_threads()
    dataset = plain(server)
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


# Tokens.


def test_this_tensorflow_shows_when_it_frees_a_token() -> None:
    assert observed()


def test_a_token_is_held_as_long_as_its_iterator() -> None:
    tokens = Tokens()
    token = tokens.of(NO_TOKEN)
    number = number_of(token)
    assert tokens.of(token) is token
    assert tokens.of(token.view()) is token  # what TensorFlow hands back is another array on the same memory
    assert number_of(tokens.of(token.copy())) != number  # of an iterator that was restored from a checkpoint
    assert tokens.is_held(number)
    del token
    assert not tokens.is_held(number)


def test_tokens_of_a_million_chunks_are_one_array() -> None:
    """A chain of views would grow with each chunk, and be torn down recursively."""
    seen = set[int]()

    def step(given: Any) -> Any:
        token = tokens.of(given)
        seen.add(id(token))
        return token

    tokens = Tokens()

    def scan(state: Any, _: Any) -> Any:
        token = tf.ensure_shape(tf.numpy_function(step, [state], tf.int64), (1,))
        return token, 0

    assert sum(1 for _ in tf.data.Dataset.range(20_000).scan(tf.constant(NO_TOKEN), scan)) == 20_000
    assert len(seen) == 1
    free_unused()
    assert not tokens._held


@pytest.mark.parametrize("stage", [lambda dataset: dataset, lambda dataset: dataset.batch(4).prefetch(2)])
def test_the_garbage_collector_in_the_call_that_reads_for_it(stage: Callable[[Any], Any]) -> None:
    """It drops an iterator in TensorFlow's own thread, whose call the end of the iterator waits for."""
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
    assert _watched_at_last() == []
