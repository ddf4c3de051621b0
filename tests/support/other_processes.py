"""Functions that tests run in other processes. They are in a module so that a spawned process can import them."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.queues import Queue
from typing import Any

Result = str | list[str]


def _report(results: Queue[Result], work: Any) -> None:
    try:
        results.put(work())
    except Exception as error:  # noqa: BLE001  # the parent checks the error
        results.put(f"{type(error).__name__}: {error}")


def read_all(results: Queue[Result], source: Any) -> None:
    _report(results, lambda: [record["__key__"] for record in source.records()])


def read_rest(results: Queue[Result], records: Iterator[Any]) -> None:
    _report(results, lambda: [record["__key__"] for record in records])


def close_and_read(results: Queue[Result], source: Any) -> None:
    """Close the source, then read it again, which opens a new connection."""
    _report(results, lambda: [source.close(), [record["__key__"] for record in source.records()]][1])


def iterate(results: Queue[Result], dataset: Any) -> None:
    _report(results, lambda: [str(each) for each in dataset])
