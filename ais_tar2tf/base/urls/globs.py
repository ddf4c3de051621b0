"""Prefixes and globs of names: the prefix for which to request a listing, and the match of its names. No I/O."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

__all__ = ["glob_match", "glob_prefix", "is_glob", "is_prefix"]

_GLOB = re.compile(
    r"""
      \\(?P<escaped>.)
    | (?P<folders>(?:\A|(?<=/))\*\*+/)  # any number of folders, none included
    | (?P<deep>\*\*+)
    | (?P<star>\*)
    | (?P<one>\?)
    | \[(?P<negated>[!^]?+)(?P<body>(?:\\[^/]|[^/\\])(?:[^/\\\]]++|\\[^/])*+)\]
    | (?P<plain>.)
    """,
    re.DOTALL | re.VERBOSE,
)
_CLASS_PART = re.compile(r"\\?+(.)-\\?+(.)|\\?+(.)", re.DOTALL)
_FOLDER_START = "(?<![^/])"


def is_prefix(template: str) -> bool:
    """Return whether a template stands for everything below a folder: it ends in '/'."""
    return template.endswith("/")


def is_glob(template: str) -> bool:
    """Return whether a template has an unescaped `*`, `?` or `[…]`. The answer is exact only for expanded braces."""
    return any(_literal(token) is None for token in _GLOB.finditer(template))


def glob_prefix(pattern: str) -> str:
    """Return the text with which every match begins, without escapes: the prefix for a listing."""
    prefix: list[str] = []
    for token in _GLOB.finditer(pattern):
        literal = _literal(token)
        if literal is None:
            break
        prefix.append(literal)
    return "".join(prefix)


def glob_match(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a whole name matches.

    `*` and `?` match no '/'. `**` matches any characters. `**/` matches any number of folders, or none.
    """
    match = re.compile(_glob_regex(pattern), re.DOTALL).match
    return lambda name: match(name) is not None


def _literal(token: re.Match[str]) -> str | None:
    return token["plain"] or token["escaped"]


def _glob_regex(pattern: str) -> str:
    r"""Return a regex whose time grows with the length of a name, not with the ways to divide it among the stars.

    `**` divides the pattern into runs, and `*` divides a run into chunks of fixed length. The first position at which
    a chunk matches is always right, since no later position leaves more of the name to the rest. So the chunks
    between stars are in atomic groups, which are never matched again elsewhere. Only the last run, which must end
    where the name ends, is tried at every position.
    """
    first, *others = _glob_runs(pattern)
    if not others:
        return _run_at_end(first)
    *middle, last = others
    return _run(first) + "".join(f"(?>.*?{_run(run)})" for run in middle) + ".*?" + _run_at_end(last)


def _run(chunks: Sequence[str]) -> str:
    return chunks[0] + "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:])


def _run_at_end(chunks: Sequence[str]) -> str:
    if len(chunks) == 1:
        return chunks[0] + r"\Z"
    return _run(chunks[:-1]) + "[^/]*" + chunks[-1] + r"\Z"


def _glob_runs(pattern: str) -> list[list[str]]:
    runs = [[""]]
    for token in _GLOB.finditer(pattern):
        if token["folders"]:
            runs.append([_FOLDER_START])
        elif token["deep"]:
            runs.append([""])
        elif token["star"]:
            runs[-1].append("")
        else:
            runs[-1][-1] += _one_character(token)
    return runs


def _one_character(token: re.Match[str]) -> str:
    literal = _literal(token)
    if literal is not None:
        return re.escape(literal)
    return "[^/]" if token["one"] else _character_class(token["body"], negated=bool(token["negated"]))


def _character_class(body: str, *, negated: bool) -> str:
    parts = [(part[1] or part[3], part[2] or part[3]) for part in _CLASS_PART.finditer(body)]
    allowed = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in parts if low <= high)
    if not allowed:  # every range is reversed, as z-a
        return "[^/]" if negated else "(?!)"
    return f"(?!/)[{'^' if negated else ''}{allowed}]"
