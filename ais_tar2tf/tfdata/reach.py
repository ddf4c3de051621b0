"""Finds what a function's answers may depend on besides its argument: randomness, state, the clock.

Everything that the function can reach is looked at, and nothing is run: the variables that its bytecode names, with
exactly the attributes that it takes of them; its closure and default arguments; the objects it is bound to; the
functions of the user's modules that it calls, and so on. An object that is handed on whole, whose use nobody can
follow, counts with those of its attributes and methods whose names occur in code that was reached.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ais_tar2tf.tfdata.bytecode import Access, Uses, Write, uses_of
from ais_tar2tf.tfdata.chance import CLOCK, RANDOMNESS, STATE, Nature, is_changed_by, nature_of
from ais_tar2tf.tfdata.inspection import (
    INERT,
    attribute_of,
    content_of,
    defaults_of,
    elements_of,
    is_users,
    kind_of,
    module_of,
    special_methods,
    top_of,
)

__all__ = ["Finding", "Findings", "findings_of"]

_STEPS = 5_000  # functions and objects that are looked at: half a second
_LIBRARY_FUNCTIONS = 100  # of installed packages: the nearest; what lies deeper is the business of the packages
_ELEMENTS = 100  # of one container: the others are of the same kind
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), np.generic, np.dtype, range, slice)
_CALLS_PYTHON = frozenset({"numpy_function", "py_function", "py_func", "eager_py_func"})
_NOTHING = object()
_UNFOLLOWED = (setattr, delattr, globals)  # what they write cannot be followed


@dataclass(frozen=True)
class Finding:
    """Something that a function depends on besides its argument."""

    reason: str
    what: str  # `rng`, a numpy.random.Generator
    where: str  # flip (train.py, line 12)

    def __str__(self) -> str:
        return f"{self.reason}: {self.what}, in {self.where}"


@dataclass
class Findings:
    """What a function depends on besides its argument."""

    by_reason: dict[str, Finding] = field(default_factory=dict[str, Finding])
    unknown: Finding | None = None  # an object of a library, which may keep state

    @property
    def first(self) -> Finding | None:
        """Why the function must run for each record; None if it may be traced once for all."""
        return next((self.by_reason[each] for each in (RANDOMNESS, STATE, CLOCK) if each in self.by_reason), None)

    @property
    def alone(self) -> Finding | None:
        """Why the function must not be called from several threads at once; None if it may."""
        found = (self.by_reason.get(RANDOMNESS), self.by_reason.get(STATE), self.unknown)
        return next((each for each in found if each is not None), None)


def findings_of(function: Callable[..., Any]) -> Findings:
    """Return what `function` depends on besides its argument, as far as it can be told without running it."""
    walk = _Walk(function)
    walk.run()
    return walk.found


@dataclass
class _Scope:
    """A function whose code is read, and what is known of its variables."""

    function: str
    file: str
    globals: Mapping[str, Any]
    known: dict[str, list[Any]]  # the closure, default arguments and what the function is bound to
    own: frozenset[str] = frozenset()  # variables of enclosing functions that begin with each call
    only_chance: bool = False  # a library's: that it keeps state is its own affair

    def at(self, line: int) -> str:
        return f"{self.function} ({self.file}, line {line})"


class _Values(NamedTuple):
    found: list[Any]
    rest: tuple[str, ...] = ()


class _Walk:
    """A search, breadth first, so that the nearest reason is the one that is told."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.found = Findings()
        self._home = top_of(module_of(function))
        self._todo: deque[Callable[[], None]] = deque()
        self._seen: set[Any] = set()
        self._kept: list[Any] = []  # what was seen stays alive, so that no id comes twice
        self._attributes: set[str] = set()  # names of attributes of values that nobody can follow
        self._whole: list[tuple[Any, str, _Scope | None]] = []  # objects that were handed on whole
        self._libraries = 0  # their functions that were looked at
        is_function = isinstance(function, types.FunctionType | types.MethodType)
        self._hold(function, (function if is_function else type(function)).__qualname__, None, 0)

    def run(self) -> None:
        for _ in range(_STEPS):
            if not self._todo:
                return
            try:
                self._todo.popleft()()
            except Exception as error:  # noqa: BLE001  # objects of others, which may refuse to be looked at
                self._leave_open(f"an object that cannot be looked into ({error!r})")
        self._leave_open("more than is looked at")

    def _leave_open(self, what: str) -> None:
        """Note that something may keep state of which nobody knows."""
        if self.found.unknown is None:
            self.found.unknown = Finding("it may keep state in Python", what, "the mapping")

    # Objects.

    def _hold(self, value: Any, text: str, scope: _Scope | None, line: int, *, called: bool = False) -> None:
        """Look at an object that a function has got hold of, or that is called."""
        if isinstance(value, _PLAIN) or self._was_seen(id(value), called):
            return
        self._kept.append(value)
        if (nature := nature_of(value)) is not None:
            self._tell(nature, text, scope, line)
        elif isinstance(value, types.FunctionType):
            self._todo.append(lambda: self._function(value, {}))
        elif isinstance(value, types.MethodType):
            self._method(value, text, scope, line)
        elif isinstance(value, functools.partial):
            self._partial(value, text, scope, line)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            pass  # all that is used of it has a name
        else:
            self._todo.append(lambda: self._object(value, text, scope, line, called=called))

    def _object(self, value: Any, text: str, scope: _Scope | None, line: int, *, called: bool) -> None:
        if (elements := elements_of(value)) is not None:
            for each in islice(elements, _ELEMENTS):
                self._hold(each, f"{text}[…]", scope, line)
        self._hold(inspect.getattr_static(value, "__wrapped__", None), text, scope, line)
        if top_of(type(value).__module__) == "tensorflow":  # a tf.function
            self._hold(getattr(value, "python_function", None), text, scope, line)
        if not is_users(type(value).__module__, self._home) and not isinstance(value, types.SimpleNamespace):
            self._library_object(value, text, scope, line)
            return
        for name in ("__call__", "call") if called else special_methods(type(value)):
            self._take(value, name, f"{text}.{name}", scope, line)
        if not called:
            self._whole.append((value, text, scope))
            for name in tuple(self._attributes):
                self._take(value, name, f"{text}.{name}", scope, line)

    def _library_object(self, value: Any, text: str, scope: _Scope | None, line: int) -> None:
        for name in ("__call__", "call"):  # a class of Keras that the user derived, or a callable of a library
            method = inspect.getattr_static(type(value), name, None)
            if isinstance(method, types.FunctionType):
                self._hold(types.MethodType(method, value), f"{text}.{name}", scope, line)
        if isinstance(value, tuple):  # a named tuple
            return
        top = top_of(type(value).__module__)
        if top not in INERT and top not in sys.stdlib_module_names and self.found.unknown is None:
            what = f"`{text}`, a {type(value).__module__}.{type(value).__qualname__}"
            self.found.unknown = Finding("it may keep state in Python", what, _where(scope, line))

    def _take(self, owner: Any, name: str, text: str, scope: _Scope | None, line: int) -> None:
        """Look at one attribute of an object, if it has it."""
        for value in attribute_of(owner, name):
            self._hold(value, text, scope, line)

    def _partial(self, value: functools.partial[Any], text: str, scope: _Scope | None, line: int) -> None:
        function = value.func
        if isinstance(function, types.FunctionType):
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            bound = {name: [each] for name, each in (*zip(names, value.args, strict=False), *value.keywords.items())}
            self._todo.append(lambda: self._function(function, bound))
        else:
            self._hold(function, text, scope, line, called=True)
        for each in (*value.args, *value.keywords.values()):
            self._hold(each, text, scope, line)

    def _method(self, value: types.MethodType, text: str, scope: _Scope | None, line: int) -> None:
        function = value.__func__
        if isinstance(function, types.FunctionType):
            first = function.__code__.co_varnames[:1]
            self._todo.append(lambda: self._function(function, {name: [value.__self__] for name in first}))
        else:
            self._hold(value.__self__, text, scope, line)

    def _class(self, value: type) -> None:
        """Look at what happens when an instance is made; its methods count by their names."""
        if not is_users(value.__module__, self._home):
            return
        for name in ("__init__", "__new__", "__post_init__", "__call__"):
            method = inspect.getattr_static(value, name, None)
            if isinstance(method, types.FunctionType):
                self._todo.append(functools.partial(self._function, method, {}))
        self._whole.append((value, value.__qualname__, None))
        for name in tuple(self._attributes):
            self._take(value, name, f"{value.__qualname__}.{name}", None, 0)

    # Functions.

    def _function(self, function: types.FunctionType, bound: dict[str, list[Any]]) -> None:
        code, module = function.__code__, function.__globals__.get("__name__") or ""
        self._hold(getattr(function, "__wrapped__", None), function.__qualname__, None, 0)
        kind = kind_of(module, code.co_filename, self._home)
        if kind == "inert" or self._was_seen(
            id(function), *(id(each) for values in bound.values() for each in values)
        ):
            return
        self._libraries += kind == "library"
        if kind == "library" and self._libraries > _LIBRARY_FUNCTIONS:
            return
        known = {**defaults_of(function), **bound}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                known.setdefault(name, []).extend(content_of(cell))
        self._kept.append((function, known))
        file = code.co_filename.rpartition("/")[2]
        scope = _Scope(function.__qualname__, file, function.__globals__, known, only_chance=kind == "library")
        self._code(code, scope)

    def _code(self, code: types.CodeType, scope: _Scope) -> None:
        uses = uses_of(code)
        reads = [access for access in uses.reads if access.scope != "import"]  # which is used by another name
        values = [(access, self._values(access, uses, scope)) for access in reads]
        hands_on = any(_hands_to_python(access, each.found) for access, each in values)
        for access, each in values:
            read = replace(access, path=access.path[: len(access.path) - len(each.rest)])
            for value in each.found:
                if hands_on and not access.called and (callable(value) or each.rest):
                    continue  # tf.numpy_function calls it for each record
                self._read(value, read, scope)
        if not scope.only_chance:
            self._look_at_writes(uses, scope)
        self._name(uses.attributes.union(*(each.rest for _, each in values)))
        if any(access.name == "super" for access in uses.reads):
            self._super(code, uses, scope)
        for nested in () if hands_on else uses.nested:
            inner = {
                name: known for name, known in self._variables(uses, scope).items() if name in nested.co_freevars
            }
            own = scope.own | frozenset(code.co_cellvars)
            within = _Scope(scope.function, scope.file, scope.globals, inner, own, scope.only_chance)
            self._todo.append(functools.partial(self._code, nested, within))

    def _read(self, value: Any, access: Access, scope: _Scope) -> None:
        if inspect.isclass(value) and not access.called and nature_of(value) is not None:
            return  # as in `isinstance(rng, random.Random)`
        if isinstance(value, types.BuiltinFunctionType) and value in _UNFOLLOWED:
            self._tell(Nature(STATE, "which may write anything"), access.text, scope, access.line)
            return
        self._hold(value, access.text, scope, access.line, called=access.called)

    def _variables(self, uses: Uses, scope: _Scope) -> dict[str, list[Any]]:
        """Return the local names whose values are known, in this code and for the functions within."""
        known = {name: list(values) for name, values in scope.known.items()}
        for name, accesses in uses.aliases.items():
            for access in accesses:
                if access.name != name or access.scope != "local":
                    known.setdefault(name, []).extend(self._values(access, Uses(), scope).found)
        return known

    def _super(self, code: types.CodeType, uses: Uses, scope: _Scope) -> None:
        for name in code.co_varnames[:1]:
            for owner in scope.known.get(name, ()):
                for kind in type(owner).__mro__:
                    for method in (kind.__dict__.get(each) for each in uses.attributes):
                        if isinstance(method, types.FunctionType):
                            self._todo.append(functools.partial(self._function, method, {name: [owner]}))

    def _look_at_writes(self, uses: Uses, scope: _Scope) -> None:
        for name, line in uses.globals_written.items():
            self._tell(Nature(STATE, "a global variable that it sets"), name, scope, line)
        for name, line in uses.cells_written.items():
            if name not in scope.own:
                self._tell(Nature(STATE, "a variable of an enclosing function that it sets"), name, scope, line)
        for write in uses.writes:
            if any(self._changes(write, value) for value in self._written(write, uses, scope)):
                self._tell(Nature(STATE, "which it changes"), write.text, scope, write.target.line)

    def _written(self, write: Write, uses: Uses, scope: _Scope) -> list[Any]:
        target = write.target
        if target.scope == "local" and target.name in uses.rebound:
            return []  # a copy, more often than not
        if not write.method:
            return self._roots(target, uses, scope, 0)
        values = self._values(target, uses, scope)
        return [] if values.rest else values.found

    def _changes(self, write: Write, value: Any) -> bool:
        return is_changed_by(value, write.method) if write.method else value is not None

    # Names.

    def _name(self, names: Iterable[str]) -> None:
        """Take attributes of these names of every object that was handed on whole."""
        new = set(names) - self._attributes
        self._attributes |= new
        for value, text, scope in self._whole if new else ():
            for name in new:
                self._take(value, name, f"{text}.{name}", scope, 0)

    def _values(self, access: Access, uses: Uses, scope: _Scope, depth: int = 0) -> _Values:
        """Return what an expression may give, and the attributes of it that cannot be told. Run nothing."""
        found = self._roots(access, uses, scope, depth)
        for at, name in enumerate(access.path):
            following: list[Any] = []
            for value in found:
                if isinstance(value, types.ModuleType) and top_of(value.__name__) in INERT - {"numpy"}:
                    return _Values([value])
                if not isinstance(value, types.ModuleType | type) and nature_of(value) is not None:
                    return _Values([value], access.path[at:])
                following += attribute_of(value, name)
            if not following:
                return _Values(found, access.path[at:])
            found = following
        return _Values(found)

    def _roots(self, access: Access, uses: Uses, scope: _Scope, depth: int) -> list[Any]:
        if access.scope == "import":
            return _imported(access, scope)
        if access.scope == "global":
            found = scope.globals.get(access.name, _NOTHING)
            if found is _NOTHING:
                builtin = scope.globals.get("__builtins__", {})
                found = (builtin if isinstance(builtin, dict) else vars(builtin)).get(access.name, _NOTHING)
            return [] if found is _NOTHING else [found]
        found = list(scope.known.get(access.name, ()))
        for alias in uses.aliases.get(access.name, ()) if depth < 5 else ():
            found += self._values(alias, uses, scope, depth + 1).found
        return found

    def _tell(self, nature: Nature, text: str, scope: _Scope | None, line: int) -> None:
        if scope is not None and scope.only_chance and nature.reason != RANDOMNESS:
            return
        finding = Finding(nature.reason, f"`{text}`, {nature.what}", _where(scope, line))
        self.found.by_reason.setdefault(nature.reason, finding)

    def _was_seen(self, *key: Any) -> bool:
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


def _where(scope: _Scope | None, line: int) -> str:
    return "the mapping" if scope is None else scope.at(line)


def _imported(access: Access, scope: _Scope) -> list[Any]:
    """Return a module that is imported inside a function, if it is there already."""
    name = access.name
    if access.level:
        with contextlib.suppress(ImportError):  # the function will say so
            name = importlib.util.resolve_name("." * access.level + name, scope.globals.get("__package__"))
    found = sys.modules.get(name)
    return [] if found is None else [found]


def _hands_to_python(access: Access, found: list[Any]) -> bool:
    """Tell whether it is `tf.numpy_function` or another of TensorFlow's that call Python for each record."""
    name = access.path[-1] if access.path else access.name
    kinds = types.ModuleType | types.FunctionType
    return name in _CALLS_PYTHON and any(
        top_of(each.__name__ if isinstance(each, types.ModuleType) else each.__module__) == "tensorflow"
        for each in found
        if isinstance(each, kinds)
    )
