"""What TFDS needs to read the files: features.json and dataset_info.json, written without it."""

from __future__ import annotations

import json
from typing import Any

from ais_tar2tf.export.manifest import Manifest
from ais_tar2tf.export.observed import Seen

__all__ = ["METADATA", "metadata"]

METADATA = ("features.json", "dataset_info.json")
_TFDS_FORMATS = ("tfrecord", "array_record")
_CORE = "tensorflow_datasets.core.features."
_DTYPES = {"bytes": "string", "float": "float32", "int64": "int64"}


def metadata(manifest: Manifest) -> dict[str, bytes]:
    """File name → content; nothing for formats that TFDS does not read."""
    if manifest.format not in _TFDS_FORMATS:
        return {}
    documents = (_features(manifest), _info(manifest))
    return {
        name: json.dumps(document, indent=4, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogateescape")
        for name, document in zip(METADATA, documents, strict=True)
    }


def _features(manifest: Manifest) -> dict[str, Any]:
    seen = {name: _feature(each, manifest.observed.records) for name, each in manifest.observed.features.items()}
    return {"pythonClassName": f"{_CORE}features_dict.FeaturesDict", "featuresDict": {"features": seen}}


def _feature(seen: Seen, records: int) -> dict[str, Any]:
    """One value in every record is a scalar, the same number of them a vector, any other number, or none, a sequence."""
    dtype = _DTYPES[seen.kind]
    always = seen.records == records
    if always and seen.least == seen.most == 1:
        return {"pythonClassName": f"{_CORE}scalar.Scalar", "tensor": _tensor(dtype, {})}
    length = seen.most if always and seen.least == seen.most else -1
    shape = {"dimensions": [str(length)]}
    return {"pythonClassName": f"{_CORE}tensor_feature.Tensor", "tensor": _tensor(dtype, shape)}


def _tensor(dtype: str, shape: dict[str, Any]) -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype, "encoding": "none"}


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
