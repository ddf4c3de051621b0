"""Values that do not fit their field: what they are, and what to do about it. No I/O."""

from __future__ import annotations

from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.schema._field import TEXTS, Field
from ais_tar2tf.schema._observe import observe
from ais_tar2tf.schema._written import NUMBERS, is_written_number, number_of_text

__all__ = ["misfit"]

_INFERRED = "; t2t.schema.infer(records) makes a schema of what all records are"


def misfit(field: Field, value: Any) -> SchemaError:
    """Return the error of a value that does not fit a field: what it is, and what the schema says."""
    cure = _INFERRED
    try:
        seen = observe(field.name, value)
        found = "absent" if seen is None else f"{seen.type_text} ({seen.encoding_text})"
        if seen is not None and seen.encoding == "text" and not field.is_file and field.dtype not in TEXTS:
            cure = _of_text(field, value)
    except SchemaError:
        found = type(value).__name__
    said = f"the schema says {field.type_text} ({field.encoding_text})"
    return SchemaError(f"field {field.name!r} is {found}, {said}{cure}")


def _of_text(field: Field, text: Any) -> str:
    """Return why a text is not the value that a field says, as the end of an error's sentence."""
    if not is_written_number(field):
        return f"; text becomes one number of these types: {', '.join(NUMBERS)}"
    try:
        number_of_text(bytes(text), field.dtype)
    except SchemaError as error:
        return f": {error}"
    return ""
