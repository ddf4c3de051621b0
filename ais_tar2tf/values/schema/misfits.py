"""`misfit` makes the error for a value that does not fit its field. The error describes the value and gives advice.

This module must not do I/O.
"""

from __future__ import annotations

from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.values.schema.field import TEXT_DTYPES, Field
from ais_tar2tf.values.schema.observation import observe
from ais_tar2tf.values.schema.written_numbers import NUMBER_DTYPES, is_written_number, number_of_text

__all__ = ["misfit"]

_INFER_ADVICE = "; t2t.schema.infer(records) makes a schema of what all records are"


def misfit(field: Field, value: Any) -> SchemaError:
    """Return the error for a value that does not fit a field."""
    advice = _INFER_ADVICE
    try:
        observed = observe(field.name, value)
        description = "absent" if observed is None else f"{observed.type_text} ({observed.encoding_text})"
        is_text = observed is not None and observed.encoding == "text"
        if is_text and not field.is_file and field.dtype not in TEXT_DTYPES:
            advice = _advice_on_text(field, value)
    except SchemaError:
        description = type(value).__name__
    expected = f"the schema says {field.type_text} ({field.encoding_text})"
    return SchemaError(f"field {field.name!r} is {description}, {expected}{advice}")


def _advice_on_text(field: Field, text: Any) -> str:
    """Return why `text` does not fit the field, as the end of an error; return "" if the reason is unknown."""
    if not is_written_number(field):
        return f"; text becomes one number of these types: {', '.join(NUMBER_DTYPES)}"
    try:
        number_of_text(bytes(text), field.dtype)
    except SchemaError as error:
        return f": {error}"
    return ""
