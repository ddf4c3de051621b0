"""Checks of what a parsed document holds: its keys, types and ranges, put together from small functions. No I/O.

A check takes a value as `json.loads` gives it, and returns it, or what it stands for; `Mismatch` says where in the
document something else stands than is expected.

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

from ais_tar2tf.errors import Tar2TFError, UnsafeName
from ais_tar2tf.names import SafeName

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
"""Makes the error that a reader of this kind of document raises, from a sentence that names the file first."""

Check = Callable[[Any], _T]
"""Returns what the value stands for, or raises `Mismatch`."""

_MOST = 2**63 - 1  # what numpy and TensorFlow hold
_SHOWN = 60  # characters of a value that an error shows


class Mismatch(Exception):
    """Something in a document is not what is expected there. `check` turns it into the caller's error."""

    def __init__(self, expected: str, found: Any, *, unsafe: str = "") -> None:
        super().__init__(expected)
        self._expected = expected
        self._found = found
        self._path: list[str] = []
        self.unsafe: str = unsafe
        """Why a name could leave its root, where that is the reason."""

    def within(self, part: str | int) -> Mismatch:
        """Return the same mismatch, seen from the value that holds this one under `part`."""
        self._path.insert(0, f"[{part}]" if isinstance(part, int) else f".{part[:_SHOWN]}")
        return self

    def __str__(self) -> str:
        path = "".join(self._path).removeprefix(".")
        found = repr(self._found)
        shown = found if len(found) <= _SHOWN else f"{found[:_SHOWN]}…"
        return f"{path}: {self._expected}, not {shown}" if path else f"{self._expected}, not {shown}"


def check(value: Any, expected: Check[_T], *, where: str, fail: Fail) -> _T:
    """Return what `expected` makes of the value.

    Args:
        value: The parsed document.
        expected: What it is to be.
        where: The document's file or URL, for the error.
        fail: Makes the error for a document that is something else. A name that could leave its root is always an
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
    """Accept text that a pattern describes whole; `expected` says in words what that is."""

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
    """Accept whole numbers of any size and sign, as a seed is one."""
    if type(value) is not int:
        raise Mismatch("a whole number is expected", value)
    return value


def number(value: Any) -> float:
    """Accept finite numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise Mismatch("a number is expected", value)
    return value


def maybe(expected: Check[_T]) -> Check[_T | None]:
    """Accept null, too."""
    return lambda value: None if value is None else expected(value)


# Values that hold others.


def listed(each: Check[_T]) -> Check[list[_T]]:
    """Accept a list whose values are all of one kind."""

    def items(value: Any) -> list[_T]:
        if not isinstance(value, list):
            raise Mismatch("a list is expected", value)
        at = 0
        found: list[_T] = []
        try:
            for at, item in enumerate(value):  # noqa: B007  # the place of the first that is wrong
                found.append(each(item))
        except Mismatch as mismatch:
            raise mismatch.within(at) from None
        return found

    return items


def row(*expected: Check[Any]) -> Check[tuple[Any, ...]]:
    """Accept a list of exactly these values."""

    def values(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(expected):
            raise Mismatch(f"a list of {len(expected)} values is expected", value)
        at = 0
        found: list[Any] = []
        try:
            for at, (each, item) in enumerate(zip(expected, value, strict=True)):  # noqa: B007
                found.append(each(item))
        except Mismatch as mismatch:
            raise mismatch.within(at) from None
        return tuple(found)

    return values


def keyed(each: Check[_T], *, key: Check[str] = text) -> Check[dict[str, _T]]:
    """Accept an object with any keys of a kind, whose values are all of one kind."""

    def entries(value: Any) -> dict[str, _T]:
        return {key(at): _under(at, each, item) for at, item in _object(value).items()}

    return entries


def fields(
    required: Mapping[str, Check[Any]], optional: Mapping[str, Check[Any]] | None = None, *, strict: bool = False
) -> Check[dict[str, Any]]:
    """Accept an object with these keys, and return what is known of it.

    Args:
        required: Keys that have to be there.
        optional: Keys that may be left out.
        strict: Whether another key is an error; otherwise it is passed over, as that of a later version.
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
    """Accept what `expected` does, and return what `make` makes of its fields."""
    return lambda value: make(**expected(value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Mismatch("an object is expected", value)
    return value


def _under(at: str, expected: Check[_T], value: Any) -> _T:
    try:
        return expected(value)
    except Mismatch as mismatch:
        raise mismatch.within(at) from None
