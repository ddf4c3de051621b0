"""The tf.data pipeline from record files to batches, with the steps and the padding of Datum."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.datum.configs import DatasetConfigs, TFRReadConfigs
from ais_tar2tf.datum.metadata import is_image
from ais_tar2tf.datum.reader.dataset import Stage, host_batch_size
from ais_tar2tf.datum.reader.files import RecordDirectory
from ais_tar2tf.recordfiles.export.fingerprints import fingerprint
from ais_tar2tf.recordfiles.loading.dataset import FileOrder, parsed_fields, read_files, read_payloads
from ais_tar2tf.recordfiles.loading.random_access import RecordSequence
from ais_tar2tf.tfdata.tf import has_several_workers
from ais_tar2tf.values.decoders import Decoder
from ais_tar2tf.values.graph_values import with_check
from ais_tar2tf.values.schema import Field

tf: Any = LazyModule("tensorflow")

__all__ = ["BatchPipeline"]

_PARSED_AT_ONCE = 64  # examples without images
_COLOUR_CHANNELS = 3


@dataclass(frozen=True)
class BatchPipeline:
    """The pipeline of one dataset; `build` makes it."""

    directory: RecordDirectory
    records: RecordSequence
    configs: DatasetConfigs
    stage: Stage
    hosts: int

    def build(self, repeat: int | None, shuffle: bool) -> Any:
        """Return the dataset, or with `full_dataset` one batch of tensors."""
        configs, stage = self.configs, self.stage
        # Without a shuffle, users expect the order of the files. Workers that share a dataset need the same order.
        deterministic = stage.deterministic or not shuffle or has_several_workers()
        dataset = self._examples(shuffle, deterministic)
        if configs.cache:
            dataset = dataset.cache(self._cache_file(shuffle))
        dataset = self._mapped(dataset, stage.pre, deterministic)
        if shuffle:
            dataset = dataset.shuffle(
                configs.buffer_size, configs.seed, reshuffle_each_iteration=configs.reshuffle_each_iteration
            )
        dataset = self._batched(dataset, deterministic)
        if stage.echoing and not configs.full_dataset:
            times = stage.echoing
            dataset = dataset.flat_map(lambda batch: tf.data.Dataset.from_tensors(batch).repeat(times))
        if repeat and not configs.full_dataset:
            dataset = dataset.repeat(repeat)
        dataset = self._mapped(dataset, stage.post, deterministic).prefetch(tf.data.AUTOTUNE)
        dataset = dataset.with_options(self._options(deterministic))
        if configs.read_config.options is not None:
            dataset = dataset.with_options(configs.read_config.options)
        return dataset.get_single_element() if configs.full_dataset else dataset

    def _examples(self, shuffle: bool, deterministic: bool) -> Any:
        """Return a dataset of decoded examples whose cardinality is known."""
        schema = self.directory.schema
        if self.directory.files.local:
            examples = read_files(self.records, self.directory.files.url, self._order(shuffle, deterministic))
        else:
            examples = read_payloads(self.records.payloads)
        one_by_one = bool(self.directory.flat_features) or any(map(is_image, schema))
        examples = parsed_fields(examples, schema, 1 if one_by_one else _PARSED_AT_ONCE, self._decode)
        return examples.apply(tf.data.experimental.assert_cardinality(len(self.records)))

    def _decode(self, example: dict[str, Any]) -> dict[str, Any]:
        """Decode images, and reshape features that the original Datum stored flat.

        A batch of examples that have neither is returned unchanged.
        """
        decoded = dict(example)
        for field in self.directory.schema:
            if is_image(field):
                decoded[field.name] = _decode_image(field, example[field.name])
        for name, rank in self.directory.flat_features.items():
            shape = tf.ensure_shape(example[f"{name}_shape"], (rank,))
            decoded[name] = tf.reshape(example[name], shape)
        return decoded

    def _cache_file(self, shuffle: bool) -> str:
        """Return the name of a cache file that only these examples in this order use; "" for a cache in memory."""
        if not self.configs.cache_filename:
            return ""
        spans = [(file.name, start, stop) for file, start, stop in self.records.spans()]
        order = self._order(shuffle, not shuffle)
        sort = ("NoneType",) if order.sort is None else fingerprint(order.sort)  # existing files have this tuple
        parts = (self.directory.where, self.directory.schema, spans, replace(order, sort=None), sort)
        identity = repr(parts)
        return f"{self.configs.cache_filename}-{hashlib.sha256(identity.encode()).hexdigest()[:12]}"

    def _order(self, shuffle: bool, deterministic: bool) -> FileOrder:
        read: TFRReadConfigs = self.configs.read_config
        return FileOrder(
            cycle=None if read.interleave_cycle_length < 1 else read.interleave_cycle_length,
            turn=read.interleave_block_length,
            shuffled=shuffle and self.configs.shuffle_files,
            seed=read.seed,
            reshuffled=read.shuffle_reshuffle_each_iteration,
            deterministic=deterministic,
            sort=read.experimental_interleave_sort_fn,
        )

    def _mapped(self, dataset: Any, function: Any, deterministic: bool) -> Any:
        return dataset if function is None else dataset.map(function, **self._parallel(deterministic))

    def _parallel(self, deterministic: bool) -> dict[str, Any]:
        """Return the options of steps that are computed in parallel; an empty dict if none are."""
        calls = self.configs.num_parallel_calls
        return {"num_parallel_calls": calls, "deterministic": deterministic} if calls > 1 else {}

    def _batched(self, dataset: Any, deterministic: bool) -> Any:
        configs, drop = self.configs, self.stage.drop_remainder and not self.configs.full_dataset
        shapes = self._padded_shapes(dataset.element_spec)
        if configs.bucket_fn is not None and not configs.full_dataset:
            buckets = configs.bucket_op
            sizes = [host_batch_size(size, self.hosts) for size in buckets.bucket_batch_sizes]
            batches = dataset.bucket_by_sequence_length(
                lambda example: tf.cast(configs.bucket_fn(example), tf.int32),
                buckets.bucket_boundaries,
                sizes,
                padded_shapes=shapes,
                drop_remainder=drop,
            )
            setting = self.stage.drop_setting
            return _require_batch(batches, f"no bucket has a full batch; set {setting}=False") if drop else batches
        size = self.stage.batch_size
        if shapes is not None and _needs_padding(shapes, dataset.element_spec):
            return dataset.padded_batch(size, shapes, drop_remainder=drop)
        return dataset.batch(size, drop_remainder=drop, **self._parallel(deterministic))

    def _padded_shapes(self, spec: Any) -> Any:
        """Return the shape that each feature of a batch is padded to; None when nothing is padded.

        An unknown size in a shape means the largest size in the batch.
        """
        if self.configs.use_datum_padding:
            known = {field.name: field for field in self.directory.schema}
            return {name: _metadata_shape(known.get(name), each) for name, each in spec.items()}
        if self.configs.use_tf_padding:
            return tf.nest.map_structure(lambda each: each.shape, spec)
        return None

    def _options(self, deterministic: bool) -> Any:
        options = tf.data.Options()
        options.deterministic = deterministic
        policy = tf.data.experimental.AutoShardPolicy
        shared = self.configs.read_config.input_context is not None
        options.experimental_distribute.auto_shard_policy = policy.OFF if shared else policy.DATA
        return options


def _require_batch(batches: Any, message: str) -> Any:
    """Return the same batches as a dataset that raises an error with `message` when there is no batch."""
    optional = tf.experimental.Optional
    end = tf.data.Dataset.from_tensors(0).map(lambda _: optional.empty(batches.element_spec))

    def check(count: Any, batch: Any) -> Any:
        is_batch = batch.has_value()  # False for the end
        return count + 1, (with_check(is_batch, is_batch | (count > 0), message), batch)

    checked = batches.map(optional.from_value).concatenate(end).scan(tf.constant(0, tf.int64), check)
    return checked.filter(lambda is_batch, _: is_batch).map(lambda _, batch: batch.get_value())


def _decode_image(field: Field, data: Any) -> Any:
    """Return the pixels of an image: with the channels that all images have, or with three when they differ."""
    channels = field.shape[2] if len(field.shape) == 3 else None
    channels = _COLOUR_CHANNELS if channels is None else channels
    dtype = "uint16" if field.dtype == "uint16" else "uint8"
    shape = (*(field.shape[:2] or (None, None)), channels)
    return Decoder("image", dtype, shape=shape, channels=channels).decode_tensor(data)


def _metadata_shape(field: Field | None, spec: Any) -> Any:
    """Return a shape of unknown sizes with the rank in the metadata; TensorFlow's shape for features of callbacks."""
    if field is None:
        return spec.shape
    return [None] * (3 if is_image(field) else len(field.shape))


def _needs_padding(shapes: Any, spec: Any) -> bool:
    """Return whether to pad examples: all features are dense tensors, and a padded shape has an unknown size.

    TensorFlow can batch ragged and sparse tensors, but it cannot pad them.
    """
    if not isinstance(spec, Mapping):
        dense = all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec))
        return dense and not all(each.shape.is_fully_defined() for each in tf.nest.flatten(spec))
    return all(isinstance(each, tf.TensorSpec) for each in spec.values()) and not all(
        tf.TensorShape(shapes[name]).is_fully_defined() for name in spec
    )
