"""Progress bars of long jobs: by rich in a terminal, by tqdm in a notebook, and by default none elsewhere.

This module must not write anything but the display.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from ais_tar2tf.base.escaping import one_line

__all__ = ["Progress", "ProgressDisplay", "progress_for"]

_INTERVAL = 0.2  # at least so many seconds lie between two updates of the display
_BAR_WIDTH = 16  # characters: few enough that the bar and its text fit into 80 columns
_PATIENCE = 2.0  # the display opens so many seconds after the job began: a shorter job needs no bar


class ProgressDisplay(Protocol):
    """A display of one line of text, and of the number of units of a job, such as shards or files, that are done."""

    def show(self, text: str, done: int) -> None:
        """Replace the line by `text`, and show that `done` units are done."""
        ...

    def close(self) -> None:
        """End the display."""
        ...


class Progress:
    """The counter of one job's progress, displayed at most five times a second. Use it as a context manager.

    Args:
        job: The name of the job, for the text.
        total: How many units, such as shards, the job has; 0 if unknown.
        open_display: Opens the display. None: nothing is displayed.
        clock: Returns the present time in seconds.
        size: How many bytes the job has; 0 if unknown.
        counted: The plural name of the things that `add` counts, such as "records"; "" if only bytes are counted.
        patience: Seconds from the beginning of the job to the opening of the display. A job that ends earlier opens
            no display. With 0, every job opens a display.
    """

    def __init__(
        self,
        job: str,
        total: int,
        open_display: Callable[[], ProgressDisplay] | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        size: int = 0,
        counted: str = "records",
        patience: float = _PATIENCE,
    ) -> None:
        self._job = one_line(job)
        self._total = total
        self._size = size
        self._counted = counted
        self._patience = patience
        self._open_display = open_display
        self._clock = clock
        self._display: ProgressDisplay | None = None
        self._begin = self._next = 0.0
        self.records: int = 0  # number of things that `add` counted, which need not be records
        self.bytes: int = 0
        self.shards: int = 0  # units of the job that are done

    def __enter__(self) -> Progress:
        self._begin = self._clock()
        self._next = self._begin + self._patience
        return self

    def __exit__(self, *_: object) -> None:
        if self._display is not None or (self._open_display is not None and not self._patience):
            self._update().close()
            self._display = None

    def add(self, records: int, size: int) -> None:
        """Count records and bytes. Update the display if its last update was long enough ago."""
        self.records += records
        self.bytes += size
        if self._open_display is not None and self._clock() >= self._next:
            self._update()

    def add_shard(self, count: int = 1) -> None:
        """Count shards, or other units of the job, that are done."""
        self.shards += count

    @property
    def text(self) -> str:
        """The line to display, such as `train: 12,000 records, 310 MB/s, 0:01:05 left`."""
        seconds = max(self._clock() - self._begin, 1e-9)
        parts = [f"{self.records:,} {self._counted}"] if self._counted else []
        if self.bytes:
            parts.append(f"{self.bytes / seconds / 1e6:,.0f} MB/s")
        else:
            parts.append(f"{self.records / seconds:,.0f}/s")
        done = self._share_done
        if 0 < done < 1:
            parts.append(f"{_duration(seconds / done * (1 - done))} left")
        return f"{self._job}: {', '.join(parts)}"

    @property
    def _share_done(self) -> float:
        """The fraction of the job that is done, from 0 to 1; 0 if the size of the job is unknown."""
        if self._size:
            return self.bytes / self._size
        return self.shards / self._total if self._total else 0.0

    def _update(self) -> ProgressDisplay:
        """Show the present text. Open the display first if it is not open; return the display."""
        if self._display is None:
            assert self._open_display is not None
            self._display = self._open_display()
        self._next = self._clock() + _INTERVAL
        self._display.show(self.text, self.shards)
        return self._display


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def progress_for(
    job: str,
    total: int = 0,
    wanted: bool | None = None,
    *,
    unit: str = "shards",
    size: int = 0,
    counted: str = "records",
) -> Progress:
    """Return the progress of a job, with the display that fits the program's surroundings.

    Args:
        job: The name of the job.
        total: How many units the job has; 0 if unknown.
        wanted: True: display at once, and everywhere. False: never display. None: display after two seconds, and only
            in a notebook or a terminal.
        unit: The plural name of the units that `total` counts.
        size: How many bytes the job has; 0 if unknown.
        counted: The plural name of the things that `Progress.add` counts.
    """
    make = _notebook_display if _in_notebook() else _terminal_display if wanted or _in_terminal() else None
    if make is None or wanted is False:
        return Progress(job, total, None, size=size, counted=counted)
    patience = 0.0 if wanted else _PATIENCE
    return Progress(job, total, lambda: make(total, unit), size=size, counted=counted, patience=patience)


def _in_terminal() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _terminal_display(total: int, unit: str) -> ProgressDisplay:
    with contextlib.suppress(ImportError):
        return _RichDisplay(total, unit)
    return _LineDisplay(total, unit)


def _notebook_display(total: int, unit: str) -> ProgressDisplay:
    with contextlib.suppress(ImportError):
        return _TqdmDisplay(total, unit)
    return _LineDisplay(total, unit)


class _RichDisplay:
    """A bar of rich, or a spinner if the total is unknown.

    At the end of the job, the bar or spinner disappears from a terminal. In any other output, the last state stays.
    """

    def __init__(self, total: int, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as RichProgress

        counted = f"{{task.completed}}/{{task.total}} {unit}, " if total else ""
        self._bar = RichProgress(
            BarColumn(bar_width=_BAR_WIDTH) if total else SpinnerColumn(),
            TextColumn(f"{counted}{{task.description}}", markup=False),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=sys.stderr.isatty(),
        )
        self._bar.start()
        self._task = self._bar.add_task("", total=total or None)

    def show(self, text: str, done: int) -> None:
        self._bar.update(self._task, description=text, completed=done, refresh=True)

    def close(self) -> None:
        self._bar.stop()


class _TqdmDisplay:
    """A bar of tqdm, for notebooks."""

    def __init__(self, total: int, unit: str) -> None:
        from tqdm.auto import tqdm

        self._bar: Any = tqdm(total=total or None, unit=unit.removesuffix("s"))

    def show(self, text: str, done: int) -> None:
        self._bar.n = done
        self._bar.set_description_str(text, refresh=True)

    def close(self) -> None:
        self._bar.close()


class _LineDisplay:
    """One line of text on stderr, which each update overwrites. It replaces a bar whose package is not installed."""

    def __init__(self, total: int, unit: str) -> None:
        self._suffix = f"/{total} {unit}, " if total else ""

    def show(self, text: str, done: int) -> None:
        sys.stderr.write(f"\r\x1b[K{done if self._suffix else ''}{self._suffix}{text}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")
