"""The tree of errors: everything that this package raises is in it, and survives what errors go through."""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.util
import inspect
import pickle
from pathlib import Path

import pytest

from ais_tar2tf import errors
from test_package import modules

# Exceptions that are raised here and are no Tar2TFError, with the reason why each may be.
ALLOWED = {
    # Python's own protocols prescribe the type.
    ("ais_tar2tf", "AttributeError"): "a module's __getattr__: hasattr and import expect it",
    ("ais_tar2tf.cluster", "AttributeError"): "a module's __getattr__: hasattr and import expect it",
    ("ais_tar2tf.tornet", "AttributeError"): "a module's __getattr__: hasattr and import expect it",
    ("ais_tar2tf.datum.configs.config_base", "AttributeError"): "__setattr__ of an object of settings",
    ("ais_tar2tf.plan.single_records", "KeyError"): "Mapping.__getitem__: get() and `in` expect it",
    ("ais_tar2tf.tfdata.tracing", "KeyError"): "dict.__missing__, caught where the mapping is traced",
    ("ais_tar2tf.tfdata.tracing", "TypeError"): "caught where the mapping is traced, which then runs as Python",
    ("ais_tar2tf.server.transforming", "StopIteration"): "an iterator's __next__",
    ("ais_tar2tf.cluster.etl.delivery", "StopIteration"): "an iterator's __next__",
    # Methods that a subclass overrides.
    ("ais_tar2tf.ops._base", "NotImplementedError"): "abstract",
    ("ais_tar2tf.datum.folders", "NotImplementedError"): "abstract",
    ("ais_tar2tf.tfrecorder.helpers.marshaller", "NotImplementedError"): "abstract, documented as such by TFRecorder",
    # What cannot be otherwise.
    ("ais_tar2tf.archive._frames", "AssertionError"): "unreachable",
    ("ais_tar2tf.archive._zip_check", "AssertionError"): "unreachable",
    # Caught by the caller in the same package, which raises ours from it: it knows the shard, the URL or the field.
    ("ais_tar2tf.archive._xz", "WindowTooLarge"): "LimitExceeded",
    ("ais_tar2tf.archive._zstd", "WindowTooLarge"): "LimitExceeded",
    ("ais_tar2tf.archive._zstd", "ZstdDamaged"): "ArchiveError",
    ("ais_tar2tf.archive._zip", "ValueError"): "ArchiveError",
    ("ais_tar2tf.archive._zip", "_OverRatio"): "LimitExceeded",
    ("ais_tar2tf.netcdf._chunks", "ValueError"): "SchemaError",
    ("ais_tar2tf.shard_index", "ValueError"): "SchemaError",
    ("ais_tar2tf.datum.annotations", "ValueError"): "SchemaError",
    ("ais_tar2tf.datum.annotations", "LookupError"): "SchemaError",
    ("ais_tar2tf.decoders._python", "ValueError"): "SchemaError, in the next line",
    ("ais_tar2tf.export.formats", "OSError"): "ExportError",
    ("ais_tar2tf.cache._memory", "FileNotFoundError"): "a miss",
    ("ais_tar2tf.stores._http", "ConnectionResetError"): "TransportError, after the retries",
    ("ais_tar2tf.stores._http", "HTTPException"): "TransportError, after the retries",
    ("ais_tar2tf.stores._http", "TimeoutError"): "TransportError, after the retries",
    ("ais_tar2tf.stores._tls", "ValueError"): "StoreError; OpenSSL calls the function that raises it",
    # An answer of a server, not an error in the caller's process.
    ("ais_tar2tf.server.batches", "LookupError"): "answered as a missing member",
    ("ais_tar2tf.server.checksums", "InterruptedError"): "ends a thread of a server that closes",
    ("ais_tar2tf.server.transforming", "ConnectionError"): "closes a client's connection",
    ("ais_tar2tf.server.transforming", "ConnectionAbortedError"): "closes a client's connection",
    ("ais_tar2tf.server.*", "RefusedError"): "becomes a response's status and text",
    ("ais_tar2tf.cluster.etl.sources", "ConnectionError"): "closes a client's connection",
    ("ais_tar2tf.cluster.etl.*", "ClosedError"): "closes a WebSocket",
    # The command line.
    ("ais_tar2tf.cli.*", "Stopped"): "Ctrl-C, caught in cli.verbs",
    ("ais_tar2tf.cli.*", "Exit"): "typer's own way to end with an exit code",
}


def raised(module: str) -> set[str]:
    """The names of the exception classes that the source of a module raises."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    names: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            names.add(ast.unparse(made))
    return names


def is_foreign(module: str, name: str) -> bool:
    """Whether `name` is, in that module, a class of exceptions that are no Tar2TFError."""
    found: object = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None) or getattr(builtins, part, None)
    return inspect.isclass(found) and not issubclass(found, errors.Tar2TFError)


def reason(module: str, name: str) -> str | None:
    class_name = name.rpartition(".")[2]
    package = f"{module.rpartition('.')[0]}.*"
    return ALLOWED.get((module, class_name)) or ALLOWED.get((package, class_name))


@pytest.mark.parametrize("module", ["ais_tar2tf", *modules()])
def test_every_error_that_is_raised_is_ours(module):
    foreign = {name for name in raised(module) if is_foreign(module, name)}
    unexplained = {name for name in foreign if reason(module, name) is None}
    assert not unexplained, f"{module}: raise a Tar2TFError; options that are wrong are OptionError, OptionTypeError"


def test_every_exception_that_is_allowed_is_still_raised():
    raises = {(module, name.rpartition(".")[2]) for module in ["ais_tar2tf", *modules()] for name in raised(module)}
    for module, name in ALLOWED:
        assert any(found.startswith(module.removesuffix("*")) and name == each for found, each in raises), module


def test_the_walk_sees_a_foreign_error(tmp_path, monkeypatch):
    (tmp_path / "a_module.py").write_text(
        "from ais_tar2tf.errors import OptionError\n"
        "def f(x):\n    if x:\n        raise ValueError('no')\n    raise OptionError('no')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert {name for name in raised("a_module") if is_foreign("a_module", name)} == {"ValueError"}


CLASSES = [getattr(errors, name) for name in errors.__all__ if inspect.isclass(getattr(errors, name))]
OF_OPTIONS = {errors.OptionError: ValueError, errors.OptionTypeError: TypeError, errors.NoSuchRecord: IndexError}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_is_in_the_tree_and_in_its_picture(kind):
    assert issubclass(kind, errors.Tar2TFError)
    assert f" {kind.__name__} " in errors.__doc__ or kind is errors.Tar2TFError


@pytest.mark.parametrize(("kind", "builtin"), OF_OPTIONS.items())
def test_what_is_wrong_with_a_call_is_also_pythons_own(kind, builtin):
    error = kind("no")
    assert isinstance(error, builtin)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  # ours, made a line above
    assert (type(again), str(again)) == (kind, "no")
