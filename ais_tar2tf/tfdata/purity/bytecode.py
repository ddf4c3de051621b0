"""Lists the variables and attributes that the bytecode of a function reads and changes. No code of the user runs.

The bytecode is analyzed, because a function that was typed into an interactive session has no source file. The
opcodes are those of Python 3.11 to 3.13.
"""

from __future__ import annotations

import dis
import functools
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from ais_tar2tf.tfdata.purity.causes import MUTATORS

__all__ = ["CodeUses", "Mutation", "VariableRead", "analyze_code"]

_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_CELL = frozenset({"LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES_INTO = frozenset({"STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "DELETE_ATTR", "DELETE_SUBSCR"})
_STORES_VARIABLE = frozenset(
    {"STORE_FAST", "STORE_DEREF", "STORE_NAME", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
)
_CALL = frozenset({"CALL", "CALL_FUNCTION_EX", "CALL_KW"})
_SUBEXPRESSION = frozenset({"BEFORE_WITH", "BINARY_SLICE", "BINARY_SUBSCR"})  # in `x[0]()`, x itself is not called
_TRANSPARENT = frozenset(
    {"CACHE", "COPY", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "PUSH_NULL", "RESUME"}
)  # these leave the value on top of the stack unchanged

_Location = tuple[int, int]  # a line and a column


@dataclass
class VariableRead:
    """An expression that a function reads: a variable or an imported module, and attributes of it, as `config.a.b`.

    Attributes:
        scope: "global", "import" or "local". A variable of an enclosing function is "local", too.
        name: The name of the variable or of the module.
        line: The line in the source.
        path: The names of the attributes, from left to right.
        level: The number of dots before the name of an imported module.
        called: Whether the function calls the value there.
    """

    scope: str
    name: str
    line: int = 0
    path: tuple[str, ...] = ()
    level: int = 0
    called: bool = False

    @property
    def text(self) -> str:
        """The expression as in Python's source."""
        return ".".join((self.name, *self.path))


@dataclass(frozen=True)
class Mutation:
    """A change of an object.

    Attributes:
        target: The expression that stands for the object.
        method: The called method, which may change the object; "" if an attribute or an item is set or deleted.
        attribute: The attribute that is set or deleted; "" for a method or an item.
    """

    target: VariableRead
    method: str = ""
    attribute: str = ""

    @property
    def text(self) -> str:
        """The changed part of the object, as in Python's source: `x.append`, `x[…]` or `x.n`."""
        if self.method:
            return f"{self.target.text}.{self.method}"
        if not self.attribute:
            return f"{self.target.text}[…]"
        is_read_first = self.target.path[-1:] == (self.attribute,)  # as in `self.n += 1`
        return self.target.text if is_read_first else f"{self.target.text}.{self.attribute}"


@dataclass
class CodeUses:
    """Everything that a code object reads and changes.

    Attributes:
        reads: The expressions that the code reads.
        mutations: The changes of objects.
        globals_written: The lines at which global variables are assigned or deleted, by name.
        cells_written: The lines at which variables of enclosing functions are assigned, by name.
        aliases: The expressions that are assigned to local variables, by the name of the variable.
        rebound: Local variables to which the code assigns the result of a computation, such as a call.
        attributes: The names of attributes that the code reads from results of computations.
        nested: The code of the functions that are defined inside.
    """

    reads: list[VariableRead] = field(default_factory=list[VariableRead])
    mutations: list[Mutation] = field(default_factory=list[Mutation])
    globals_written: dict[str, int] = field(default_factory=dict[str, int])
    cells_written: dict[str, int] = field(default_factory=dict[str, int])
    aliases: dict[str, list[VariableRead]] = field(default_factory=dict[str, list[VariableRead]])
    rebound: set[str] = field(default_factory=set[str])
    attributes: set[str] = field(default_factory=set[str])
    nested: list[CodeType] = field(default_factory=list[CodeType])


@functools.lru_cache(maxsize=2_000)  # functions; programs make several datasets with the same mapping
def analyze_code(code: CodeType) -> CodeUses:
    """Return what `code` reads and changes. Callers must not modify the result, which is cached.

    The code of nested functions is listed in `CodeUses.nested`, and not analyzed.
    """
    return _BytecodeReader(code).read()


class _BytecodeReader:
    """Goes through the instructions of a function, and knows the expression whose value is on top of the stack."""

    def __init__(self, code: CodeType) -> None:
        self._instructions = [each for each in dis.get_instructions(code) if each.opname not in _TRANSPARENT]
        self._free = frozenset(code.co_freevars)
        self._cells = self._free | frozenset(code.co_cellvars)
        self._uses = CodeUses(nested=[const for const in code.co_consts if isinstance(const, CodeType)])
        self._line = code.co_firstlineno
        self._top: VariableRead | None = None  # the expression on top of the stack; None for any other value
        self._module: VariableRead | None = None  # the module of a `from … import`
        self._expressions: dict[_Location, VariableRead] = {}  # by the line and column at which the expression begins
        # One instruction may load two variables, but has one source position, that of the first. The second is here.
        self._unlocated: VariableRead | None = None
        self._calls = {_begin(each) for each in self._instructions if each.opname in _CALL}
        self._subexpressions = {_begin(each) for each in self._instructions if each.opname in _SUBEXPRESSION}

    def read(self) -> CodeUses:
        constants: list[object] = [None, None]
        for instruction in self._instructions:
            self._line = instruction.positions.lineno or self._line if instruction.positions else self._line
            if instruction.opname == "LOAD_CONST":
                constants = [constants[-1], instruction.argval]
            self._step(instruction, constants)
        return self._uses

    def _step(self, instruction: dis.Instruction, constants: list[object]) -> None:
        name, value = instruction.opname, instruction.argval
        if name in _STORES_VARIABLE:
            self._store(instruction)
        elif name in _GLOBAL:
            self._load(VariableRead("global", value), _begin(instruction))
        elif name in _CELL:
            self._load(VariableRead("local", value), _begin(instruction))
        elif name.startswith("LOAD_FAST"):
            self._load_fast(instruction)
        elif name in _ATTRIBUTE:
            self._attribute(instruction)
        elif name == "LOAD_SUPER_ATTR":
            self._uses.attributes.add(value)
            self._top = None
        elif name == "IMPORT_NAME":
            level, names = constants
            first = value if names is not None else value.partition(".")[0]
            self._module = VariableRead("import", first, level=level if isinstance(level, int) else 0)
            self._load(self._module, None)
        elif name == "IMPORT_FROM" and self._module is not None:
            self._load(replace(self._module, path=(*self._module.path, value)), None)
        elif name in ("SWAP", "POP_TOP") and self._top is not None and self._top.scope == "import":
            self._module = self._top  # `import a.b.c as d` loads a, then b from a, then c from b
        else:
            self._change(instruction)
            self._top = None

    def _load(self, read: VariableRead, begin: _Location | None) -> None:
        """Note an expression that is now on top of the stack. `begin` is its place; None if it is unknown."""
        read.line = self._line
        read.called = begin is not None and begin in self._calls and begin not in self._subexpressions
        self._uses.reads.append(read)
        if begin is not None:
            self._expressions[begin] = read
        self._top = read

    def _load_fast(self, instruction: dis.Instruction) -> None:
        names = _names(instruction)
        for name in names:
            if name in self._cells:  # so Python 3.13 passes the cell to a nested function
                self._top = None
            elif name is names[0]:
                self._load(VariableRead("local", name), _begin(instruction))
            else:
                self._load(VariableRead("local", name), None)
                self._unlocated = self._top

    def _attribute(self, instruction: dis.Instruction) -> None:
        name = instruction.argval
        if self._top is None:
            self._uses.attributes.add(name)
            found = self._expressions.get(_begin(instruction) or (0, 0))
            if name in MUTATORS and found is not None and not found.called:
                self._uses.mutations.append(Mutation(replace(found), name))
            return
        if name in MUTATORS:
            self._uses.mutations.append(Mutation(replace(self._top), name))
        self._top.path = (*self._top.path, name)

    def _store(self, instruction: dis.Instruction) -> None:
        names = _names(instruction)
        loads = instruction.opname == "STORE_FAST_LOAD_FAST"
        for name in names[:1] if loads else names:
            if name in self._free:
                self._uses.cells_written[name] = self._line
            if self._top is None:
                self._uses.rebound.add(name)
            else:
                self._uses.aliases.setdefault(name, []).append(replace(self._top))
            self._top = None
        if loads:
            self._load(VariableRead("local", names[1]), None)
            self._unlocated = self._top

    def _change(self, instruction: dis.Instruction) -> None:
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            self._uses.globals_written[instruction.argval] = self._line
        elif instruction.opname in _STORES_INTO:
            target = self._expressions.get(_begin(instruction) or (0, 0)) or self._unlocated
            if target is not None and not target.called:
                attribute = instruction.argval if instruction.opname.endswith("_ATTR") else ""
                self._uses.mutations.append(Mutation(replace(target), attribute=attribute))


def _begin(instruction: dis.Instruction) -> _Location | None:
    """Return the line and column at which the expression of an instruction begins."""
    at = instruction.positions
    return None if at is None or at.lineno is None or at.col_offset is None else (at.lineno, at.col_offset)


def _names(instruction: dis.Instruction) -> tuple[str, ...]:
    """Return the names of the variables of an instruction: one or two."""
    value: Any = instruction.argval
    return tuple(value) if isinstance(value, tuple) else (value,)
