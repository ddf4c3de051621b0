"""Exports the examples of all splits to record files, and describes the files in two documents.

    <output_path>/{split}-00000-of-00003.tfrecord …         the record files of each split
    <output_path>/shard_info.json                           the number of records in each file
    <output_path>/datum_to_type_and_shape_mapping.json      the types and shapes of the features

This module must not change a file of an earlier export before all examples are encoded.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.datum.configs import TFRWriteConfigs
from ais_tar2tf.datum.folders import FOLDERS, Attributes, Examples
from ais_tar2tf.datum.metadata import (
    MAPPING,
    SHARD_INFO,
    describe_feature,
    parse_counts,
    parse_schema,
    read_json,
    to_json_bytes,
)
from ais_tar2tf.datum.problem import IMAGE_SEG, TEXT_CLF
from ais_tar2tf.datum.schema_detector import SchemaDetector, encoded_names, to_stored
from ais_tar2tf.datum.tar_shards import TarShards, is_shards
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.recordfiles.export.destinations import Destination
from ais_tar2tf.recordfiles.export.payloads import PayloadFiles, Publication
from ais_tar2tf.recordfiles.export.routing import route_of
from ais_tar2tf.recordfiles.formats.examples import serialized
from ais_tar2tf.values import features
from ais_tar2tf.values.schema import Field, Schema, feature_names, store, wire_dtype

__all__ = ["export_to_tfrecord"]

_COUNTED_SPLITS = ("train", "val", "test")  # for each of them, TFRWriteConfigs has a setting `num_<split>_examples`
_SHAPE_SUFFIX = features.SHAPE.format("")  # ends the name of a feature that holds another feature's shape


def export_to_tfrecord(
    input_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    problem_type: str,
    write_configs: TFRWriteConfigs,
) -> list[str]:
    """Export the splits of a data set, which `write_configs` names, to record files.

    The types and shapes of features, and whether they are sparse or dense, are detected from the examples. The
    exported splits replace the splits of the same names in `output_path`; other splits stay.

    Args:
        input_path: A folder in the layout that `datum/folders.py` states for the problem type, or tar shards, by URL
            or path. If `write_configs.generator` is a class, the class is called with `input_path`.
        output_path: A folder or a URL.
        problem_type: One of `datum.problem.IMAGE_CLF`, `IMAGE_DET`, `IMAGE_SEG`, `TEXT_CLF`; any text when
            `write_configs.generator` is set.
        write_configs: The splits, and further settings.

    Returns:
        The paths or URLs of the record files.

    Raises:
        SchemaError: An example is wrong, a split has no examples, or the number of its examples is not its
            `num_examples`.
        OptionError: The problem type is unknown.
        ExportError: The files cannot be written.
    """
    splits = _merge_splits(write_configs)
    source = location_text(input_path)
    examples = _example_reader(source, problem_type, write_configs, splits)
    floats: frozenset[str] = frozenset()
    fields: dict[str, Field] = {}
    while True:
        encoder = _Encoder(problem_type, write_configs, floats, fields)
        with PayloadFiles(output_path, tuple(splits), size=write_configs.shard_size) as files:
            for split, attributes in splits.items():
                _write_split(files, encoder, source, split, attributes, examples(split, attributes))
            mixed, misplaced = encoder.detector.mixed, encoder.misplaced
            if not mixed and misplaced == fields:
                return _publish(files, encoder.detector)
        # Only all examples together show how to store some features. Encode all examples again.
        if mixed:
            floats |= mixed
        elif fields:
            raise SchemaError(f"{source}: the examples differ each time they are read; yield the same ones each time")
        else:
            fields = misplaced


def _write_split(
    files: PayloadFiles, encoder: _Encoder, source: str, split: str, attributes: Attributes, examples: Examples
) -> None:
    count = 0
    for count, (key, example) in enumerate(examples, 1):  # noqa: B007  # `count` is read after the loop
        files.add(split, encoder.encode(split, key, example))
    expected = attributes.get("num_examples")
    if expected is not None and expected != count:
        raise SchemaError(f"{source}: split {split!r} has {count:,} examples, num_examples says {expected:,}")
    if not count:
        raise SchemaError(f"{source}: split {split!r} has no examples")


def _merge_splits(configs: TFRWriteConfigs) -> dict[str, dict[str, Any]]:
    """Return the attributes of each split. A setting `num_<split>_examples` becomes the attribute `num_examples`."""
    splits: dict[str, dict[str, Any]] = {}
    for name, attributes in (configs.splits or {}).items():
        if not isinstance(attributes, Mapping):
            raise SchemaError(
                f'split {name!r}: its attributes are a dict as {{"num_examples": …}}, not {attributes!r}'
            )
        splits[name] = dict(attributes)
    for name in _COUNTED_SPLITS:
        count = getattr(configs, f"num_{name}_examples")
        if count is None:
            continue
        if splits.setdefault(name, {}).setdefault("num_examples", count) != count:
            raise SchemaError(
                f"split {name!r}: num_examples is {splits[name]['num_examples']}, num_{name}_examples {count}"
            )
    if not splits:
        raise SchemaError('no split is named: say write_configs.splits = {"train": {"num_examples": …}}')
    for name in splits:
        route_of(name)  # raises when the name cannot be part of a file name
    return splits


ExampleReader = Callable[[str, Attributes], Examples]
"""A function that gets the name and the attributes of a split, and returns the examples of that split."""


def _example_reader(
    source: str, problem: str, configs: TFRWriteConfigs, splits: Mapping[str, Attributes]
) -> ExampleReader:
    """Return a function that reads examples: from the user's generator, from tar shards, or from a folder."""
    custom = configs.generator
    if custom is not None:
        if not callable(custom):
            raise OptionTypeError(f"TFRWriteConfigs.generator is a class or a callable, not {custom!r}")
        generator: Any = custom(source) if isinstance(custom, type) else custom
        return lambda split, attributes: _with_keys(generator(**{**attributes, "split": split}))
    if problem not in FOLDERS:
        raise OptionError(f"problem_type is one of {', '.join(FOLDERS)}, not {problem!r}")
    reader = TarShards(source, splits, problem) if is_shards(source) else FOLDERS[problem](source, splits)
    return lambda split, attributes: reader(split, **{k: v for k, v in attributes.items() if k != "num_examples"})


def _with_keys(examples: Any) -> Examples:
    """Yield pairs of a key and an example. An example that has no key gets its number, from 0 on, as key."""
    for number, yielded in enumerate(examples):
        key, example = (number, yielded) if isinstance(yielded, Mapping) else yielded
        yield str(key), dict(example)


class _Encoder:
    """Serializes examples, and detects the schema of all examples together.

    Args:
        problem: The problem type. It determines which features are images.
        configs: The settings. The encoder uses the serializer and the names of sparse features.
        floats: The features whose integers are converted to floats.
        fields: The features that are encoded by a field, and these fields.
    """

    def __init__(
        self, problem: str, configs: TFRWriteConfigs, floats: frozenset[str], fields: Mapping[str, Field]
    ) -> None:
        self.detector: SchemaDetector = SchemaDetector(configs.sparse_features)
        self._serializer: Callable[[dict[str, Any]], Any] | None = configs.serializer
        self._floats = floats
        self._fields = fields
        self._images = () if problem == TEXT_CLF else ("image", "label") if problem == IMAGE_SEG else ("image",)

    @property
    def misplaced(self) -> dict[str, Field]:
        """`SchemaDetector.misplaced`; empty if the user's serializer decides how features are stored."""
        return self.detector.misplaced if self._serializer is None else {}

    def encode(self, split: str, key: str, example: dict[str, Any]) -> bytes:
        """Return an example as a serialized tf.train.Example, and add its features to the detected schema."""
        try:
            stored = to_stored(self._read_images(example), self._floats)
            payload = self._serialize(stored)
            self.detector.add(self._written_features(stored, payload))
        except (SchemaError, TypeError) as error:
            raise SchemaError(f"split {split!r}, example {key!r}: {error}") from error
        return payload

    def _serialize(self, stored: dict[str, Any]) -> bytes:
        if self._serializer is not None:
            return serialized(self._serializer(stored))
        by_field = {name: field for name, field in self._fields.items() if name in stored}
        replaced = {*by_field, *map(features.SHAPE.format, by_field)} if by_field else ()
        content = {name: value for name, value in stored.items() if name not in replaced}
        for name, field in by_field.items():
            content.update(store(field, stored[name]))
        return features.encode(content)

    def _read_images(self, example: dict[str, Any]) -> dict[str, Any]:
        """Return the example with the path of each image replaced by the bytes of the image file."""
        paths = {name: example[name] for name in self._images if isinstance(example.get(name), str | os.PathLike)}
        try:
            return {**example, **{name: Path(path).read_bytes() for name, path in paths.items()}}
        except OSError as error:
            raise SchemaError(f"{error.filename}: this image can't be read ({error.strerror})") from error

    def _written_features(self, stored: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """Return the features in `payload`, without the features that hold the shape of another feature."""
        if self._serializer is None:
            written: Mapping[str, Any] = stored
        else:  # the serializer may have added or dropped features
            decoded = features.decode(payload)
            written = {name: _written_value(name, stored.get(name), values) for name, values in decoded.items()}
        if not any(name.endswith(_SHAPE_SUFFIX) for name in written):
            return dict(written)
        shapes = {features.SHAPE.format(name) for name in written}
        return {name: value for name, value in written.items() if name not in shapes}


def _written_value(name: str, value: Any, decoded: Any) -> Any:
    """Return the value whose feature the user's serializer has written as the list `decoded`.

    The list keeps no shape, so the value itself is returned. But a ragged or sparse value is not written as one list;
    if the serializer wrote one all the same, it has flattened the value.
    """
    if value is None:
        return decoded[0] if len(decoded) == 1 else decoded
    return value if name in encoded_names(name, value) else decoded


def _file_name(split: str, number: int, total: int) -> str:
    return f"{split}-{number:05d}-of-{total:05d}.tfrecord"


def _publish(files: PayloadFiles, detector: SchemaDetector) -> list[str]:
    counts = {
        split: {_file_name(split, file.number, len(group)): file.records for file in group}
        for split, group in files.finish().items()
    }
    return files.publish(_publication(files.destination, counts, detector.schema))


def _publication(destination: Destination, counts: dict[str, dict[str, int]], exported: Schema) -> Publication:
    """Return the publication that replaces the exported splits in `destination`, and keeps all other splits there.

    While files are replaced, `shard_info.json` lists only these other splits. If there are none, the file is deleted.

    Args:
        destination: The folder or URL of the files.
        counts: The number of records in each file, by split and file name.
        exported: The schema of the exported splits.
    """

    def other_splits() -> dict[str, dict[str, int]]:
        existing = parse_counts(_read_document(destination, SHARD_INFO), destination.url(SHARD_INFO))
        return {split: files for split, files in existing.items() if split not in counts}

    def interim_documents() -> dict[str, bytes | None]:
        others = other_splits()
        return {SHARD_INFO: to_json_bytes(others) if others else None}

    def documents() -> dict[str, bytes]:
        others = other_splits()
        schema = _merge_schemas(destination, others, exported) if others else exported
        return {
            MAPPING: to_json_bytes({field.name: describe_feature(field) for field in schema}),
            SHARD_INFO: to_json_bytes({**others, **counts}),
        }

    documents()  # if the documents cannot be made, raise the error now, before any file changes
    patterns = [re.compile(rf"{re.escape(split)}-\d{{5,}}-of-\d{{5,}}\.tfrecord") for split in counts]
    stale = [name for name in destination.names("") if any(pattern.fullmatch(name) for pattern in patterns)]
    return Publication(names=_file_name, interim_documents=interim_documents, documents=documents, stale=stale)


def _merge_schemas(destination: Destination, others: Mapping[str, Any], exported: Schema) -> Schema:
    """Merge the schema of the exported splits with the schema of `others`, the splits that stay there."""
    existing = parse_schema(_read_document(destination, MAPPING), destination.url(MAPPING))
    for field in exported:
        if field.name in existing and not _stored_alike(existing[field.name], field):
            raise SchemaError(
                f"{destination.url(MAPPING)}: feature {field.name!r} is {existing[field.name].type_text} in "
                f"{', '.join(others)}, {field.type_text} in what is exported now; export all splits together, or to "
                "another place"
            )
    return existing.merge(exported)


def _stored_alike(one: Field, other: Field) -> bool:
    """Return whether the examples of both fields can be read by one field, which is merged of both."""
    if wire_dtype(one) != wire_dtype(other):
        return False
    # The shape is stored with every array, whether the field needs it or not.
    needed = {*feature_names(one.merge(other))} - {features.SHAPE.format(one.name)}
    return all(needed.issubset(feature_names(each)) for each in (one, other))


def _read_document(destination: Destination, name: str) -> dict[str, Any]:
    data = destination.read(name)
    return {} if data is None else read_json(data, destination.url(name))
