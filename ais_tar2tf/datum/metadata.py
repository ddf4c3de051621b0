"""The two JSON documents next to Datum's record files: the number of examples in each file, and the features.

    shard_info.json                          {split: {file: number of examples}}
    datum_to_type_and_shape_mapping.json     {feature: {type: int|float|string, shape, dense, field}}

The second document is called the *mapping*. `dense` is true for images, and for features whose values all have the
same shape. `field` is the feature as `values.schema.Field.to_json` writes it; the mappings of the original Datum
have no `field`. This module converts documents and checks them. It must not do I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ais_tar2tf.base.documents import structure as expect
from ais_tar2tf.base.documents.sealed import parse_json
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.schema import Field, Schema, wire_dtype

__all__ = [
    "MAPPING",
    "SHARD_INFO",
    "describe_feature",
    "flat_features",
    "is_image",
    "parse_counts",
    "parse_schema",
    "read_json",
    "to_json_bytes",
]

SHARD_INFO = "shard_info.json"
MAPPING = "datum_to_type_and_shape_mapping.json"

_TYPES = {"bytes": "string", "float32": "float", "int64": "int"}
_OLD_SHAPE = "{}_shape"  # the feature in which the original Datum stored the shape of another feature
_DTYPES = {"int": "int64", "float": "float32", "string": "string"}
_COUNTS = expect.keyed(expect.keyed(expect.whole(), key=expect.name))
_FEATURES = expect.keyed(
    expect.fields(
        {
            "type": expect.one_of(*_DTYPES),
            "shape": expect.listed(expect.maybe(expect.whole())),
            "dense": expect.boolean,
        },
        {"field": expect.anything},
    )
)


def to_json_bytes(document: Any) -> bytes:
    """Return the bytes of the file that holds a document."""
    return json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def read_json(data: bytes, where: str) -> dict[str, Any]:
    """Parse a document, which must be a JSON object; `where` names the document in errors."""
    return parse_json(data, where=where, fail=SchemaError)


def is_image(field: Field) -> bool:
    return field.encoding == "image"


def describe_feature(field: Field) -> dict[str, Any]:
    """Return the entry in the mapping for the feature that `field` describes."""
    return {
        "type": _TYPES[wire_dtype(field)],
        "shape": list(field.shape),
        "dense": is_image(field) or field.dense,
        "field": field.to_json(),
    }


def parse_schema(mapping: Mapping[str, Any], where: str) -> Schema:
    """Check a mapping and return its features as a schema; `where` names the document in errors."""
    features = expect.check(dict(mapping), _FEATURES, where=where, fail=SchemaError)
    try:
        return Schema(tuple(_field(name, entry) for name, entry in features.items()))
    except SchemaError as error:
        raise SchemaError(f"{where}: this does not describe features ({error})") from error


def _field(name: str, entry: Mapping[str, Any]) -> Field:
    """Return the field of a feature. The original Datum wrote images as strings with two or three dimensions."""
    if "field" in entry:
        return Field.from_json(entry["field"])
    dtype, shape = _DTYPES[entry["type"]], tuple(entry["shape"])
    if dtype == "string" and len(shape) in (2, 3):
        return Field(name, "uint8", (None, None, 1 if len(shape) == 2 else 3), "image")
    if dtype == "string":
        return Field(name, dtype, () if entry["dense"] else (None,))
    return Field(name, dtype, shape if entry["dense"] else (None,))


def flat_features(mapping: Mapping[str, Any]) -> list[str]:
    """Return the features that the original Datum stored as flat lists. Feature `<name>_shape` has the shape."""
    return [
        name
        for name, entry in mapping.items()
        if "field" not in entry and not entry.get("dense") and _OLD_SHAPE.format(name) in mapping
    ]


def parse_counts(info: Mapping[str, Any], where: str) -> dict[str, dict[str, int]]:
    """Check and return the content of `shard_info.json`; `where` names the document in errors."""
    return expect.check(dict(info), _COUNTS, where=where, fail=SchemaError)
