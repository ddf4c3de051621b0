"""The documents beside the record files: what a feature is, and how many examples each file has.

    shard_info.json                          {split: {file: examples}}
    datum_to_type_and_shape_mapping.json     {feature: {type: int|float|string, shape, dense, field}}

`field` is the core's own description of the feature; files that an earlier Datum wrote go without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.schema import Field, Schema, wire_dtype

__all__ = [
    "MAPPING",
    "SHARD_INFO",
    "counts_of",
    "described",
    "is_image",
    "json_bytes",
    "read_json",
    "reshaped",
    "schema_of",
]

SHARD_INFO = "shard_info.json"
MAPPING = "datum_to_type_and_shape_mapping.json"

_TYPES = {"bytes": "string", "float32": "float", "int64": "int"}
_OLD_SHAPE = "{}_shape"
_DTYPES = {"int": "int64", "float": "float32", "string": "string"}


def json_bytes(document: Any) -> bytes:
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def read_json(data: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise SchemaError(f"{where}: this is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise SchemaError(f"{where}: an object is expected, not {str(found)[:80]}")
    return found


def is_image(field: Field) -> bool:
    return field.encoding == "image"


def described(field: Field) -> dict[str, Any]:
    """What the mapping says of a feature."""
    return {
        "type": _TYPES[wire_dtype(field)],
        "shape": list(field.shape),
        "dense": is_image(field) or field.dense,
        "field": field.to_json(),
    }


def schema_of(mapping: Mapping[str, Any], where: str) -> Schema:
    """The features that a mapping describes."""
    try:
        return Schema(tuple(_field(name, said) for name, said in mapping.items()))
    except (KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"{where}: this does not describe features ({error!r})") from error


def _field(name: str, said: Mapping[str, Any]) -> Field:
    if "field" in said:
        return Field.from_json(said["field"])
    dtype, shape = _DTYPES[said["type"]], tuple(said["shape"])
    if dtype == "string" and len(shape) in (2, 3):
        return Field(name, "uint8", (None, None, 1 if len(shape) == 2 else 3), "image")
    if dtype == "string":
        return Field(name, dtype, () if said["dense"] else (None,))
    return Field(name, dtype, shape if said["dense"] else (None,))


def reshaped(mapping: Mapping[str, Any]) -> list[str]:
    """Features that an earlier Datum wrote flat, with their sizes in a feature `<name>_shape`."""
    return [
        name
        for name, said in mapping.items()
        if "field" not in said and not said["dense"] and _OLD_SHAPE.format(name) in mapping
    ]


def counts_of(info: Mapping[str, Any], where: str) -> dict[str, dict[str, int]]:
    """{split: {file: examples}}, checked."""
    for split, files in info.items():
        whole = isinstance(files, dict) and all(isinstance(count, int) for count in files.values())
        if not whole:
            raise SchemaError(f"{where}: split {split!r} has no count for each file")
    return {split: dict(files) for split, files in info.items()}
