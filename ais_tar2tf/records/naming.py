"""From a member's name to the key of its record and its field. No I/O."""

from __future__ import annotations

from collections.abc import Callable

from ais_tar2tf.nearest import check_choice

__all__ = ["SYSTEM_FILES", "Grouping", "Split", "alike", "is_by_rule", "is_no_field", "splitter"]

Split = Callable[[str], "tuple[str, str] | None"]
Grouping = str | Split
"""`"first-dot"`, `"last-dot"`, or a callable from a member's name to (key, field), None to leave it out."""

SYSTEM_FILES = frozenset({".ds_store", ".localized", "desktop.ini", "ehthumbs.db", "icon\r", "thumbs.db"})
"""Names, in small letters, of files that desktops leave in folders of other files."""

_OF_DESKTOPS = frozenset({"db", "ini"})  # the extensions of those that have one
_FEW_MEMBERS = 8  # below this, looking for likeness costs more than it saves


def _first_dot(name: str) -> tuple[str, str] | None:
    key, dot, field = name.partition(".")
    if "/" in field:  # the dot was a folder's
        base = name.rfind("/") + 1
        stem, dot, field = name[base:].partition(".")
        key = name[:base] + stem
    if not dot or not key or key[-1] == "/":
        return None
    field = field.lower()
    return None if field in _OF_DESKTOPS and is_no_field(name) else (key, field)


def _last_dot(name: str) -> tuple[str, str] | None:
    base = name.rfind("/") + 1
    dot = name.rfind(".", base + 1)
    if dot < 0 or name.startswith("._", base):
        return None
    field = name[dot + 1 :].lower()
    return None if field in _OF_DESKTOPS and is_no_field(name) else (name[:dot], field)


def splitter(grouping: Grouping) -> Split:
    """The function from a member's name to (key, field).

    >>> splitter("first-dot")("a/b.seg.PNG")
    ('a/b', 'seg.png')
    >>> splitter("last-dot")("a/b.seg.PNG")
    ('a/b.seg', 'png')
    """
    if callable(grouping):
        return lambda name: None if name.endswith("/") else grouping(name)
    rules = {"first-dot": _first_dot, "last-dot": _last_dot}
    check_choice("grouping", grouping, rules, " or a callable")
    return rules[grouping]


def is_no_field(name: str) -> bool:
    """Return whether a name is one that nobody means as data.

    Such are macOS's `._*`, what desktops leave in folders, and directories that are written as files.

    >>> [name for name in ("a/._b.jpg", "./.DS_Store", "a/Thumbs.db", "a/", "a/.hidden") if not is_no_field(name)]
    ['a/.hidden']
    """
    last = name[name.rfind("/") + 1 :]
    return not last or last.startswith("._") or last.lower() in SYSTEM_FILES


def is_by_rule(split: Split) -> bool:
    """Whether it is one of ours."""
    return split is _first_dot or split is _last_dot


def alike(names: list[str], split: Split) -> tuple[list[str], list[str]] | None:
    """The fields of each record and the keys, if all but the last record have the same fields in the same order."""
    if len(names) < _FEW_MEMBERS:
        return None
    return _alike_by_rule(names, split) if is_by_rule(split) else _alike_by_calls(names, split)


def _alike_by_rule(names: list[str], split: Split) -> tuple[list[str], list[str]] | None:
    """All names in a few calls: the first record tells their endings, and the text of all what stands before them."""
    pattern, endings = _first_record(names, split)
    width = len(pattern)
    count = (len(names) - 1) // width if width else 0
    if not count:
        return None
    end = width * count
    if not _OF_DESKTOPS.isdisjoint(pattern) and any(map(is_no_field, names[:end])):
        return None
    text = _lines(names[:end:width])
    keys_text = text.replace(f"{endings[0]}\0", "\0")
    if text.count("\0") != count or len(text) - len(keys_text) != count * len(endings[0]):
        return None
    for at in range(1, width):
        if _lines(names[at:end:width]) != keys_text.replace("\0", f"{endings[at]}\0"):
            return None
    keys = keys_text[:-1].split("\0")
    following = next((part[0] for part in map(split, names[end:]) if part is not None and part[1]), None)
    if following is None or following == keys[-1] or not _are_keys(keys, keys_text, split):
        return None
    return pattern, keys


def _first_record(names: list[str], split: Split) -> tuple[list[str], list[str]]:
    """Its fields, and what its names end with; nothing where a name is no field's."""
    pattern, endings = list[str](), list[str]()
    first: str | None = None
    for name in names:
        key, field = split(name) or ("", "")
        if not field:
            return [], []
        first = key if first is None else first
        if key != first:
            break
        pattern.append(field)
        endings.append(name[len(key) :])
    return pattern, endings


def _lines(names: list[str]) -> str:
    return "\0".join((*names, ""))


def _are_keys(keys: list[str], text: str, split: Split) -> bool:
    """Whether the rule, which gave the first of them, gives all of them."""
    if "/\0" in text or "\0\0" in text or text[0] == "\0":
        return False
    if split is _first_dot:
        return "." not in text or not any("." in key[key.rfind("/") + 1 :] for key in keys)
    return "._" not in text or not any(map(is_no_field, keys))


def _alike_by_calls(names: list[str], split: Split) -> tuple[list[str], list[str]] | None:
    parts = list(map(split, names))
    if None in parts:
        return None
    heads, fields = map(list, zip(*parts, strict=True))  # type: ignore[arg-type]
    width = next((at for at, head in enumerate(heads) if head != heads[0]), 0)
    if not width:
        return None
    end = (len(heads) - 1) // width * width
    pattern, keys = fields[:width], heads[:end:width]
    if (
        fields[:end] != pattern * len(keys)
        or any(heads[at:end:width] != keys for at in range(1, width))
        or heads[end] == keys[-1]
    ):
        return None
    return pattern, keys
