"""All errors that the package raises belong to its tree, and survive pickling and TensorFlow."""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import importlib.util
import pickle
import threading
import traceback
import weakref
from pathlib import Path

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf import errors
from ais_tar2tf.errors import MappingError, ShardNotFound, original
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.modules import modules
from tests.support.own_errors import raises_ours

# Exceptions that are raised but are no Tar2TFError, with the reason. These are Python's own classes, by the module
# that raises them. If the reason is the name of an error, the caller in the same package raises that error instead.
PYTHONS = {
    # A Python protocol requires this type.
    ("ais_tar2tf", "AttributeError"): "a module's __getattr__: hasattr and import expect it",
    ("ais_tar2tf.base.lazy_module", "AttributeError"): "the same",
    ("ais_tar2tf.cli.usage", "BadParameter"): "typer's own error of usage",
    ("ais_tar2tf.cli.usage", "_Misuse"): "typer's own error of usage",
    ("ais_tar2tf.cluster", "AttributeError"): "a module's __getattr__: hasattr and import expect it",
    ("ais_tar2tf.tornet", "AttributeError"): "a module's __getattr__: hasattr and import expect it",
    ("ais_tar2tf.datum.configs.config_base", "AttributeError"): "__setattr__ of an object of settings",
    ("ais_tar2tf.recordfiles.packing.encoding", "TypeError"): "the `default` of json.dumps, which expects it",
    ("ais_tar2tf.tfdata.mappings.traced_record", "AttributeError"): "an object's __getattr__: hasattr expects it",
    ("ais_tar2tf.tfdata.mappings.traced_record", "KeyError"): "dict.__missing__, caught where the mapping is traced",
    ("ais_tar2tf.tfdata.iterators", "StopIteration"): "an iterator's __next__",
    ("ais_tar2tf.cluster.server.transforming", "StopIteration"): "an iterator's __next__",
    ("ais_tar2tf.cluster.etl.delivery", "StopIteration"): "an iterator's __next__",
    # Abstract methods.
    ("ais_tar2tf.ops.base", "NotImplementedError"): "abstract",
    ("ais_tar2tf.datum.folders", "NotImplementedError"): "abstract",
    (
        "ais_tar2tf.streams.order.strategy",
        "NotImplementedError",
    ): "a shuffle mode orders shards or single records, not both",
    ("ais_tar2tf.tfrecorder.helpers.marshaller", "NotImplementedError"): "abstract, documented as such by TFRecorder",
    # Unreachable code.
    ("ais_tar2tf.archive.decompression", "AssertionError"): "unreachable",
    ("ais_tar2tf.archive.zip_check", "AssertionError"): "unreachable",
    ("ais_tar2tf.native.library", "AssertionError"): "unreachable",
    # The caller in the same package knows the shard, URL or field, and raises our error from this one.
    ("ais_tar2tf.archive.zip", "ValueError"): "ArchiveError",
    ("ais_tar2tf.values.hdf5.helper_pool", "ValueError"): "SchemaError",
    ("ais_tar2tf.values.hdf5.times", "ValueError"): "SchemaError",
    ("ais_tar2tf.values.hdf5.wire", "ValueError"): "SchemaError",
    ("ais_tar2tf.datum.annotations", "ValueError"): "SchemaError",
    ("ais_tar2tf.datum.annotations", "LookupError"): "SchemaError",
    ("ais_tar2tf.values.schema.written_numbers", "ValueError"): "SchemaError, in the next line",
    ("ais_tar2tf.base.documents.sealed", "IsADirectoryError"): "the reader's own, as for any other OSError of a file",
    ("ais_tar2tf.recordfiles.formats.array_record", "OSError"): "ExportError",
    ("ais_tar2tf.stores.cache.memory", "FileNotFoundError"): "a miss",
    ("ais_tar2tf.stores.file", "IsADirectoryError"): "StoreError",
    ("ais_tar2tf.stores.file", "OSError"): "StoreError",
    ("ais_tar2tf.stores.transport.bodies", "ConnectionResetError"): "TransportError, after the retries",
    ("ais_tar2tf.stores.transport.bodies", "TimeoutError"): "TransportError, after the retries",
    ("ais_tar2tf.stores.transport.pace", "BadStatusLine"): "TransportError",
    ("ais_tar2tf.stores.transport.pace", "HTTPException"): "TransportError, after the retries",
    ("ais_tar2tf.stores.transport.pace", "TimeoutError"): "TransportError, after the retries",
    ("ais_tar2tf.stores.transport.tls", "ValueError"): "StoreError; OpenSSL calls the function that raises it",
    ("ais_tar2tf.tfrecorder.config", "ValueError"): "SchemaError, where the document is read",
    (
        "ais_tar2tf.tfdata.mappings.tracing",
        "TypeError",
    ): "caught where the mapping is traced, which then runs as Python",
    ("ais_tar2tf.tfdata.mappings.outputs", "ValueError"): "MappingError, of the record",
    # Becomes an answer of a server, not an error of the caller.
    ("ais_tar2tf.cluster.server.batches", "LookupError"): "answered as a missing member",
    ("ais_tar2tf.cluster.server.checksums", "InterruptedError"): "ends a thread of a server that closes",
    ("ais_tar2tf.cluster.server.transforming", "ConnectionError"): "closes a client's connection",
    ("ais_tar2tf.cluster.server.transforming", "ConnectionAbortedError"): "closes a client's connection",
    ("ais_tar2tf.cluster.etl.sources", "ConnectionError"): "closes a client's connection",
}
# Our own exception classes that only inform a caller in the same package, as do classes with a leading underscore.
SIGNALS = {
    "ais_tar2tf.base.documents.structure.Mismatch": "the error of the document that does not fit",
    "ais_tar2tf.fetch.prefix.Differs": "ObjectChanged",
    "ais_tar2tf.cluster.server.refusals.RefusedError": "a response's status and text",
    "ais_tar2tf.cluster.etl.websocket.ClosedError": "the end of a WebSocket",
    "ais_tar2tf.cli.command.Stopped": "what Ctrl-C left, told in cli.verbs",
    "ais_tar2tf.stores.transport.redirects.ReachError": "TransportError",
    "ais_tar2tf.tfdata.mappings.python_record.NoSuchFieldError": "MissingField, unless the mapping catches it",
    "typer.exceptions.Exit": "an exit code: typer's own way to end",
}


def raised(module: str) -> set[str]:
    """Return the names of the exception classes that a module's source raises."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    names: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            names.add(ast.unparse(made))
    return names


def found_in(module: str, name: str) -> object:
    """Return the value of `name` in a module, or among Python's builtins."""
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None) or getattr(builtins, part, None)
    return found


def is_foreign(module: str, name: str) -> bool:
    """Return whether `name` is, in that module, an exception class that is no Tar2TFError."""
    found = found_in(module, name)
    return isinstance(found, type) and not issubclass(found, errors.Tar2TFError)


def foreign() -> dict[tuple[str, str], str]:
    """Return all foreign classes that are raised, as (module, name), with their names in the lists of reasons."""
    return {
        (
            module,
            name.rpartition(".")[2],
        ): f"{found_in(module, name).__module__}.{found_in(module, name).__qualname__}"
        for module in ["ais_tar2tf", *modules()]
        for name in raised(module)
        if is_foreign(module, name)
    }


def qualified(found: type) -> str:
    return f"{found.__module__}.{found.__qualname__}"


def is_signal(known: str) -> bool:
    """Return whether this class is in `SIGNALS` or private."""
    return known in SIGNALS or (known.startswith("ais_tar2tf.") and known.rpartition(".")[2].startswith("_"))


def test_every_error_that_is_raised_is_ours():
    """Raise a Tar2TFError. Options that are wrong are OptionError and OptionTypeError."""
    unexplained = {place for place, known in foreign().items() if place not in PYTHONS and not is_signal(known)}
    assert sorted(unexplained) == []


def test_the_lists_of_reasons_are_current():
    """The lists of reasons contain no class that is no longer raised."""
    found = foreign()
    assert sorted(set(PYTHONS) - set(found)) == []
    assert sorted(set(SIGNALS) - set(found.values())) == []


def test_the_walk_sees_a_foreign_error(tmp_path, monkeypatch):
    (tmp_path / "a_module.py").write_text(
        "from ais_tar2tf.errors import OptionError\n"
        "def f(x):\n    if x:\n        raise ValueError('no')\n    raise OptionError('no')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert {name for name in raised("a_module") if is_foreign("a_module", name)} == {"ValueError"}


CLASSES = [
    getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type) and name != "Finder"
]
OF_OPTIONS = {errors.OptionError: ValueError, errors.OptionTypeError: TypeError, errors.NoSuchRecord: IndexError}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_is_in_the_tree_and_in_its_picture(kind):
    assert issubclass(kind, errors.Tar2TFError)
    assert f" {kind.__name__} " in errors.__doc__ or kind is errors.Tar2TFError


@pytest.mark.parametrize(("kind", "builtin"), OF_OPTIONS.items())
def test_errors_of_arguments_are_also_builtin_errors(kind, builtin):
    error = kind("no")
    assert isinstance(error, builtin)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # ours, made a line above
    assert (type(again), str(again)) == (kind, "no")


# Errors from TensorFlow


@pytest.fixture(scope="module")
def bad() -> str:
    """Write a shard of 40 records, the 21st of which has a word instead of a number."""
    store = MemoryStore("errors")
    store.put("bad.tar", made.labelled("bad", 40, lambda i: {"txt": b"word" if i == 20 else b"%d" % i}))
    return store.url("bad.tar")


def in_graph(record):
    return tf.strings.to_number(record["txt"])


def in_python(record):
    return float(record["txt"].decode())


def dataset_of(url, mapping, **options):
    python = {"output_types": tf.float32, "output_shapes": ()} if mapping is in_python else {}
    return t2t.open(url).dataset(mapping, **python, **options)


READERS = {
    "for": list,
    "numpy": lambda dataset: list(dataset.as_numpy_iterator()),
    "get_next": lambda dataset: [iterator.get_next() for iterator in [iter(dataset)] for _ in range(40)],
    "optional": lambda dataset: [
        iterator.get_next_as_optional().get_value() for iterator in [iter(dataset)] for _ in range(40)
    ],
}


@pytest.mark.parametrize("options", [{}, {"batch": 8}, {"shuffle": True, "seed": 1}])
@pytest.mark.parametrize("mapping", [in_graph, in_python])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_an_iterator_over_our_dataset_raises_our_error(bad, mapping, read, options):
    with pytest.raises(MappingError, match="could not") as caught:
        read(dataset_of(bad, mapping, **options))
    assert (caught.value.shard, caught.value.key) == (bad, "bad/000020")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize("mapping", [in_graph, in_python])
@pytest.mark.parametrize(
    "stage",
    [lambda d: d.map(lambda x: x + 1), lambda d: d.interleave(tf.data.Dataset.from_tensors), lambda d: d.cache()],
)
def test_the_original_is_found_after_other_stages(bad, mapping, stage):
    with raises_ours(MappingError, "bad/000020"):
        list(stage(dataset_of(bad, mapping)))


def test_fit_and_reduce_and_another_thread(bad):
    dataset = dataset_of(bad, in_graph).map(lambda x: (x[tf.newaxis], x[tf.newaxis])).batch(4)
    model = tf.keras.Sequential([tf.keras.Input((1,)), tf.keras.layers.Dense(1)])
    model.compile(loss="mse")
    with raises_ours(MappingError, "bad/000020"):
        model.fit(dataset, verbose=0)
    with raises_ours(MappingError, "bad/000020"):
        dataset_of(bad, in_graph).reduce(0.0, lambda total, x: total + x)
    caught: list[BaseException] = []

    def read():
        try:
            list(dataset.prefetch(1))
        except (tf.errors.OpError, MappingError) as error:
            caught.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    assert isinstance(original(caught[0]), MappingError)


def test_each_of_two_errors_is_found(bad):
    """Two errors are told apart, even if one message is a prefix of the other."""
    missing = MemoryStore("errors").url("none.tar")
    for url, kind in ((bad, MappingError), (missing, ShardNotFound), (f"{missing}.gz", ShardNotFound)):
        with raises_ours(kind, url):
            list(t2t.open([url]).select("txt").dataset(in_graph).prefetch(1))


def test_foreign_errors_have_no_original(bad):
    assert original(None) is None
    assert original(ValueError("no")) is None
    numbers = tf.data.Dataset.from_tensor_slices([1.0, float("inf")])
    theirs = numbers.map(lambda x: tf.debugging.check_numerics(x, "larger"))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        list(theirs)
    assert original(caught.value) is None
    with pytest.raises(MappingError) as mine:
        list(dataset_of(bad, in_graph))
    assert original(mine.value) is mine.value


def test_the_traceback_shows_the_mappings_line_and_no_tensorflow(bad):
    with pytest.raises(MappingError) as caught:
        list(dataset_of(bad, in_python))
    told = "".join(traceback.format_exception(caught.value))
    assert 'return float(record["txt"].decode())' in told
    assert "tensorflow/python" not in told


def test_a_name_that_is_no_text_is_shown_escaped():
    """A name that is not valid text appears escaped. TensorFlow drops messages with invalid characters."""
    store = MemoryStore("errors")
    store.put("a.tar", made.tar([("caf\udce9", {"txt": b"x"})]))
    with pytest.raises(MappingError) as caught:
        list(dataset_of(store.url("a.tar"), in_graph))
    assert caught.value.key == "caf\udce9"
    with pytest.raises(tf.errors.OpError, match=r"caf\\udce9"):
        list(tf.data.Dataset.zip((dataset_of(store.url("a.tar"), in_graph),)))


def test_remembered_errors_hold_no_frames_and_are_bounded():
    class Large:
        pass

    def fails(held: Large) -> None:  # as our frames hold buffers
        raise errors.SchemaError(f"once, with a {type(held).__name__}")

    large = Large()
    gone = weakref.ref(large)
    try:
        fails(large)
    except errors.SchemaError as error:
        text = f"SchemaError: {errors.for_tensorflow(error)}"
    del large
    gc.collect()
    assert gone() is None
    assert str(original(RuntimeError(text))) == "once, with a Large"
    for number in range(100):
        errors.for_tensorflow(errors.SchemaError(f"another {number}"))
    assert original(RuntimeError(text)) is None


def test_a_checkpoint_and_a_function_take_the_iterator(bad, tmp_path):
    iterator = iter(dataset_of(bad, in_graph))
    step = tf.function(lambda numbers: next(numbers))
    assert [float(step(iterator)) for _ in range(3)] == [0, 1, 2]
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "saved"))
    assert float(next(iterator)) == 3
    fresh = iter(dataset_of(bad, in_graph))
    tf.train.Checkpoint(iterator=fresh).restore(saved)
    assert float(next(fresh)) == 3
