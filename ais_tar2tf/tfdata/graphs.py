"""TensorFlow, as the graphs of a dataset use it. Importing this loads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    tf: Any  # the stubs that type checkers carry for TensorFlow lack half of tf.data
    Dataset = Any

    def as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
        """Ours: AutoGraph would rewrite each function, and find nothing. A user's was traced before."""
        ...
else:
    import tensorflow as tf

    Dataset = tf.data.Dataset
    as_it_is = tf.autograph.experimental.do_not_convert

__all__ = ["Dataset", "as_it_is", "determinism", "nothing_of", "tf"]


def determinism() -> bool:
    """Return whether `tf.config.experimental.enable_op_determinism()` was called, for which nothing public asks."""
    try:
        from tensorflow.python.framework import config
    except ImportError:
        return False
    return bool(config.is_op_determinism_enabled())


def nothing_of(spec: Any) -> Any:
    """A value of that type, for the element that marks the end and is never seen."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.constant([], spec.dtype, ragged_rank=spec.ragged_rank)
    shape = [size or 0 for size in spec.shape] if spec.shape.rank is not None else []
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensor(np.zeros((0, len(shape)), np.int64), np.zeros(0, spec.dtype.as_numpy_dtype), shape)
    return tf.zeros(shape, spec.dtype)
