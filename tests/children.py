"""What tests let other processes do: importable, so that a process that shares no memory finds it."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.queues import Queue
from typing import Any

Said = str | list[str]


def _told(said: Queue[Said], work: Any) -> None:
    try:
        said.put(work())
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent looks at it
        said.put(f"{type(error).__name__}: {error}")


def read_all(said: Queue[Said], source: Any) -> None:
    _told(said, lambda: [record["__key__"] for record in source.records()])


def go_on(said: Queue[Said], records: Iterator[Any]) -> None:
    _told(said, lambda: [record["__key__"] for record in records])


def close_all(said: Queue[Said], source: Any) -> None:
    """And read again, which opens a connection of its own."""
    _told(said, lambda: [source.close(), [record["__key__"] for record in source.records()]][1])


def iterate(said: Queue[Said], dataset: Any) -> None:
    _told(said, lambda: [str(each) for each in dataset])
