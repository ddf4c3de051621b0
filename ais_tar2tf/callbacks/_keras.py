"""Keras's class of callbacks, joined to ours when the first instance is made: naming ours must not load Keras."""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["FitCallback"]


class FitCallback:
    """The base class of callbacks for `fit`. Every instance is a `keras.callbacks.Callback`, too."""

    model: Any
    params: dict[str, Any]

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(_joined(cls))


@cache
def _joined(cls: type[FitCallback]) -> type[FitCallback]:
    """Return a subclass of `cls` and of Keras's class, under the name of `cls`."""
    from keras.callbacks import Callback

    if issubclass(cls, Callback):
        return cls
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, Callback), names)
