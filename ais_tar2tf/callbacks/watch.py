"""Keras's `fit` and where the input's time goes: a line after every epoch, figures in the logs and TensorBoard."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ais_tar2tf.account import Stats
from ais_tar2tf.callbacks._keras import FitCallback
from ais_tar2tf.errors import MissingDependency, OptionTypeError
from ais_tar2tf.locations import shown_location
from ais_tar2tf.nearest import known_options
from ais_tar2tf.watching import bottleneck_line, shares

__all__ = ["Watch"]


class Watched(Protocol):
    @property
    def stats(self) -> Stats: ...


class Watch(FitCallback):
    """A callback for `fit` that tells what the input of each epoch did, and which part of it holds training up.

    `source` is what `t2t.open` or `t2t.mix` gave. The line goes to `say` (by default to stderr); rates and shares of
    the time go into the epoch's logs, where Keras's callbacks behind this one find them, as `input/…`; with
    `log_dir` they are written for TensorBoard, too.
    """

    @known_options
    def __init__(
        self,
        source: Watched,
        log_dir: str | os.PathLike[str] | None = None,
        *,
        say: Callable[[str], object] | None = None,
    ) -> None:
        if not isinstance(getattr(source, "stats", None), Stats):
            raise OptionTypeError(f"source is what t2t.open or t2t.mix gave, not {shown_location(source)}")
        super().__init__()
        self._source = source
        self._say = say or _to_stderr
        self._before = source.stats.copy()
        self._writer = None if log_dir is None else _writer(os.fspath(log_dir))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        self._before = self._source.stats.copy()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        stats = self._source.stats.since(self._before)
        figures = {
            "records_per_second": stats.records_per_second,
            "megabytes_per_second": stats.megabytes_per_second,
            **shares(stats),
        }
        figures = {f"input/{name}": value for name, value in figures.items()}
        if logs is not None:
            logs.update(figures)
        self._say(f"epoch {epoch + 1}: {bottleneck_line(stats)}")
        if self._writer is not None:
            _write(self._writer, figures, epoch)

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        if self._writer is not None:
            self._writer.close()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _writer(folder: str) -> Any:
    try:
        import tensorboard as _  # TensorFlow's summaries are made by it  # noqa: F401
    except ImportError as error:
        raise MissingDependency("tensorboard", extra="tensorboard") from error
    import tensorflow as tf

    summary: Any = tf.summary
    return summary.create_file_writer(folder)


def _write(writer: Any, figures: dict[str, float], step: int) -> None:
    import tensorflow as tf

    summary: Any = tf.summary
    with writer.as_default():
        for name, value in figures.items():
            summary.scalar(name, value, step=step)
    writer.flush()
