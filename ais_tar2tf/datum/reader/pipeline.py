"""Files → examples → batches. Each step is TensorFlow's; their order, and what is padded, is Datum's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ais_tar2tf.datum.configs import DatasetConfigs, TFRReadConfigs
from ais_tar2tf.datum.metadata import is_image
from ais_tar2tf.datum.reader.dataset import Stage, of_host
from ais_tar2tf.datum.reader.files import Directory
from ais_tar2tf.decoders import Decoder
from ais_tar2tf.export.shelf import Records
from ais_tar2tf.loading.dataset import FileOrder, parsed_fields, read_files, read_payloads
from ais_tar2tf.mapping import held
from ais_tar2tf.schema import Field
from ais_tar2tf.tfdata.workers import several_workers

if TYPE_CHECKING:
    tf: Any  # the stubs that type checkers carry for TensorFlow lack half of tf.data
else:
    import tensorflow as tf

__all__ = ["Pipeline"]

_PARSED = 64  # examples without images that are parsed at once
_COLOURS = 3


@dataclass(frozen=True)
class Pipeline:
    directory: Directory
    records: Records
    configs: DatasetConfigs
    stage: Stage
    hosts: int

    def build(self, repeat: int | None, shuffle: bool) -> Any:
        """The dataset; or one batch of tensors, when all of it was asked for."""
        configs, stage = self.configs, self.stage
        # What is not shuffled is wanted in order, and workers that share a dataset need the same order.
        deterministic = stage.deterministic or not shuffle or several_workers()
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
        """Decoded examples, of known number."""
        schema = self.directory.schema
        if self.directory.files.local:
            examples = read_files(self.records, self.directory.files.url, self._order(shuffle, deterministic))
        else:
            examples = read_payloads(self.records.payloads)
        one_by_one = bool(self.directory.reshaped) or any(map(is_image, schema))
        examples = parsed_fields(examples, schema, 1 if one_by_one else _PARSED, self._finished)
        return examples.apply(tf.data.experimental.assert_cardinality(len(self.records)))

    def _finished(self, example: dict[str, Any]) -> dict[str, Any]:
        """Images decoded, and what an earlier Datum wrote flat in its shape; else as it is, also a batch."""
        found = dict(example)
        for field in self.directory.schema:
            if is_image(field):
                found[field.name] = _decoded(field, example[field.name])
        for name, rank in self.directory.reshaped.items():
            sizes = tf.ensure_shape(example[f"{name}_shape"], (rank,))
            found[name] = tf.reshape(example[name], sizes)
        return found

    def _cache_file(self, shuffle: bool) -> str:
        """A file for these examples in this order: each split, part and host has its own."""
        if not self.configs.cache_filename:
            return ""
        spans = [(file.name, start, stop) for file, start, stop in self.records.spans()]
        order = replace(self._order(shuffle, not shuffle), sort=None)
        said = repr((self.directory.where, self.directory.schema, spans, order))
        return f"{self.configs.cache_filename}-{hashlib.sha256(said.encode()).hexdigest()[:12]}"

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
        if function is None:
            return dataset
        calls = self.configs.num_parallel_calls
        return dataset.map(
            function,
            num_parallel_calls=calls if calls > 1 else None,
            deterministic=deterministic if calls > 1 else None,
        )

    def _batched(self, dataset: Any, deterministic: bool) -> Any:
        configs, drop = self.configs, self.stage.drop_remainder and not self.configs.full_dataset
        shapes = self._padded_shapes(dataset.element_spec)
        if configs.bucket_fn is not None and not configs.full_dataset:
            buckets = configs.bucket_op
            sizes = [of_host(size, self.hosts) for size in buckets.bucket_batch_sizes]
            batches = dataset.bucket_by_sequence_length(
                lambda example: tf.cast(configs.bucket_fn(example), tf.int32),
                buckets.bucket_boundaries,
                sizes,
                padded_shapes=shapes,
                drop_remainder=drop,
            )
            setting = self.stage.drop_setting
            return _with_a_batch(batches, f"no bucket has a full batch; set {setting}=False") if drop else batches
        size = self.stage.batch_size
        if shapes is not None and _needs_padding(shapes, dataset.element_spec):
            return dataset.padded_batch(size, shapes, drop_remainder=drop)
        calls = configs.num_parallel_calls
        parallel = {"num_parallel_calls": calls, "deterministic": deterministic} if calls > 1 else {}
        return dataset.batch(size, drop_remainder=drop, **parallel)

    def _padded_shapes(self, spec: Any) -> Any:
        """The shapes that a batch is padded to, None for the longest in it; None for no padding at all."""
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


def _with_a_batch(batches: Any, otherwise: str) -> Any:
    """The same batches; where there is none, an error at the end says so."""
    optional = tf.experimental.Optional
    end = tf.data.Dataset.from_tensors(0).map(lambda _: optional.empty(batches.element_spec))

    def counted(count: Any, batch: Any) -> Any:
        there = batch.has_value()
        return count + 1, (held(there, there | (count > 0), otherwise), batch)

    marked = batches.map(optional.from_value).concatenate(end).scan(tf.constant(0, tf.int64), counted)
    return marked.filter(lambda there, _: there).map(lambda _, batch: batch.get_value())


def _decoded(field: Field, data: Any) -> Any:
    """An image's pixels: of the channels that all have, else in colours."""
    channels = field.shape[2] if len(field.shape) == _COLOURS else None
    channels = _COLOURS if channels is None else channels
    dtype = "uint16" if field.dtype == "uint16" else "uint8"
    shape = (*(field.shape[:2] or (None, None)), channels)
    return Decoder("image", dtype, shape=shape, channels=channels).in_graph(data)


def _metadata_shape(field: Field | None, spec: Any) -> Any:
    """As many unknown sizes as the metadata know of; for features that callbacks added, TensorFlow's own notion."""
    if field is None:
        return spec.shape
    return [None] * (_COLOURS if is_image(field) else len(field.shape))


def _needs_padding(shapes: Any, spec: Any) -> bool:
    """Ragged and sparse tensors can be batched, but not padded; what has one shape needs no padding."""
    if not isinstance(spec, Mapping):
        dense = all(isinstance(each, tf.TensorSpec) for each in tf.nest.flatten(spec))
        return dense and not all(each.shape.is_fully_defined() for each in tf.nest.flatten(spec))
    return all(isinstance(each, tf.TensorSpec) for each in spec.values()) and not all(
        tf.TensorShape(shapes[name]).is_fully_defined() for name in spec
    )
