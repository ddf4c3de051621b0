"""Examples as classes: their fields are declared by a decorator, their data is loaded late, a factory does the rest.

    from ais_tar2tf.tfrecorder import factory as tf_factory
    from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
    from ais_tar2tf.tfrecorder.helpers.marshaller import Example

helpers.decorator    `@tfrecordable(dtype=…)`, used as `@property` is
helpers.marshaller   `Example`, to be subclassed, and `IgnoreExampleException`
factory              CSV of examples → train, eval and test files → tf.data.Dataset

The layer gives names and conventions; records, files and datasets are the core's.
"""

from __future__ import annotations

__all__ = ["factory", "helpers"]

from ais_tar2tf.tfrecorder import factory, helpers


def __dir__() -> list[str]:
    return sorted(__all__)
