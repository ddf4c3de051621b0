r"""The parser of braces: it cuts a template into pieces and counts the names, without making a name. No I/O.

A `ParsedTemplate` is the product of its pieces. Each piece stands for one text or several:

train-         _Literal   one text
{000..146}     _Numbers   a range, computed
{a..e}         _Letters   a range
{x,y{0..3}}    _List      alternatives, expanded by braceexpand when the first of them is needed
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from braceexpand import braceexpand

from ais_tar2tf.base.urls.locations import shown_location
from ais_tar2tf.errors import TemplateError

__all__ = ["MAX_COUNT", "ParsedTemplate", "is_sequence", "parse"]

MAX_COUNT = 10**18
"""Counting stops here: the product of a long template has more digits than are worth computing."""

_MAX_DEPTH = 32  # of nested braces; up to it, neither this module nor braceexpand comes near Python's recursion limit
_MAX_DIGITS = 64  # of a number in a range, its zero padding included
_TOKEN = re.compile(r"\\.|\.\.|[{},]", re.DOTALL)
_NUMBERS = re.compile(r"([+-]?[0-9]+)\.\.([+-]?[0-9]+)(?:\.\.([+-]?[0-9]+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.([+-]?[0-9]+))?")
_PADDED = re.compile(r"-?0[0-9]+")

# braceexpand removes escapes once for each level of nesting, so it gets none: literal braces and commas are encoded.
_QUOTES = str.maketrans({"{": "\0a", "}": "\0b", ",": "\0c", "\0": "\0d"})
_UNQUOTES = {"\0a": "{", "\0b": "}", "\0c": ",", "\0d": "\0"}


class _Piece(Protocol):
    """A part of a template: its texts, with escapes, and the source from which braceexpand makes them."""

    @property
    def size(self) -> int: ...
    @property
    def source(self) -> str: ...
    def item(self, index: int, /) -> str: ...


@dataclass(frozen=True, slots=True)
class ParsedTemplate:
    """A parsed template: the product of its pieces. The last piece varies fastest."""

    text: str
    pieces: tuple[_Piece, ...]
    size: int

    def item(self, index: int) -> str:
        """Return the name with this index, with its escapes."""
        texts: list[str] = []
        for piece in reversed(self.pieces):
            index, digit = divmod(index, piece.size)
            texts.append(piece.item(digit))
        return "".join(reversed(texts))


@dataclass(frozen=True, slots=True)
class _Literal:
    """Text without braces."""

    text: str
    size: int = 1

    @property
    def source(self) -> str:
        return self.text.translate(_QUOTES)

    def item(self, _index: int, /) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class _Numbers:
    """`{first..last..step}`, padded with zeros to `width` characters."""

    first: int
    last: int
    step: int
    width: int

    @property
    def size(self) -> int:
        return (self.last - self.first) // self.step + 1  # len(range(…)) stops at 63 bits

    @property
    def source(self) -> str:
        # braceexpand refuses plus signs. A padded number begins with a zero, by which braceexpand knows the padding.
        return f"{{{self._padded(self.first)}..{self._padded(self.last)}..{abs(self.step)}}}"

    def item(self, index: int, /) -> str:
        return self._padded(self.first + index * self.step)

    def _padded(self, number: int) -> str:
        return f"{number:0{self.width}d}"


@dataclass(frozen=True, slots=True)
class _Letters:
    """The characters of `{Z..b..2}`. A character with a meaning in globs is escaped."""

    texts: tuple[str, ...]

    @property
    def size(self) -> int:
        return len(self.texts)

    @property
    def source(self) -> str:
        # braceexpand leaves out the characters between Z and a, so its steps differ: list every character.
        listed = ",".join(self.texts)
        return f"{{{listed}}}" if self.size > 1 else listed  # in a list of one, the braces would be literal

    def item(self, index: int, /) -> str:
        return self.texts[index]


@dataclass(frozen=True)
class _List:
    """`{a,b{0..3}}`, already counted. braceexpand makes its texts when the first of them is needed."""

    source: str
    size: int

    @cached_property
    def _texts(self) -> tuple[str, ...]:
        return tuple(map(_unquoted, braceexpand(self.source, escape=False)))

    def item(self, index: int, /) -> str:
        return self._texts[index]

    def __reduce__(self) -> tuple[object, ...]:
        return _List, (self.source, self.size)  # without the texts, a pickle is as small as the template


def _unquoted(text: str) -> str:
    return re.sub("\0.", lambda quote: _UNQUOTES[quote[0]], text) if "\0" in text else text


def parse(template: str) -> ParsedTemplate:
    """Parse a template.

    Raises:
        TemplateError: The braces are not balanced or nested too deeply, or a range has numbers beyond 64 bits.
    """
    pieces = tuple(_Scanner(template).pieces(0, len(template)))
    return ParsedTemplate(template, pieces, _product(pieces))


def is_sequence(body: str) -> bool:
    """Return whether the text between two braces is a range of numbers or letters, as `0..9`."""
    return (_NUMBERS.fullmatch(body) or _LETTERS.fullmatch(body)) is not None


def _product(pieces: Sequence[_Piece]) -> int:
    size = 1
    for piece in pieces:
        size = min(size * piece.size, MAX_COUNT)
    return size


class _Scanner:
    """Cuts a template into pieces. `start` and `stop` bound a part of the template, without the braces around it."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._closing = self._pairs()  # where each '{' is closed

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
        """Yield the pieces of a part of the template."""
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
        """Yield where a part has `{`, `,` or `..`, outside of inner groups."""
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
            size = min(size + _product(pieces), MAX_COUNT)
            sources.append("".join(piece.source for piece in pieces))
        return _List(f"{{{','.join(sources)}}}", size)

    def _sequence(self, start: int, stop: int) -> Iterator[_Piece]:
        """Yield the pieces of a group that has `..` and no comma outside of inner groups.

        To bash, unlike braceexpand, `{x..{a,b}}` is a list of one, whose braces disappear, but `{x..{1..2}}` is
        literal as a whole, with its inner group.
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
        step = abs(self._number(text or "1", start)) or 1  # in bash its sign has no effect, and 0 means 1
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
    # Bash gives an empty text for the backslash in {Z..a}, since it removes quotes afterwards.
    return {"\\": "", "[": r"\[", "]": r"\]"}.get(character, character)
