"""Keyword options that several functions share, and that are declared once.

A *declaration* is a callable with a parameter, a default and an `Args:` entry for each option: usually a frozen
dataclass. A function takes some of these options as `**options: Unpack[Keywords]`, where `Keywords` is a TypedDict,
so that type checkers know every name and type:

    @known_options
    @takes_options_of(DatasetOptions, RecordsKeywords)
    def records(self, **options: Unpack[RecordsKeywords]) -> Iterator[Record]:
        ...

`help(records)` then shows each option as a parameter of its own, with its default and its documentation.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["annotation_names", "takes_options_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAMES = "__annotation_names__"  # attribute of a function: the names that annotations of shared options use
_ENTRY = re.compile(r"^( *)\*\*options: .*(?:\n\1 +.*)*\n?", re.MULTILINE)  # in an `Args:` section
_ARGS = re.compile(r"^( *)(?:Args|Attributes):\n((?:\1 +.*\n|\n)*)", re.MULTILINE)


def takes_options_of(declaration: Callable[..., Any], keywords: type) -> Callable[[_Function], _Function]:
    """Let the signature and the documentation of a function show the options that it takes as `**options`.

    Args:
        declaration: The callable that declares the options. It gives their order, defaults and documentation.
        keywords: The TypedDict of the options that the function takes. It gives their types.

    >>> from typing import TypedDict
    >>> def declaration(*, batch: int | None = None, repeat: int = 1): ...
    >>> Keywords = TypedDict("Keywords", {"repeat": "int"}, total=False)
    >>> @takes_options_of(declaration, Keywords)
    ... def records(path: str, **options): ...
    >>> str(inspect.signature(records))
    "(path: 'str', *, repeat: 'int' = 1)"
    """
    declared = inspect.signature(declaration).parameters
    types: Mapping[str, Any] = inspect.get_annotations(keywords)
    assert types.keys() <= declared.keys(), f"{keywords.__name__} has options that are not declared"

    def extended(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        shared = [
            each.replace(kind=each.KEYWORD_ONLY, annotation=getattr(types[name], "__forward_arg__", types[name]))
            for name, each in declared.items()
            if name in types
        ]
        further: Any = function
        further.__signature__ = signature.replace(parameters=[*own, *shared])
        setattr(further, _NAMES, vars(sys.modules[keywords.__module__]))
        further.__doc__ = _documented(function.__doc__ or "", declaration.__doc__ or "", [p.name for p in shared])
        return function

    return extended


def annotation_names(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that a function's annotations may use: names of its module, and of its shared options."""
    plain: Any = function
    return {**getattr(function, _NAMES, {}), **plain.__globals__}


def _documented(text: str, declaration: str, names: list[str]) -> str:
    """Replace the entry `**options` of a docstring by the entries of these options that it does not have yet."""
    entry = _ENTRY.search(text)
    if entry is None:
        return text
    entries = _entries(declaration)
    indent = entry[1]
    missing = [name for name in names if f"\n{indent}{name}: " not in text]
    shown = [f"{indent}{line}\n" for name in missing for line in entries.get(name, ())]
    return text[: entry.start()] + "".join(shown) + text[entry.end() :]


def _entries(text: str) -> dict[str, list[str]]:
    """Return the lines of each entry in the `Args:` section of a docstring, without their common indentation."""
    section = _ARGS.search(inspect.cleandoc(text) + "\n")
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in inspect.cleandoc("\n" + section[2]).splitlines() if section else ():
        name, colon, _ = line.partition(":")
        if colon and not line.startswith(" "):
            lines = found.setdefault(name.partition(" ")[0], [])
        if line:
            lines.append(line)
    return found
