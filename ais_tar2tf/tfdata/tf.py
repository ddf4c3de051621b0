"""The import of TensorFlow for other modules, and small helpers. Importing this module loads TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    tf: Any  # not typed, since the type stubs of TensorFlow lack half of tf.data
    Dataset = Any

    def no_autograph(function: Callable[..., Any]) -> Callable[..., Any]:
        """Keep AutoGraph from converting a function. Its control flow must not depend on tensors."""
        ...
else:
    import tensorflow as tf

    Dataset = tf.data.Dataset
    no_autograph = tf.autograph.experimental.do_not_convert

__all__ = ["Dataset", "empty_value", "has_several_workers", "is_op_determinism_enabled", "no_autograph", "tf"]


def is_op_determinism_enabled() -> bool:
    """Return whether `tf.config.experimental.enable_op_determinism()` was called.

    TensorFlow has no public function for this.
    """
    try:
        from tensorflow.python.framework import config
    except ImportError:
        return False
    return bool(config.is_op_determinism_enabled())


def has_several_workers() -> bool:
    """Return whether this process is one of several workers of a tf.distribute strategy.

    Such a strategy gives each worker every n-th element of a dataset (auto-sharding). The workers' shares are
    disjoint and complete only when all workers shuffle by the same seed.

    TensorFlow lists the devices of other workers only once the strategy was created. So this function is right only
    if the user creates the strategy before the first dataset.
    """
    tasks = {device.name.partition("/device:")[0] for device in tf.config.list_logical_devices()}
    return len(tasks) > 1


def empty_value(spec: Any) -> Any:
    """Return a placeholder that fits a TypeSpec, with 0 for each unknown size. No dataset emits the placeholder."""
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.ragged.constant([], spec.dtype, ragged_rank=spec.ragged_rank)
    shape = [size or 0 for size in spec.shape] if spec.shape.rank is not None else []
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensor(np.zeros((0, len(shape)), np.int64), np.zeros(0, spec.dtype.as_numpy_dtype), shape)
    return tf.zeros(shape, spec.dtype)
