"""Interrupt a method of the package as if the process were killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


class Killed(BaseException):
    """Stands for the end of the process. Nothing in the package catches it."""


def until(method: Callable[..., Any], calls: Iterator[Any]) -> Callable[..., Any]:
    """Wrap a method so that it raises `Killed` once `calls` is exhausted. All wrapped methods may share `calls`."""

    def limited(self: Any, *arguments: Any) -> Any:
        if next(calls, None) is None:
            raise Killed
        return method(self, *arguments)

    return limited
