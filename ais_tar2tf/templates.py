r"""Braces in shard names are counted, then expanded one by one; nothing is listed.

Braces mean what they mean to bash, with two exceptions that are errors here and literal text there: braces
that do not balance, and ranges of numbers beyond 64 bits. There is no shell behind it: quotes, `$` and spaces
are characters like others, and an empty or repeated name is kept.

>>> list(expand("train-{08..10}{,x}.tar"))[:3]
['train-08.tar', 'train-08x.tar', 'train-09.tar']
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Protocol, overload

from braceexpand import braceexpand

from ais_tar2tf.errors import TemplateError
from ais_tar2tf.locations import Locations, location_texts, shown_location
from ais_tar2tf.options import Limits

__all__ = ["Names", "check_spelling", "escape", "expand", "unescape"]

_MAX_DEPTH = 32  # braces within braces; below it, neither we nor braceexpand come near Python's recursion limit
_MAX_DIGITS = 64  # of a number in a range, its zero padding included
_COUNTED = 10**18  # counting stops here: the product of a long template has more digits than are worth computing


def expand(template: Locations, *, limit: int = Limits().template, keep_escapes: bool = False) -> Names:
    """The names of `template`, or of several one after the other, in bash's order: the last group is fastest.

    With `keep_escapes` the backslashes stay, so that each result can be read as a glob (see `unescape`).
    """
    parsed = tuple(_parse(text) for text in location_texts(template))
    size = sum(each.size for each in parsed)
    if size > limit:
        what = shown_location(parsed[0].text) if len(parsed) == 1 else f"a list of {len(parsed):,} templates"
        count = f"{size:,}" if size < _COUNTED else "10^18 or more"
        raise TemplateError(
            f"{what} names {count} shards, the limit is {limit:,}: raise Limits.template if so many exist"
        )
    return Names(parsed, range(size), keep_escapes=keep_escapes)


def escape(text: str) -> str:
    r"""A template, and a glob, that stands for this very name.

    >>> escape("a{b}*"), list(expand(escape("a{b}*,")))
    ('a\\{b\\}\\*', ['a{b}*,'])
    """
    return _MEANT.sub(r"\\\g<0>", text)


def check_spelling(template: str) -> None:
    r"""Refuse a template to be read in which numbers are written as other programs write them.

    >>> check_spelling("train-{000..007}.tar")  # {000-007}, {:03d} and %03d are refused
    """
    for found in _MISSPELT.finditer(template):
        written, kind = found[0], found.lastgroup
        if kind is None or _is_sequence(written[1:-1]):  # what is escaped, or right
            continue
        before, behind = template[: found.start()], template[found.end() :]
        if kind == "range":
            if found["first"].isdigit() != found["last"].isdigit():
                continue
            meant = f"{{{found['first']}..{found['last']}}}"
            advice = f"is no range: write {shown_location(before + meant + behind)}"
        elif kind == "split":
            advice = (
                "stands for the name of a split when shards are written; to read them write it, as "
                f"{shown_location(f'{before}train{behind}')}"
            )
        else:
            digits = int(found["width"] or found["digits"] or 1) or 1
            meant = f"{{{'0' * digits}..{'9' * digits}}}"
            starred = shown_location(f"{before}*{behind}")
            advice = (
                "is how shards are named when they are written; to read them write their numbers, as "
                f"{shown_location(before + meant + behind)}, or {starred} for all that a listing has"
            )
        raise TemplateError(f"{written!r} {advice} (a file of this very name is {escape(written)})")


def _is_sequence(body: str) -> bool:
    return (_NUMBERS.fullmatch(body) or _LETTERS.fullmatch(body)) is not None


def unescape(text: str) -> str:
    """`text` without its escaping backslashes.

    >>> unescape(r"a\\{b")
    'a{b'
    """
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


# --- names --------------------------------------------------------------------------------------------------


class Names(Sequence[str]):
    """Names computed when asked for; a slice is again `Names`. Made by `expand`."""

    def __init__(self, templates: tuple[_Template, ...], view: range, *, keep_escapes: bool) -> None:
        self._templates = templates
        self._ends = list(accumulate(each.size for each in templates))
        self._view = view
        self._keep_escapes = keep_escapes

    def __len__(self) -> int:
        return len(self._view)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Names: ...
    def __getitem__(self, index: int | slice) -> str | Names:
        if isinstance(index, slice):
            return Names(self._templates, self._view[index], keep_escapes=self._keep_escapes)
        return self._name(self._view[index])

    def __iter__(self) -> Iterator[str]:
        return map(self._name, self._view)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(ours == theirs for ours, theirs in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # equal to lists, which have none either

    def __repr__(self) -> str:
        if len(self) <= 2:
            return f"<Names {list(self)}>"
        return f"<Names {self[0]!r} … {self[-1]!r}, {len(self):,}>"

    def _name(self, index: int) -> str:
        which = bisect_right(self._ends, index)
        template = self._templates[which]
        text = template.item(index - self._ends[which] + template.size)
        return text if self._keep_escapes else unescape(text)


class _Piece(Protocol):
    """A part of a template: its texts, escapes included, and the source that braceexpand makes them of."""

    @property
    def size(self) -> int: ...
    @property
    def source(self) -> str: ...
    def item(self, index: int, /) -> str: ...


@dataclass(frozen=True, slots=True)
class _Template:
    """A parsed template: the product of its pieces, the last of which varies fastest."""

    text: str
    pieces: tuple[_Piece, ...]
    size: int

    def item(self, index: int) -> str:
        texts: list[str] = []
        for piece in reversed(self.pieces):
            index, digit = divmod(index, piece.size)
            texts.append(piece.item(digit))
        return "".join(reversed(texts))


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str
    size: int = 1

    @property
    def source(self) -> str:
        return self.text.translate(_QUOTES)

    def item(self, _index: int, /) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Numbers:
    """`{first..last..step}`; a `width` of 0 pads nothing."""

    first: int
    last: int
    step: int
    width: int

    @property
    def size(self) -> int:
        return (self.last - self.first) // self.step + 1  # len(range(…)) stops at 63 bits

    @property
    def source(self) -> str:
        # braceexpand knows no plus signs; written so, what needs padding also begins with a zero.
        return f"{{{self._written(self.first)}..{self._written(self.last)}..{abs(self.step)}}}"

    def item(self, index: int, /) -> str:
        return self._written(self.first + index * self.step)

    def _written(self, number: int) -> str:
        return f"{number:0{self.width}d}"


@dataclass(frozen=True, slots=True)
class _Letters:
    """The characters of `{Z..b..2}`, each escaped when it means something."""

    texts: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.texts)

    @property
    def source(self) -> str:
        # braceexpand leaves out what ASCII has between Z and a, and so steps otherwise: spell them all out.
        listed = ",".join(self.texts)
        return f"{{{listed}}}" if self.size > 1 else listed  # one alternative would leave the braces

    def item(self, index: int, /) -> str:
        return self.texts[index]


@dataclass(frozen=True)
class _List:
    """`{a,b{0..3}}`, already counted; braceexpand is asked for its texts when the first of them is."""

    source: str
    size: int

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(map(_unquoted, braceexpand(self.source, escape=False)))

    def item(self, index: int, /) -> str:
        return self._texts[index]

    def __reduce__(self) -> tuple[object, ...]:
        return _List, (self.source, self.size)  # without the texts: a pickle stays as small as the template


# --- braces -------------------------------------------------------------------------------------------------

_MEANT = re.compile(r"[\\{},*?\[\]]|%(?=0?[0-9]?d)")
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
_TOKEN = re.compile(r"\\.|\.\.|[{},]", re.DOTALL)
_NUMBERS = re.compile(r"([+-]?[0-9]+)\.\.([+-]?[0-9]+)(?:\.\.([+-]?[0-9]+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.([+-]?[0-9]+))?")
_PADDED = re.compile(r"-?0[0-9]+")


# braceexpand takes escapes away once per level of nesting, so it gets none: literal braces and commas are coded.
_QUOTES = str.maketrans({"{": "\0a", "}": "\0b", ",": "\0c", "\0": "\0d"})
_UNQUOTES = {"\0a": "{", "\0b": "}", "\0c": ",", "\0d": "\0"}


def _unquoted(text: str) -> str:
    return re.sub("\0.", lambda quote: _UNQUOTES[quote[0]], text) if "\0" in text else text


def _parse(template: str) -> _Template:
    pieces = tuple(_Scanner(template).pieces(0, len(template)))
    return _Template(template, pieces, _product(pieces))


def _product(pieces: Sequence[_Piece]) -> int:
    size = 1
    for piece in pieces:
        size = min(size * piece.size, _COUNTED)
    return size


class _Scanner:
    """Cuts a template into pieces. Spans are (start, stop) in the template, a group's braces excluded."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._closing = self._pairs()

    def _pairs(self) -> dict[int, int]:
        opened: list[int] = []
        pairs: dict[int, int] = {}
        for token in _TOKEN.finditer(self._template):
            if token[0] == "{":
                opened.append(token.start())
            elif token[0] == "}":
                if not opened:
                    raise self._error("'}' that nothing opens", token.start(), r"write \} to have it literally")
                pairs[opened.pop()] = token.start()
            if len(opened) > _MAX_DEPTH:
                raise self._error(
                    f"more than {_MAX_DEPTH} braces within braces", token.start(), "use a list of templates"
                )
        if opened:
            raise self._error("'{' that nothing closes", opened[0], r"write \{ to have it literally")
        return pairs

    def _error(self, what: str, at: int, advice: str) -> TemplateError:
        return TemplateError(f"{what} at character {at} of {shown_location(self._template)}: {advice}")

    def pieces(self, start: int, stop: int) -> Iterator[_Piece]:
        for at in self._own(start, stop):
            if self._template[at] == "{":
                yield from self._literal(start, at)
                start = self._closing[at] + 1
                yield from self._group(at + 1, start - 1)
        yield from self._literal(start, stop)

    def _literal(self, start: int, stop: int) -> Iterator[_Literal]:
        if start < stop:
            yield _Literal(self._template[start:stop])

    def _own(self, start: int, stop: int) -> Iterator[int]:
        """Where a span has `{`, `,` or `..`, those within an inner group excluded."""
        while token := _TOKEN.search(self._template, start, stop):
            at, start = token.span()
            if self._template[at] == "{":
                start = self._closing[at] + 1
            if self._template[at] != "\\":
                yield at

    def _group(self, start: int, stop: int) -> Iterator[_Piece]:
        own = list(self._own(start, stop))
        commas = [at for at in own if self._template[at] == ","]
        if commas:
            yield self._list([start - 1, *commas, stop])
        elif any(self._template[at] == "." and at + 2 < stop for at in own):
            yield from self._sequence(start, stop)
        else:
            yield _Literal("{")
            yield from self.pieces(start, stop)
            yield _Literal("}")

    def _list(self, cuts: Sequence[int]) -> _List:
        size = 0
        sources: list[str] = []
        for before, after in pairwise(cuts):
            pieces = list(self.pieces(before + 1, after))
            size = min(size + _product(pieces), _COUNTED)
            sources.append("".join(piece.source for piece in pieces))
        return _List(f"{{{','.join(sources)}}}", size)

    def _sequence(self, start: int, stop: int) -> Iterator[_Piece]:
        """A group with `..` and without a comma of its own.

        Bash, unlike braceexpand, takes `{x..{a,b}}` for a list of one, so that its braces go, but
        `{x..{1..2}}` is literal as a whole, what is inside included.
        """
        body = self._template[start:stop]
        if any(token[0] == "," for token in _TOKEN.finditer(body)):
            yield from self.pieces(start, stop)
        elif numbers := _NUMBERS.fullmatch(body):
            yield self._numbers(numbers, start)
        elif letters := _LETTERS.fullmatch(body):
            yield self._letters(letters, start)
        else:
            yield _Literal(f"{{{body}}}")

    def _numbers(self, found: re.Match[str], start: int) -> _Numbers:
        first, last = self._number(found[1], start), self._number(found[2], start)
        padded = _PADDED.fullmatch(found[1]) or _PADDED.fullmatch(found[2])
        width = max(len(found[1]), len(found[2])) if padded else 0
        step = self._step(found[3], start, down=last < first)
        return _Numbers(first, last, step, width)

    def _letters(self, found: re.Match[str], start: int) -> _Letters:
        first, last = ord(found[1]), ord(found[2])
        step = self._step(found[3], start, down=last < first)
        codes = range(first, last + (1 if step > 0 else -1), step)
        return _Letters(tuple(_letter(chr(code)) for code in codes))

    def _step(self, text: str | None, start: int, *, down: bool) -> int:
        step = abs(self._number(text or "1", start)) or 1  # bash: its sign is that of the range, and 0 counts as 1
        return -step if down else step

    def _number(self, text: str, start: int) -> int:
        number = int(text) if len(text) <= _MAX_DIGITS else 1 << 64
        if not -(1 << 63) <= number < 1 << 63:
            raise self._error(
                "a range whose numbers do not fit in 64 bits",
                start - 1,
                "escape its braces if it is no range",
            )
        return number


def _letter(character: str) -> str:
    # Bash gives an empty text for the backslash in {Z..a}: its own quote removal takes it.
    return {"\\": "", "[": r"\[", "]": r"\]"}.get(character, character)
