"""`cause_of`: tells whether a function that uses an object is impure, so that its result may differ at each call.

An object that makes a function impure is a source of randomness, a clock, an iterator, or an object with state
outside of Python, such as a file. This module looks at single objects, and must not run their code. `search.py` finds
the objects that a function uses.
"""

from __future__ import annotations

import array
import collections
import datetime
import inspect
import random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

__all__ = ["CLOCK", "MUTATORS", "RANDOMNESS", "STATE", "Cause", "cause_of", "is_changed_by"]

RANDOMNESS = "it draws random numbers in Python"
STATE = "it keeps state in Python"
CLOCK = "it uses the clock in Python"

_GENERATORS = (
    random.Random,
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    np.random.SeedSequence,
)
_MODULES = {"random": RANDOMNESS, "numpy.random": RANDOMNESS, "secrets": RANDOMNESS, "time": CLOCK}
_CONSTANT = frozenset({"compare_digest", "mktime", "strptime", "struct_time"})  # pure functions in `_MODULES`
_FUNCTIONS = {
    **dict.fromkeys(
        [f"{module}.{name}" for module in ("os", "posix", "nt") for name in ("urandom", "getrandom")], RANDOMNESS
    ),
    **dict.fromkeys([f"uuid.{name}" for name in ("uuid1", "uuid4", "uuid6", "uuid7", "uuid8")], RANDOMNESS),
    **dict.fromkeys(
        [
            f"torch.{name}"
            for name in ("rand", "randn", "randint", "randperm", "bernoulli", "normal", "multinomial", "poisson")
        ],
        RANDOMNESS,
    ),
}
_NOW = frozenset({"now", "utcnow", "today"})
_STATEFUL = frozenset({"_io", "_queue", "_socket", "_sqlite3", "multiprocessing", "queue", "socket", "sqlite3"})


_CONTAINERS = (list, dict, set, bytearray, collections.deque, array.array, np.ndarray)

MUTATORS = frozenset(
    {
        "add", "append", "appendleft", "clear", "difference_update", "discard", "extend", "extendleft", "fill",
        "insert", "intersection_update", "itemset", "move_to_end", "partition", "pop", "popitem", "popleft", "put",
        "remove", "resize", "reverse", "rotate", "setdefault", "setfield", "sort", "subtract",
        "symmetric_difference_update", "update",
    }
)  # fmt: skip


class Cause(NamedTuple):
    """The reason why a function is impure: `RANDOMNESS`, `STATE` or `CLOCK`. `what` describes the object to blame."""

    reason: str
    what: str


def is_changed_by(value: Any, method: str) -> bool:
    """Return whether `value` is a container, and its method with the name `method` changes it in place."""
    return isinstance(value, _CONTAINERS) and method in MUTATORS


def cause_of(value: Any) -> Cause | None:
    """Return why a function that uses `value` may return another result each time; None if `value` is no cause.

    If `value` is a class, return why a function that calls it may return another result each time. The caller must
    ignore a class that the function does not call: a function that only mentions `random.Random` draws no numbers.
    """
    if isinstance(value, _GENERATORS):
        return Cause(RANDOMNESS, f"a {_type_name(type(value))}")
    if isinstance(value, ModuleType):
        reason = _MODULES.get(value.__name__)
        return None if reason is None else Cause(reason, "a module")
    if inspect.isclass(value):
        return Cause(RANDOMNESS, "a class") if issubclass(value, _GENERATORS) else None
    if _is_function(value):
        return _cause_of_function(value)
    if type(value).__module__.partition(".")[0] in _STATEFUL:
        return Cause(STATE, f"a {_type_name(type(value))}")
    if hasattr(type(value), "__next__"):
        return Cause(STATE, f"an iterator ({_type_name(type(value))})")
    return None


def _is_function(value: Any) -> bool:
    kinds = (FunctionType, BuiltinFunctionType, MethodType)
    return isinstance(value, kinds) or type(value).__name__ in ("cython_function_or_method", "method-wrapper")


def _cause_of_function(value: Any) -> Cause | None:
    owner = getattr(value, "__self__", None)
    if isinstance(owner, _GENERATORS):
        return Cause(RANDOMNESS, f"a method of a {_type_name(type(owner))}")
    if inspect.isclass(owner) and issubclass(owner, datetime.date):
        return Cause(CLOCK, "a function") if value.__name__ in _NOW else None
    if is_changed_by(owner, value.__name__):
        return Cause(STATE, f"a method that changes a {_type_name(type(owner))}")
    if owner is not None and not isinstance(owner, ModuleType | type) and not isinstance(value, MethodType):
        return cause_of(owner)
    module, name = getattr(value, "__module__", None) or "", getattr(value, "__name__", "")
    if name in _CONSTANT:
        return None
    found = _FUNCTIONS.get(f"{module}.{name}") or _MODULES.get(module)
    if module.startswith("numpy.random."):
        found = RANDOMNESS
    return None if found is None else Cause(found, "a function")


def _type_name(kind: type) -> str:
    module = "numpy.random" if kind.__module__.startswith("numpy.random") else kind.__module__.lstrip("_")
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
