"""Chunks of records as the columns that TensorFlow gets, and what is wrong with a record that fits none. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import NAMES, Record, Records

__all__ = ["as_column", "column_of", "without"]


def as_column(values: Sequence[Any]) -> Any:
    """Return the values as an array of objects, which TensorFlow copies into a tensor of strings."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def column_of(chunk: Records, name: str, *, optional: bool) -> Any:
    """Return one field of all records of a chunk; an absent one is b"" where it is optional.

    Raises:
        SchemaError: A record's value is no bytes.
    """
    if not chunk:
        return as_column([])
    if name in NAMES:
        return as_column(_as_utf8(chunk.column(name)))
    values = chunk.column(name, b"" if optional else None)
    if set(map(type, values)) - {bytes}:
        raise _no_bytes(name, next(record for record in chunk if type(record.get(name, b"")) is not bytes))
    return as_column(values)


def without(chunk: Records, absent: Iterable[str]) -> Records:
    """Return the chunk, of which no record has a field that a traced mapping took for absent.

    Raises:
        SchemaError: A record has such a field.
    """
    for name in absent:
        record = chunk.first_with(name)
        if record is not None:
            raise _not_absent(name, record)
    return chunk


def _as_utf8(texts: list[str]) -> list[Any]:
    """What TensorFlow takes for the bytes of a text: ASCII as it is."""
    if "".join(texts).isascii():
        return texts
    return [text.encode("utf-8", "surrogateescape") for text in texts]


def _no_bytes(name: str, record: Record) -> SchemaError:
    kind = "several strings, or none" if isinstance(record[name], list) else "numbers"
    return SchemaError(
        f"{record['__shard__']}, record {record['__key__']!r}: feature {name!r} holds {kind}, and a dataset's fields "
        "are bytes; select() the features that hold one string each, or read the others by records(), or, of what an "
        "export wrote, by t2t.load(folder).dataset(split)"
    )


def _not_absent(name: str, record: Record) -> SchemaError:
    return SchemaError(
        f"{record['__shard__']}, record {record['__key__']!r}: it has a field {name!r}, and the first records had "
        "none. The mapping asks whether it is there, and its graph has the answer of the first records. Say "
        "graph=False, output_types= and output_shapes=, and each record is asked; or select() the fields you need"
    )
