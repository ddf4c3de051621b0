"""The documents that let TFDS read an export: `features.json`, `dataset_info.json`, and a file for each label field.

A label field holds class numbers. Its file lists the names of the classes.

This module must not import `tensorflow_datasets`, and must not do I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ais_tar2tf.recordfiles.export.manifest import Manifest
from ais_tar2tf.values.schema import TEXT_DTYPES, Field

__all__ = ["FEATURES", "METADATA", "labels_name", "metadata"]

FEATURES = "features.json"
METADATA = (FEATURES, "dataset_info.json")
_CORE = "tensorflow_datasets.core.features."
_IMAGES = ("jpeg", "png")


def metadata(manifest: Manifest) -> dict[str, bytes]:
    """Return the documents of an export, by file name.

    The result is empty if TFDS cannot read the format of the export, or one of its fields. A file of class names is
    left out if TFDS could not read one of the names from a line.
    """
    fields = list(manifest.schema)
    if not manifest.record_format.read_by_tfds or any(field.sparse or field.ragged for field in fields):
        return {}
    classes = {field.name: manifest.classes[field.name] for field in fields if _is_label(field, manifest)}
    documents = (_features(fields, classes), _info(manifest))
    described = {
        name: json.dumps(document, indent=4, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogateescape")
        for name, document in zip(METADATA, documents, strict=True)
    }
    for feature, names in classes.items():
        if all(map(_is_line, names)):
            described[labels_name(feature)] = "".join(f"{each}\n" for each in names).encode()
    return described


def labels_name(feature: str) -> str:
    """Return the name of the file from which TFDS reads the class names of a feature."""
    return f"{feature}.labels.txt"


def _is_label(field: Field, manifest: Manifest) -> bool:
    """Return whether a field holds one class number in each record, and `manifest` names the classes."""
    is_number = field.dtype == "int64" and field.encoding == "list" and not field.shape and field.dense
    return is_number and field.name in manifest.classes


def _is_line(name: str) -> bool:
    """Return whether TFDS can read a class name from a line of a file. TFDS strips lines and skips empty lines."""
    return bool(name) and name == name.strip() and name.isprintable()


def _features(fields: list[Field], classes: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    features = {
        field.name: _class_label(classes[field.name]) if field.name in classes else _feature(field)
        for field in fields
    }
    return {"pythonClassName": f"{_CORE}features_dict.FeaturesDict", "featuresDict": {"features": features}}


def _class_label(names: Sequence[str]) -> dict[str, Any]:
    label = {"numClasses": str(len(names))}
    return {"pythonClassName": f"{_CORE}class_label_feature.ClassLabel", "classLabel": label}


def _feature(field: Field) -> dict[str, Any]:
    """Return the TFDS feature for a field.

    An optional field becomes a sequence, which is empty in records that lack the field.
    """
    if field.encoding == "image" and field.format in _IMAGES and field.dtype == "uint8" and not field.optional:
        image = {"shape": _shape(field.shape or (None, None, None)), "dtype": "uint8", "encodingFormat": field.format}
        return {"pythonClassName": f"{_CORE}image_feature.Image", "image": image}
    is_string = field.is_file or field.dtype in TEXT_DTYPES
    dtype = "string" if is_string else field.dtype
    shape = () if field.is_file else field.shape
    if field.optional:
        shape = (None,)
    encoding = "bytes" if field.encoding == "raw" else "none"
    if not shape and encoding == "none":
        return {"pythonClassName": f"{_CORE}scalar.Scalar", "tensor": _tensor(dtype, (), encoding)}
    return {"pythonClassName": f"{_CORE}tensor_feature.Tensor", "tensor": _tensor(dtype, shape, encoding)}


def _tensor(dtype: str, shape: tuple[int | None, ...], encoding: str) -> dict[str, Any]:
    return {"shape": _shape(shape), "dtype": dtype, "encoding": encoding}


def _shape(shape: tuple[int | None, ...]) -> dict[str, Any]:
    return {"dimensions": ["-1" if size is None else str(size) for size in shape]} if shape else {}


def _info(manifest: Manifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "version": "1.0.0",
        "fileFormat": manifest.format,
        "splits": [
            {
                "name": name,
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "numBytes": str(entry.bytes),
                "shardLengths": [str(file.records) for file in entry.files],
            }
            for name, entry in sorted(manifest.splits.items())
        ],
    }
