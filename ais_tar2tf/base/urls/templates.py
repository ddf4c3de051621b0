r"""Templates: texts that stand for the names of shards. Names are counted without being made. No I/O.

Braces mean the same as in bash, with two exceptions: braces that do not balance and ranges of numbers beyond 64 bits
are errors here, but literal text in bash. No shell is involved: quotes, `$` and spaces are ordinary characters, and
empty or repeated names are kept.

>>> list(expand("train-{08..10}{,x}.tar"))[:3]
['train-08.tar', 'train-08x.tar', 'train-09.tar']
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

from ais_tar2tf.base.urls.braces import MAX_COUNT, ParsedTemplate, is_sequence, parse
from ais_tar2tf.base.urls.locations import Locations, location_texts, shown_location
from ais_tar2tf.errors import TemplateError
from ais_tar2tf.options import Limits

__all__ = ["Names", "check_spelling", "escape", "expand", "unescape"]

_SPECIAL = re.compile(r"[\\{},*?\[\]]|%(?=0?[0-9]?d)")  # characters with a meaning in templates or globs
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_MISSPELT = re.compile(
    r"""
      \\.
    | (?P<range>
        \{\s*(?P<first>[0-9]+|[A-Za-z])\s*
        (?:[-–—~…]|(?<=[0-9][0-9]):|\.{2,}|\bto\b)
        \s*(?P<last>[0-9]+|[A-Za-z])\s*\}
      )
    | (?P<split>\{split\})
    | (?P<format>\{(?:[0-9]?|[A-Za-z_]\w*(?=:)):?0?(?P<width>[0-9]{0,2})d?\}|%(?:0(?P<digits>[0-9]))?d(?![0-9A-Fa-f]))
    """,
    re.DOTALL | re.VERBOSE,
)


def expand(template: Locations, *, limit: int = Limits().template, keep_escapes: bool = False) -> Names:
    """Return the names of a template, or of several, in bash's order: the last group varies fastest.

    Args:
        template: One template or several.
        limit: The largest number of names.
        keep_escapes: Whether backslashes stay in the names, so that each can be read as a glob (see `unescape`).

    Raises:
        TemplateError: A template is malformed, or there are too many names.
    """
    parsed = tuple(parse(text) for text in location_texts(template))
    size = sum(each.size for each in parsed)
    if size > limit:
        subject = shown_location(parsed[0].text) if len(parsed) == 1 else f"a list of {len(parsed):,} templates"
        count = f"{size:,}" if size < MAX_COUNT else "10^18 or more"
        raise TemplateError(
            f"{subject} names {count} shards, the limit is {limit:,}: raise Limits.template if so many exist"
        )
    return Names(parsed, range(size), keep_escapes=keep_escapes)


def escape(text: str) -> str:
    r"""Return a template that stands for exactly this name. As a glob, the template matches only this name.

    >>> escape("a{b}*"), list(expand(escape("a{b}*,")))
    ('a\\{b\\}\\*', ['a{b}*,'])
    """
    return _SPECIAL.sub(r"\\\g<0>", text)


def check_spelling(template: str) -> None:
    r"""Refuse a template of shards to read that numbers them in another notation than `{first..last}`.

    >>> check_spelling("train-{000..007}.tar")  # {000-007}, {:03d} and %03d are refused
    """
    for found in _MISSPELT.finditer(template):
        written, kind = found[0], found.lastgroup
        if kind is None or is_sequence(written[1:-1]):  # an escaped character, or a valid range
            continue
        before, after = template[: found.start()], template[found.end() :]
        if kind == "range":
            if found["first"].isdigit() != found["last"].isdigit():
                continue
            correct = f"{{{found['first']}..{found['last']}}}"
            advice = f"is no range: write {shown_location(before + correct + after)}"
        elif kind == "split":
            advice = (
                "stands for the name of a split when shards are written; to read them, write the name, as "
                f"{shown_location(f'{before}train{after}')}"
            )
        else:
            digits = int(found["width"] or found["digits"] or 1) or 1
            correct = f"{{{'0' * digits}..{'9' * digits}}}"
            starred = shown_location(f"{before}*{after}")
            advice = (
                "is how shards are named when they are written; to read them, write their numbers, as "
                f"{shown_location(before + correct + after)}, or {starred} for all that are listed"
            )
        raise TemplateError(f"{written!r} {advice} (for a file with this in its name, write {escape(written)})")


def unescape(text: str) -> str:
    r"""Return a text without its escaping backslashes.

    >>> unescape(r"a\{b")
    'a{b'
    """
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


class Names(Sequence[str]):
    """A lazy sequence of the names that `expand` returns: a name is computed when it is read, and slices are lazy."""

    def __init__(self, templates: tuple[ParsedTemplate, ...], numbers: range, *, keep_escapes: bool) -> None:
        self._templates = templates
        self._ends = list(accumulate(each.size for each in templates))
        self._numbers = numbers
        self._keep_escapes = keep_escapes

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return Names(self._templates, self._numbers[index], keep_escapes=self._keep_escapes)
        return self._name(self._numbers[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._name, self._numbers)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # an equal list has no hash

    def __repr__(self) -> str:
        if len(self) <= 2:
            return f"<Names {list(self)}>"
        return f"<Names {self[0]!r} … {self[-1]!r}, {len(self):,}>"

    def _name(self, index: int) -> str:
        which = bisect_right(self._ends, index)
        template = self._templates[which]
        text = template.item(index - self._ends[which] + template.size)
        return text if self._keep_escapes else unescape(text)
