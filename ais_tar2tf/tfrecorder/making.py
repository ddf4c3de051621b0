"""Rows → records: an example is made, loaded, split, serialized and released. In this process, or in workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from ais_tar2tf.errors import MappingError, Tar2TFError
from ais_tar2tf.tfrecorder.helpers.fields import Shape
from ais_tar2tf.tfrecorder.helpers.marshaller import Example, IgnoreExampleException, serialized
from ais_tar2tf.tfrecorder.rows import Row

__all__ = ["Made", "Making", "make_all"]

_ROWS_AT_ONCE = 16  # that go to a worker together: a call costs about a millisecond
_WAITING_CALLS = 4  # of each worker, so that it never waits for the next


@dataclass(frozen=True)
class Making:
    """How examples are made: the class, where its rows come from, and the arguments for its methods."""

    example_class: type[Example]
    source: str
    arguments: dict[str, Any]
    log_rows: bool = True


@dataclass(frozen=True, slots=True)
class Made:
    """What a row became: records with their rows for examples.csv; none when it was to be ignored.

    `shapes` are those of the records' arrays, each combination once.
    """

    payloads: list[bytes] = field(default_factory=list[bytes])
    shapes: list[list[Shape]] = field(default_factory=list[list[Shape]])
    csv_rows: list[list[Any]] = field(default_factory=list[list[Any]])
    ignored: bool = False


def make(making: Making, row: Row) -> Made:
    try:
        return _made(making, row)
    except IgnoreExampleException:
        return Made(ignored=True)
    except Exception as error:
        what = str(error) if isinstance(error, Tar2TFError) else f"{type(error).__name__}: {error}"
        columns = f" (it has {len(row.cells)} columns)" if isinstance(error, IndexError) else ""
        raise MappingError(
            f"{making.example_class.__name__} failed: {what}{columns}", shard=making.source, key=f"row {row.number}"
        ) from error


def _made(making: Making, row: Row) -> Made:
    arguments = making.arguments
    example = making.example_class.from_csv_row(row.cells, **arguments)
    example.load(**arguments)
    made = Made()
    for chunk in example.split(**arguments):
        payload, shapes = serialized(chunk)
        made.payloads.append(payload)
        if shapes not in made.shapes:
            made.shapes.append(shapes)
        if making.log_rows:
            made.csv_rows.append(chunk.to_csv_row())
        if chunk is not example:
            chunk.release()
    example.release()
    return made


def make_all(making: Making, rows: Iterator[tuple[Row, int]], workers: int | None) -> Iterator[tuple[Made, int]]:
    """(what a row became, its split), in the order of the rows."""
    if not workers:
        for row, split in rows:
            yield make(making, row), split
        return
    with ExitStack() as stack:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        stack.callback(pool.shutdown, cancel_futures=True)
        waiting: deque[Future[list[tuple[Made, int]]]] = deque()
        for batch in _batches(rows):
            waiting.append(pool.submit(_make_batch, making, batch))
            if len(waiting) > workers * _WAITING_CALLS:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()


def _make_batch(making: Making, batch: list[tuple[Row, int]]) -> list[tuple[Made, int]]:
    return [(make(making, row), split) for row, split in batch]


def _batches(rows: Iterator[tuple[Row, int]]) -> Iterator[list[tuple[Row, int]]]:
    batch: list[tuple[Row, int]] = []
    for each in rows:
        batch.append(each)
        if len(batch) == _ROWS_AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch
