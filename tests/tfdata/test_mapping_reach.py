"""Find what a function can reach without running it. Each case states whether a trace would freeze a value."""

# ruff: noqa: ARG002, ARG003, ARG004, ARG005, B008  # mappings take a record, whatever they do with it

from __future__ import annotations

import collections
import dataclasses
import datetime
import functools
import inspect
import io
import itertools
import json
import math
import os
import queue
import random
import re
import secrets
import textwrap
import time
import types
import uuid

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.tfdata.purity import find_impurities
from ais_tar2tf.tfdata.purity.causes import CLOCK, RANDOMNESS, STATE

RNG = np.random.default_rng(1)
COIN = random.Random(1)
COUNT = itertools.count()
LOG: list[int] = []
TABLE = {"cat": 1}
BUFFER = np.zeros(3)
CALLS = 0
HELD = types.SimpleNamespace(rng=RNG, scale=2)
LOOKUP = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0)
VARIABLE = tf.Variable(0)
FLIPPING = tf.keras.Sequential([tf.keras.layers.RandomFlip()])
GENERATOR = tf.random.Generator.from_seed(1)


class Augment:
    """A class as users write it, with settings, a generator and a counter. Each method uses some of these."""

    shared = random.Random(2)

    def __init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.scale = 2.0
        self.calls = 0
        self.seen: dict[str, list[int]] = {}

    def __call__(self, record):
        return record["x"] * self.rng.normal()

    def clean(self, record):
        return record["x"] * self.scale

    def counting(self, record):
        self.calls += 1
        return record

    def noting(self, record):
        self.seen["all"].append(1)
        return record

    def filling(self, record):
        self.seen[record["__key__"]] = record
        return record

    def by_helper(self, record):
        return self.helper(record)

    def helper(self, record):
        return record["x"] * self.shared.random()

    @property
    def generator(self):
        return self.rng

    def by_property(self, record):
        return self.generator.normal()

    @functools.cached_property
    def drawn(self):
        return random.random()

    def by_cached_property(self, record):
        return self.drawn

    @staticmethod
    def static(record):
        return random.gauss(0, 1)

    @classmethod
    def of_class(cls, record):
        return cls.shared.random()

    def handing_itself_on(self, record):
        return draw_of(self, record)


class Compose:
    def __init__(self, *parts):
        self.parts = parts

    def __call__(self, record):
        for part in self.parts:
            record = part(record)
        return record


class Composed(Compose):
    def __call__(self, record):
        return super().__call__(record)


class Slotted:
    __slots__ = ("empty", "rng")

    def __init__(self) -> None:
        self.rng = RNG

    def __call__(self, record):
        return self.rng.random()


@dataclasses.dataclass
class Settings:
    parts: list
    scale: float = 1.0


class Layer(tf.keras.layers.Layer):
    def call(self, value):
        return value * random.random()


class Lazy:
    def __getattr__(self, name):
        return random.random()


def draw_of(owner, record):
    return owner.rng.random()


def decorated(function):
    @functools.wraps(function)
    def wrapper(*arguments):
        return function(*arguments)

    return wrapper


def closing_over(value):
    def inner(record):
        return record, value

    return inner


def counting():
    count = 0

    def count_on(record):
        nonlocal count
        count += 1
        return count

    return count_on


def plain(record):
    return tf.io.decode_jpeg(record["jpg"]) * np.float32(math.pi) + TABLE["cat"]


def sets_a_global(record):
    global CALLS
    CALLS += 1
    return record


def sets_an_attribute_of_itself(record):
    sets_an_attribute_of_itself.calls += 1
    return record


def sets_an_item(record):
    TABLE["dog"] = 2
    return record


def sets_an_item_by_another_name(record):
    table = TABLE
    table["dog"] = 2
    return record


def sets_a_slice(record):
    BUFFER[1:2] = 3
    return record


def deletes(record):
    del TABLE["cat"]
    return record


def appends(record):
    LOG.append(1)
    return record


def imports(record):
    import random as r

    return r.random()


def imports_a_function(record):
    from numpy.random import rand

    return rand()


def imports_a_submodule(record):
    import numpy.random

    return numpy.random.rand()


def imports_the_clock(record):
    from time import time as now

    return now()


def names_a_module_anew(record):
    chance = np.random
    return chance.rand()


def within(record):
    def inner(value):
        return value * COIN.random()

    return inner(record["x"])


def in_a_comprehension(record):
    return [value * COIN.random() for value in record.values()]


def of_a_container(record):
    return [COIN][0].random()


def keyword_default(record, *, rng=RNG):
    return rng.random()


def default_that_is_written(record, seen=[]):  # noqa: B006  # on purpose
    seen.append(1)
    return record


@functools.lru_cache
def remembered(number):
    return random.random()


@tf.function
def a_graph_of_its_own(record):
    return record["x"] * random.random()


def is_one(record):
    return isinstance(record, np.random.Generator | random.Random)


def makes_its_own(record):
    made, words = {}, []
    made["x"] = record["x"]
    made.setdefault("y", []).append(2)
    words.append(3)
    record["more"] = words
    return made


def copies_first(record, settings=TABLE):
    settings = dict(settings)
    settings["dog"] = 3
    return settings


def counts_within(record):
    count = 0

    def add():
        nonlocal count
        count += 1

    add()
    return count


def through_numpy_function(record):
    def noisy(value):
        return value + RNG.normal()

    return tf.numpy_function(noisy, [record["x"]], tf.float32)


def through_py_function(record):
    return tf.py_function(within, [record["x"]], tf.float32), tf.numpy_function(RNG.random, [], tf.float64)


def makes_an_object(record):
    settings = Settings([])
    settings.scale = 3.0
    return settings.scale


def uses_another_attribute(record):
    return record["x"] * HELD.scale


def of_tensorflow(record):
    VARIABLE.assign_add(1)
    image = tf.image.random_flip_left_right(FLIPPING(record["image"]))
    return image, LOOKUP.lookup(record["cls"]), GENERATOR.normal(()), tf.random.uniform(()), tf.timestamp()


def catching_all(record):
    try:
        return json.loads(record["json"])[re.sub("a", "b", "a")]
    except (KeyError, ValueError):
        return math.nan


FREEZES = {
    "a global generator": (lambda r: r if RNG.random() < 0.5 else None, RANDOMNESS),
    "an instance of random": (lambda r: COIN.choice([r]), RANDOMNESS),
    "the module random": (lambda r: random.random(), RANDOMNESS),
    "the module numpy.random": (lambda r: np.random.rand(), RANDOMNESS),
    "a new generator": (lambda r: np.random.default_rng().normal(), RANDOMNESS),
    "a new one of another class": (lambda r: random.Random(3).random(), RANDOMNESS),
    "numpy's old state": (closing_over(np.random.RandomState(1)), RANDOMNESS),
    "bits": (closing_over(np.random.PCG64(1)), RANDOMNESS),
    "the system's": (lambda r: os.urandom(4), RANDOMNESS),
    "secrets": (lambda r: secrets.token_bytes(4), RANDOMNESS),
    "a uuid": (lambda r: uuid.uuid4().int, RANDOMNESS),
    "the time": (lambda r: time.time(), CLOCK),
    "a counter of time": (lambda r: time.perf_counter_ns(), CLOCK),
    "the date": (lambda r: datetime.datetime.now().year, CLOCK),  # noqa: DTZ005  # on purpose
    "a pause": (lambda r: time.sleep(0.1), CLOCK),
    "in a closure": (closing_over(RNG), RANDOMNESS),
    "in a list in a closure": (closing_over([{"a": (COIN,)}]), RANDOMNESS),
    "a default argument": (lambda r, rng=RNG: rng.random(), RANDOMNESS),
    "a keyword's default": (keyword_default, RANDOMNESS),
    "a partial's argument": (functools.partial(draw_of, Augment()), RANDOMNESS),
    "a partial's keyword": (functools.partial(keyword_default, rng=COIN), RANDOMNESS),
    "a partial of a method": (functools.partial(RNG.normal, 0), RANDOMNESS),
    "a method of it": (RNG.random, RANDOMNESS),
    "a callable object": (Augment(), RANDOMNESS),
    "a method that calls a method": (Augment().by_helper, RANDOMNESS),
    "a property": (Augment().by_property, RANDOMNESS),
    "a cached property": (Augment().by_cached_property, RANDOMNESS),
    "a static method": (Augment.static, RANDOMNESS),
    "a class method": (Augment.of_class, RANDOMNESS),
    "a method that hands its object on": (Augment().handing_itself_on, RANDOMNESS),
    "an object in a namespace": (lambda r: HELD.rng.random(), RANDOMNESS),
    "a namespace that is handed on": (lambda r: draw_of(HELD, r), RANDOMNESS),
    "a slot": (Slotted(), RANDOMNESS),
    "an attribute made when it is asked for": (lambda r, lazy=Lazy(): lazy.x, RANDOMNESS),
    "parts": (Compose(plain, Augment()), RANDOMNESS),
    "parts, the second a closure of the same code": (Compose(closing_over(1), closing_over(RNG)), RANDOMNESS),
    "a method of the class above": (Composed(plain, Augment()), RANDOMNESS),
    "a dataclass": (closing_over(Settings([Augment()])), RANDOMNESS),
    "a decorated function": (decorated(within), RANDOMNESS),
    "a remembered function": (lambda r: remembered(1), RANDOMNESS),
    "a tf.function": (a_graph_of_its_own, RANDOMNESS),
    "a layer of one's own": (closing_over(Layer()), RANDOMNESS),
    "not to be converted": (tf.autograph.experimental.do_not_convert(within), RANDOMNESS),
    "a function within": (within, RANDOMNESS),
    "a comprehension": (in_a_comprehension, RANDOMNESS),
    "an item": (of_a_container, RANDOMNESS),
    "an import": (imports, RANDOMNESS),
    "an import of a function": (imports_a_function, RANDOMNESS),
    "an import of a submodule": (imports_a_submodule, RANDOMNESS),
    "an import of the clock": (imports_the_clock, CLOCK),
    "another name of a module": (names_a_module_anew, RANDOMNESS),
    "next": (lambda r: next(COUNT), STATE),
    "a generator": (closing_over(each for each in range(3)), STATE),
    "a file": (closing_over(io.StringIO("lines")), STATE),
    "a queue": (closing_over(queue.Queue()), STATE),
    "a counter of an object": (Augment().counting, STATE),
    "a list in a dict of an object": (Augment().noting, STATE),
    "an item of a dict of an object": (Augment().filling, STATE),
    "a counter in a closure": (counting(), STATE),
    "a global": (sets_a_global, STATE),
    "an attribute of the function": (sets_an_attribute_of_itself, STATE),
    "an item of a global": (sets_an_item, STATE),
    "an item of a global by another name": (sets_an_item_by_another_name, STATE),
    "a slice": (sets_a_slice, STATE),
    "an item less": (deletes, STATE),
    "a list that grows": (appends, STATE),
    "a method of a list": (closing_over(collections.deque().append), STATE),
    "a default that is written": (default_that_is_written, STATE),
    "setattr": (lambda r: setattr(HELD, "scale", 3), STATE),
}

CLEAN = {
    "operations, numpy, math": plain,
    "a generator that is not named": lambda r: r["x"],
    "a generator beside what is used": uses_another_attribute,
    "a method that does not use it": Augment().clean,
    "parts": Composed(plain, Augment().clean),
    "json and re": catching_all,
    "whether it is one": is_one,
    "what is made within": makes_its_own,
    "a copy": copies_first,
    "a count within": counts_within,
    "an object made within": makes_an_object,
    "Python in a graph": through_numpy_function,
    "more Python in a graph": through_py_function,
    "TensorFlow's own": of_tensorflow,
    "constants": closing_over([np.zeros(3), {"a": (1, 2.0, "b")}, re.compile("a"), uuid.UUID(int=3)]),
    "a uuid of a name": lambda r: uuid.uuid5(uuid.NAMESPACE_DNS, "a"),
    "a time that is given": lambda r: datetime.datetime(2020, 1, 1).year + time.timezone,  # noqa: DTZ001  # on purpose
    "the default pair": t2t.default_record_to_pair,
    "the default example": t2t.default_record_to_example,
    "a pipeline": t2t.ops.Pipeline([t2t.ops.Decode("jpg"), t2t.ops.Func(plain)], ["jpg"]).as_mapping(),
}


@pytest.mark.parametrize(("function", "reason"), FREEZES.values(), ids=FREEZES)
def test_values_that_a_trace_would_freeze_are_found(function, reason):
    found = find_impurities(function).first
    assert found is not None
    assert found.reason == reason


@pytest.mark.parametrize("function", CLEAN.values(), ids=CLEAN)
def test_pure_functions_are_not_suspected(function):
    findings = find_impurities(function)
    assert findings.first is None
    assert findings.not_thread_safe is None


def test_the_reason_names_value_and_place():
    assert str(find_impurities(Augment()).first) == (
        "it draws random numbers in Python: `self.rng`, a numpy.random.Generator, in Augment.__call__ "
        f"(test_mapping_reach.py, line {Augment.__call__.__code__.co_firstlineno + 1})"
    )
    assert "`LOG.append`, a method that changes a list, in appends" in str(find_impurities(appends).first)
    assert "`count`, a variable of an enclosing function that it sets" in str(find_impurities(counting()).first)


def test_a_pipeline_is_as_pure_as_its_functions():
    found = find_impurities(t2t.ops.Pipeline([t2t.ops.Func(within)], ["x"]).as_mapping()).first
    assert found is not None
    assert found.what == "`COIN`, a random.Random"


def test_functions_that_only_read_the_clock_may_run_concurrently():
    findings = find_impurities(lambda r: time.time())
    assert findings.first is not None
    assert findings.not_thread_safe is None


def test_an_object_of_a_library_may_keep_state():
    from PIL import Image

    findings = find_impurities(closing_over(Image.new("L", (1, 1))))
    assert findings.first is None
    assert "`value`, a PIL.Image.Image" in str(findings.not_thread_safe)


def test_functions_of_libraries_do_not_prevent_threads():
    from PIL import Image

    findings = find_impurities(lambda r: np.asarray(Image.open(io.BytesIO(r["jpg"])).convert("RGB").resize((2, 2))))
    assert findings.first is None
    assert findings.not_thread_safe is None


def test_only_randomness_of_a_library_matters(tmp_path, monkeypatch):
    """A library may cache and read the clock, but random numbers must be drawn for each record."""
    source = """
        import random, time
        CACHE = {}
        def caching(record):
            CACHE["x"] = time.time()
            return record
        def drawing(record):
            return random.random()
    """
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "some_library.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(folder)
    import some_library

    assert find_impurities(lambda r: some_library.caching(r)).first is None
    assert "some_library.py" in str(find_impurities(lambda r: some_library.drawing(r)).first)
    assert find_impurities(some_library.caching).first.reason == STATE  # a user's package may be installed, too


def test_an_object_that_refuses_inspection():
    class Refusing:
        @property
        def __class__(self):
            raise RuntimeError("not now")

    findings = find_impurities(closing_over(Refusing()))
    assert findings.first is None
    assert "cannot be looked into" in str(findings.not_thread_safe)


def test_no_code_of_the_user_runs():
    ran = []

    class Watching:
        @property
        def value(self):
            ran.append("property")
            return self

        def __getattr__(self, name):
            ran.append(name)
            raise AttributeError(name)

        def __iter__(self):
            ran.append("iter")
            return iter(())

        def __eq__(self, other):
            ran.append("eq")
            return False

        __hash__ = None

        def __call__(self, record):
            return self.value.missing, [*self], self == record

    watching = Watching()
    find_impurities(watching)
    find_impurities(closing_over([watching, functools.partial(watching, watching)]))
    assert ran == []


def test_functions_that_refer_to_themselves_are_examined_once():
    loop: list = []
    loop.append(loop)

    def calls_itself(record, depth=loop):
        return calls_itself(record, depth)

    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert find_impurities(calls_itself).first is None
    find_impurities(closing_over(deep))


def standard_functions():
    modules = (collections, datetime, functools, inspect, io, itertools, json, math, os, queue, random, re, textwrap)
    found = [value for module in modules for value in vars(module).values() if inspect.isfunction(value)]
    return sorted(found, key=lambda function: (function.__module__, function.__qualname__))


@pytest.mark.parametrize("own", [False, True])
def test_any_function_can_be_examined(own):
    """Examine hundreds of functions of the standard library, also as if they were the user's code."""
    functions = standard_functions()
    assert len(functions) > 150
    for function in functions:
        if own:
            scope = {**function.__globals__, "__name__": "users", "__file__": "users.py"}
            code = function.__code__.replace(co_filename="users.py")
            function = types.FunctionType(code, scope, function.__name__, function.__defaults__, function.__closure__)
        unknown = find_impurities(function).unknown
        assert unknown is None or "cannot be looked into" not in unknown.what, function


values = st.recursive(
    st.none() | st.integers() | st.text() | st.binary() | st.floats() | st.just(TABLE) | st.just(plain),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        | st.tuples(inner, inner)
        | inner.map(closing_over)
        | inner.map(lambda value: functools.partial(plain, value))
        | inner.map(lambda value: Settings([value]))
        | inner.map(Compose)
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(values, st.sampled_from([RNG, COIN, RNG.random, random.random, Augment()]), st.data())
def test_a_generator_is_found_anywhere(value, source, data):
    assert find_impurities(closing_over(value)).first is None
    for wrap in data.draw(
        st.lists(
            st.sampled_from(
                [
                    lambda inner: [1, inner],
                    lambda inner: {"a": inner},
                    closing_over,
                    Settings,
                    lambda inner: functools.partial(plain, inner),
                    lambda inner: Compose(plain, inner),
                    lambda inner: (value, inner),
                ]
            ),
            max_size=5,
        )
    ):
        source = wrap(source)
    assert find_impurities(closing_over((value, source))).first is not None
