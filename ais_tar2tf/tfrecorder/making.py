"""Makes records from the rows of a CSV file, in this process or in worker processes.

For each row, an object of the user's example class is created, loaded, split, serialized and released. This module
must not write files.
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

_BATCH_ROWS = 16  # rows that are sent to a worker together, because each call costs about a millisecond
_QUEUED_BATCHES = 4  # the number of queued batches for each worker; with fewer, workers would wait for rows


@dataclass(frozen=True)
class ExampleRecipe:
    """A recipe for the examples of a CSV file.

    Attributes:
        example_class: The user's class of examples.
        source: The name of the CSV file, for errors.
        arguments: The keyword arguments that the methods of the class get.
        log_rows: Whether to return the rows that describe the records in the file examples.csv.
    """

    example_class: type[Example]
    source: str
    arguments: dict[str, Any]
    log_rows: bool = True


@dataclass(frozen=True, slots=True)
class RowResult:
    """The result of one input row.

    Attributes:
        payloads: The serialized records.
        shapes: Each entry has the shapes of the arrays in a record. Records with the same shapes share one entry.
        csv_rows: The rows that describe the records in the file examples.csv; empty if this file is not written.
        ignored: Whether the example class raised IgnoreExampleException, and the row is left out.
    """

    payloads: list[bytes] = field(default_factory=list[bytes])
    shapes: list[list[Shape]] = field(default_factory=list[list[Shape]])
    csv_rows: list[list[Any]] = field(default_factory=list[list[Any]])
    ignored: bool = False


def _make_row(recipe: ExampleRecipe, row: CsvRow) -> RowResult:
    """Return the result of a row; raise MappingError with the line of the row if the example class fails."""
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
    """Yield, in the order of the rows, the result of each row and the number of the split (as train) that gets it.

    Args:
        recipe: How records are made from a row.
        rows: The rows, each with the number of its split.
        workers: The number of worker processes. If it is 0 or None, this process makes the records.
    """
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
