"""Which mappings become a graph, and which run as Python. Only the mapping decides."""

# ruff: noqa: ARG002, ARG005  # mappings take a record, whatever they do with it

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import MissingField, OptionError, OptionTypeError, SchemaError
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made

ROOT = Path(__file__).parents[2]

# Each program runs in a new process without TensorFlow. {url} is that of a server with the bucket `b`.
FIRST = {
    "load_from_tar": 't2t.AisDataset("b", {url!r}).load_from_tar("s-{{0..1}}.tar")',
    "mix": 't2t.mix([t2t.open("ais://b/s-{{0..1}}.tar", endpoint={url!r})], weights=[1])'
    ".dataset(t2t.default_record_to_pair)",
}


@pytest.mark.parametrize("call", FIRST.values(), ids=FIRST)
def test_a_mapping_is_traced_in_a_new_process(tmp_path, call):
    (tmp_path / "b").mkdir()
    for number in range(2):
        shard = made.labelled(f"s{number}", 3, lambda i: {"jpg": made.image(i), "cls": b"%d" % i})
        (tmp_path / "b" / f"s-{number}.tar").write_bytes(shard)
    with t2t.serve(tmp_path) as server:
        script = (
            "import sys, ais_tar2tf as t2t\n"
            "assert 'tensorflow' not in sys.modules\n"
            f"print([int(label) for _, label in {call.format(url=server.url)}])\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False, cwd=ROOT
        )
    assert done.stdout.strip() == "[0, 1, 2, 0, 1, 2]", done.stderr


# Determinism cannot be disabled again, so this runs in a new process. {folder} has 40 records of "txt" and "cls".
DETERMINED = """
import tensorflow as tf, ais_tar2tf as t2t
tf.keras.utils.set_random_seed(1)
tf.config.experimental.enable_op_determinism()
number = lambda record: tf.strings.to_number(record["cls"], tf.int32)
source = t2t.open({folder!r}, on_error="skip-record")
python = dict(output_types=tf.int32, output_shapes=(), graph=False)
print(len(list(source.dataset(number, parallel=4))) + len(list(source.dataset(lambda record: record["txt"] + "."))))
print(len(list(source.dataset(number, shuffle=True, seed=1, batch=10).map(tf.identity, 2))))
print(len(list(source.dataset(number).small_checkpoints())), len(list(source.dataset(number, **python))))
source.export({out!r}, types={{"cls": "int64"}})
print(len(list(t2t.load({out!r}).dataset("train", shuffle=True, seed=1))), dict(source.stats.skipped))
"""


def test_no_record_is_lost_when_tensorflows_operations_are_deterministic(tmp_path):
    folder, out = f"{tmp_path}/shards/", f"{tmp_path}/out/"
    t2t.pack([{"__key__": f"{n:02d}", "txt": "a", "cls": n} for n in range(40)], folder + "{}.tar")
    script = DETERMINED.format(folder=folder, out=out)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False, cwd=ROOT
    )
    assert done.stdout.split("\n") == ["80", "4", "40 40", "40 {}", ""], done.stderr


SEEDS = range(12)
COUNT = 60
RNG = np.random.default_rng(1)  # most mappings below reach it indirectly
HOW = {"output_types": tf.int64, "output_shapes": ()}


@pytest.fixture(scope="module")
def traced_source() -> t2t.Source:
    """A source of 60 records, whose `cls` is their number."""
    store = MemoryStore("tracing")
    store.put("a.tar", made.labelled("s", COUNT, lambda i: {"cls": b"%d" % i, "jpg": b"x"}))
    return t2t.open(store.url("a.tar"))


def numbers(dataset) -> list[int]:
    return [int(each) for each in dataset]


def number(record):
    return tf.strings.to_number(record["cls"], tf.int64)


def is_traced(source, mapping, **options) -> bool:
    """Return whether a mapping is traced: only then are output types not needed."""
    try:
        source.dataset(mapping, **options)
    except SchemaError as error:
        if "needs output_types and output_shapes" not in str(error):
            raise
        return False
    return True


# Randomness


def flipped_by_closure(rng):
    return lambda record: -int(record["cls"]) if rng.random() < 0.5 else int(record["cls"])


def flipped_by_default(rng):
    def flip(record, *, rng=rng):
        return -int(record["cls"]) if rng.random() < 0.5 else int(record["cls"])

    return flip


def flip_with(rng, record):
    return -int(record["cls"]) if rng.random() < 0.5 else int(record["cls"])


class Flip:
    def __init__(self, rng) -> None:
        self.rng = rng

    def __call__(self, record):
        return flip_with(self.rng, record)


def flipped_by_partial(rng):
    return partial(flip_with, rng)


@pytest.mark.parametrize("kind", [flipped_by_closure, flipped_by_default, Flip, flipped_by_partial])
@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState, random.Random])
def test_records_are_flipped_as_a_plain_loop_flips_them(traced_source, make, kind):
    """There is one draw for each record, in order, and each epoch draws anew."""
    for seed in (1, 2):
        dataset = traced_source.dataset(kind(make(seed)), repeat=3, **HOW)
        oracle = kind(make(seed))
        expected = [oracle({"cls": b"%d" % i}) for _ in range(3) for i in range(COUNT)]
        found = numbers(dataset)
        assert found == expected
        epochs = [tuple(found[begin : begin + COUNT]) for begin in range(0, 3 * COUNT, COUNT)]
        assert len(set(epochs)) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_a_choice_that_two_traces_may_make_equally_is_not_frozen(traced_source, seed):
    """The function could be traced, because it chooses between two tensors."""
    rng = np.random.default_rng(seed)

    def flip(record):
        return -number(record) if rng.random() < 0.5 else number(record)

    oracle = np.random.default_rng(seed)
    expected = [-i if oracle.random() < 0.5 else i for i in range(COUNT)]
    assert numbers(traced_source.dataset(flip, **HOW)) == expected


def test_the_modules_own_generators(traced_source):
    def flip(record):
        return number(record) * (-1 if random.random() < 0.5 else 1) * (-1 if np.random.rand() < 0.5 else 1)

    dataset = traced_source.dataset(flip, **HOW)
    random.seed(3), np.random.seed(4)
    found = numbers(dataset)
    random.seed(3), np.random.seed(4)
    signs = [(-1 if random.random() < 0.5 else 1) * (-1 if np.random.rand() < 0.5 else 1) for _ in range(COUNT)]
    assert found == [sign * i for i, sign in enumerate(signs)]


def test_a_mapping_that_draws_is_reported_with_a_remedy(traced_source):
    def flip(record):
        return -number(record) if RNG.random() < 0.5 else number(record)

    with pytest.raises(SchemaError) as raised:
        traced_source.dataset(flip)
    said = str(raised.value)
    assert f"`RNG`, a numpy.random.Generator, in {flip.__qualname__} (test_tracing.py, line " in said
    for remedy in ("output_types=", "output_shapes=", "graph=True", "tf.random"):
        assert remedy in said


def test_randomness_in_the_functions_of_a_client(traced_source):
    """Functions after and inside conversions draw anew for each record."""
    mappings = {"conversions": [lambda record: {**record, "x": RNG.random()}], "selections": ["x"]}
    for options, given in ((mappings, {}), ({"conversions": [dict]}, {"record_to_pair": lambda r: RNG.random()})):
        client = t2t.AisDataset("tracing", "http://127.0.0.1:1", **options)
        mapping = client._to_pair(given.get("record_to_pair"))
        assert not is_traced(traced_source, mapping)


def test_randomness_in_a_decoder(traced_source):
    assert not is_traced(traced_source, None, decode={"cls": lambda value: RNG.random()})
    assert not is_traced(traced_source, lambda record: record["cls"], decode={"cls": lambda value: RNG.random()})


def test_randomness_in_a_mapping_of_a_mixture(traced_source):
    with pytest.raises(SchemaError, match=r"`RNG`, a numpy\.random\.Generator"):
        t2t.mix([traced_source, traced_source], weights=[1, 1]).dataset(
            lambda record: number(record) * RNG.integers(2)
        )


def test_hidden_randomness_is_found_by_two_traces(traced_source):
    """For code that is compiled at run time, differences between two traces show the randomness."""
    hidden = {"code": "__import__('random').random()"}
    assert not is_traced(traced_source, lambda record: eval(hidden["code"]))  # noqa: S307  # on purpose
    dataset = traced_source.dataset(
        lambda record: eval(hidden["code"]),  # noqa: S307  # on purpose
        output_types=tf.float64,
        output_shapes=(),
    )
    assert len({float(each) for each in dataset}) == COUNT


@pytest.mark.parametrize(
    "mapping",
    [
        number,
        lambda record: tf.strings.length(record["jpg"]) * np.int32(2) + 1,
        lambda record: number(record) + tf.random.uniform((), maxval=3, dtype=tf.int64),
        lambda record: tf.numpy_function(lambda value: int(value) * RNG.integers(3), [record["cls"]], tf.int64),
    ],
)
def test_mappings_of_tensorflow_operations_are_traced(traced_source, mapping):
    assert is_traced(traced_source, mapping)
    assert len(list(traced_source.dataset(mapping))) == COUNT


def drawn(record):
    return tf.random.uniform(())


def drawn_in_a_branch(record):
    return tf.random.uniform(()) if tf.strings.length(record["jpg"]) > 0 else 2.0


@pytest.mark.parametrize("mapping", [drawn, drawn_in_a_branch, tf.function(drawn)])
def test_a_tensorflow_seed_repeats_the_values(mapping):
    store = MemoryStore("seeded")
    store.put("a.tar", made.labelled("s", 600, lambda i: {"jpg": b"x"}))
    source = t2t.open(store.url("a.tar"))

    def values(**how):
        tf.random.set_seed(4)
        return [float(each) for each in source.dataset(mapping, **how)]

    try:
        first = values()
        assert "draws random numbers of a seed" in source.stats.chosen["parallel"].why
        assert first == values() == values()
        assert sorted(values(parallel=4)) == sorted(first)
    finally:
        tf.random.set_seed(None)


def test_tensorflow_draws_for_each_record(traced_source):
    dataset = traced_source.dataset(lambda record: tf.random.uniform(()))
    assert len({float(each) for each in dataset}) > COUNT // 2


@pytest.mark.parametrize("draw", [random.random, np.random.rand, RNG.random])
def test_a_thread_that_draws_meanwhile_causes_no_suspicion(traced_source, draw):
    ended = threading.Event()

    def go_on():
        while not ended.is_set():
            draw()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        assert numbers(traced_source.dataset(number)) == [*range(COUNT)]
    finally:
        ended.set()
        thread.join()


# State


class Counter:
    """A counter that loses updates if two threads use it: it reads, lets others run, and writes."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, record):
        n = self.n
        os.sched_yield()
        self.n = n + 1
        return self.n


def counting():
    n = 0

    def count(record):
        nonlocal n
        n += 1
        return n

    return count


def counting_by_next():
    it = itertools.count(1)
    return lambda record: next(it)


def counting_by_list():
    seen: list[int] = []

    def count(record):
        seen.append(len(seen))
        return len(seen)

    return count


@pytest.mark.parametrize("make", [Counter, counting, counting_by_next, counting_by_list])
def test_a_counter_counts_every_record_in_order(traced_source, make):
    assert not is_traced(traced_source, make())
    assert numbers(traced_source.dataset(make(), repeat=5, **HOW)) == [*range(1, 5 * COUNT + 1)]


def test_a_counter_that_two_datasets_share_loses_nothing(traced_source):
    counter = Counter()
    dataset = traced_source.dataset(counter, repeat=5, **HOW)
    both = tf.data.Dataset.zip((dataset, dataset.shuffle(seed=1)))
    assert len(list(both)) == 5 * COUNT
    assert counter.n == 10 * COUNT


def test_sequential_calls_are_reported_and_parallel_overrides_them():
    store = MemoryStore("meeting")
    store.put("a.tar", made.labelled("s", 32, lambda i: {"cls": b"%d" % i}))
    source = t2t.open(store.url("a.tar"))
    inside, most, lock = [0], [0], threading.Lock()
    meeting = threading.Barrier(4)

    def meet(record):
        with lock:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        if together:
            meeting.wait(60)
        with lock:
            inside[0] -= 1
        return int(record["cls"])

    together = False
    assert numbers(source.dataset(meet, **HOW)) == [*range(32)]
    assert most == [1]
    choice = source.stats.chosen["parallel"]
    assert choice.value == "1"
    assert "`inside[…]`, which it changes, in" in choice.why
    together = True
    assert numbers(source.dataset(meet, parallel=4, **HOW)) == [*range(32)]
    assert most == [4]


def test_a_function_without_state_runs_concurrently(traced_source):
    def plain(record):
        return len(record["cls"].decode())

    assert len(list(traced_source.dataset(plain, **HOW))) == COUNT
    assert traced_source.stats.chosen["parallel"].why == "as many as there are cores, until they wait"


@pytest.mark.parametrize("mapping", [lambda record: time.time_ns(), lambda record: len(os.urandom(3))])
def test_the_clock_and_the_system_are_read_for_each_record(traced_source, mapping):
    assert not is_traced(traced_source, mapping)
    found = numbers(traced_source.dataset(mapping, **HOW))
    assert len(set(found)) > COUNT // 2 or set(found) == {3}


# graph=


def test_graph_true_traces_a_suspected_mapping(traced_source, caplog):
    def flip(record):
        return -number(record) if RNG.random() < 2 else number(record)

    assert numbers(traced_source.dataset(flip, graph=True)) == [-i for i in range(COUNT)]
    assert not caplog.records
    assert len(set(numbers(traced_source.dataset(lambda record: RNG.integers(2**60), graph=True)))) == 1
    assert "the first graph is used for all records" in caplog.text


def test_graph_true_explains_why_tracing_is_impossible(traced_source):
    with pytest.raises(SchemaError, match=r"graph=True, but this mapping cannot become .*has no attribute 'decode'"):
        traced_source.dataset(lambda record: record["cls"].decode(), graph=True, **HOW)


def test_graph_false_runs_as_python(traced_source):
    seen = []

    def mapping(record):
        seen.append(type(record["cls"]))
        return number(record)

    assert numbers(traced_source.dataset(mapping, graph=False, **HOW)) == [*range(COUNT)]
    assert set(seen) == {bytes}
    with pytest.raises(SchemaError, match=r"graph=False\), and needs output_types and output_shapes"):
        traced_source.dataset(number, graph=False)


def test_graph_wherever_a_mapping_is_given(traced_source, tmp_path):
    mixture = t2t.mix([traced_source, traced_source], weights=[1, 1])
    assert numbers(mixture.dataset(number, graph=False, **HOW)) == numbers(mixture.dataset(number, graph=True))
    (tmp_path / "b").mkdir()
    shard = made.labelled("s", 5, lambda i: {"jpg": made.image(i), "cls": b"%d" % i})
    (tmp_path / "b" / "s.tar").write_bytes(shard)
    how = {"output_types": (tf.float32, tf.int32), "output_shapes": ((224, 224, 3), ())}
    with t2t.serve(tmp_path) as server:
        client = t2t.AisDataset("b", server.url)
        for graph in (None, True, False):
            loads = (client.load_from_tar("s.tar", graph=graph, **how), client.load("s.tar", graph=graph, **how))
            for dataset in loads:
                assert [int(label) for _, label in dataset] == [*range(5)]
        for load in (client.load_from_tar, client.load):
            with pytest.raises(OptionError, match="with path= none is made"):
                load("s.tar", path=str(tmp_path / "a.record"), graph=True)


def test_a_flag_of_numpy_is_true_or_false(traced_source):
    assert is_traced(traced_source, number, graph=np.True_)
    assert not is_traced(traced_source, number, graph=np.False_)


@pytest.mark.parametrize("graph", ["yes", "True", "False", "None", 1, 0.0, []])
def test_graph_is_true_or_false(traced_source, graph):
    with pytest.raises(OptionTypeError, match="graph is True, False or None, not"):
        traced_source.dataset(number, graph=graph)


def test_graph_without_a_mapping(traced_source):
    with pytest.raises(OptionError, match=r"there is no map="):
        traced_source.dataset(graph=True)


# Invalid mappings


def misspelt(record):
    return tf.strings.lenght(record["jpg"])


def undefined(record):
    return tf.strings.length(recrod["jpg"])  # noqa: F821


def yields(record):
    yield record["jpg"]


@pytest.mark.parametrize("how", [{}, {"graph": True}, HOW])
@pytest.mark.parametrize(
    ("mapping", "error", "why"),
    [
        (lambda image, label: image, OptionTypeError, "a mapping is called with one record, .*missing.* 'label'"),
        (lambda: 1, OptionTypeError, r"a mapping is called with one record, .*: write it as def mapping\(record\)"),
        (lambda record: record.cls, SchemaError, r"a record is a dict, and has its fields, as record\['cls'\]$"),
        (lambda record: None, SchemaError, "the mapping returns None: does a `return` miss"),
        (misspelt, SchemaError, "fails for every record: AttributeError: module .* has no attribute 'lenght'"),
        (undefined, SchemaError, "fails for every record: NameError: name 'recrod' is not defined"),
        (yields, SchemaError, "the mapping is a generator: return what becomes of the record"),
    ],
)
def test_a_function_that_output_types_cannot_fix_is_refused(mapping, error, why, how):
    MemoryStore("mapped").put("a.tar", made.labelled("a", 3))
    with pytest.raises(error, match=why):
        t2t.open("memory://mapped/a.tar").dataset(mapping, **how)


@tf.function
def decorated(record):
    return tf.strings.length(record["jpg"])


def rebuilt(record):
    return tf.nest.map_structure(tf.strings.length, record)["jpg"]


def chosen(record):
    either = tf.cond(tf.strings.length(record["jpg"]) > 0, lambda: record, lambda: record)
    return tf.strings.length(either["jpg"])


@pytest.mark.parametrize("mapping", [decorated, rebuilt, chosen])
def test_a_record_is_a_structure_of_tensorflows(traced_source, mapping):
    plain = list(traced_source.dataset(lambda record: tf.strings.length(record["jpg"])).as_numpy_iterator())
    assert list(traced_source.dataset(mapping).as_numpy_iterator()) == plain


def test_errors_of_a_tf_function_are_explained(traced_source):
    with pytest.raises(MissingField, match=r"reads field 'jpgs'; there are: .*did you mean 'jpg'"):
        traced_source.dataset(tf.function(lambda record: record["jpgs"]))
    with pytest.raises(SchemaError, match=r"reads an attribute; .* as record\['jpg'\]"):
        traced_source.dataset(tf.function(lambda record: record.jpg))


def test_a_mapping_may_have_further_parameters_with_defaults():
    MemoryStore("mapped").put("a.tar", made.labelled("a", 3))
    source = t2t.open("memory://mapped/a.tar")
    for mapping in (lambda record, size=3: record["cls"], lambda *records: records[0]["cls"]):
        assert len(list(source.dataset(mapping, graph=True))) == 3
    assert len(list(source.dataset(lambda record: getattr(record, "none", record["cls"]), graph=True))) == 3
