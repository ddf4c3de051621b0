"""Describe the public API as text: each line is one public name with its parameters and defaults.

    python -m tests.support.api_snapshot        # rewrites tests/project/api.txt

`tests/project/test_api.py` compares the package with that file, so that nothing public changes by accident.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import ais_tar2tf as t2t

SNAPSHOT = Path(__file__).resolve().parents[1] / "project" / "api.txt"

MODULES = ("arrays", "cluster", "errors", "features", "ops", "options", "parsing", "schema", "tfds")
"""Public modules that are attributes of the package."""

DOCUMENTED = (
    "ais_tar2tf.cluster.etl",
    "ais_tar2tf.cluster.service",
    "ais_tar2tf.datum",
    "ais_tar2tf.datum.configs",
    "ais_tar2tf.datum.export",
    "ais_tar2tf.datum.problem",
    "ais_tar2tf.tfrecorder",
    "ais_tar2tf.tfrecorder.factory",
    "ais_tar2tf.tfrecorder.helpers",
    "ais_tar2tf.tornet",
)
"""Public modules that users import by their full names."""

RESULTS = {
    "ais_tar2tf.source": ("Source",),
    "ais_tar2tf.source.loaded": ("Loaded",),
    "ais_tar2tf.source.mixture": ("Mixture",),
    "ais_tar2tf.base.monitoring.stats": ("Stats",),
    "ais_tar2tf.recordfiles.packing.result": ("PackResult",),
    "ais_tar2tf.cluster.server.lifecycle": ("Server",),
}
"""Classes whose instances public functions return, by module. Their constructors are not public."""


def functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """Yield each public function, and each public method, with its name."""
    for prefix, holder in _holders():
        for name, value in _public(holder):
            if not isinstance(value, type) and callable(value):
                yield f"{prefix}.{name}", value
            elif isinstance(value, type) and not issubclass(value, BaseException):
                yield from _methods(f"{prefix}.{name}", value)
    for name, kind in _results():
        yield from _methods(name, kind)


def _methods(prefix: str, kind: type) -> Iterator[tuple[str, Callable[..., object]]]:
    for name, value in _attributes(kind).items():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield f"{prefix}.{name}", function


def lines() -> Iterator[str]:
    """Yield a line for each public name: `t2t.open(urls, *, endpoint=None, …)`."""
    for prefix, holder in _holders():
        yield from _members(prefix, holder)
    for name, kind in _results():
        yield from _class(name, kind, constructor=False)


def _holders() -> Iterator[tuple[str, ModuleType]]:
    """Yield every module whose names are public, with the name by which users know it."""
    yield "t2t", t2t
    yield from ((f"t2t.{name}", getattr(t2t, name)) for name in MODULES)
    yield from ((name, importlib.import_module(name)) for name in DOCUMENTED)


def _results() -> Iterator[tuple[str, type]]:
    """Yield the classes of `RESULTS`, with their names."""
    for module, names in RESULTS.items():
        yield from ((name, getattr(importlib.import_module(module), name)) for name in names)


def _public(holder: ModuleType) -> Iterator[tuple[str, Any]]:
    yield from ((name, getattr(holder, name)) for name in sorted(getattr(holder, "__all__", ())))


def _members(prefix: str, holder: ModuleType) -> Iterator[str]:
    for name, value in _public(holder):
        if isinstance(value, type):
            yield from _class(f"{prefix}.{name}", value)
        elif callable(value):
            yield f"{prefix}.{name}{_parameters(value)}"
        elif not isinstance(value, ModuleType):
            yield f"{prefix}.{name}: {type(value).__name__}"


def _class(prefix: str, kind: type, *, constructor: bool = True) -> Iterator[str]:
    if issubclass(kind, BaseException):
        yield f"{prefix}({', '.join(each.__name__ for each in kind.__mro__[1:-2])})"
        return
    yield prefix
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    for field in fields:
        yield f"{prefix}.{field.name} = {_default(field)}"
    if constructor and not fields and ("__init__" in vars(kind) or "__new__" in vars(kind)):
        yield f"{prefix}.__init__{_parameters(kind)}"
    for name, value in sorted(_attributes(kind).items()):
        if name in {field.name for field in fields}:
            continue
        if inspect.isdatadescriptor(value):
            yield f"{prefix}.{name}"
        else:
            yield f"{prefix}.{name}{_parameters(getattr(kind, name))}"


def _attributes(kind: type) -> dict[str, Any]:
    """Return the public methods, properties and attributes that a class gets from classes of this package."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("ais_tar2tf"):
            found |= {
                name: value
                for name, value in vars(base).items()
                if not name.startswith("_") and (inspect.isroutine(value) or inspect.isdatadescriptor(value))
            }
    hidden: frozenset[str] = getattr(kind, "__hidden__", frozenset())
    return {name: value for name, value in found.items() if name not in hidden}


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return _plain(repr(field.default))
    return "required" if field.default_factory is dataclasses.MISSING else "made"


def _parameters(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(…)"
    bare = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
    return _plain(str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)))


def _plain(text: str) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", text)


if __name__ == "__main__":
    SNAPSHOT.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
