"""The search for impurities: a breadth-first walk over all objects that a function can reach.

From a function, the walk follows the variables in its bytecode, with exactly the attributes that are read from them;
its closure; its default arguments; and the object to which it is bound. The walk follows the called functions of the
user's modules in the same way. If a function passes an object on, its further use is unknown. The walk then visits
the object's attributes whose names any visited bytecode reads from unknown values.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from ais_tar2tf.tfdata.purity.bytecode import CodeUses, VariableRead, analyze_code
from ais_tar2tf.tfdata.purity.causes import CLOCK, RANDOMNESS, STATE, Cause, cause_of, is_changed_by
from ais_tar2tf.tfdata.purity.expressions import Scope, known_variables, mutated_objects, resolve
from ais_tar2tf.tfdata.purity.inspection import (
    INERT,
    attribute_of,
    cell_contents,
    code_owner,
    default_arguments,
    elements_of,
    is_users,
    module_of,
    special_methods,
    top_package,
)

__all__ = ["Impurities", "Impurity", "find_impurities"]

_STEPS = 5_000  # visits of functions and objects; 5,000 take half a second
_LIBRARY_FUNCTIONS = 100  # functions of installed packages to visit; the nearest come first
_ELEMENTS = 100  # to visit in one container; the other elements are assumed to be of the same kind
_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(...), np.generic, np.dtype, range, slice)
_CALLS_PYTHON = frozenset({"numpy_function", "py_function", "py_func", "eager_py_func"})
_UNFOLLOWED = (setattr, delattr, globals)  # the walk cannot tell what these change


@dataclass(frozen=True)
class Impurity:
    """An object that a function depends on besides its argument.

    Attributes:
        reason: A clause, such as `RANDOMNESS`.
        what: A description of the object, such as "`rng`, a numpy.random.Generator".
        where: The place in the code, such as "flip (train.py, line 12)".
    """

    reason: str
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.what}, in {self.where}"


@dataclass
class Impurities:
    """The result of a search: the objects that a function depends on besides its argument.

    Attributes:
        by_reason: The first impurity of each reason.
        unknown: An object of a library that may keep state, or a part of the function that could not be searched.
    """

    by_reason: dict[str, Impurity] = field(default_factory=dict[str, Impurity])
    unknown: Impurity | None = None

    @property
    def first(self) -> Impurity | None:
        """The reason why the function must run for each record; None if it may be traced once for all records."""
        return next((self.by_reason[each] for each in (RANDOMNESS, STATE, CLOCK) if each in self.by_reason), None)

    @property
    def not_thread_safe(self) -> Impurity | None:
        """The reason why calls of the function must not run at the same time; None if they may."""
        found = (self.by_reason.get(RANDOMNESS), self.by_reason.get(STATE), self.unknown)
        return next((each for each in found if each is not None), None)


def find_impurities(function: Callable[..., Any]) -> Impurities:
    """Return the objects that `function` depends on besides its argument. It is not run, so some may stay unknown."""
    search = _ImpuritySearch(function)
    search.run()
    return search.found


class _ImpuritySearch:
    """One search. It is breadth-first, so that it reports the impurities that are nearest to the function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.found = Impurities()
        self._home = top_package(module_of(function))  # the user's own package
        self._todo: deque[Callable[[], None]] = deque()
        self._seen: set[Any] = set()
        self._alive: list[Any] = []  # visited objects: while they live, no other object can have their id
        self._attributes: set[str] = set()  # names of attributes that are read from unknown objects
        self._passed_on: list[tuple[Any, str, Scope | None]] = []  # objects whose further use is unknown
        self._libraries = 0  # functions of libraries that were visited
        is_function = isinstance(function, types.FunctionType | types.MethodType)
        self._visit(function, (function if is_function else type(function)).__qualname__, None, 0)

    def run(self) -> None:
        for _ in range(_STEPS):
            if not self._todo:
                return
            try:
                self._todo.popleft()()
            except Exception as error:  # noqa: BLE001  # objects of other packages may refuse an inspection
                self._note_unknown(f"an object that cannot be looked into ({error!r})")
        self._note_unknown("more than is looked at")

    def _note_unknown(self, what: str) -> None:
        if self.found.unknown is None:
            self.found.unknown = Impurity("it may keep state in Python", what, "the mapping")

    # Objects.

    def _visit(self, value: Any, text: str, scope: Scope | None, line: int, *, called: bool = False) -> None:
        """Visit the object that an expression stands for.

        Args:
            value: The object.
            text: The expression as Python writes it.
            scope: The function with the expression; None at the beginning of the search.
            line: The line of the expression.
            called: Whether the function calls the object.
        """
        if isinstance(value, _PLAIN) or self._was_seen(id(value), called):
            return
        self._alive.append(value)
        if (cause := cause_of(value)) is not None:
            self._report(cause, text, scope, line)
        elif isinstance(value, types.FunctionType):
            self._todo.append(lambda: self._function(value, {}))
        elif isinstance(value, types.MethodType):
            self._method(value, text, scope, line)
        elif isinstance(value, functools.partial):
            self._partial(value, text, scope, line)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, types.ModuleType):
            pass  # its attributes are visited where the bytecode reads them
        else:
            self._todo.append(lambda: self._object(value, text, scope, line, called=called))

    def _object(self, value: Any, text: str, scope: Scope | None, line: int, *, called: bool) -> None:
        if (elements := elements_of(value)) is not None:
            for each in islice(elements, _ELEMENTS):
                self._visit(each, f"{text}[…]", scope, line)
        self._visit(inspect.getattr_static(value, "__wrapped__", None), text, scope, line)
        if top_package(type(value).__module__) == "tensorflow":  # a tf.function
            self._visit(getattr(value, "python_function", None), text, scope, line)
        if not is_users(type(value).__module__, self._home) and not isinstance(value, types.SimpleNamespace):
            self._library_object(value, text, scope, line)
            return
        for name in ("__call__", "call") if called else special_methods(type(value)):
            self._attribute(value, name, f"{text}.{name}", scope, line)
        if not called:
            self._passed_on.append((value, text, scope))
            for name in tuple(self._attributes):
                self._attribute(value, name, f"{text}.{name}", scope, line)

    def _library_object(self, value: Any, text: str, scope: Scope | None, line: int) -> None:
        for name in ("__call__", "call"):  # of a user's layer of Keras, or of a callable of a library
            method = inspect.getattr_static(type(value), name, None)
            if isinstance(method, types.FunctionType):
                self._visit(types.MethodType(method, value), f"{text}.{name}", scope, line)
        if isinstance(value, tuple):  # a named tuple
            return
        top = top_package(type(value).__module__)
        if top not in INERT and top not in sys.stdlib_module_names and self.found.unknown is None:
            what = f"`{text}`, a {type(value).__module__}.{type(value).__qualname__}"
            self.found.unknown = Impurity("it may keep state in Python", what, _place(scope, line))

    def _attribute(self, owner: Any, name: str, text: str, scope: Scope | None, line: int) -> None:
        """Visit an attribute of an object, if the object has it."""
        for value in attribute_of(owner, name):
            self._visit(value, text, scope, line)

    def _partial(self, value: functools.partial[Any], text: str, scope: Scope | None, line: int) -> None:
        function = value.func
        if isinstance(function, types.FunctionType):
            names = function.__code__.co_varnames[: function.__code__.co_argcount]
            bound = {name: [each] for name, each in (*zip(names, value.args, strict=False), *value.keywords.items())}
            self._todo.append(lambda: self._function(function, bound))
        else:
            self._visit(function, text, scope, line, called=True)
        for each in (*value.args, *value.keywords.values()):
            self._visit(each, text, scope, line)

    def _method(self, value: types.MethodType, text: str, scope: Scope | None, line: int) -> None:
        function = value.__func__
        if isinstance(function, types.FunctionType):
            first = function.__code__.co_varnames[:1]
            self._todo.append(lambda: self._function(function, {name: [value.__self__] for name in first}))
        else:
            self._visit(value.__self__, text, scope, line)

    def _class(self, value: type) -> None:
        """Visit the methods that run when an instance is created or called. Others are visited if code names them."""
        if not is_users(value.__module__, self._home):
            return
        for name in ("__init__", "__new__", "__post_init__", "__call__"):
            method = inspect.getattr_static(value, name, None)
            if isinstance(method, types.FunctionType):
                self._todo.append(functools.partial(self._function, method, {}))
        self._passed_on.append((value, value.__qualname__, None))
        for name in tuple(self._attributes):
            self._attribute(value, name, f"{value.__qualname__}.{name}", None, 0)

    # Functions.

    def _function(self, function: types.FunctionType, bound: dict[str, list[Any]]) -> None:
        code, module = function.__code__, function.__globals__.get("__name__") or ""
        self._visit(getattr(function, "__wrapped__", None), function.__qualname__, None, 0)
        owner = code_owner(module, code.co_filename, self._home)
        if owner == "inert" or self._was_seen(
            id(function), *(id(each) for values in bound.values() for each in values)
        ):
            return
        self._libraries += owner == "library"
        if owner == "library" and self._libraries > _LIBRARY_FUNCTIONS:
            return
        known = {**default_arguments(function), **bound}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name != "__class__":
                known.setdefault(name, []).extend(cell_contents(cell))
        self._alive.append((function, known))
        file = code.co_filename.rpartition("/")[2]
        is_library = owner == "library"
        self._code(code, Scope(function.__qualname__, file, function.__globals__, known, only_randomness=is_library))

    def _code(self, code: types.CodeType, scope: Scope) -> None:
        uses = analyze_code(code)
        reads = [read for read in uses.reads if read.scope != "import"]  # the code reads the imported name again
        values = [(read, resolve(read, uses, scope)) for read in reads]
        calls_python = any(_is_python_call(read, each.objects) for read, each in values)
        for read, each in values:
            resolved = replace(read, path=read.path[: len(read.path) - len(each.rest)])
            for value in each.objects:
                if calls_python and not read.called and (callable(value) or each.rest):
                    continue  # tf.numpy_function calls this value for each record
                self._visit_read(value, resolved, scope)
        if not scope.only_randomness:
            self._check_writes(uses, scope)
        self._visit_attributes(uses.attributes.union(*(each.rest for _, each in values)))
        if any(read.name == "super" for read in uses.reads):
            self._super(code, uses, scope)
        if uses.nested and not calls_python:
            self._nested(code, uses, scope)

    def _nested(self, code: types.CodeType, uses: CodeUses, scope: Scope) -> None:
        """Schedule visits of the functions that are defined inside a function."""
        variables = known_variables(uses, scope)
        fresh = scope.fresh | frozenset(code.co_cellvars)
        for nested in uses.nested:
            known = {name: values for name, values in variables.items() if name in nested.co_freevars}
            within = replace(scope, known=known, fresh=fresh)
            self._todo.append(functools.partial(self._code, nested, within))

    def _visit_read(self, value: Any, read: VariableRead, scope: Scope) -> None:
        if inspect.isclass(value) and not read.called and cause_of(value) is not None:
            return  # as in `isinstance(rng, random.Random)`
        if isinstance(value, types.BuiltinFunctionType) and value in _UNFOLLOWED:
            self._report(Cause(STATE, "which may write anything"), read.text, scope, read.line)
            return
        self._visit(value, read.text, scope, read.line, called=read.called)

    def _super(self, code: types.CodeType, uses: CodeUses, scope: Scope) -> None:
        """Schedule visits of the methods of base classes that a method may call by `super()`."""
        for name in code.co_varnames[:1]:
            for owner in scope.known.get(name, ()):
                for kind in type(owner).__mro__:
                    for method in (kind.__dict__.get(each) for each in uses.attributes):
                        if isinstance(method, types.FunctionType):
                            self._todo.append(functools.partial(self._function, method, {name: [owner]}))

    def _check_writes(self, uses: CodeUses, scope: Scope) -> None:
        """Report variables and objects outside of a function that the function assigns or changes."""
        for name, line in uses.globals_written.items():
            self._report(Cause(STATE, "a global variable that it sets"), name, scope, line)
        for name, line in uses.cells_written.items():
            if name not in scope.fresh:
                self._report(Cause(STATE, "a variable of an enclosing function that it sets"), name, scope, line)
        for mutation in uses.mutations:
            values, method = mutated_objects(mutation, uses, scope), mutation.method
            if any(is_changed_by(value, method) if method else value is not None for value in values):
                self._report(Cause(STATE, "which it changes"), mutation.text, scope, mutation.target.line)

    def _visit_attributes(self, names: Iterable[str]) -> None:
        """Visit the attributes with these names of each object that was passed on."""
        new = set(names) - self._attributes
        self._attributes |= new
        for value, text, scope in self._passed_on if new else ():
            for name in new:
                self._attribute(value, name, f"{text}.{name}", scope, 0)

    def _report(self, cause: Cause, text: str, scope: Scope | None, line: int) -> None:
        if scope is not None and scope.only_randomness and cause.reason != RANDOMNESS:
            return
        impurity = Impurity(cause.reason, f"`{text}`, {cause.what}", _place(scope, line))
        self.found.by_reason.setdefault(cause.reason, impurity)

    def _was_seen(self, *key: Any) -> bool:
        if key in self._seen:
            return True
        self._seen.add(key)
        return False


def _place(scope: Scope | None, line: int) -> str:
    return "the mapping" if scope is None else scope.at(line)


def _is_python_call(read: VariableRead, objects: list[Any]) -> bool:
    """Return whether an expression is `tf.numpy_function`, or another function that calls Python for each record."""
    name = read.path[-1] if read.path else read.name
    kinds = types.ModuleType | types.FunctionType
    return name in _CALLS_PYTHON and any(
        top_package(each.__name__ if isinstance(each, types.ModuleType) else each.__module__) == "tensorflow"
        for each in objects
        if isinstance(each, kinds)
    )
