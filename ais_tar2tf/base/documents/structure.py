"""Checks of the structure of a parsed document: its keys, types and ranges, composed of small functions. No I/O.

A check takes a value from `json.loads` and returns the value, or an object made of it. If the value does not fit, the
check raises `Mismatch`, which says where in the document.

>>> from ais_tar2tf.errors import ExportError
>>> file = fields({"name": name, "records": whole()})
>>> check({"name": "a", "records": 1}, file, where="x.json", fail=ExportError)
{'name': 'a', 'records': 1}
>>> check({"name": "a", "records": -1}, file, where="x.json", fail=ExportError)
Traceback (most recent call last):
    ...
ais_tar2tf.errors.ExportError: x.json: the document is damaged: records: a whole number from 0 is expected, not -1
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import Tar2TFError, UnsafeName

__all__ = [
    "Check",
    "Fail",
    "Mismatch",
    "any_whole",
    "anything",
    "boolean",
    "check",
    "fields",
    "keyed",
    "listed",
    "made",
    "matching",
    "maybe",
    "name",
    "number",
    "one_of",
    "row",
    "text",
    "whole",
]

_T = TypeVar("_T")
Fail = Callable[[str], Tar2TFError]
"""Makes the error for a kind of document, from a text that begins with the document's file or URL."""

Check = Callable[[Any], _T]
"""Returns a checked value, or an object made of it; raises `Mismatch` if the value does not fit."""

_MOST = 2**63 - 1  # the largest int64
_SHOWN = 60  # characters of a value that an error shows


class Mismatch(Exception):
    """A value of a document does not fit. `check` turns this exception into the caller's error."""

    def __init__(self, expected: str, found: Any, *, unsafe: str = "") -> None:
        super().__init__(expected)
        self._expected = expected
        self._found = found
        self._path: list[str] = []
        self.unsafe: str = unsafe
        """Why the value, a name, could leave its root; "" if it could not."""

    def within(self, part: str | int) -> Mismatch:
        """Return this mismatch, with its path extended by the key or index `part` of the enclosing value."""
        self._path.insert(0, f"[{part}]" if isinstance(part, int) else f".{part[:_SHOWN]}")
        return self

    def __str__(self) -> str:
        path = "".join(self._path).removeprefix(".")
        found = repr(self._found)
        shown = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}…"
        return f"{path}: {self._expected}, not {shown}" if path else f"{self._expected}, not {shown}"


def check(value: Any, expected: Check[_T], *, where: str, fail: Fail) -> _T:
    """Return the result of a check of a whole document.

    Args:
        value: The parsed document.
        expected: The check.
        where: The document's file or URL, for the error.
        fail: Makes the error for a document that does not fit. A name that could leave its root is always an
            `UnsafeName`.
    """
    try:
        return expected(value)
    except Mismatch as mismatch:
        if mismatch.unsafe:
            raise UnsafeName(f"{where}: {mismatch.unsafe}") from None
        raise fail(f"{where}: the document is damaged: {mismatch}") from None


# Single values.


def anything(value: Any) -> Any:
    """Accept any value."""
    return value


def text(value: Any) -> str:
    """Accept text that a file name or another document can hold."""
    if not isinstance(value, str):
        raise Mismatch("text is expected", value)
    if not value.isascii():
        try:
            value.encode("utf-8", "surrogateescape")
        except UnicodeError:
            raise Mismatch("text without halves of characters is expected", value) from None
    return value


def name(value: Any) -> SafeName:
    """Accept the name of a file or object that stays below its root."""
    try:
        return SafeName(text(value), where="")
    except UnsafeName as error:
        raise Mismatch("a name is expected", value, unsafe=error.message.removeprefix(": ")) from None


def matching(pattern: re.Pattern[str], expected: str) -> Check[str]:
    """Accept text that a pattern matches as a whole; `expected` describes such text, for the error."""

    def matched(value: Any) -> str:
        if pattern.fullmatch(text(value)) is None:
            raise Mismatch(f"{expected} is expected", value)
        return value

    return matched


def one_of(*values: Any) -> Check[Any]:
    """Accept these values and no others."""
    known = ", ".join(map(repr, values))

    def chosen(value: Any) -> Any:
        for each in values:
            if type(value) is type(each) and value == each:
                return each
        raise Mismatch(f"one of {known} is expected", value)

    return chosen


def boolean(value: Any) -> bool:
    """Accept true and false."""
    if not isinstance(value, bool):
        raise Mismatch("true or false is expected", value)
    return value


def whole(least: int = 0, most: int = _MOST) -> Check[int]:
    """Accept whole numbers within bounds."""
    expected = f"a whole number from {least} is expected" if most == _MOST else f"{least} to {most} is expected"

    def counted(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Mismatch(expected, value)
        return value

    return counted


def any_whole(value: Any) -> int:
    """Accept whole numbers of any size and sign, such as a seed."""
    if type(value) is not int:
        raise Mismatch("a whole number is expected", value)
    return value


def number(value: Any) -> float:
    """Accept finite numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise Mismatch("a number is expected", value)
    return value


def maybe(expected: Check[_T]) -> Check[_T | None]:
    """Accept null, and the values of another check."""
    return lambda value: None if value is None else expected(value)


# Values that hold other values.


def listed(each: Check[_T]) -> Check[list[_T]]:
    """Accept a list whose values all pass the same check."""

    def items(value: Any) -> list[_T]:
        if not isinstance(value, list):
            raise Mismatch("a list is expected", value)
        return [_under(at, each, item) for at, item in enumerate(value)]

    return items


def row(*expected: Check[Any]) -> Check[tuple[Any, ...]]:
    """Accept a list with one value for each check, in the order of the checks."""

    def values(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(expected):
            raise Mismatch(f"a list of {len(expected)} values is expected", value)
        return tuple(_under(at, each, item) for at, (each, item) in enumerate(zip(expected, value, strict=True)))

    return values


def keyed(each: Check[_T], *, key: Check[str] = text) -> Check[dict[str, _T]]:
    """Accept an object whose keys all pass one check, and whose values all pass another."""

    def entries(value: Any) -> dict[str, _T]:
        return {key(at): _under(at, each, item) for at, item in _object(value).items()}

    return entries


def fields(
    required: Mapping[str, Check[Any]], optional: Mapping[str, Check[Any]] | None = None, *, strict: bool = False
) -> Check[dict[str, Any]]:
    """Accept an object with these keys, and return a dict of them.

    Args:
        required: Keys that the object must have, with the checks of their values.
        optional: Keys that the object may have.
        strict: Whether any other key is an error. Otherwise it is ignored, since a later version may have added it.
    """
    known: dict[str, Check[Any]] = {**required, **(optional or {})}

    def entries(value: Any) -> dict[str, Any]:
        given = _object(value)
        for each in required:
            if each not in given:
                raise Mismatch(f"{each!r} is expected", list(given))
        if strict and not given.keys() <= known.keys():
            raise Mismatch(f"none but {', '.join(known)} is expected", min(given.keys() - known.keys()))
        return {each: _under(each, expected, given[each]) for each, expected in known.items() if each in given}

    return entries


def made(make: Callable[..., _T], expected: Check[dict[str, Any]]) -> Check[_T]:
    """Accept the objects of a check, and return the result of `make`, called with their fields."""
    return lambda value: make(**expected(value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Mismatch("an object is expected", value)
    return value


def _under(at: str | int, expected: Check[_T], value: Any) -> _T:
    try:
        return expected(value)
    except Mismatch as mismatch:
        raise mismatch.within(at) from None
