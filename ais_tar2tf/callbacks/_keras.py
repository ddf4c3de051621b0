"""Keras's class of callbacks, joined to ours when the first instance is made: naming ours must not load Keras."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

__all__ = ["FitCallback", "build"]


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


def build(model: Any, element: Any) -> None:
    """Build a model for the batches of a dataset, as Keras would do with the first one; not one that refuses to be.

    Args:
        model: A model of layers that do not say what they take.
        element: The dataset's element_spec: what the model takes, or a tuple that begins with that.
    """
    import keras
    import tensorflow as tf

    takes = element[0] if isinstance(element, tuple) else element
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in tf.nest.flatten(takes)):
        return
    with suppress(Exception):  # a model with a step of its own need not be callable
        model(tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), takes))
