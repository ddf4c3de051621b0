"""Inspection of modules, objects and functions. It must not run their code, such as properties and descriptors."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = [
    "INERT",
    "attribute_of",
    "cell_contents",
    "code_owner",
    "default_arguments",
    "elements_of",
    "is_users",
    "module_of",
    "special_methods",
    "top_package",
]

# The state of these packages is not searched. TensorFlow's own state, such as variables, also works in a graph.
INERT = frozenset({"tensorflow", "keras", "tf_keras", "numpy", "google"})
_STANDARD = (sysconfig.get_path("stdlib"), "<frozen ")
_OURS = (
    "ais_tar2tf.ops",
    "ais_tar2tf.values.decoders",
    "ais_tar2tf.cluster.client",
    "ais_tar2tf.values.default_mappings",
)  # modules of this package that call the user's functions
_OTHER_SPECIAL = frozenset(
    {
        "__class__", "__del__", "__delattr__", "__dict__", "__dir__", "__doc__", "__format__", "__getnewargs__",
        "__getstate__", "__hash__", "__init__", "__init_subclass__", "__module__", "__new__", "__post_init__",
        "__reduce__", "__reduce_ex__", "__repr__", "__setattr__", "__setstate__", "__sizeof__", "__slots__",
        "__str__", "__subclasshook__", "__weakref__",
    }
)  # fmt: skip
_DESCRIPTORS = (
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
)
_CONTAINERS: tuple[type[Iterable[Any]], ...] = (list, tuple, set, frozenset, deque)
_MISSING = object()


def top_package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def module_of(function: Any) -> str:
    """Return the module that defines a function, or the class of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    is_function = isinstance(function, types.FunctionType | types.MethodType | type)
    return (function if is_function else type(function)).__module__


def code_owner(module: str, file: str, home: str) -> str:
    """Return "user" for code to search, "library" for code to search only for randomness, "inert" for other code."""
    top, file = top_package(module), file.replace("\\", "/")
    if top == "ais_tar2tf":
        return "library" if module.startswith(_OURS) else "inert"
    if top in INERT or top.startswith("tensorflow"):
        return "inert"
    if top == home and home not in sys.stdlib_module_names:
        return "user"
    if "/site-packages/" in file or "/dist-packages/" in file:
        return "library"
    return "inert" if file.startswith(_STANDARD) else "user"


def is_users(module: str, home: str) -> bool:
    """Return whether to search instances of the classes of a module."""
    if module == "builtins":
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return code_owner(module, file, home) == "user" or module.startswith(_OURS)


def elements_of(value: Any) -> Iterable[Any] | None:
    """Return the elements of a container without calling an overridden method; None for any other object."""
    if isinstance(value, dict):
        return dict[Any, Any].values(value)
    own: Callable[[Any], Iterator[Any]] | None = next(
        (each.__iter__ for each in _CONTAINERS if isinstance(value, each)), None
    )
    return None if own is None else own(value)


def special_methods(kind: type) -> Iterator[str]:
    """Yield the names of a class's methods that operators call, and `call`, which Keras's `__call__` calls."""
    for name in dir(kind):
        if name == "call" or (name.startswith("__") and name.endswith("__") and name not in _OTHER_SPECIAL):
            yield name


def attribute_of(owner: Any, name: str) -> list[Any]:
    """Return a list of an attribute, empty if there is none. For a property, return its getter without calling it."""
    if isinstance(owner, types.ModuleType):
        found = vars(owner).get(name, sys.modules.get(f"{owner.__name__}.{name}", _MISSING))
        return [] if found is _MISSING else [found]
    found = inspect.getattr_static(owner, name, _MISSING)
    kind = owner if isinstance(owner, type) else type(owner)
    if isinstance(found, staticmethod):
        return [found.__func__]
    if isinstance(found, classmethod):
        return [types.MethodType(found.__func__, kind)]
    if isinstance(found, property | functools.cached_property):
        getter = found.fget if isinstance(found, property) else found.func
        return [types.MethodType(getter, owner)] if getter is not None and kind is not owner else []
    if isinstance(found, types.FunctionType) and kind is not owner:
        return [found if name in getattr(owner, "__dict__", {}) else types.MethodType(found, owner)]
    if isinstance(found, _DESCRIPTORS):
        with contextlib.suppress(AttributeError):  # a slot without a value
            return [found.__get__(None if kind is owner else owner, kind)]
        return []
    return [] if found is _MISSING else [found]


def cell_contents(cell: types.CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:  # an empty cell
        return []


def default_arguments(function: types.FunctionType) -> dict[str, list[Any]]:
    code = function.__code__
    named = code.co_varnames[: code.co_argcount]
    given = function.__defaults__ or ()
    found = {name: [value] for name, value in zip(named[len(named) - len(given) :], given, strict=True)}
    return found | {name: [value] for name, value in (function.__kwdefaults__ or {}).items()}
