"""Reads the bytecode of a function: which variables it reads and writes, with their attributes. Runs nothing.

Bytecode is there also where the source is not: in an interpreter, under `python -c`, of a lambda. The opcodes are
those of Python 3.11 to 3.13.
"""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from ais_tar2tf.tfdata.chance import MUTATORS

__all__ = ["Access", "Uses", "Write", "uses_of"]

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELL = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_INTO = frozenset({"STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "DELETE_ATTR", "DELETE_SUBSCR"})
_NAMED = frozenset({"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"})
_CALL = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
_PART = frozenset({"BEFORE_WITH", "BINARY_SLICE", "BINARY_SUBSCR"})  # of such a value something else is called
_TRANSPARENT = frozenset(
    {"CACHE", "COPY", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME"}
)  # the value on top stays

_Place = tuple[int, int]  # a line and a column


@dataclass
class Access:
    """A value that a function reads: a variable or an imported module, and the attributes taken of it."""

    scope: str  # "global"; "local" (also of an enclosing function); "import"
    name: str
    line: int = 0
    path: tuple[str, ...] = ()
    level: int = 0  # of an import: the dots before its name
    called: bool = False  # the value itself is called at once

    @property
    def text(self) -> str:
        """The expression, as it is written."""
        return ".".join((self.name, *self.path))


@dataclass(frozen=True)
class Write:
    """A change of the object that `target` gives."""

    target: Access
    method: str = ""  # a method that may change it in place; else an attribute or an item is set or deleted
    attribute: str = ""

    @property
    def text(self) -> str:
        """What is written, as an expression."""
        if self.method:
            return f"{self.target.text}.{self.method}"
        if not self.attribute:
            return f"{self.target.text}[…]"
        within = self.target.path[-1:] == (self.attribute,)  # as of `self.n += 1`, which reads it first
        return self.target.text if within else f"{self.target.text}.{self.attribute}"


@dataclass
class Uses:
    """What a code object reads and writes."""

    reads: list[Access] = field(default_factory=list[Access])
    writes: list[Write] = field(default_factory=list[Write])
    globals_written: dict[str, int] = field(default_factory=dict[str, int])  # and in which line
    cells_written: dict[str, int] = field(default_factory=dict[str, int])
    aliases: dict[str, list[Access]] = field(default_factory=dict[str, list[Access]])  # local names of such values
    rebound: set[str] = field(default_factory=set[str])  # local names that were also given a value made here
    attributes: set[str] = field(default_factory=set[str])  # those taken of values that were made here
    nested: list[CodeType] = field(default_factory=list[CodeType])


@functools.lru_cache(maxsize=2_000)  # of functions: several datasets are made with one
def uses_of(code: CodeType) -> Uses:
    """Return what `code` reads and writes, which nobody may change. The functions inside it are listed, not read."""
    return _Reader(code).read()


class _Reader:
    """Follows the value on top of the stack, from a variable through its attributes."""

    def __init__(self, code: CodeType) -> None:
        self._instructions = [each for each in dis.get_instructions(code) if each.opname not in _TRANSPARENT]
        self._free = frozenset(code.co_freevars)
        self._cells = self._free | frozenset(code.co_cellvars)
        self._uses = Uses(nested=[const for const in code.co_consts if isinstance(const, CodeType)])
        self._line = code.co_firstlineno
        self._top: Access | None = None  # on top of the stack, if it is known
        self._module: Access | None = None  # what `from … import` takes names of
        self._expressions: dict[_Place, Access] = {}  # by where they begin
        self._placeless: Access | None = None  # the second of two that were loaded at once
        self._calls = {_begin(each) for each in self._instructions if each.opname in _CALL}
        self._parts = {_begin(each) for each in self._instructions if each.opname in _PART}

    def read(self) -> Uses:
        constants: list[object] = [None, None]
        for each in self._instructions:
            self._line = each.positions.lineno or self._line if each.positions else self._line
            if each.opname == "LOAD_CONST":
                constants = [constants[-1], each.argval]
            self._take(each, constants)
        return self._uses

    def _take(self, each: dis.Instruction, constants: list[object]) -> None:
        name, value = each.opname, each.argval
        if name in _NAMED:
            self._store(each)
        elif name in _GLOBAL:
            self._load(Access("global", value), _begin(each))
        elif name in _CELL:
            self._load(Access("local", value), _begin(each))
        elif name.startswith("LOAD_FAST"):
            self._load_fast(each)
        elif name in _ATTRIBUTE:
            self._attribute(each)
        elif name == "LOAD_SUPER_ATTR":
            self._uses.attributes.add(value)
            self._top = None
        elif name == "IMPORT_NAME":
            level, names = constants
            first = value if names is not None else value.partition(".")[0]
            self._module = Access("import", first, level=level if isinstance(level, int) else 0)
            self._load(self._module, None)
        elif name == "IMPORT_FROM" and self._module is not None:
            self._load(replace(self._module, path=(*self._module.path, value)), None)
        elif name in ("SWAP", "POP_TOP") and self._top is not None and self._top.scope == "import":
            self._module = self._top  # `import a.b.c as d` goes from a to b, and from b to c
        else:
            self._change(each)
            self._top = None

    def _load(self, access: Access, place: _Place | None) -> None:
        access.line = self._line
        access.called = place is not None and place in self._calls and place not in self._parts
        self._uses.reads.append(access)
        if place is not None:
            self._expressions[place] = access
        self._top = access

    def _load_fast(self, each: dis.Instruction) -> None:
        names = _names(each)
        for name in names:
            if name in self._cells:  # a closure is being made
                self._top = None
            elif name is names[0]:
                self._load(Access("local", name), _begin(each))
            else:
                self._load(Access("local", name), None)
                self._placeless = self._top

    def _attribute(self, each: dis.Instruction) -> None:
        name = each.argval
        if self._top is None:
            self._uses.attributes.add(name)
            found = self._expressions.get(_begin(each) or (0, 0))
            if name in MUTATORS and found is not None and not found.called:
                self._uses.writes.append(Write(replace(found), name))
            return
        if name in MUTATORS:
            self._uses.writes.append(Write(replace(self._top), name))
        self._top.path = (*self._top.path, name)

    def _store(self, each: dis.Instruction) -> None:
        names = _names(each)
        loads = each.opname == "STORE_FAST_LOAD_FAST"
        for name in names[:1] if loads else names:
            if name in self._free:
                self._uses.cells_written[name] = self._line
            if self._top is None:
                self._uses.rebound.add(name)
            else:
                self._uses.aliases.setdefault(name, []).append(replace(self._top))
            self._top = None
        if loads:
            self._load(Access("local", names[1]), None)
            self._placeless = self._top

    def _change(self, each: dis.Instruction) -> None:
        if each.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self._uses.globals_written[each.argval] = self._line
        elif each.opname in _INTO:
            target = self._expressions.get(_begin(each) or (0, 0)) or self._placeless
            if target is not None and not target.called:
                attribute = each.argval if each.opname.endswith("_ATTR") else ""
                self._uses.writes.append(Write(replace(target), attribute=attribute))


def _begin(each: dis.Instruction) -> _Place | None:
    """Return where the expression begins that the instruction evaluates, or is a part of."""
    at = each.positions
    return None if at is None or at.lineno is None or at.col_offset is None else (at.lineno, at.col_offset)


def _names(each: dis.Instruction) -> tuple[str, ...]:
    """Return the variables of an instruction; some have two."""
    value: Any = each.argval
    return tuple(value) if isinstance(value, tuple) else (value,)
