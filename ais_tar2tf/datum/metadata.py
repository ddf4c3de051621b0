"""The documents beside the record files: what a feature is, and how many examples each file has.

    shard_info.json                          {split: {file: examples}}
    datum_to_type_and_shape_mapping.json     {feature: {type: int|float|string, shape, dense, field}}

`field` is the core's own description of the feature; files that an earlier Datum wrote go without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ais_tar2tf.documents import parse_json
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.schema import Field, Schema, wire_dtype
from ais_tar2tf.structure import anything, boolean, check, fields, keyed, listed, maybe, name, one_of, whole

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
_COUNTS = keyed(keyed(whole(), key=name))
_FEATURES = keyed(
    fields(
        {"type": one_of(*_DTYPES), "shape": listed(maybe(whole())), "dense": boolean},
        {"field": anything},
    )
)


def json_bytes(document: Any) -> bytes:
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def read_json(data: bytes, where: str) -> dict[str, Any]:
    """Return the object that a document holds."""
    return parse_json(data, where=where, fail=SchemaError)


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
    features = check(dict(mapping), _FEATURES, where=where, fail=SchemaError)
    try:
        return Schema(tuple(_field(name, said) for name, said in features.items()))
    except SchemaError as error:
        raise SchemaError(f"{where}: this does not describe features ({error})") from error


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
        if "field" not in said and not said.get("dense") and _OLD_SHAPE.format(name) in mapping
    ]


def counts_of(info: Mapping[str, Any], where: str) -> dict[str, dict[str, int]]:
    """{split: {file: examples}}, checked."""
    return check(dict(info), _COUNTS, where=where, fail=SchemaError)
