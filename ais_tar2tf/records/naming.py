"""The grouping rules, which split the name of a member into the key of its record and its field.

To add a rule, give it a name in `_RULES`. Add this name to `GROUPINGS` of the command line in `cli/choices.py`, and
to `GROUPINGS` in `recordfiles/packing/naming.py` if `pack` offers the rule.
This module must not do I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ais_tar2tf.base.nearest import check_choice

__all__ = [
    "SYSTEM_FILES",
    "Grouping",
    "Split",
    "is_not_data",
    "members_pattern",
    "number_of",
    "split_uniform",
    "splitter",
]

Split = Callable[[str], "tuple[str, str] | None"]
"""Splits the name of a member into (key, field); returns None for a member that belongs to no record."""

Grouping = str | Split
"""`"first-dot"`, `"last-dot"`, or a function of the user."""

SYSTEM_FILES = frozenset({".ds_store", ".localized", "desktop.ini", "ehthumbs.db", "icon\r", "thumbs.db"})
"""Names, in lower case, of files that desktops leave in folders."""

_SYSTEM_EXTENSIONS = frozenset({"db", "ini"})  # the extensions of the names in SYSTEM_FILES
_FEW_MEMBERS = 8  # for fewer members, comparing their names takes longer than splitting each name


def _first_dot(name: str) -> tuple[str, str] | None:
    """Split the name of a member at the first dot of its file name, which is the part after the last slash.

    Return None if the file name has no dot, begins with a dot, or is the name of a system file.
    """
    key, dot, field = name.partition(".")
    if "/" in field:  # the first dot is in the name of a folder
        base = name.rfind("/") + 1
        stem, dot, field = name[base:].partition(".")
        key = name[:base] + stem
    if not dot or not key or key[-1] == "/":
        return None
    field = field.lower()
    return None if field in _SYSTEM_EXTENSIONS and is_not_data(name) else (key, field)


def _last_dot(name: str) -> tuple[str, str] | None:
    """Split the name of a member at the last dot of its file name. A dot that begins the file name does not count.

    Return None if there is no such dot, or if the file name is that of a system file, such as `._a.jpg`.
    """
    base = name.rfind("/") + 1
    dot = name.rfind(".", base + 1)
    if dot < 0 or name.startswith("._", base):
        return None
    field = name[dot + 1 :].lower()
    return None if field in _SYSTEM_EXTENSIONS and is_not_data(name) else (name[:dot], field)


@dataclass(frozen=True, slots=True)
class _Rule:
    """A grouping rule with a name."""

    split: Split
    members: str  # a regular expression in Go's syntax for the names of members; `{}` stands for the fields
    native: int | None = None  # the rule's number in native/native.h; None if only Python knows the rule


_RULES = {
    "first-dot": _Rule(_first_dot, r"(?i)(?:^|/)[^/.]+\.(?:{})$", native=0),
    "last-dot": _Rule(_last_dot, r"(?i)[^/]\.(?:{})$", native=1),
}


def splitter(grouping: Grouping) -> Split:
    """Return the function that splits the names of members by a grouping.

    Raises:
        OptionError: There is no grouping with this name.

    >>> splitter("first-dot")("a/b.seg.PNG")
    ('a/b', 'seg.png')
    >>> splitter("last-dot")("a/b.seg.PNG")
    ('a/b.seg', 'png')
    """
    if callable(grouping):
        return lambda name: None if name.endswith("/") else grouping(name)
    check_choice("grouping", grouping, _RULES, " or a callable")
    return _RULES[grouping].split


def members_pattern(grouping: Grouping, fields: Iterable[str]) -> str | None:
    r"""Return a regular expression, in Go's syntax, that matches the members with these fields.

    Return None if the grouping is a function of the user, because no expression can replace it.

    >>> members_pattern("first-dot", ["jpg", "seg.png"])
    '(?i)(?:^|/)[^/.]+\\.(?:jpg|seg\\.png)$'
    """
    return None if callable(grouping) else _RULES[grouping].members.format("|".join(map(re.escape, fields)))


def is_not_data(name: str) -> bool:
    """Return whether a member is certainly no data: a system file, macOS's `._*`, or a directory stored as a file.

    >>> [name for name in ("a/._b.jpg", "./.DS_Store", "a/Thumbs.db", "a/", "a/.hidden") if not is_not_data(name)]
    ['a/.hidden']
    """
    last = name[name.rfind("/") + 1 :]
    return not last or last.startswith("._") or last.lower() in SYSTEM_FILES


def number_of(split: Split) -> int | None:
    """Return the number by which the native step knows a split function; None if it does not know the function."""
    return next((rule.native for rule in _RULES.values() if split is rule.split), None)


def split_uniform(names: list[str], split: Split) -> tuple[list[str], list[str]] | None:
    """Split the names of many members at once, if their records have the same fields in the same order.

    Returns:
        The fields of a record, and the keys of all records except the last record, which may continue after `names`.
        None if the records differ, or if there are so few names that splitting each of them is faster.
    """
    if len(names) < _FEW_MEMBERS:
        return None
    by_dots = split is _first_dot or split is _last_dot
    return _compare_texts(names, split) if by_dots else _compare_parts(names, split)


def _compare_texts(names: list[str], split: Split) -> tuple[list[str], list[str]] | None:
    """Do the work of `split_uniform` for a rule about dots, with few calls for all names together.

    The first record shows with which ending, such as `.jpg`, the names of each field end. Take the names of the
    members that hold one field, and join them into one text. If all records are alike, this text consists of all
    keys, with the field's ending after each key.
    """
    fields, endings = _first_record(names, split)
    width = len(fields)
    count = (len(names) - 1) // width if width else 0
    if not count:
        return None
    end = width * count
    if not _SYSTEM_EXTENSIONS.isdisjoint(fields) and any(map(is_not_data, names[:end])):
        return None
    text = _joined(names[:end:width])
    keys_text = text.replace(f"{endings[0]}\0", "\0")
    if text.count("\0") != count or len(text) - len(keys_text) != count * len(endings[0]):
        return None
    for at in range(1, width):
        if _joined(names[at:end:width]) != keys_text.replace("\0", f"{endings[at]}\0"):
            return None
    keys = keys_text[:-1].split("\0")
    next_key = next((part[0] for part in map(split, names[end:]) if part is not None and part[1]), None)
    if next_key is None or next_key == keys[-1] or not _are_keys(keys, keys_text, split):
        return None
    return fields, keys


def _first_record(names: list[str], split: Split) -> tuple[list[str], list[str]]:
    """Return the fields of the first record, and the endings of its names; two empty lists if a name has no field."""
    fields, endings = list[str](), list[str]()
    first: str | None = None
    for name in names:
        key, field = split(name) or ("", "")
        if not field:
            return [], []
        first = key if first is None else first
        if key != first:
            break
        fields.append(field)
        endings.append(name[len(key) :])
    return fields, endings


def _joined(names: list[str]) -> str:
    """Return all names in one text, with a zero byte after each name."""
    return "\0".join((*names, ""))


def _are_keys(keys: list[str], text: str, split: Split) -> bool:
    """Return whether a rule about dots gives exactly these keys. `text` is the result of `_joined` for the keys."""
    if "/\0" in text or "\0\0" in text or text[0] == "\0":
        return False
    if split is _first_dot:
        return "." not in text or not any("." in key[key.rfind("/") + 1 :] for key in keys)
    return "._" not in text or not any(map(is_not_data, keys))


def _compare_parts(names: list[str], split: Split) -> tuple[list[str], list[str]] | None:
    """Do the work of `split_uniform` for any split function, with one call for each name."""
    parts = list(map(split, names))
    if None in parts:
        return None
    all_keys, all_fields = map(list, zip(*parts, strict=True))  # type: ignore[arg-type]
    width = next((at for at, key in enumerate(all_keys) if key != all_keys[0]), 0)
    if not width:
        return None
    end = (len(all_keys) - 1) // width * width
    fields, keys = all_fields[:width], all_keys[:end:width]
    if (
        all_fields[:end] != fields * len(keys)
        or any(all_keys[at:end:width] != keys for at in range(1, width))
        or all_keys[end] == keys[-1]
    ):
        return None
    return fields, keys
