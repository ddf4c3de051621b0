"""Printing: data to stdout; notes, progress and errors to stderr. This module must not depend on any verb."""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import shutil
import sys
import textwrap
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from ais_tar2tf.base.escaping import escaped, one_line
from ais_tar2tf.base.monitoring.progress import Progress, progress_for

__all__ = ["Console", "counted", "duration", "folded", "json_text", "quantity", "width_of"]

_ERROR_INDENT = len("error: ")
_NARROWEST = 30  # columns that text is wrapped to, even in a narrower terminal
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
_STYLE = f"\0{secrets.token_hex(8)}["  # marks a style until it is printed; random, so that no data can contain it
_JSON_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def quantity(size: float) -> str:
    """Return a number of bytes as text, in powers of 1,000.

    >>> quantity(999), quantity(1_234_567)
    ('999 B', '1.2 MB')
    """
    unit = 0
    while size >= 999.95 and unit < len(_UNITS) - 1:
        size, unit = size / 1_000, unit + 1
    return f"{size:.0f} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Return a number of seconds as text.

    >>> duration(0.0042), duration(3.21), duration(75), duration(7_500)
    ('4.2 ms', '3.2 s', '1 min 15 s', '2 h 05 min')
    """
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class ConsoleLogHandler(logging.Handler):
    """Prints the package's log: warnings always, waits without --quiet, and every retry with -v."""

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
    """Prints for one command.

    Args:
        as_json: Whether `document` prints JSON.
        quiet: Whether notes and progress are left out. Data and errors are always printed.
        verbose: How often -v was given.
    """

    def __init__(self, *, as_json: bool = False, quiet: bool = False, verbose: int = 0) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose

    # Data, to stdout

    def data(self, text: str) -> None:
        """Print a line of data, with control characters escaped."""
        sys.stdout.write(f"{_safe(text)}\n")

    def name(self, text: str) -> None:
        """Print a name as one line, with line ends escaped, too."""
        self.data(one_line(text))

    def names(self, texts: Iterable[str]) -> None:
        """Print names, each as one line."""
        for text in texts:
            self.name(text)

    def document(self, document: Any, shown: Callable[[], None]) -> None:
        """Print the result of a command: with --json, `document`; otherwise `shown` prints the result."""
        if self.as_json:
            sys.stdout.write(f"{json_text(document, indent=2)}\n")
        else:
            shown()

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()):
        """Print aligned columns. The columns numbered in `right` are right-aligned. Cells are never cut."""
        rows = [[one_line(cell) for cell in row] for row in rows]
        widths = [max(len(row[at]) for row in (headings, *rows)) for at in range(len(headings))]
        self.data(self.styled(_line(headings, widths, right), "bold"))
        for row in rows:
            self.data(_line(row, widths, right))

    def styled(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """Return styled text, or the plain text if the stream or the environment wants no colours."""
        if not _is_coloured(stream or sys.stdout):
            return text
        return f"{_STYLE}{';'.join(_STYLES[style] for style in styles)}m{text}{_STYLE}0m"

    def point(self, text: str, mark: str = "→") -> None:
        """Print an item of a list."""
        self.data(f"  {mark} {folded(text, 4)}")

    # Everything else, to stderr

    def note(self, text: str) -> None:
        """Print a remark, unless --quiet."""
        if not self.quiet:
            _write_to_stderr(text)

    def detail(self, text: str) -> None:
        """Print a remark when -v was given."""
        if self.verbose and not self.quiet:
            _write_to_stderr(self.styled(text, "dim", stream=sys.stderr))

    @contextmanager
    def showing_log(self) -> Generator[None]:
        """Print the log of the package in this context: waits, retries, warnings."""
        logger, handler = logging.getLogger("ais_tar2tf"), ConsoleLogHandler(self)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)

    def warn(self, text: str) -> None:
        _write_to_stderr(f"{self.styled('warning:', 'yellow', 'bold', stream=sys.stderr)} {text}")

    def error(self, text: str, remedy: str | None = None) -> None:
        """Print an error, and what to do next."""
        label = self.styled("error:", "red", "bold", stream=sys.stderr)
        _write_to_stderr(f"{label} {folded(text, stream=sys.stderr)}")
        if remedy:  # not wrapped, so that it can be copied
            _write_to_stderr(f"{self.styled('next:', 'cyan', stream=sys.stderr)}  {remedy}")

    def progress(self, what: str, total: int = 0, *, counted: str = "records", size: int = 0) -> Progress:
        """Return a progress bar with rate and time left; it appears in a terminal, after 2 s."""
        return progress_for(what, total, self.bars, counted=counted, size=size)

    @property
    def bars(self) -> bool | None:
        """The value for `progress=` of a function: False for no bars, None for bars when stderr is a terminal."""
        return False if self.quiet or self.as_json else None


def counted(count: int, what: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "shard"), counted(1_024, "record")
    ('1 shard', '1,024 records')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def width_of(stream: TextIO) -> int | None:
    """Return the number of columns of a terminal; None for anything else."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def folded(text: str, indent: int = _ERROR_INDENT, *, stream: TextIO | None = None) -> str:
    """Return text wrapped to the terminal's width, with `indent` blanks before all lines but the first.

    Text for anything but a terminal is returned unchanged.
    """
    width = width_of(stream or sys.stdout)
    if width is None:
        return text
    room = max(width - indent - 1, _NARROWEST)
    lines = (textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) for line in text.splitlines())
    return f"\n{' ' * indent}".join(each for folded in lines for each in folded)


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    cells = (
        text.rjust(width) if at in right else text.ljust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _write_to_stderr(text: str) -> None:
    sys.stdout.flush()  # keeps the order of both streams in a terminal
    sys.stderr.write(f"{_safe(text)}\n")
    sys.stderr.flush()


def _safe(text: str) -> str:
    """Return text with control characters escaped and this process's own styles as ANSI sequences."""
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
