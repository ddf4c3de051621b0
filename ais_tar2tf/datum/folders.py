"""The readers of Datum's folder layouts. A *problem* is a kind of task, and each problem has one layout.

    classification  <split>/*.jpg, <split>.csv with a header: filename, and a column for each label
    detection       JPEGImages/, Annotations/*.xml, ImageSets/<split>.txt, classes.names
    segmentation    JPEGImages/, SegmentationClass/, <split>.txt
    text            <split>*.json: {id: {"text": …, "label": {name: value}}}

The readers yield each example as a dict, and must not serialize it. An error names the faulty row or file.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf.base.csv_files import csv_rows
from ais_tar2tf.base.documents.sealed import read_file
from ais_tar2tf.datum.annotations import empty_objects, parse_class_ids, parse_objects
from ais_tar2tf.datum.columns import Columns
from ais_tar2tf.datum.images import check_image, segmentation_example
from ais_tar2tf.datum.metadata import read_json
from ais_tar2tf.datum.problem import IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import Limits

__all__ = ["FOLDERS", "Attributes", "Examples"]

Attributes = Mapping[str, Any]
"""The attributes of a split in `TFRWriteConfigs.splits`. They replace parts of the layout, such as folder names."""

Examples = Iterator[tuple[str, dict[str, Any]]]
"""Pairs of a key and an example, which is a dict of features."""

_CLASSES = "classes.names"
_MAX_FILE_BYTES = Limits().member_bytes
_IMAGE_EXTENSIONS = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", ".bmp", ".gif")


class ProblemFolder:
    """A data set in a folder. To read the examples of a split, call the object with the split and its attributes.

    Args:
        path: The folder.
        splits: All splits that will be read, with their attributes. Labels of one column have the same type in all
            splits, so this type is derived from the labels of all splits.
    """

    def __init__(self, path: str | os.PathLike[str], splits: Mapping[str, Attributes]) -> None:
        self.path: Path = Path(path)
        self.splits: Mapping[str, Attributes] = splits
        if not self.path.is_dir():
            raise SchemaError(f"{self.path}: there is no such folder")

    def __call__(self, split: str, **attributes: Any) -> Examples:
        raise NotImplementedError

    def read(self, path: Path, what: str) -> bytes:
        """Return the bytes of a file. Errors call the file `what`, for example "annotation"."""
        try:
            return read_file(path, most=_MAX_FILE_BYTES, limit="member_bytes", fail=SchemaError)
        except SchemaError:
            raise
        except OSError as error:
            raise SchemaError(f"{path}: this {what} can't be read ({error.strerror})") from error

    def read_ids(self, path: Path) -> list[str]:
        """Return the ids of images in a file that lists a split: the first word of each line.

        The rest of a line is ignored: lists of the data set Pascal VOC may have more words there.
        """
        lines = self.read(path, "list of a split").decode("utf-8", "surrogateescape").splitlines()
        return [line.split()[0] for line in lines if line.strip()]


def _find_image(folder: Path, name: str, extension: str) -> Path:
    """Return the path of an image in a folder.

    Look for the file `name` + `extension`, then for the file `name`, and then for `name` with other extensions of
    images. If there is no such file, return the path of `name` + `extension`: reading this path raises an error.
    """
    paths = [folder / f"{name}{each}" for each in (extension, "", *_IMAGE_EXTENSIONS)]
    return next((path for path in paths if path.is_file()), paths[0])


class ClassificationFolder(ProblemFolder):
    """A folder of images for each split, with a CSV file of labels."""

    @functools.cached_property
    def _columns(self) -> Columns:
        return Columns(
            labels
            for split, attributes in self.splits.items()
            for _, _, labels in self._rows(self._csv_path(split, attributes))
        )

    def _csv_path(self, split: str, attributes: Attributes) -> Path:
        return self.path / attributes.get("csv_path", f"{split}.csv")

    def __call__(self, split: str, **attributes: Any) -> Examples:
        images = self.path / attributes.get("image_dir", split)
        path = self._csv_path(split, attributes)
        for number, name, labels in self._rows(path):
            file = _find_image(images, name, attributes.get("extension", ".jpg"))
            data = self.read(file, f"image of {path}, row {number},")
            check_image(data, str(file))
            yield name, {"image": data, **self._columns.typed(labels)}

    def _rows(self, path: Path) -> Iterator[tuple[int, str, dict[str, str]]]:
        """Yield, for each row, its line number, the name of its image and its labels."""
        if not path.is_file():
            raise SchemaError(f"{path}: there is no such file; it lists the images of a split and their labels")
        rows = csv_rows(path)
        first = next(rows, None)
        header = [name.strip() for name in first.cells] if first else []
        if "filename" not in header or len(header) < 2:
            raise SchemaError(f"{path}: the first row names the columns, `filename` and labels, not {header}")
        for row in rows:
            if len(row.cells) != len(header):
                raise SchemaError(
                    f"{path}, row {row.line}: it has {len(row.cells)} columns, the header {len(header)}: "
                    f"{', '.join(header)}"
                )
            labels = dict(zip(header, row.cells, strict=True))
            yield row.line, labels.pop("filename").strip(), labels


class DetectionFolder(ProblemFolder):
    """A folder of images and their annotations, in the layout of Pascal VOC."""

    @functools.cached_property
    def _class_ids(self) -> dict[str, int]:
        path = self.path / _CLASSES
        return parse_class_ids(self.read(path, "list of classes"), str(path))

    def __call__(self, split: str, **attributes: Any) -> Examples:
        images = self.path / attributes.get("image_dir", "JPEGImages")
        annotations = attributes.get("annotation_dir", "Annotations")
        ids_file = self.path / attributes.get("set_dir", "ImageSets") / f"{split}.txt"
        for name in self.read_ids(ids_file):
            file = _find_image(images, name, attributes.get("extension", ".jpg"))
            data = self.read(file, f"image of {ids_file}")
            check_image(data, str(file))
            yield name, {"image": data, **self._objects(annotations, name)}

    def _objects(self, folder: str | None, name: str) -> dict[str, Any]:
        if folder is None:  # `annotation_dir` is None: the split has no annotations
            return empty_objects()
        path = self.path / folder / f"{name}.xml"
        return parse_objects(self.read(path, "annotation"), self._class_ids, str(path))


class SegmentationFolder(ProblemFolder):
    """A folder of images, each with a mask of the same size. The pixels of a mask are class ids."""

    def __call__(self, split: str, **attributes: Any) -> Examples:
        images = self.path / attributes.get("image_dir", "JPEGImages")
        masks = self.path / attributes.get("label_dir", "SegmentationClass")
        ids_file = self.path / attributes.get("set_dir", "") / f"{split}.txt"
        for name in self.read_ids(ids_file):
            extension = attributes.get("image_extension", attributes.get("extension", ".jpg"))
            image_file = _find_image(images, name, extension)
            mask_file = masks / f"{name}{attributes.get('label_extension', '.png')}"
            image = self.read(image_file, f"image of {ids_file}")
            mask = self.read(mask_file, f"mask of {ids_file}")
            yield name, segmentation_example(image, str(image_file), mask, str(mask_file))


class TextFolder(ProblemFolder):
    """A folder of JSON files with texts and their labels."""

    @functools.cached_property
    def _columns(self) -> Columns:
        return Columns(
            labels for split, attributes in self.splits.items() for _, _, labels in self._texts(split, attributes)
        )

    def __call__(self, split: str, **attributes: Any) -> Examples:
        for key, text, labels in self._texts(split, attributes):
            yield key, {"text": text, **self._columns.typed(labels)}

    def _texts(self, split: str, attributes: Attributes) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """Yield the key, the text and the labels of each entry."""
        pattern = attributes.get("json_path", f"{split}*.json")
        paths = sorted(self.path.glob(pattern))
        if not paths:
            raise SchemaError(f"{self.path / pattern}: there is no such file")
        for path in paths:
            yield from _parse_texts(self.read(path, "JSON file"), str(path))


def _parse_texts(data: bytes, where: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for key, entry in read_json(data, where).items():
        if not isinstance(entry, dict) or not isinstance(entry.get("text"), str) or "label" not in entry:
            raise SchemaError(f"{where}, {key!r}: an entry has `text` and `label`, not {str(entry)[:80]}")
        label = entry["label"]
        yield key, entry["text"], label if isinstance(label, dict) else {"label": label}


FOLDERS: dict[str, type[ProblemFolder]] = {
    IMAGE_CLF: ClassificationFolder,
    IMAGE_DET: DetectionFolder,
    IMAGE_SEG: SegmentationFolder,
    TEXT_CLF: TextFolder,
}
"""From each problem to the class that reads a folder in the layout of this problem."""
