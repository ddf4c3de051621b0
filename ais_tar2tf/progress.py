"""How far a long job is: rich in a terminal, tqdm in a notebook, nothing where nobody looks."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Progress", "Shown", "progress_for"]

_EVERY = 0.2  # seconds between two looks at the clock that are shown


class Shown(Protocol):
    """What shows a line of text and how much of the shards is read."""

    def show(self, text: str, shards: int) -> None: ...

    def close(self) -> None: ...


class Progress:
    """Records, MB/s and the time that is left, told at most five times a second; a context manager."""

    def __init__(
        self, what: str, shards: int, shown: Callable[[], Shown] | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._what = what
        self._total = shards
        self._make = shown
        self._clock = clock
        self._shown: Shown | None = None
        self._begin = self._told = 0.0
        self.records: int = 0
        self.bytes: int = 0
        self.shards: int = 0

    def __enter__(self) -> Progress:
        self._begin = self._told = self._clock()
        self._shown = None if self._make is None else self._make()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._tell()
            self._shown.close()
            self._shown = None

    def add(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        if self._shown is not None and self._clock() - self._told >= _EVERY:
            self._tell()

    def shard(self) -> None:
        self.shards += 1

    @property
    def text(self) -> str:
        """`train: 12,000 records, 310 MB/s, 0:01:05 left`."""
        seconds = max(self._clock() - self._begin, 1e-9)
        text = f"{self._what}: {self.records:,} records, {self.bytes / seconds / 1e6:,.0f} MB/s"
        if 0 < self.shards < self._total:
            text += f", {_duration(seconds / self.shards * (self._total - self.shards))} left"
        return text

    def _tell(self) -> None:
        assert self._shown is not None
        self._told = self._clock()
        self._shown.show(self.text, self.shards)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def progress_for(what: str, shards: int, wanted: bool | None = None) -> Progress:
    """As the place is that it is shown in; `wanted` True or False decides instead."""
    if wanted is False:
        return Progress(what, shards, None)
    if _in_notebook():
        return Progress(what, shards, lambda: _notebook(shards))
    if wanted or sys.stderr.isatty():
        return Progress(what, shards, lambda: _terminal(shards))
    return Progress(what, shards, None)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


def _terminal(shards: int) -> Shown:
    with contextlib.suppress(ImportError):
        return _Rich(shards)
    return _Plain(shards)


def _notebook(shards: int) -> Shown:
    with contextlib.suppress(ImportError):
        return _Tqdm(shards)
    return _Plain(shards)


class _Rich:
    def __init__(self, shards: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (BarColumn(), TextColumn("{task.completed}/{task.total} shards, {task.description}"))
        self._bar = RichProgress(*columns, console=Console(stderr=True), auto_refresh=False)
        self._bar.start()
        self._task = self._bar.add_task("", total=shards)

    def show(self, text: str, shards: int) -> None:
        self._bar.update(self._task, description=text, completed=shards, refresh=True)

    def close(self) -> None:
        self._bar.stop()


class _Tqdm:
    def __init__(self, shards: int) -> None:
        from tqdm.auto import tqdm

        self._bar: Any = tqdm(total=shards, unit="shard")

    def show(self, text: str, shards: int) -> None:
        self._bar.n = shards
        self._bar.set_description_str(text, refresh=True)

    def close(self) -> None:
        self._bar.close()


class _Plain:
    """One line that is written over."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def show(self, text: str, shards: int) -> None:
        sys.stderr.write(f"\r\x1b[K{shards}/{self._shards} shards, {text}")
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")
