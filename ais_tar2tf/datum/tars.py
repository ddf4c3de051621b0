"""Tar shards of the four problems: records in place of files, wherever the core can open them.

classification  an image, and `cls`, `json` (an object of labels), or other texts as labels
detection       an image, and `xml`; `classes.names` beside the shards
segmentation    an image `jpg`, and its mask: `seg.png`, `mask.png`, `label.png` or `png`
text            `txt` or `text`, and labels as in classification
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ais_tar2tf.datum.annotations import class_ids, no_objects, objects_of
from ais_tar2tf.datum.columns import number_or_text
from ais_tar2tf.datum.folders import Attributes, Examples
from ais_tar2tf.datum.images import check_same_size, checked_header, mask_of_ids
from ais_tar2tf.datum.problem import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
from ais_tar2tf.errors import MissingField, SchemaError
from ais_tar2tf.export.places import place_of
from ais_tar2tf.records import NAMES, Record, said_fields
from ais_tar2tf.source import open_source
from ais_tar2tf.stores import split_url
from ais_tar2tf.values import json_value

__all__ = ["TarShards", "is_shards"]

_IMAGES = ("jpg", "jpeg", "png", "gif", "bmp")
_PHOTOS = ("jpg", "jpeg")
_MASKS = ("seg.png", "mask.png", "label.png", "png")
_TEXTS = ("txt", "text")
_SUFFIXES = (".tar", ".tgz", ".tar.")


def is_shards(path: str) -> bool:
    """Whether an input path names shards, or a place in a store, rather than a folder of files."""
    scheme, _, name = split_url(path)
    return scheme != "file" or any(suffix in name.rpartition("/")[2] for suffix in _SUFFIXES)


class TarShards:
    """Shards of each split: its attribute `shards`, `{split}` in the input path, or `<input path>/<split>-*.tar*`."""

    def __init__(self, path: str, splits: Mapping[str, Attributes], problem: str) -> None:
        self._path = path.rstrip("/")
        self._splits = splits
        self._problem = problem
        self._ids: dict[str, int] | None = None

    def __call__(self, split: str, **attributes: Any) -> Examples:
        example = _EXAMPLES[self._problem]
        with open_source(self._shards(split, attributes)) as source:
            for record in source.records():
                where = f"{record['__shard__']}, record {record['__key__']!r}"
                yield record["__key__"], example(self, record, where)

    def _shards(self, split: str, attributes: Attributes) -> str:
        if not any(suffix in self._path.rpartition("/")[2] for suffix in _SUFFIXES):
            return f"{self._path}/{attributes.get('shards', f'{split}-*.tar*')}"
        if "{split}" in self._path:
            return self._path.replace("{split}", split)
        if len(self._splits) > 1:
            raise SchemaError(
                f"{self._path}: the splits {', '.join(self._splits)} need `{{split}}` in the path of shards"
            )
        return self._path

    def ids(self) -> dict[str, int]:
        if self._ids is None:
            folder = self._path.rpartition("/")[0] if is_shards(self._path.rpartition("/")[2]) else self._path
            place = place_of(folder)
            data = place.read("classes.names")
            if data is None:
                raise SchemaError(f"{place.url('classes.names')}: there is no such object; it names the classes")
            self._ids = class_ids(data, place.url("classes.names"))
        return self._ids


def _first(record: Record, fields: tuple[str, ...]) -> tuple[str, Any]:
    found = next((name for name in fields if name in record), None)
    if found is None:
        raise MissingField(
            f"one of {', '.join(fields)} is needed (there are: {said_fields(record)})",
            shard=record["__shard__"],
            key=record["__key__"],
        )
    return found, record[found]


def _labels(record: Record, used: str, where: str) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    for name, value in record.items():
        if name in NAMES or name == used:
            continue
        if name == "json":
            labels.update(_json_labels(value, where))
        else:
            labels["label" if name == "cls" else name] = number_or_text(value)
    return labels


def _json_labels(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json_value(data)
    except SchemaError as error:
        raise SchemaError(f"{where}, field 'json': {error}") from error
    return found if isinstance(found, dict) else {"label": found}


def _classification(_shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    name, image = _first(record, _IMAGES)
    checked_header(image, f"{where}, field {name!r}")
    return {"image": image, **_labels(record, name, where)}


def _detection(shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    name, image = _first(record, _IMAGES)
    checked_header(image, f"{where}, field {name!r}")
    if "xml" not in record:
        return {"image": image, **no_objects()}
    return {"image": image, **objects_of(record["xml"], shards.ids(), f"{where}, field 'xml'")}


def _segmentation(_shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    photo, image = _first(record, _PHOTOS)
    name, found = _first(record, _MASKS)
    mask = mask_of_ids(found)
    header = checked_header(image, f"{where}, field {photo!r}")
    check_same_size(header, checked_header(mask, f"{where}, field {name!r}"), f"{where}, field {name!r}")
    return {"image": image, "label": mask}


def _text(_shards: TarShards, record: Record, where: str) -> dict[str, Any]:
    name, text = _first(record, _TEXTS)
    return {"text": text.decode("utf-8", "surrogateescape"), **_labels(record, name, where)}


_EXAMPLES: dict[str, Callable[[TarShards, Record, str], dict[str, Any]]] = {
    IMAGE_CLF: _classification,
    IMAGE_DET: _detection,
    IMAGE_SEG: _segmentation,
    TEXT_CLF: _text,
}
