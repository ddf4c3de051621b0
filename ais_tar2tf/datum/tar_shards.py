"""The reader of tar shards for Datum's exports. It turns each record into an example of one of Datum's problems.

A *problem* is a kind of task, and decides which fields a record needs:

classification  an image, and labels: `cls`, `json` (an object of labels), or any other text fields
detection       an image, and its boxes in `xml`. The folder of the shards must hold the file `classes.names`
segmentation    an image in `jpg` or `jpeg`, and its mask in `seg.png`, `mask.png`, `label.png` or `png`
text            a text in `txt` or `text`, and labels as in classification

This module reads shards only by `t2t.open`. The only file that it reads by itself is `classes.names`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.datum.annotations import empty_objects, parse_class_ids, parse_objects
from ais_tar2tf.datum.columns import parse_value
from ais_tar2tf.datum.folders import Attributes, Examples
from ais_tar2tf.datum.images import check_image, segmentation_example
from ais_tar2tf.datum.problem import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
from ais_tar2tf.errors import MissingField, SchemaError
from ais_tar2tf.recordfiles.export.destinations import open_destination
from ais_tar2tf.records import KEY_AND_SHARD, Record, listed_fields
from ais_tar2tf.stores import split_url

__all__ = ["TarShards", "is_shards"]

_IMAGES = ("jpg", "jpeg", "png", "gif", "bmp")
_PHOTOS = ("jpg", "jpeg")
_MASKS = ("seg.png", "mask.png", "label.png", "png")
_TEXTS = ("txt", "text")
_SUFFIXES = (".tar", ".tgz", ".tar.")


def is_shards(path: str) -> bool:
    """Return whether an input path is a URL, or names tar shards. Any other path is a folder (`datum.folders`)."""
    scheme, _, name = split_url(path)
    return scheme != "file" or any(suffix in name.rpartition("/")[2] for suffix in _SUFFIXES)


class TarShards:
    """A reader of tar shards. Call the object with a split and the split's attributes to read its examples.

    If the input path names tar shards, the split's name replaces `{split}` in the path. Otherwise, the path is a
    folder. The split's attribute `shards` then names the shards in this folder; its default is `<split>-*.tar*`.

    Args:
        path: The input path.
        splits: The attributes of all splits.
        problem: One of the constants of `datum.problem`.
    """

    def __init__(self, path: str, splits: Mapping[str, Attributes], problem: str) -> None:
        self._path = path.rstrip("/")
        self._splits = splits
        self._problem = problem

    def __call__(self, split: str, **attributes: Any) -> Examples:
        to_example = _CONVERSIONS[self._problem]
        with t2t.open(self._shards(split, attributes)) as source:
            for record in source.records():
                where = f"{record['__shard__']}, record {record['__key__']!r}"
                yield record["__key__"], to_example(self, record, where)

    def _shards(self, split: str, attributes: Attributes) -> str:
        """Return the path or the template of the shards of a split."""
        if not any(suffix in self._path.rpartition("/")[2] for suffix in _SUFFIXES):
            return f"{self._path}/{attributes.get('shards', f'{split}-*.tar*')}"
        if "{split}" in self._path:
            return self._path.replace("{split}", split)
        if len(self._splits) > 1:
            raise SchemaError(
                f"{self._path}: the splits {', '.join(self._splits)} need `{{split}}` in the path of the shards"
            )
        return self._path

    @functools.cached_property
    def class_ids(self) -> dict[str, int]:
        """The id of each class, from `classes.names` in the folder of the shards."""
        is_template = is_shards(self._path.rpartition("/")[2])
        folder = open_destination(self._path.rpartition("/")[0] if is_template else self._path)
        data, url = folder.read("classes.names"), folder.url("classes.names")
        if data is None:
            raise SchemaError(f"{url}: this file must list the names of the classes, and does not exist")
        return parse_class_ids(data, url)


def _first(record: Record, fields: tuple[str, ...]) -> tuple[str, Any]:
    """Return the name and the value of the first of `fields` that the record has."""
    field = next((name for name in fields if name in record), None)
    if field is None:
        raise MissingField(
            f"one of {', '.join(fields)} is needed as a field (the record has: {listed_fields(record)})",
            shard=record["__shard__"],
            key=record["__key__"],
        )
    return field, record[field]


def _labels(record: Record, input_field: str, where: str) -> dict[str, Any]:
    """Return the values of all fields except `input_field`, by label name. `where` names the record in errors."""
    labels: dict[str, Any] = {}
    for name, value in record.items():
        if name in KEY_AND_SHARD or name == input_field:
            continue
        if name == "json":
            labels.update(_parse_labels(value, where))
        else:
            labels["label" if name == "cls" else name] = parse_value(value)
    return labels


def _parse_labels(data: bytes, where: str) -> dict[str, Any]:
    """Return the labels of a `json` field. A value that is no JSON object becomes the label `label`."""
    try:
        value = json_value(data)
    except SchemaError as error:
        raise SchemaError(f"{where}, field 'json': {error}") from error
    return value if isinstance(value, dict) else {"label": value}


def _classification(_shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    name, image = _first(record, _IMAGES)
    check_image(image, f"{where}, field {name!r}")
    return {"image": image, **_labels(record, name, where)}


def _detection(shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    name, image = _first(record, _IMAGES)
    check_image(image, f"{where}, field {name!r}")
    if "xml" not in record:
        return {"image": image, **empty_objects()}
    return {"image": image, **parse_objects(record["xml"], shards.class_ids, f"{where}, field 'xml'")}


def _segmentation(_shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    image_field, image = _first(record, _PHOTOS)
    mask_field, mask = _first(record, _MASKS)
    return segmentation_example(image, f"{where}, field {image_field!r}", mask, f"{where}, field {mask_field!r}")


def _text(_shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    name, text = _first(record, _TEXTS)
    return {"text": text.decode("utf-8", "surrogateescape"), **_labels(record, name, where)}


_CONVERSIONS: dict[str, Callable[[TarShards, Record, str], dict[str, Any]]] = {
    IMAGE_CLF: _classification,
    IMAGE_DET: _detection,
    IMAGE_SEG: _segmentation,
    TEXT_CLF: _text,
}
