"""The settings of export and load, with their defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ais_tar2tf.datum.configs.config_base import ConfigBase, Setting
from ais_tar2tf.export.boundaries import DEFAULT_SIZE

__all__ = ["BucketConfigs", "DatasetConfigs", "TFRReadConfigs", "TFRWriteConfigs"]

_SEED = 6052020
_FUNCTION: Any = Callable  # an abstract class, which type checkers do not take for one
_SUFFIXES = ("_train", "_val", "_test")


class TFRWriteConfigs(ConfigBase):
    """What is exported, and how.

    >>> write_configs = TFRWriteConfigs()
    >>> write_configs.splits = {"train": {"num_examples": 100}, "val": {"num_examples": 10}}
    """

    splits = Setting(
        dict,
        None,
        "Split → its attributes: `num_examples`, which is checked; `extension` of images, `image_dir`, `csv_path`, "
        "`set_dir`, `annotation_dir`, `label_dir`, `image_extension`, `label_extension`, `json_path`, `shards`.",
    )
    sparse_features = Setting(list, list, "Features that are sparse also where every example has as many values.")
    generator = Setting(
        object,
        None,
        "A class, made with the input path, or a callable: called with `split=` and the split's attributes, it gives "
        "examples as dicts, or pairs of a key and a dict.",
    )
    serializer = Setting(_FUNCTION, None, "A function from an example's dict to a serialized tf.train.Example.")
    num_train_examples = Setting(int, None, "The same as `num_examples` of the split `train`.", least=0)
    num_val_examples = Setting(int, None, "The same as `num_examples` of the split `val`.", least=0)
    num_test_examples = Setting(int, None, "The same as `num_examples` of the split `test`.", least=0)
    shard_size = Setting((int, str), DEFAULT_SIZE, "A bound on the size of a file, in bytes or as '100MB'.")


class TFRReadConfigs(ConfigBase):
    """How files are read."""

    experimental_interleave_sort_fn = Setting(
        _FUNCTION,
        None,
        "From the list of files, dicts of `filename`, `skip` and `take`, to the list in another order.",
    )
    shuffle_reshuffle_each_iteration = Setting(bool, True, "Shuffled files come in another order in each epoch.")
    interleave_cycle_length = Setting(
        int, -1, "Files read at once, in turns. -1: one when in order, 16 when shuffled.", least=-1
    )
    interleave_block_length = Setting(int, 1, "Examples of a file before the next one's turn.", least=1)
    seed = Setting(int, _SEED, "Of the order of shuffled files.")
    options = Setting(object, None, "tf.data.Options for the dataset.")
    input_context = Setting(
        object,
        None,
        "A tf.distribute.InputContext, or (i, n): only this host's share is read, disjoint from others'.",
    )


class BucketConfigs(ConfigBase):
    """Examples of about the same length are batched together."""

    bucket_boundaries = Setting(list, lambda: [0], "Upper bounds of the lengths of all buckets but the last.")
    bucket_batch_sizes = Setting(list, lambda: [32, 32], "The size of a batch of each bucket.", least=1)


class DatasetConfigs(ConfigBase):
    """What `train_fn`, `val_fn` and `test_fn` do with the examples.

    The order is: cache, pre batching callback, shuffle, batch, echo, repeat, post batching callback, prefetch.
    """

    buffer_size = Setting(int, 100, "Examples that are shuffled together.", least=1)
    seed = Setting(int, _SEED, "Of the shuffle.")
    full_dataset = Setting(
        bool, False, "All of a split as one batch of tensors, instead of a dataset: nothing is repeated or echoed."
    )
    drop_remainder = Setting(bool, True, "Leave out the last batch of training if it is not full.")
    drop_remainder_val = Setting(bool, False, "The same for validation.")
    drop_remainder_test = Setting(bool, False, "The same for tests.")
    deterministic = Setting(bool, False, "The same order in every run of training, even where another is faster.")
    deterministic_val = Setting(bool, False, "The same for validation.")
    deterministic_test = Setting(bool, False, "The same for tests.")
    num_parallel_calls = Setting(int, 1, "Callbacks, and batches, computed at once.", least=1)
    batch_size_train = Setting(int, 32, "Examples in a batch of training.", least=1)
    batch_size_val = Setting(int, 32, "The same for validation.", least=1)
    batch_size_test = Setting(int, 32, "The same for tests.", least=1)
    echoing = Setting(int, None, "How often each batch of training is given.", least=1)
    shuffle_files = Setting(bool, True, "A shuffle also permutes the files.")
    reshuffle_each_iteration = Setting(bool, False, "A shuffle gives another order in each epoch.")
    cache = Setting(bool, False, "Keep decoded examples for the next epoch.")
    cache_filename = Setting(
        str,
        "",
        "How the names of the files begin that keep them, others for each split, part, order and host; in memory "
        "when it is empty.",
    )
    bucket_op = Setting(BucketConfigs, BucketConfigs, "The buckets, for `bucket_fn`.")
    bucket_fn = Setting(_FUNCTION, None, "From an example to its length: batches are then made by buckets.")
    pre_batching_callback_train = Setting(_FUNCTION, None, "From an example's dict to another, for training.")
    pre_batching_callback_val = Setting(_FUNCTION, None, "The same for validation.")
    pre_batching_callback_test = Setting(_FUNCTION, None, "The same for tests.")
    post_batching_callback_train = Setting(_FUNCTION, None, "From a batch's dict to another, for training.")
    post_batching_callback_val = Setting(_FUNCTION, None, "The same for validation.")
    post_batching_callback_test = Setting(_FUNCTION, None, "The same for tests.")
    read_config = Setting(TFRReadConfigs, TFRReadConfigs, "How files are read.")
    use_tf_padding = Setting(
        bool, True, "Pad what varies in size to the longest of a batch; without any padding, that is an error."
    )
    use_datum_padding = Setting(
        bool,
        False,
        "Pad by what the metadata say of sizes, also where a callback lost TensorFlow's own notion of it.",
    )

    @property
    def pre_batching_callback(self) -> Any:
        """All three of them; reading gives that of training."""
        return self.pre_batching_callback_train

    @pre_batching_callback.setter
    def pre_batching_callback(self, function: Any) -> None:
        for suffix in _SUFFIXES:
            setattr(self, f"pre_batching_callback{suffix}", function)

    @property
    def post_batching_callback(self) -> Any:
        """All three of them; reading gives that of training."""
        return self.post_batching_callback_train

    @post_batching_callback.setter
    def post_batching_callback(self, function: Any) -> None:
        for suffix in _SUFFIXES:
            setattr(self, f"post_batching_callback{suffix}", function)
