r"""Text for a terminal, in which nothing is a command to the terminal. Pure.

Names, keys and messages come from archives and servers. What they hold of control characters is shown as Python
would write it: a name with an escape sequence appears as `\x1b[2J`, and does not clear the screen.
"""

from __future__ import annotations

import re

__all__ = ["escaped", "one_line"]

# C0 and C1 controls and DEL; line and paragraph separators; overrides of the writing direction; lone surrogates.
_ANY = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_CONTROLS = re.compile(f"[{_ANY}]")
_BUT_LAYOUT = re.compile(rf"(?![\n\t])[{_ANY}]")


def escaped(text: str) -> str:
    r"""Return `text` with its control characters written out; line feeds and tabs stay.

    >>> escaped("a\x1b[31mb\r\n\x9b2J")
    'a\\x1b[31mb\\r\n\\x9b2J'
    """
    return _BUT_LAYOUT.sub(_written, text)


def one_line(text: str) -> str:
    r"""Return `text` with all its control characters written out: for a name in a list, or a cell of a table.

    >>> one_line("a\nb")
    'a\\nb'
    """
    return _CONTROLS.sub(_written, text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "surrogatepass").decode("ascii")
