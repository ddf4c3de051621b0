"""Keyword options that several functions share, and that are declared once.

A *declaration* is a callable, usually a frozen dataclass. For each option, it has a parameter, a default, and an
entry in its docstring. A function takes some of these options as `**options: Unpack[Keywords]`. `Keywords` is a
TypedDict, so that type checkers know the name and type of each option:

    @known_options
    @takes_options_of(DatasetOptions, RecordsKeywords)
    def records(self, **options: Unpack[RecordsKeywords]) -> Iterator[Record]:
        ...

`help(records)` then shows each option as a separate parameter, with its default and its documentation.

This module changes only what a function shows. It must not check or change the values of options.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["annotation_names", "takes_options_of"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

# In this attribute of a function, `takes_options_of` stores the globals of the module that defines `keywords`.
_NAMES = "__annotation_names__"
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
    """Return the namespace in which all annotations of a function can be evaluated.

    It holds the globals of the function's module, and of the module with the TypedDict of its shared options.
    """
    plain: Any = function
    return {**getattr(function, _NAMES, {}), **plain.__globals__}


def _documented(text: str, declaration: str, names: list[str]) -> str:
    """Replace the entry `**options` of the docstring `text` by the entries of the options `names`.

    The new entries come from the docstring `declaration`. Options that already have an entry in `text` are left out.
    """
    entry = _ENTRY.search(text)
    if entry is None:
        return text
    entries = _entries(declaration)
    indent = entry[1]
    missing = [name for name in names if f"\n{indent}{name}: " not in text]
    shown = [f"{indent}{line}\n" for name in missing for line in entries.get(name, ())]
    return text[: entry.start()] + "".join(shown) + text[entry.end() :]


def _entries(text: str) -> dict[str, list[str]]:
    """Return the lines of each entry in the `Args:` or `Attributes:` section of a docstring, by the entry's name.

    The common indentation of the entries is removed.
    """
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
