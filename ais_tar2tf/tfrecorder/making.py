"""The making of records from rows: an example is created, loaded, split, serialized and released.

This happens in this process or in worker processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from typing import Any

from ais_tar2tf.base.csv_files import CsvRow
from ais_tar2tf.errors import MappingError, Tar2TFError
from ais_tar2tf.tfrecorder.helpers.fields import Shape
from ais_tar2tf.tfrecorder.helpers.marshaller import Example, IgnoreExampleException, serialized

__all__ = ["ExampleRecipe", "RowResult", "make_records"]

_BATCH_ROWS = 16  # sent to a worker together; a call costs about a millisecond
_QUEUED_BATCHES = 4  # for each worker, so that it never waits


@dataclass(frozen=True)
class ExampleRecipe:
    """A recipe for examples: the class, the CSV file of the rows, and the arguments for the methods of the class."""

    example_class: type[Example]
    source: str
    arguments: dict[str, Any]
    log_rows: bool = True


@dataclass(frozen=True, slots=True)
class RowResult:
    """The result of a row: its records, and their rows for examples.csv.

    `shapes` holds each combination of shapes that the arrays of a record have, once.
    """

    payloads: list[bytes] = field(default_factory=list[bytes])
    shapes: list[list[Shape]] = field(default_factory=list[list[Shape]])
    csv_rows: list[list[Any]] = field(default_factory=list[list[Any]])
    ignored: bool = False


def _make_row(recipe: ExampleRecipe, row: CsvRow) -> RowResult:
    try:
        return _make_records(recipe, row)
    except IgnoreExampleException:
        return RowResult(ignored=True)
    except Exception as error:
        message = str(error) if isinstance(error, Tar2TFError) else f"{type(error).__name__}: {error}"
        columns = f" (it has {len(row.cells)} columns)" if isinstance(error, IndexError) else ""
        raise MappingError(
            f"{recipe.example_class.__name__} failed: {message}{columns}", shard=recipe.source, key=f"row {row.line}"
        ) from error


def _make_records(recipe: ExampleRecipe, row: CsvRow) -> RowResult:
    arguments = recipe.arguments
    example = recipe.example_class.from_csv_row(row.cells, **arguments)
    example.load(**arguments)
    result = RowResult()
    for chunk in example.split(**arguments):
        payload, shapes = serialized(chunk)
        result.payloads.append(payload)
        if shapes not in result.shapes:
            result.shapes.append(shapes)
        if recipe.log_rows:
            result.csv_rows.append(chunk.to_csv_row())
        if chunk is not example:
            chunk.release()
    example.release()
    return result


def make_records(
    recipe: ExampleRecipe, rows: Iterator[tuple[CsvRow, int]], workers: int | None
) -> Iterator[tuple[RowResult, int]]:
    """Yield the result of each row with the split of the row, in the order of the rows."""
    if not workers:
        for row, split in rows:
            yield _make_row(recipe, row), split
        return
    with ExitStack() as stack:
        pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        stack.callback(pool.shutdown, cancel_futures=True)
        queue: deque[Future[list[tuple[RowResult, int]]]] = deque()
        while batch := list(islice(rows, _BATCH_ROWS)):
            queue.append(pool.submit(_make_batch, recipe, batch))
            if len(queue) > workers * _QUEUED_BATCHES:
                yield from queue.popleft().result()
        while queue:
            yield from queue.popleft().result()


def _make_batch(recipe: ExampleRecipe, batch: list[tuple[CsvRow, int]]) -> list[tuple[RowResult, int]]:
    return [(_make_row(recipe, row), split) for row, split in batch]
