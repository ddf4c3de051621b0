"""Numbers that are written as text, as exact as their types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.schema._field import Field

__all__ = ["NUMBERS", "is_written_number", "number_of_text", "written_number"]

NUMBERS = ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "float32")
"""Types that text can become: a record file holds integers as int64, and floats as float32."""

_SHOWN = 80  # characters of a text in an error


def number_of_text(data: bytes, dtype: str) -> Any:
    """Return the number that a text says, with spaces around it.

    Raises:
        SchemaError: It is no number, or does not fit into the type.

    >>> number_of_text(b" 7 ", "int64")
    7
    """
    written = data.decode("utf-8", "backslashreplace").strip()
    said = np.dtype(dtype)
    try:
        if "_" in written or not written.isascii():
            raise ValueError  # noqa: TRY301  # what only Python takes for a number
        found = int(written) if said.kind in "iu" else float(written)
    except ValueError:
        raise SchemaError(f"{written[:_SHOWN]!r} is not a number") from None
    if isinstance(found, int) and not np.iinfo(said).min <= found <= np.iinfo(said).max:
        raise SchemaError(f"{written[:_SHOWN]} does not fit into {said}")
    with np.errstate(over="ignore", under="ignore"):
        return said.type(found).item()


def is_written_number(field: Field) -> bool:
    """Return whether a field is one number, for which text may stand: a shard holds numbers as text."""
    is_one = field.encoding == "list" and not (field.shape or field.ragged or field.sparse)
    return is_one and field.vocabulary is None and field.dtype in NUMBERS


def written_number(field: Field, text: str | bytes) -> Any:
    """Return the number that a text says, where the field is one; None where it says none."""
    if not is_written_number(field):
        return None
    try:
        return number_of_text(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text, field.dtype)
    except SchemaError:
        return None
