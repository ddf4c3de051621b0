"""Texts that may be numbers: one type for all values of a column, found before the first is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values import json_value

__all__ = ["Columns", "number_or_text"]

_KINDS: tuple[Callable[[str], Any], ...] = (int, float, str)  # each can say what those before it can


class Columns:
    """The narrowest type of each column: whole numbers, numbers, or text; lists where a text is a JSON list."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._ranks: dict[str, int] = {}
        for row in rows:
            for name, value in row.items():
                self._ranks[name] = max(self._ranks.get(name, 0), _rank(value))

    def typed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row's values in their columns' types."""
        return {name: _as(_KINDS[self._ranks[name]], value) for name, value in row.items()}


def _rank(value: Any) -> int:
    """The first of the kinds that can say `value`."""
    plain = _parsed(value)
    if isinstance(plain, list):
        return max(map(_rank, plain), default=0)
    if plain is None or isinstance(plain, bool | int):
        return 0
    if isinstance(plain, float):
        return 1
    text = str(plain)
    for rank, kind in enumerate(_KINDS):
        try:
            kind("" if "_" in text and kind is not str else text)  # 1_000 is a name here
        except ValueError:
            continue
        return rank
    return len(_KINDS) - 1


def _as(kind: Callable[[Any], Any], value: Any) -> Any:
    plain = _parsed(value)
    if isinstance(plain, list):
        return [kind(each) for each in plain]
    return None if plain is None else kind(plain)


def _parsed(value: Any) -> Any:
    """A text that looks like a list, as one; else a text without the blanks around it."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] == "[":
        try:
            return json_value(text)
        except SchemaError:
            return text
    return text


def number_or_text(value: bytes | str) -> Any:
    """A single value that has no column: a number if it is one.

    >>> number_or_text(b"7"), number_or_text("0.5"), number_or_text(" cat ")
    (7, 0.5, 'cat')
    """
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    return _as(_KINDS[_rank(text)], text)
