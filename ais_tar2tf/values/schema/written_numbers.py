"""Parses numbers that are written as text, such as the labels in shards. This module must not do I/O."""

from __future__ import annotations

from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.schema.field import Field

__all__ = ["NUMBER_DTYPES", "is_written_number", "number_of_text", "written_number"]

NUMBER_DTYPES = ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8", "float32")
"""Types to which text can be parsed. A record file stores numbers of these types as int64 or float32."""

_SHOWN_CHARS = 80  # characters of a text that an error shows


def number_of_text(data: bytes, dtype: str) -> Any:
    """Return the number that a text states, rounded to the precision of `dtype`. Surrounding whitespace is ignored.

    A number that is too large for float32 becomes infinite.

    Raises:
        SchemaError: The text is not a number, or is an integer that does not fit into the type.

    >>> number_of_text(b" 7 ", "int64")
    7
    """
    written = data.decode("utf-8", "backslashreplace").strip()
    target = np.dtype(dtype)
    try:
        if "_" in written or not written.isascii():
            raise ValueError  # noqa: TRY301  # Python accepts such numbers, TensorFlow does not
        number = int(written) if target.kind in "iu" else float(written)
    except ValueError:
        raise SchemaError(f"{written[:_SHOWN_CHARS]!r} is not a number") from None
    if isinstance(number, int) and not np.iinfo(target).min <= number <= np.iinfo(target).max:
        raise SchemaError(f"{written[:_SHOWN_CHARS]} does not fit into {target}")
    with np.errstate(over="ignore", under="ignore"):
        return target.type(number).item()


def is_written_number(field: Field) -> bool:
    """Return whether a field holds a single number, so that a value may also be text that states the number."""
    is_one = field.encoding == "list" and not (field.shape or field.ragged or field.sparse)
    return is_one and field.vocabulary is None and field.dtype in NUMBER_DTYPES


def written_number(field: Field, text: str | bytes) -> Any:
    """Return the number that a text states; None if the text is not a number, or the field holds no single number."""
    if not is_written_number(field):
        return None
    try:
        return number_of_text(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text, field.dtype)
    except SchemaError:
        return None
