"""tfrecord_files_config.txt: what was written, as INI. Its section `fields` lets files be read without the class."""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tfrecorder.helpers.fields import FieldType

__all__ = ["CONFIG", "config_text", "fields_of"]

CONFIG = "tfrecord_files_config.txt"
_FIELDS = "fields"


def config_text(fields: Mapping[str, FieldType], sections: Mapping[str, Mapping[str, Any]]) -> bytes:
    """The file: the fields in the order of their declaration, and what else is to be known."""
    parser = _parser()
    for section, entries in sections.items():
        parser[section] = {name: str(value) for name, value in entries.items()}
    parser[_FIELDS] = {name: kind.name for name, kind in fields.items()}
    text = io.StringIO()
    parser.write(text)
    return text.getvalue().encode()


def fields_of(data: bytes, *, where: str) -> dict[str, FieldType]:
    """The fields that a file states."""
    parser = _parser()
    try:
        parser.read_string(data.decode())
        return {name: FieldType[kind] for name, kind in parser[_FIELDS].items()}
    except (UnicodeDecodeError, configparser.Error, KeyError) as error:
        raise SchemaError(
            f"{where}: it does not say which fields there are ({error!r}); pass example_class"
        ) from error


def _parser() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # names of fields are as they are written
    return parser
