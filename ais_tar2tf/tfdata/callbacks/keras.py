"""`FitCallback`: the base class of the callbacks. Importing this module does not import Keras; an instance does."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Any

__all__ = ["FitCallback", "build"]


class FitCallback:
    """The base class of callbacks for `fit`. Each instance is also a `keras.callbacks.Callback`."""

    model: Any
    params: dict[str, Any]

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return object.__new__(_with_keras_base(cls))


@cache
def _with_keras_base(cls: type[FitCallback]) -> type[FitCallback]:
    """Return a class that inherits from `cls` and from Keras's `Callback`, and has the name of `cls`."""
    from keras.callbacks import Callback

    if issubclass(cls, Callback):
        return cls
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    return type(cls.__name__, (cls, Callback), names)


def build(model: Any, element: Any) -> None:
    """Build a model for the batches of a dataset, as Keras does with the first batch, if this is possible.

    Args:
        model: A model whose layers do not state the shape of their input.
        element: The `element_spec` of the dataset: that of the model's input, or a tuple that begins with it.
    """
    import keras
    import tensorflow as tf

    inputs = element[0] if isinstance(element, tuple) else element
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in tf.nest.flatten(inputs)):
        return
    with suppress(Exception):  # a model with its own training step need not be callable
        model(tf.nest.map_structure(lambda spec: keras.KerasTensor(spec.shape, spec.dtype.name), inputs))
