"""Who is told what: data to stdout, narration and progress to stderr. It must not know what any verb does."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

__all__ = ["Console", "Meter", "duration", "quantity"]

_PATIENCE = 2.0  # seconds before progress is shown: what is done sooner needs none
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
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


class Meter(Protocol):
    """Called with how much more is done: records or bytes, and shards."""

    def __call__(self, done: int, *, shards: int = 0) -> None: ...


class Console:
    """How one command speaks. `quiet` leaves out the narration, never the data and never an error."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False, verbose: int = 0) -> None:
        self.as_json = as_json
        self.quiet = quiet
        self.verbose = verbose

    # Data.

    def data(self, text: str) -> None:
        """One line of what was asked for."""
        sys.stdout.write(f"{text}\n")

    def document(self, document: Any, shown: Callable[[], None]) -> None:
        """The whole answer: one JSON document when asked for, else what `shown` prints."""
        if self.as_json:
            json.dump(document, sys.stdout, indent=2, ensure_ascii=False, default=str)
            sys.stdout.write("\n")
        else:
            shown()

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()):
        """Aligned columns; those of `right` are numbers. Never cut: a pipe may follow."""
        widths = [max(len(row[at]) for row in (headings, *rows)) for at in range(len(headings))]
        self.data(self.styled(_line(headings, widths, right), "bold"))
        for row in rows:
            self.data(_line(row, widths, right))

    def styled(self, text: str, *styles: str, stream: TextIO | None = None) -> str:
        """Coloured where somebody looks and NO_COLOR does not stand against it."""
        if not _is_coloured(stream or sys.stdout):
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    # Narration.

    def note(self, text: str) -> None:
        if not self.quiet:
            _say(text)

    def detail(self, text: str) -> None:
        """Only with -v."""
        if self.verbose and not self.quiet:
            _say(self.styled(text, "dim", stream=sys.stderr))

    def warn(self, text: str) -> None:
        _say(f"{self.styled('warning:', 'yellow', 'bold', stream=sys.stderr)} {text}")

    def error(self, text: str, remedy: str | None = None) -> None:
        _say(f"{self.styled('error:', 'red', 'bold', stream=sys.stderr)} {text}")
        if remedy:
            _say(f"{self.styled('next:', 'cyan', stream=sys.stderr)}  {remedy}")

    @contextmanager
    def progress(self, what: str, *, shards: int = 0, unit: str = "records") -> Generator[Meter]:
        """A bar with rate and time left, from the second second on, where somebody looks."""
        shown = _Shown(what, shards, unit, visible=not self.quiet and sys.stderr.isatty())
        try:
            yield shown
        finally:
            shown.close()

    @contextmanager
    def waiting(self, what: str) -> Generator[None]:
        """A spinner, for what does not tell how far it is."""
        if self.quiet or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console as RichConsole

        with RichConsole(stderr=True).status(what):
            yield


def _line(row: Sequence[str], widths: Sequence[int], right: frozenset[int]) -> str:
    cells = (
        text.rjust(width) if at in right else text.ljust(width)
        for at, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "  ".join(cells).rstrip()


def _say(text: str) -> None:
    sys.stdout.flush()  # in a terminal the two come in the order in which they were said
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _is_coloured(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


class _Shown:
    """Progress that is drawn at most five times a second, by rich."""

    def __init__(self, what: str, shards: int, unit: str, *, visible: bool) -> None:
        self._what, self._shards, self._unit, self._visible = what, shards, unit, visible
        self._began = self._drawn = time.monotonic()
        self._done = self._shards_done = 0
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, *, shards: int = 0) -> None:
        self._done += done
        self._shards_done += shards
        if not self._visible:
            return
        now = time.monotonic()
        if now - self._began >= _PATIENCE and now - self._drawn >= 0.2:
            self._drawn = now
            self._draw(now - self._began)

    def _draw(self, seconds: float) -> None:
        if self._bar is None:
            self._bar, self._task = _bar(self._what, self._shards)
        rate = self._done / seconds
        told = f"{quantity(rate)}/s" if self._unit == "bytes" else f"{rate:,.0f} {self._unit}/s"
        if 0 < self._shards_done < self._shards:
            told += f", {duration(seconds / self._shards_done * (self._shards - self._shards_done))} left"
        self._bar.update(self._task, completed=self._shards_done, told=told, refresh=True)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


def _bar(what: str, shards: int) -> tuple[Any, Any]:
    from rich.console import Console as RichConsole
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    counted = (BarColumn(), MofNCompleteColumn(), TextColumn("shards,")) if shards else (SpinnerColumn(),)
    bar = Progress(
        TextColumn("{task.description}"),
        *counted,
        TextColumn("{task.fields[told]}"),
        console=RichConsole(stderr=True),
        auto_refresh=False,
        transient=True,
    )
    bar.start()
    return bar, bar.add_task(what, total=shards or None, told="")
