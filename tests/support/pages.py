"""Read the project's pages: their code blocks, the names that a block needs, and their commands."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:ais-tar2tf|python) .*?)(?:  +#.*| # .*)?$", re.MULTILINE)
_PROGRAM = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def program(self) -> str:
        """The file name in the first line of a whole program, and "" for any other block."""
        named = _PROGRAM.match(self.code)
        return "" if named is None else named[1]


def pages() -> list[str]:
    """Return the paths of all pages for users, relative to the project's root."""
    found = [ROOT / "README.md", *ROOT.glob("examples/**/*.md"), *ROOT.glob(".github/**/*.md")]
    return sorted(str(each.relative_to(ROOT)) for each in found)


def blocks(page: str, language: str = "python") -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, each.start()) + 1, each[1], each[2])
        for each in _FENCE.finditer(text)
        if each[1] == language
    ]


def commands(block: Block) -> list[list[str]]:
    """Return the words of each `ais-tar2tf …` and `python …` command in a console block."""
    return [shlex.split(arguments) for arguments in _COMMAND.findall(block.code)]


def needed(code: str) -> set[str]:
    """Return the names that `code` reads before it binds them.

    >>> sorted(needed("a = b.c()\\na.d\\ndef f(x): return g + x"))
    ['b', 'g', 'x']
    """
    bound: set[str] = set()
    found: set[str] = set()
    for statement in ast.parse(code).body:
        found |= {name.id for name in ast.walk(statement) if _reads(name)} - bound
        bound |= set(_binds(statement))
    return found


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _binds(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
