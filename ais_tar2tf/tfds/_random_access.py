"""What both builders share: random access in both formats, and tf.data over ArrayRecord, which TFDS refuses."""

from __future__ import annotations

import importlib
from typing import Any

from ais_tar2tf.errors import ShardNotFound
from ais_tar2tf.tfds._data_source import DataSource

# As modules of any kind: what TFDS says of its types is not what it does.
tfds: Any = importlib.import_module("tensorflow_datasets")
decode: Any = importlib.import_module("tensorflow_datasets.core.decode")
file_adapters: Any = importlib.import_module("tensorflow_datasets.core.file_adapters")

__all__ = ["OURS", "RandomAccess"]

OURS = (file_adapters.FileFormat.ARRAY_RECORD, file_adapters.FileFormat.TFRECORD)


# TFDS's own keyword: builders that users do not name are not registered.
class RandomAccess(  # pyright: ignore[reportGeneralTypeIssues]
    tfds.core.GeneratorBasedBuilder,
    skip_registration=True,  # pyright: ignore[reportCallIssue]
):
    """A builder whose data can be read by number and as a tf.data.Dataset, whatever its format is."""

    def as_data_source(
        self,
        split: Any = None,
        *,
        decoders: Any = None,
        deserialize_method: Any = decode.DeserializeMethod.DESERIALIZE_AND_DECODE,
        file_format: Any = None,
    ) -> Any:
        """The samples of a split, or of several (a dict, a list), by number; all splits by default."""
        if self.info.file_format not in OURS or file_format not in (None, *OURS, *(each.value for each in OURS)):
            return super().as_data_source(
                split, decoders=decoders, deserialize_method=deserialize_method, file_format=file_format
            )
        if not self.info.splits:
            raise ShardNotFound(
                f"the data set {self.name!r} is not built here: call download_and_prepare, or give another data_dir",
                url=str(self.data_dir),
            )
        chosen = {name: name for name in self.info.splits} if split is None else split
        return _mapped(lambda each: DataSource(self.info, each, decoders, deserialize_method), chosen)

    def _as_dataset(
        self, split: Any, decoders: Any = None, read_config: Any = None, shuffle_files: bool = False
    ) -> Any:
        if self.info.file_format != file_adapters.FileFormat.ARRAY_RECORD:
            return super()._as_dataset(split, decoders, read_config, shuffle_files)
        source = DataSource(self.info, split, decoders, decode.DeserializeMethod.RAW_BYTES)
        return _streamed(source, self.info.features, decoders, shuffle=shuffle_files)


def _mapped(make: Any, splits: Any) -> Any:
    if isinstance(splits, dict):
        return {name: _mapped(make, each) for name, each in splits.items()}
    if isinstance(splits, list | tuple):
        return [_mapped(make, each) for each in splits]
    return make(splits)


def _streamed(source: DataSource, features: Any, decoders: Any, *, shuffle: bool) -> Any:
    """A tf.data.Dataset of the decoded samples of `source`, which hands out records as they are stored."""
    import tensorflow as tf

    def record(row: Any) -> Any:
        return source[int(row)]

    def example(row: Any) -> Any:
        data = tf.numpy_function(record, [row], tf.string, stateful=False)
        return features.deserialize_example(tf.ensure_shape(data, ()), decoders=decoders)

    rows = tf.data.Dataset.range(len(source))
    if shuffle:
        rows = rows.shuffle(max(len(source), 1), reshuffle_each_iteration=True)
    return rows.map(example, tf.data.AUTOTUNE, deterministic=True).prefetch(tf.data.AUTOTUNE)
