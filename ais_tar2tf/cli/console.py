"""Who is told what: data to stdout, narration and progress to stderr. It must not know what any verb does."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from ais_tar2tf.escaping import escaped, one_line
from ais_tar2tf.progress import Progress, progress_for

__all__ = ["Console", "counted", "duration", "folded", "json_text", "quantity", "width_of"]

_HANGING = len("error: ")
_NARROWEST = 30  # columns: below that nothing is readable anyway
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_STYLE = f"\0{secrets.token_hex(8)}["  # begins a style until it is printed: no text from elsewhere can hold it
_JSON_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def quantity(size: float) -> str:
    """Bytes for people, in powers of 1,000 as disks and networks count.

    >>> quantity(999), quantity(1_234_567)
    ('999 B', '1.2 MB')
    """
    unit = 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(0.0042), duration(3.21), duration(75), duration(7_500)
    ('4.2 ms', '3.2 s', '1 min 15 s', '2 h 05 min')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class _Told(logging.Handler):
    """Shows what is logged: warnings; waits as narration, so that nobody looks at a terminal where nothing moves.

    With -v also each try.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "is_wait", False):
            self._console.note(f"{record.getMessage()} Ctrl-C ends it.")
        elif record.levelno >= logging.WARNING:
            self._console.warn(record.getMessage())
        else:
            self._console.detail(record.getMessage())


class Console:
    """How one command speaks. `quiet` leaves out the narration, never the data and never an error."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, verbose: int = 0) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose

    # Data.

    def data(self, text: str) -> None:
        """Print one line of what was asked for; control characters in it are written out."""
        sys.stdout.write(f"{_safe(text)}\n")

    def name(self, text: str) -> None:
        """Print the name of something, which is one line whatever it holds."""
        self.data(one_line(text))

    def document(self, document: Any, shown: Callable[[], None]) -> None:
        """The whole answer: one JSON document when asked for, else what `shown` prints."""
        if self.as_json:
            sys.stdout.write(f"{json_text(document, indent=2)}\n")
        else:
            shown()

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()):
        """Print aligned columns; those of `right` are numbers. Nothing is cut: a pipe may follow."""
        rows = [[one_line(cell) for cell in row] for row in rows]
        widths = [max(len(row[at]) for row in (headings, *rows)) for at in range(len(headings))]
        self.data(self.styled(_line(headings, widths, right), "bold"))
        for row in rows:
            self.data(_line(row, widths, right))

    def styled(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """Coloured where somebody looks and NO_COLOR does not stand against it."""
        if not _is_coloured(stream or sys.stdout):
            return text
        return f"{_STYLE}{';'.join(_STYLES[style] for style in styles)}m{text}{_STYLE}0m"

    def point(self, text: str, mark: str = "→") -> None:
        """One of several sentences of what was asked for."""
        self.data(f"  {mark} {folded(text, 4)}")

    # Narration.

    def note(self, text: str) -> None:
        if not self.quiet:
            _say(text)

    def detail(self, text: str) -> None:
        """Only with -v."""
        if self.verbose and not self.quiet:
            _say(self.styled(text, "dim", stream=sys.stderr))

    @contextmanager
    def telling_of_waits(self) -> Generator[None]:
        """Show what is logged while this command runs: waits, retries, warnings."""
        logger, handler = logging.getLogger("ais_tar2tf"), _Told(self)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    def warn(self, text: str) -> None:
        _say(f"{self.styled('warning:', 'yellow', 'bold', stream=sys.stderr)} {text}")

    def error(self, text: str, remedy: str | None = None) -> None:
        _say(f"{self.styled('error:', 'red', 'bold', stream=sys.stderr)} {folded(text, stream=sys.stderr)}")
        if remedy:
            _say(f"{self.styled('next:', 'cyan', stream=sys.stderr)}  {remedy}")  # whole, to be copied

    def progress(self, what: str, total: int = 0, *, counted: str = "records", size: int = 0) -> Progress:
        """A bar with rate and time left, from the second second on, where somebody looks."""
        return progress_for(what, total, self.bars, counted=counted, size=size)

    @property
    def bars(self) -> bool | None:
        """Whether there are any, as `progress=` of the functions takes it: None where somebody looks."""
        return False if self.quiet or self.as_json else None


def counted(count: int, what: str) -> str:
    """A number with its noun.

    >>> counted(1, "shard"), counted(1_024, "record")
    ('1 shard', '1,024 records')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def width_of(stream: TextIO) -> int | None:
    """Columns, where it is a terminal."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded(text: str, hanging: int = _HANGING, *, stream: TextIO | None = None) -> str:
    """Between words and under its own beginning, where a terminal would cut words; pipes get it as it is."""
    width = width_of(stream or sys.stdout)
    if width is None:
        return text
    room = max(width - hanging - 1, _NARROWEST)
    lines = (textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) for line in text.splitlines())
    return f"\n{' ' * hanging}".join(each for folded in lines for each in folded)


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    cells = (
        text.rjust(width) if at in right else text.ljust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _say(text: str) -> None:
    sys.stdout.flush()  # in a terminal the two come in the order in which they were said
    sys.stderr.write(f"{_safe(text)}\n")
    sys.stderr.flush()


def _safe(text: str) -> str:
    """Write out control characters, and put this process's own styles in."""
    plain, *styled = text.split(_STYLE)
    pieces = [escaped(plain)]
    for piece in styled:
        style, _, rest = piece.partition("m")
        pieces.append(f"\x1b[{style}m{escaped(rest)}")
    return "".join(pieces)


def json_text(document: Any, *, indent: int | None = None) -> str:
    """Return JSON that a terminal may show: control characters are escaped, other letters stay as they are."""
    text = json.dumps(document, indent=indent, ensure_ascii=False, default=str)
    return _JSON_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _is_coloured(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")
