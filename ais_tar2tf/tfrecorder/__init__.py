"""TFRecorder's interface: examples are classes with decorated properties, and a factory writes and reads their files.

    from ais_tar2tf.tfrecorder import factory as tf_factory
    from ais_tar2tf.tfrecorder.helpers.decorator import tfrecordable
    from ais_tar2tf.tfrecorder.helpers.marshaller import Example

    helpers.decorator    `@tfrecordable(dtype=…)`, a kind of `@property`
    helpers.marshaller   `Example`, the base class of examples, and `IgnoreExampleException`
    factory              a CSV of examples → train, eval and test files → tf.data.Dataset

This room holds only the names and conventions of TFRecorder. Other rooms write and read the files.
"""

from __future__ import annotations

__all__ = ["factory", "helpers"]

from ais_tar2tf.tfrecorder import factory, helpers


def __dir__() -> list[str]:
    return sorted(__all__)
