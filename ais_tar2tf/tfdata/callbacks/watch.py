"""The callback `Watch`. After each epoch of `fit`, it reports the speed of the input, and its slowest part.

The callback only reads the statistics of the source. It must not change how the source reads.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Protocol

from ais_tar2tf.base.monitoring.metrics import bottleneck_line, shares
from ais_tar2tf.base.monitoring.stats import Stats
from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.urls.locations import shown_location
from ais_tar2tf.errors import MissingDependency, OptionTypeError
from ais_tar2tf.tfdata.callbacks.keras import FitCallback

__all__ = ["Watch"]


class HasStats(Protocol):
    @property
    def stats(self) -> Stats: ...


class Watch(FitCallback):
    """A callback for `fit` that reports, for each epoch, the speed of the input and its slowest part.

    After each epoch, the callback prints a line. It also adds numbers to Keras's logs of the epoch: the records and
    megabytes per second, and the shares of the time that network, parsing and consumer took. The names of these
    numbers begin with `input/`, and later callbacks in the list can read them. With `log_dir`, the callback also
    writes these numbers for TensorBoard.

    Args:
        source: The result of `t2t.open` or `t2t.mix` that the training reads.
        log_dir: A folder for TensorBoard's files; None: no such files are written.
        say: Called with the line of each epoch; by default, the line is printed to stderr.

    Raises:
        OptionTypeError: `source` is not a result of `t2t.open` or `t2t.mix`.
        MissingDependency: `log_dir` is given, and TensorBoard is not installed.

    Example:
        src = t2t.open("ais://bucket/train-{000..146}.tar")
        model.fit(src.dataset(decode).batch(32), epochs=90, callbacks=[t2t.Watch(src, "logs")])
    """

    @known_options
    def __init__(
        self,
        source: HasStats,
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
        import tensorboard as _  # TensorFlow's summaries need it  # noqa: F401
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
