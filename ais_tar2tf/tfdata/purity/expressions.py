"""Resolution of the expressions in a function's bytecode to the objects that they may stand for. It runs no code."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ais_tar2tf.tfdata.purity.bytecode import CodeUses, Mutation, VariableRead
from ais_tar2tf.tfdata.purity.causes import cause_of
from ais_tar2tf.tfdata.purity.inspection import INERT, attribute_of, top_package

__all__ = ["Resolved", "Scope", "known_variables", "mutated_objects", "resolve"]

_MAX_ALIASES = 5  # variables in a chain of assignments
_NOTHING = object()


@dataclass
class Scope:
    """A function whose bytecode is searched, with the objects that its variables may stand for.

    Attributes:
        function: The function's qualified name.
        file: The name of the function's file.
        globals: The module's variables.
        known: The objects of the closure, of default arguments and of bound arguments, by name.
        fresh: Variables of enclosing functions that each call creates anew.
        only_randomness: Whether to report only randomness. It is true for functions of libraries: their state, such
            as caches and counters, need not change their results.
    """

    function: str
    file: str
    globals: Mapping[str, Any]
    known: dict[str, list[Any]]
    fresh: frozenset[str] = frozenset()
    only_randomness: bool = False

    def at(self, line: int) -> str:
        """Return a line of the function as text for errors."""
        return f"{self.function} ({self.file}, line {line})"


class Resolved(NamedTuple):
    """The objects that an expression may stand for, and the attributes at its end that were not resolved."""

    objects: list[Any]
    rest: tuple[str, ...] = ()


def resolve(read: VariableRead, uses: CodeUses, scope: Scope, depth: int = 0) -> Resolved:
    """Return the objects that a variable and the attributes read from it may stand for."""
    found = _variable(read, uses, scope, depth)
    for at, name in enumerate(read.path):
        following: list[Any] = []
        for value in found:
            if isinstance(value, types.ModuleType) and top_package(value.__name__) in INERT - {"numpy"}:
                return Resolved([value])
            if not isinstance(value, types.ModuleType | type) and cause_of(value) is not None:
                return Resolved([value], read.path[at:])
            following += attribute_of(value, name)
        if not following:
            return Resolved(found, read.path[at:])
        found = following
    return Resolved(found)


def known_variables(uses: CodeUses, scope: Scope) -> dict[str, list[Any]]:
    """Return the objects that this code's variables may stand for, by name, for the functions inside it."""
    known = {name: list(values) for name, values in scope.known.items()}
    for name, reads in uses.aliases.items():
        for read in reads:
            if read.name != name or read.scope != "local":
                known.setdefault(name, []).extend(resolve(read, CodeUses(), scope).objects)
    return known


def mutated_objects(mutation: Mutation, uses: CodeUses, scope: Scope) -> list[Any]:
    """Return the objects that a mutation in the bytecode may change, or that hold such an object."""
    target = mutation.target
    if target.scope == "local" and target.name in uses.rebound:
        return []  # usually holds a copy, which the function may change
    if not mutation.method:
        return _variable(target, uses, scope, 0)
    resolved = resolve(target, uses, scope)
    return [] if resolved.rest else resolved.objects


def _variable(read: VariableRead, uses: CodeUses, scope: Scope, depth: int) -> list[Any]:
    if read.scope == "import":
        return _imported(read, scope)
    if read.scope == "global":
        found = scope.globals.get(read.name, _NOTHING)
        if found is _NOTHING:
            builtin = scope.globals.get("__builtins__", {})
            found = (builtin if isinstance(builtin, dict) else vars(builtin)).get(read.name, _NOTHING)
        return [] if found is _NOTHING else [found]
    found = list(scope.known.get(read.name, ()))
    for alias in uses.aliases.get(read.name, ()) if depth < _MAX_ALIASES else ():
        found += resolve(alias, uses, scope, depth + 1).objects
    return found


def _imported(read: VariableRead, scope: Scope) -> list[Any]:
    """Return the module that an import statement in the function names, if the module is loaded."""
    name = read.name
    if read.level:
        with contextlib.suppress(ImportError):  # the function itself raises this error when it runs
            name = importlib.util.resolve_name("." * read.level + name, scope.globals.get("__package__"))
    found = sys.modules.get(name)
    return [] if found is None else [found]
