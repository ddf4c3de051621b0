"""`export_to_tfrecord`: every example of every split into record files, with the two documents beside them.

<output_path>/{split}-00000-of-00003.tfrecord …, shard_info.json, datum_to_type_and_shape_mapping.json
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf import features
from ais_tar2tf.datum.configs import TFRWriteConfigs
from ais_tar2tf.datum.detection import Detection, with_shapes
from ais_tar2tf.datum.folders import FOLDERS, Attributes, Examples
from ais_tar2tf.datum.metadata import MAPPING, SHARD_INFO, counts_of, described, json_bytes, read_json, schema_of
from ais_tar2tf.datum.problem import IMAGE_SEG, TEXT_CLF
from ais_tar2tf.datum.tars import TarShards, is_shards
from ais_tar2tf.errors import OptionError, OptionTypeError, SchemaError
from ais_tar2tf.export.payloads import PayloadFiles, Publication
from ais_tar2tf.export.places import Destination
from ais_tar2tf.export.serializers import serialized
from ais_tar2tf.export.splits import route_of
from ais_tar2tf.locations import location_text
from ais_tar2tf.schema import Schema, wire_dtype

__all__ = ["export_to_tfrecord"]

_COUNTS = ("train", "val", "test")
_SIZES = features.SHAPE.format("")


def export_to_tfrecord(
    input_path: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    problem_type: str,
    write_configs: TFRWriteConfigs,
) -> list[str]:
    """Export a dataset of the problem `problem_type`; gives the files written.

    `input_path` is a folder in that problem's layout, or tar shards by URL or path; `output_path` a folder or a
    URL. Types, shapes, sparse or dense: all is found in the examples. Splits that are there and are not exported
    now stay; those that are get replaced.
    """
    splits = _splits_of(write_configs)
    source = location_text(input_path)
    examples = _generator(source, problem_type, write_configs, splits)
    floats: frozenset[str] = frozenset()
    while True:
        encode = _Encoder(problem_type, write_configs, floats)
        with PayloadFiles(output_path, tuple(splits), size=write_configs.shard_size) as files:
            for split, attributes in splits.items():
                _write_split(files, encode, source, split, attributes, examples(split, attributes))
            if not encode.detection.mixed:
                return _publish(files, encode.detection)
        floats |= encode.detection.mixed  # once more: what was written as whole numbers is to be floats


def _write_split(
    files: PayloadFiles, encode: _Encoder, source: str, split: str, attributes: Attributes, examples: Examples
) -> None:
    count = 0
    for count, (key, example) in enumerate(examples, 1):  # noqa: B007  # counted behind
        files.add(split, encode(split, key, example))
    said = attributes.get("num_examples")
    if said is not None and said != count:
        raise SchemaError(f"{source}: split {split!r} has {count:,} examples, num_examples says {said:,}")
    if not count:
        raise SchemaError(f"{source}: split {split!r} has no examples")


def _splits_of(configs: TFRWriteConfigs) -> dict[str, dict[str, Any]]:
    """Split → attributes, with the counts that were said apart from them."""
    splits: dict[str, dict[str, Any]] = {}
    for name, attributes in (configs.splits or {}).items():
        if not isinstance(attributes, Mapping):
            raise SchemaError(
                f'split {name!r}: its attributes are a dict as {{"num_examples": …}}, not {attributes!r}'
            )
        splits[name] = dict(attributes)
    for name in _COUNTS:
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
        route_of(name)  # it is part of files' names
    return splits


Generator = Callable[[str, Attributes], Examples]


def _generator(source: str, problem: str, configs: TFRWriteConfigs, splits: Mapping[str, Attributes]) -> Generator:
    """What gives the examples of a split: a custom generator, shards, or a folder of the problem."""
    custom = configs.generator
    if custom is not None:
        if not callable(custom):
            raise OptionTypeError(f"TFRWriteConfigs.generator is a class or a callable, not {custom!r}")
        made: Any = custom(source) if isinstance(custom, type) else custom
        return lambda split, attributes: _keyed(made(**{**attributes, "split": split}))
    if problem not in FOLDERS:
        raise OptionError(f"problem_type is one of {', '.join(FOLDERS)}, not {problem!r}")
    reader = TarShards(source, splits, problem) if is_shards(source) else FOLDERS[problem](source, splits)
    return lambda split, attributes: reader(split, **{k: v for k, v in attributes.items() if k != "num_examples"})


def _keyed(examples: Any) -> Examples:
    for number, each in enumerate(examples):
        key, example = (number, each) if isinstance(each, Mapping) else each
        yield str(key), dict(example)


class _Encoder:
    """From an example to its bytes, noting what it is."""

    def __init__(self, problem: str, configs: TFRWriteConfigs, floats: frozenset[str]) -> None:
        self.detection: Detection = Detection(configs.sparse_features)
        self._serializer: Callable[[dict[str, Any]], Any] | None = configs.serializer
        self._floats = floats
        self._files = () if problem == TEXT_CLF else ("image", "label") if problem == IMAGE_SEG else ("image",)

    def __call__(self, split: str, key: str, example: dict[str, Any]) -> bytes:
        try:
            stored = with_shapes(self._with_files(example), self._floats)
            payload = features.encode(stored) if self._serializer is None else serialized(self._serializer(stored))
            self.detection.add(self._seen(stored, payload))
        except (SchemaError, TypeError) as error:
            raise SchemaError(f"split {split!r}, example {key!r}: {error}") from error
        return payload

    def _with_files(self, example: dict[str, Any]) -> dict[str, Any]:
        """Images that a generator gave as paths, read."""
        paths = {name: example[name] for name in self._files if isinstance(example.get(name), str | os.PathLike)}
        try:
            return {**example, **{name: Path(path).read_bytes() for name, path in paths.items()}}
        except OSError as error:
            raise SchemaError(f"{error.filename}: this image can't be read ({error.strerror})") from error

    def _seen(self, stored: dict[str, Any], payload: bytes) -> dict[str, Any]:
        """The features, without the sizes beside them; of a serializer of one's own, what it wrote."""
        if self._serializer is None:
            wrote: Mapping[str, Any] = stored
        else:
            found = features.decode(payload)
            wrote = {
                name: stored.get(name, values[0] if len(values) == 1 else values) for name, values in found.items()
            }
        if not any(name.endswith(_SIZES) for name in wrote):
            return dict(wrote)
        sizes = {features.SHAPE.format(name) for name in wrote}
        return {name: value for name, value in wrote.items() if name not in sizes}


def _file_name(split: str, number: int, total: int) -> str:
    return f"{split}-{number:05d}-of-{total:05d}.tfrecord"


def _publish(files: PayloadFiles, detection: Detection) -> list[str]:
    info = {
        split: {_file_name(split, file.number, len(group)): file.records for file in group}
        for split, group in files.finish().items()
    }
    return files.publish(_publication(files.place, info, detection.schema))


def _publication(place: Destination, info: dict[str, dict[str, int]], found: Schema) -> Publication:
    """The new splits beside those that stay; while files change, the documents know only those."""

    def kept() -> dict[str, dict[str, int]]:
        before = counts_of(_document(place, SHARD_INFO), place.url(SHARD_INFO))
        return {split: files for split, files in before.items() if split not in info}

    def meanwhile() -> dict[str, bytes | None]:
        others = kept()
        return {SHARD_INFO: json_bytes(others) if others else None}

    def documents() -> dict[str, bytes]:
        others = kept()
        schema = _with_kept(place, others, found) if others else found
        return {
            MAPPING: json_bytes({field.name: described(field) for field in schema}),
            SHARD_INFO: json_bytes({**others, **info}),
        }

    documents()  # raises before anything changes
    patterns = [re.compile(rf"{re.escape(split)}-\d{{5,}}-of-\d{{5,}}\.tfrecord") for split in info]
    stale = [name for name in place.names("") if any(pattern.fullmatch(name) for pattern in patterns)]
    return Publication(names=_file_name, meanwhile=meanwhile, documents=documents, stale=stale)


def _with_kept(place: Destination, kept: Mapping[str, Any], found: Schema) -> Schema:
    """One schema for the new splits and for those that stay."""
    old = schema_of(_document(place, MAPPING), place.url(MAPPING))
    for field in found:
        if field.name in old and wire_dtype(old[field.name]) != wire_dtype(field):
            raise SchemaError(
                f"{place.url(MAPPING)}: feature {field.name!r} is {old[field.name].type_text} in {', '.join(kept)}, "
                f"{field.type_text} in what is exported now; export all splits together, or to another place"
            )
    return old.merge(found)


def _document(place: Destination, name: str) -> dict[str, Any]:
    data = place.read(name)
    return {} if data is None else read_json(data, place.url(name))
