"""`RandomAccess`: the base class of the TFDS builders of this package, in `tfds/` and `tornet/`.

A builder writes ArrayRecord or TFRecord files. TFDS itself has random access only to ArrayRecord files, and makes a
tf.data.Dataset only of TFRecord files. `RandomAccess` adds random access to TFRecord files, and a tf.data.Dataset of
ArrayRecord files. It must not change the files.
"""

from __future__ import annotations

import importlib
from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import OptionError, ShardNotFound
from ais_tar2tf.tfds.data_source import DataSource

# Loaded as untyped modules, because the type hints of TFDS do not match its behaviour.
tfds: Any = importlib.import_module("tensorflow_datasets")
decode: Any = importlib.import_module("tensorflow_datasets.core.decode")
file_adapters: Any = importlib.import_module("tensorflow_datasets.core.file_adapters")

tf: Any = LazyModule("tensorflow")

__all__ = ["RandomAccess"]

_FORMATS = (file_adapters.FileFormat.ARRAY_RECORD, file_adapters.FileFormat.TFRECORD)


# `skip_registration` is a keyword argument that TFDS defines. It keeps TFDS from registering the class under a name.
class RandomAccess(  # pyright: ignore[reportGeneralTypeIssues]
    tfds.core.GeneratorBasedBuilder,
    skip_registration=True,  # pyright: ignore[reportCallIssue]
):
    """A builder whose samples can be read by number and as a tf.data.Dataset, from both file formats."""

    def as_data_source(
        self,
        split: Any = None,
        *,
        decoders: Any = None,
        deserialize_method: Any = decode.DeserializeMethod.DESERIALIZE_AND_DECODE,
        file_format: Any = None,
    ) -> Any:
        """Return the samples of a split as a sequence, without TensorFlow.

        Args:
            split: A split, or a dict or list of splits; None selects all splits.
            decoders: Decoders of TFDS for some of the features.
            deserialize_method: How TFDS decodes a record.
            file_format: The format to read. A format other than the builder's own is passed on to TFDS, which
                refuses it unless the data set is stored in this format, too.

        Returns:
            A `DataSource`, or a dict or list of them.

        Raises:
            ShardNotFound: The data set is not prepared.
            ValueError: The data set is not stored in the format `file_format`.
            NotImplementedError: The data set is stored only in formats without random access.
        """
        own = self.info.file_format
        if own not in _FORMATS or file_format not in (None, own, own.value):
            return super().as_data_source(
                split, decoders=decoders, deserialize_method=deserialize_method, file_format=file_format
            )
        if not self.info.splits:
            raise ShardNotFound(
                f"the data set {self.name!r} is not built here: call download_and_prepare, or give another data_dir",
                url=str(self.data_dir),
            )
        splits = {name: name for name in self.info.splits} if split is None else split
        return _map_splits(lambda each: DataSource(self.info, each, decoders, deserialize_method), splits)

    def _as_dataset(
        self, split: Any, decoders: Any = None, read_config: Any = None, shuffle_files: bool = False
    ) -> Any:
        config = tfds.ReadConfig() if read_config is None else read_config
        if not self._reads_array_records(config):
            return super()._as_dataset(split, decoders, read_config, shuffle_files)
        _check_config(config)
        source = DataSource(self.info, split, decoders, decode.DeserializeMethod.RAW_BYTES)
        return _dataset_of(source, self.info.features, decoders, config, shuffle=shuffle_files)

    def _should_cache_ds(self, split: Any, shuffle_files: bool, read_config: Any) -> bool:
        """Return whether TFDS caches the dataset.

        A cache keeps the order of the first epoch. So TFDS does not cache shuffled files, unless there is only one or
        the order stays the same. ArrayRecord files are shuffled by records, so even one file has many orders.
        """
        reshuffled = shuffle_files and read_config.shuffle_reshuffle_each_iteration is not False
        if reshuffled and self._reads_array_records(read_config):
            return False
        return super()._should_cache_ds(split, shuffle_files, read_config)

    def _reads_array_records(self, config: Any) -> bool:
        own = self.info.file_format
        return own == file_adapters.FileFormat.ARRAY_RECORD and config.file_format in (None, own)


def _map_splits(make: Any, splits: Any) -> Any:
    """Return `splits` with each split replaced by `make(split)`; dicts and lists may be nested."""
    if isinstance(splits, dict):
        return {name: _map_splits(make, each) for name, each in splits.items()}
    if isinstance(splits, list | tuple):
        return [_map_splits(make, each) for each in splits]
    return make(splits)


def _check_config(config: Any) -> None:
    """Refuse settings of a `tfds.ReadConfig` that have no meaning for records that are read by number."""
    for name in ("add_tfds_id", "experimental_interleave_sort_fn"):
        if getattr(config, name):
            raise OptionError(
                f"ReadConfig.{name} has no effect on ArrayRecord files: leave it out, or prepare the data set with "
                "file_format='tfrecord'"
            )


def _dataset_of(source: DataSource, features: Any, decoders: Any, config: Any, *, shuffle: bool) -> Any:
    """Return a tf.data.Dataset of the decoded samples of `source`. The items of `source` are serialized records.

    The `tfds.ReadConfig` applies as to TFRecord files, but to single records where TFDS applies it to files.
    """

    def stored_record(row: Any) -> Any:
        return source[int(row)]

    def example(row: Any) -> Any:
        data = tf.numpy_function(stored_record, [row], tf.string, stateful=False)
        return features.deserialize_example(tf.ensure_shape(data, ()), decoders=decoders)

    rows = tf.data.Dataset.range(len(source))
    if config.input_context:
        rows = rows.shard(config.input_context.num_input_pipelines, config.input_context.input_pipeline_id)
    if shuffle:
        rows = rows.shuffle(
            max(len(source), 1),
            seed=config.shuffle_seed,
            reshuffle_each_iteration=config.shuffle_reshuffle_each_iteration,
        )
    if config.repeat_filenames:
        rows = rows.repeat()
    examples = rows.map(example, config.num_parallel_calls_for_decode, deterministic=True)
    return examples.with_options(config.options)  # as_dataset adds a prefetch
