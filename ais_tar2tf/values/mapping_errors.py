"""Errors of mappings: an exception of a user's mapping becomes a MappingError that names the record."""

from __future__ import annotations

from ais_tar2tf.errors import MappingError, MissingField
from ais_tar2tf.records import Record
from ais_tar2tf.values.file_headers import foreign_image

__all__ = ["describe_error", "image_advice", "mapping_error"]

_MAX_MESSAGE = 400  # characters of the exception's text in the error


def mapping_error(error: Exception, record: Record) -> MappingError | MissingField:
    """Return the MappingError for a mapping that raised `error` for `record`.

    An error that already names its record is returned unchanged.
    """
    if isinstance(error, MappingError | MissingField):
        return error
    failure = MappingError(
        f"the mapping failed: {describe_error(error)}{image_advice(error, record)}",
        shard=record["__shard__"],
        key=record["__key__"],
    )
    failure.__cause__ = error
    return failure


def describe_error(error: Exception) -> str:
    """Return the type of an error and the line of its text that describes the failure."""
    return f"{type(error).__name__}: {_message_line(error)}"


def image_advice(error: Exception, record: Record) -> str:
    """Return the end of a sentence with advice on an image that TensorFlow cannot decode.

    Return "" when the error is not about the format of an image.
    """
    if "image file format" not in str(error):
        return ""
    for name, value in record.items():
        format_name = foreign_image(value) if isinstance(value, bytes) else None
        if format_name:
            return (
                f"; field {name!r} is a {format_name} image: convert it to PNG or JPEG, or decode it by a mapping "
                "in Python, with output_types="
            )
    return ""


def _message_line(error: Exception) -> str:
    """Return the line of an error's text that describes the failure.

    In an error of TensorFlow, it is the last text before the `[[` that names a node. In any other error, it is
    the first line.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no text"]
    node = next((number for number, line in enumerate(lines) if "{{node" in line), None)
    message = lines[0] if node is None else lines[node].partition("[[")[0].strip() or lines[max(0, node - 1)]
    return message.rpartition("}} ")[2][:_MAX_MESSAGE]
