"""The columns of a chunk: arrays of the values of one field, in the form that TensorFlow accepts.

This module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import KEY_AND_SHARD, Record, Records

__all__ = ["as_bytes", "as_column", "column_of", "require_absent"]


def as_bytes(value: Any) -> Any:
    """Return the bytes from which a text was decoded; return any other value unchanged."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def as_column(values: Sequence[Any]) -> Any:
    """Return the values as an array of objects, which TensorFlow copies into a tensor of strings."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def column_of(chunk: Records, name: str, *, optional: bool) -> Any:
    """Return one field of all records of a chunk. If `optional`, the value is b"" in records without the field.

    Raises:
        SchemaError: The value of a record is not bytes.
    """
    if not chunk:
        return as_column([])
    if name in KEY_AND_SHARD:
        texts = chunk.column(name)
        is_ascii = "".join(texts).isascii()  # TensorFlow accepts ASCII text without encoding
        return as_column(texts if is_ascii else [as_bytes(text) for text in texts])
    values = chunk.column(name, b"" if optional else None)
    if set(map(type, values)) - {bytes}:
        raise _not_bytes(name, next(record for record in chunk if type(record.get(name, b"")) is not bytes))
    return as_column(values)


def require_absent(chunk: Records, names: Iterable[str]) -> Records:
    """Return a chunk unchanged, after checking that no record has any of the fields `names`.

    A mapping is traced with a sample of the records. If no record of the sample has a field, the mapping's graph
    treats the field as absent from all records.

    Raises:
        SchemaError: A record has one of these fields.
    """
    for name in names:
        record = chunk.first_with(name)
        if record is not None:
            raise _not_absent(name, record)
    return chunk


def _not_bytes(name: str, record: Record) -> SchemaError:
    kind = "several strings, or none" if isinstance(record[name], list) else "numbers"
    return SchemaError(
        f"{record['__shard__']}, record {record['__key__']!r}: feature {name!r} holds {kind}, and a dataset's fields "
        "are bytes; select() only features that hold one string, or read the records by records(), or, if an export "
        "wrote them, by t2t.load(folder).dataset(split)"
    )


def _not_absent(name: str, record: Record) -> SchemaError:
    return SchemaError(
        f"{record['__shard__']}, record {record['__key__']!r}: it has a field {name!r}, and the first records had "
        "none. The mapping asks whether a record has this field, and its graph has the first records' answer. Say "
        "graph=False, output_types= and output_shapes= to ask each record, or select() the fields you need"
    )
