"""The folders of the four problems, read example by example. A row or file that is wrong is named.

classification  <split>/*.jpg, <split>.csv with a header: filename, and a column for each label
detection       JPEGImages/, Annotations/*.xml, ImageSets/<split>.txt, classes.names
segmentation    JPEGImages/, SegmentationClass/, <split>.txt
text            <split>*.json: {id: {"text": …, "label": {name: value}}}
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf.csv_files import rows_of
from ais_tar2tf.datum.annotations import class_ids, no_objects, objects_of
from ais_tar2tf.datum.columns import Columns
from ais_tar2tf.datum.images import check_same_size, checked_header, mask_of_ids
from ais_tar2tf.datum.metadata import read_json
from ais_tar2tf.datum.problem import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
from ais_tar2tf.documents import read_file
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import Limits

__all__ = ["FOLDERS", "Attributes", "Examples"]

Attributes = Mapping[str, Any]
Examples = Iterator[tuple[str, dict[str, Any]]]

_CLASSES = "classes.names"
_MOST = Limits().member_bytes


class _Folder:
    """One dataset; `splits` are all that will be asked for: columns have one type in all of them."""

    def __init__(self, path: str | os.PathLike[str], splits: Mapping[str, Attributes]) -> None:
        self.path: Path = Path(path)
        self.splits: Mapping[str, Attributes] = splits
        if not self.path.is_dir():
            raise SchemaError(f"{self.path}: there is no such folder")

    def __call__(self, split: str, **attributes: Any) -> Examples:
        raise NotImplementedError

    def read(self, path: Path, what: str) -> bytes:
        try:
            return read_file(path, most=_MOST, limit="member_bytes", fail=SchemaError)
        except SchemaError:
            raise
        except OSError as error:
            raise SchemaError(f"{path}: this {what} can't be read ({error.strerror})") from error

    def names(self, path: Path) -> list[str]:
        """The ids of a split: the first word of each line, since VOC's own sets have a second one."""
        lines = self.read(path, "list of a split").decode("utf-8", "surrogateescape").splitlines()
        return [line.split()[0] for line in lines if line.strip()]


def _image_path(folder: Path, name: str, extension: str) -> Path:
    """A file by its name without extension; also one with another extension of images, or with its own."""
    path = folder / f"{name}{extension}"
    if path.exists():
        return path
    others = [
        folder / f"{name}{each}" for each in ("", ".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".gif")
    ]
    return next((each for each in others if each.is_file()), path)


class ClassificationFolder(_Folder):
    @functools.cached_property
    def _columns(self) -> Columns:
        return Columns(
            labels for split, given in self.splits.items() for _, _, labels in self._rows(self._csv(split, given))
        )

    def _csv(self, split: str, attributes: Attributes) -> Path:
        return self.path / attributes.get("csv_path", f"{split}.csv")

    def __call__(self, split: str, **attributes: Any) -> Examples:
        images = self.path / attributes.get("image_dir", split)
        path = self._csv(split, attributes)
        for number, name, labels in self._rows(path):
            file = _image_path(images, name, attributes.get("extension", ".jpg"))
            data = self.read(file, f"image of {path}, row {number},")
            checked_header(data, str(file))
            yield name, {"image": data, **self._columns.typed(labels)}

    def _rows(self, path: Path) -> Iterator[tuple[int, str, dict[str, str]]]:
        """(line, filename, labels) of each row."""
        if not path.is_file():
            raise SchemaError(f"{path}: there is no such file; it lists the images of a split and their labels")
        rows = rows_of(path)
        header = [name.strip() for name in next(rows, (0, []))[1]]
        if "filename" not in header or len(header) < 2:
            raise SchemaError(f"{path}: the first row names the columns, `filename` and labels, not {header}")
        for number, cells in rows:
            if len(cells) != len(header):
                raise SchemaError(
                    f"{path}, row {number}: it has {len(cells)} columns, the header {len(header)}: "
                    f"{', '.join(header)}"
                )
            labels = dict(zip(header, cells, strict=True))
            yield number, labels.pop("filename").strip(), labels


class DetectionFolder(_Folder):
    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        path = self.path / _CLASSES
        return class_ids(self.read(path, "list of classes"), str(path))

    def __call__(self, split: str, **attributes: Any) -> Examples:
        images = self.path / attributes.get("image_dir", "JPEGImages")
        annotations = attributes.get("annotation_dir", "Annotations")
        listed = self.path / attributes.get("set_dir", "ImageSets") / f"{split}.txt"
        for name in self.names(listed):
            file = _image_path(images, name, attributes.get("extension", ".jpg"))
            data = self.read(file, f"image of {listed}")
            checked_header(data, str(file))
            yield name, {"image": data, **self._objects(annotations, name)}

    def _objects(self, folder: str | None, name: str) -> dict[str, Any]:
        if folder is None:  # a split without annotations
            return no_objects()
        path = self.path / folder / f"{name}.xml"
        return objects_of(self.read(path, "annotation"), self._ids, str(path))


class SegmentationFolder(_Folder):
    def __call__(self, split: str, **attributes: Any) -> Examples:
        images = self.path / attributes.get("image_dir", "JPEGImages")
        masks = self.path / attributes.get("label_dir", "SegmentationClass")
        listed = self.path / attributes.get("set_dir", "") / f"{split}.txt"
        for name in self.names(listed):
            extension = attributes.get("image_extension", attributes.get("extension", ".jpg"))
            image_file = _image_path(images, name, extension)
            mask_file = masks / f"{name}{attributes.get('label_extension', '.png')}"
            image = self.read(image_file, f"image of {listed}")
            mask = mask_of_ids(self.read(mask_file, f"mask of {listed}"))
            check_same_size(
                checked_header(image, str(image_file)), checked_header(mask, str(mask_file)), str(mask_file)
            )
            yield name, {"image": image, "label": mask}


class TextFolder(_Folder):
    @functools.cached_property
    def _columns(self) -> Columns:
        return Columns(labels for split, given in self.splits.items() for _, _, labels in self._texts(split, given))

    def __call__(self, split: str, **attributes: Any) -> Examples:
        for key, text, labels in self._texts(split, attributes):
            yield key, {"text": text, **self._columns.typed(labels)}

    def _texts(self, split: str, attributes: Attributes) -> Iterator[tuple[str, str, dict[str, Any]]]:
        pattern = attributes.get("json_path", f"{split}*.json")
        paths = sorted(self.path.glob(pattern))
        if not paths:
            raise SchemaError(f"{self.path / pattern}: there is no such file")
        for path in paths:
            yield from _json_texts(self.read(path, "JSON file"), str(path))


def _json_texts(data: bytes, where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for key, entry in read_json(data, where).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str) or "label" not in entry:
            raise SchemaError(f"{where}, {key!r}: an entry has `text` and `label`, not {str(entry)[:80]}")
        label = entry["label"]
        yield key, entry["text"], label if isinstance(label, dict) else {"label": label}


FOLDERS: dict[str, type[_Folder]] = {
    IMAGE_CLF: ClassificationFolder,
    IMAGE_DET: DetectionFolder,
    IMAGE_SEG: SegmentationFolder,
    TEXT_CLF: TextFolder,
}
"""Problem → what reads its folder."""
