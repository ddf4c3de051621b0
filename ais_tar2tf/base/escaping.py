r"""Escaping of control characters in text for a terminal. No I/O.

Names, keys and messages come from archives and servers, and may contain commands to the terminal. Their control
characters are replaced by Python's escapes: a terminal shows `\x1b[2J`, and does not clear the screen.
"""

from __future__ import annotations

import re

__all__ = ["escaped", "one_line"]

# C0 and C1 controls and DEL; line and paragraph separators; overrides of the writing direction; lone surrogates.
_CONTROL = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_ALL = re.compile(f"[{_CONTROL}]")
_ALL_BUT_LAYOUT = re.compile(rf"(?![\n\t])[{_CONTROL}]")


def escaped(text: str) -> str:
    r"""Return `text` with its control characters escaped, except line feeds and tabs.

    >>> escaped("a\x1b[31mb\r\n\x9b2J")
    'a\\x1b[31mb\\r\n\\x9b2J'
    """
    return _ALL_BUT_LAYOUT.sub(_escape, text)


def one_line(text: str) -> str:
    r"""Return `text` with all its control characters escaped, for a name in a list or a cell of a table.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return _ALL.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")
