"""Numbers that are written as text, as exact as their types."""

from __future__ import annotations

from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError

__all__ = ["number_of_text"]

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
