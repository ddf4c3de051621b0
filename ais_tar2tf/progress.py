"""How far a long job is: rich in a terminal, tqdm in a notebook, nothing where nobody looks."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from ais_tar2tf.escaping import one_line

__all__ = ["Progress", "Shown", "progress_for"]

_EVERY = 0.2  # seconds between two looks at the clock that are shown
_BAR_WIDTH = 16  # characters: with the text behind it fits into 80 columns
_PATIENCE = 2.0  # seconds before anything is shown: what is done sooner needs no bar


class Shown(Protocol):
    """What shows a line of text and how many shards (or files) are done."""

    def show(self, text: str, done: int) -> None: ...

    def close(self) -> None: ...


class Progress:
    """Records, rate and the time that is left, told at most five times a second; a context manager.

    `total` shards, or whatever the `unit` is, make the whole; 0 when nobody knows. `size`: the same in bytes.
    `counted` names what `add` counts; "" when only bytes count.
    """

    def __init__(
        self,
        what: str,
        total: int,
        shown: Callable[[], Shown] | None,
        clock: Callable[[], float] = time.monotonic,
        *,
        size: int = 0,
        counted: str = "records",
        patience: float = _PATIENCE,
    ) -> None:
        self._what = one_line(what)
        self._total = total
        self._size = size
        self._counted = counted
        self._patience = patience
        self._make = shown
        self._clock = clock
        self._shown: Shown | None = None
        self._begin = self._next = 0.0
        self.records: int = 0
        self.bytes: int = 0
        self.shards: int = 0

    def __enter__(self) -> Progress:
        self._begin = self._clock()
        self._next = self._begin + self._patience
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None or (self._make is not None and not self._patience):
            self._tell().close()
            self._shown = None

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        if self._make is not None and self._clock() >= self._next:
            self._tell()

    def shard(self, count: int = 1) -> None:
        self.shards += count

    @property
    def text(self) -> str:
        """`train: 12,000 records, 310 MB/s, 0:01:05 left`."""
        seconds = max(self._clock() - self._begin, 1e-9)
        parts = [f"{self.records:,} {self._counted}"] if self._counted else []
        if self.bytes:
            parts.append(f"{self.bytes / seconds / 1e6:,.0f} MB/s")
        else:
            parts.append(f"{self.records / seconds:,.0f}/s")
        done = self._share_done
        if 0 < done < 1:
            parts.append(f"{_duration(seconds / done * (1 - done))} left")
        return f"{self._what}: {', '.join(parts)}"

    @property
    def _share_done(self) -> float:
        if self._size:
            return self.bytes / self._size
        return self.shards / self._total if self._total else 0.0

    def _tell(self) -> Shown:
        if self._shown is None:
            assert self._make is not None
            self._shown = self._make()
        self._next = self._clock() + _EVERY
        self._shown.show(self.text, self.shards)
        return self._shown


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def progress_for(
    what: str,
    total: int = 0,
    wanted: bool | None = None,
    *,
    unit: str = "shards",
    size: int = 0,
    counted: str = "records",
) -> Progress:
    """As the place is that it is shown in, after two seconds; `wanted`: True at once and everywhere, False never."""
    make = _notebook if _in_notebook() else _terminal if wanted or _is_looked_at() else None
    if make is None or wanted is False:
        return Progress(what, total, None, size=size, counted=counted)
    patience = 0.0 if wanted else _PATIENCE
    return Progress(what, total, lambda: make(total, unit), size=size, counted=counted, patience=patience)


def _is_looked_at() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _terminal(total: int, unit: str) -> Shown:
    with contextlib.suppress(ImportError):
        return _Rich(total, unit)
    return _Plain(total, unit)


def _notebook(total: int, unit: str) -> Shown:
    with contextlib.suppress(ImportError):
        return _Tqdm(total, unit)
    return _Plain(total, unit)


class _Rich:
    """A bar where the whole is known, else a spinner; in a terminal it is gone when the work is done."""

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


class _Tqdm:
    def __init__(self, total: int, unit: str) -> None:
        from tqdm.auto import tqdm

        self._bar: Any = tqdm(total=total or None, unit=unit.removesuffix("s"))

    def show(self, text: str, done: int) -> None:
        self._bar.n = done
        self._bar.set_description_str(text, refresh=True)

    def close(self) -> None:
        self._bar.close()


class _Plain:
    """One line that is written over."""

    def __init__(self, total: int, unit: str) -> None:
        self._of = f"/{total} {unit}, " if total else ""

    def show(self, text: str, done: int) -> None:
        sys.stderr.write(f"\r\x1b[K{done if self._of else ''}{self._of}{text}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")
