"""The types of the columns of labels, whose values are text or JSON.

All values of a column get one type. It is found in a first pass over all rows, before any value is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.errors import SchemaError

__all__ = ["Columns", "parse_value"]

_TYPES: tuple[Callable[[str], Any], ...] = (int, float, str)  # each represents the values of all types before it


class Columns:
    """The types of columns: each is the first of int, float and str that can represent all values of the column.

    A text that is a JSON list becomes a list of such values.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._ranks: dict[str, int] = {}  # column → the number of its type in `_TYPES`
        for row in rows:
            for name, value in row.items():
                self._ranks[name] = max(self._ranks.get(name, 0), _rank(value))

    def typed(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of `row` in the types of their columns."""
        return {name: _convert(_TYPES[self._ranks[name]], value) for name, value in row.items()}


def _rank(value: Any) -> int:
    """Return the number of the first type in `_TYPES` that can represent `value`."""
    parsed = _parse_list(value)
    if isinstance(parsed, list):
        return max(map(_rank, parsed), default=0)
    if parsed is None or isinstance(parsed, bool | int):
        return 0
    if isinstance(parsed, float):
        return 1
    text = str(parsed)
    for rank, kind in enumerate(_TYPES):
        try:
            kind("" if "_" in text and kind is not str else text)  # int() accepts `1_000`, but it is text here
        except ValueError:
            continue
        return rank
    return len(_TYPES) - 1


def _convert(kind: Callable[[Any], Any], value: Any) -> Any:
    parsed = _parse_list(value)
    if isinstance(parsed, list):
        return [_convert(kind, each) for each in parsed]
    return None if parsed is None else kind(parsed)


def _parse_list(value: Any) -> Any:
    """Parse a text that is a JSON list; strip any other text; return other values unchanged."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text[:1] == "[":
        try:
            return json_value(text)
        except SchemaError:
            return text
    return text


def parse_value(value: bytes | str) -> Any:
    """Return a value that belongs to no column, as a number, a list or text.

    >>> parse_value(b"7"), parse_value("[0.5, 1]"), parse_value(" cat ")
    (7, [0.5, 1.0], 'cat')
    """
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    return _convert(_TYPES[_rank(text)], text)
