"""The classes of settings for Datum's functions `export_to_tfrecord` and `load`, with the default of each setting.

This module must not write or read records: `export_to_tfrecord` and `load` apply the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ais_tar2tf.datum.configs.config_base import ConfigBase, Setting
from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE

__all__ = ["BucketConfigs", "DatasetConfigs", "TFRReadConfigs", "TFRWriteConfigs"]

_SEED = 6052020  # the default seed in the original program Datum
_FUNCTION: Any = Callable  # typed as Any, because type checkers refuse an abstract class as an argument of `Setting`


def _common_callback(name: str) -> property:
    """Return a property that sets `<name>_train`, `<name>_val` and `<name>_test` at once, and reads the first."""

    def get(configs: DatasetConfigs) -> Any:
        return getattr(configs, f"{name}_train")

    def set_all(configs: DatasetConfigs, function: Any) -> None:
        for stage in ("train", "val", "test"):
            setattr(configs, f"{name}_{stage}", function)

    doc = "The callbacks for training, validation and tests. Setting sets all three; reading returns the first."
    return property(get, set_all, doc=doc)


class TFRWriteConfigs(ConfigBase):
    """Settings of `export_to_tfrecord`.

    >>> write_configs = TFRWriteConfigs()
    >>> write_configs.splits = {"train": {"num_examples": 100}, "val": {"num_examples": 10}}
    """

    splits = Setting(
        dict,
        None,
        "A dict with the attributes of each split, by its name: `num_examples`, which is checked; `extension`, of "
        "the images; `image_dir`, "
        "`csv_path`, `set_dir`, `annotation_dir`, `label_dir`, `image_extension`, `label_extension`, `json_path`, "
        "`shards`.",
    )
    sparse_features = Setting(
        list, list, "Features that are sparse, even when all examples have the same number of values."
    )
    generator = Setting(
        object,
        None,
        "A callable, or a class whose instances are callable; the class is called with the input path. The callable "
        "gets `split=` and the attributes of the split, and yields examples as dicts, or pairs of a key and a dict.",
    )
    serializer = Setting(_FUNCTION, None, "A function from an example's dict to a serialized tf.train.Example.")
    num_train_examples = Setting(int, None, "The same as `num_examples` of the split `train`.", least=0)
    num_val_examples = Setting(int, None, "The same as `num_examples` of the split `val`.", least=0)
    num_test_examples = Setting(int, None, "The same as `num_examples` of the split `test`.", least=0)
    shard_size = Setting((int, str), DEFAULT_SIZE, "The largest size of a file, in bytes or as '100MB'.")


class TFRReadConfigs(ConfigBase):
    """Settings of reading record files."""

    experimental_interleave_sort_fn = Setting(
        _FUNCTION,
        None,
        "A function that gets the list of files, dicts of `filename`, `skip` and `take`, and returns it in another "
        "order.",
    )
    shuffle_reshuffle_each_iteration = Setting(bool, True, "Shuffle the files anew in each epoch.")
    interleave_cycle_length = Setting(
        int, -1, "The number of files read in turns. -1: one when in order, 16 when shuffled.", least=-1
    )
    interleave_block_length = Setting(int, 1, "The number of examples read from a file in its turn.", least=1)
    seed = Setting(int, _SEED, "The seed of the order of shuffled files.")
    options = Setting(object, None, "tf.data.Options for the dataset.")
    input_context = Setting(
        object,
        None,
        "A tf.distribute.InputContext, or (i, n): only this host's share is read, disjoint from all others.",
    )


class BucketConfigs(ConfigBase):
    """Settings of bucketing: examples of about the same length are batched together."""

    bucket_boundaries = Setting(list, lambda: [0], "The upper bounds of the lengths of all buckets but the last.")
    bucket_batch_sizes = Setting(list, lambda: [32, 32], "The batch size of each bucket.", least=1)


class DatasetConfigs(ConfigBase):
    """Settings of the datasets that `train_fn`, `val_fn` and `test_fn` return.

    A dataset does these steps, in this order: cache, pre batching callback, shuffle, batch, echo (return each batch
    several times), repeat, post batching callback, prefetch.
    """

    buffer_size = Setting(int, 100, "The number of examples in the buffer of the shuffle.", least=1)
    seed = Setting(int, _SEED, "The seed of the shuffle.")
    full_dataset = Setting(
        bool, False, "Return one batch of tensors with all examples of a split, once each, instead of a dataset."
    )
    drop_remainder = Setting(bool, True, "Drop the last batch of training when it is not full.")
    drop_remainder_val = Setting(bool, False, "The same for validation.")
    drop_remainder_test = Setting(bool, False, "The same for tests.")
    deterministic = Setting(bool, False, "Return the same order in every run of training, even if that is slower.")
    deterministic_val = Setting(bool, False, "The same for validation.")
    deterministic_test = Setting(bool, False, "The same for tests.")
    num_parallel_calls = Setting(int, 1, "The number of callbacks, and of batches, computed in parallel.", least=1)
    batch_size_train = Setting(int, 32, "The number of examples in a batch of training.", least=1)
    batch_size_val = Setting(int, 32, "The same for validation.", least=1)
    batch_size_test = Setting(int, 32, "The same for tests.", least=1)
    echoing = Setting(int, None, "How many times each batch of training is returned.", least=1)
    shuffle_files = Setting(bool, True, "When shuffling, shuffle the files as well.")
    reshuffle_each_iteration = Setting(bool, False, "Shuffle anew in each epoch.")
    cache = Setting(bool, False, "Cache decoded examples for the next epoch.")
    cache_filename = Setting(
        str,
        "",
        "The prefix of the cache files' names; each split, part of a split, order and host has its own file. If "
        "empty, examples are cached in memory.",
    )
    bucket_op = Setting(BucketConfigs, BucketConfigs, "The buckets for `bucket_fn`.")
    bucket_fn = Setting(_FUNCTION, None, "A function from an example to its length; if set, batches are bucketed.")
    pre_batching_callback_train = Setting(_FUNCTION, None, "A function from an example's dict to another dict.")
    pre_batching_callback_val = Setting(_FUNCTION, None, "The same for validation.")
    pre_batching_callback_test = Setting(_FUNCTION, None, "The same for tests.")
    post_batching_callback_train = Setting(_FUNCTION, None, "A function from a batch's dict to another dict.")
    post_batching_callback_val = Setting(_FUNCTION, None, "The same for validation.")
    post_batching_callback_test = Setting(_FUNCTION, None, "The same for tests.")
    read_config = Setting(TFRReadConfigs, TFRReadConfigs, "The settings of reading record files.")
    use_tf_padding = Setting(
        bool, True, "Pad features of varying size to the largest in the batch. Without padding, they are errors."
    )
    use_datum_padding = Setting(
        bool,
        False,
        "Pad features by the shapes in the metadata, even where TensorFlow lost their shapes in a callback.",
    )

    pre_batching_callback = _common_callback("pre_batching_callback")
    post_batching_callback = _common_callback("post_batching_callback")
