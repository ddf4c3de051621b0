"""The document tfrecord_files_config.txt, which states the fields of record files.

With this document, the record files can be read without the Python class that declared their fields. This module
makes and parses the text of the document. It must not do I/O. The document is an INI file:

    [fields]           name = type, in the order of declaration
    [shapes]           name = size of each dimension, such as "120 240"; for arrays that have one shape in all records
    [examples]         class, source and seed: from what the record files were made
    [train], [eval] …  ratio of the split, and the numbers of its files, records and bytes
"""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.base.documents.sealed import checksum_of
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tfrecorder.helpers.fields import FieldType, Shape
from ais_tar2tf.tfrecorder.rows import SPLITS

__all__ = ["CONFIG", "StoredConfig", "config_text", "parse_config"]

CONFIG = "tfrecord_files_config.txt"
_FIELDS, _SHAPES = "fields", "shapes"
_CHECKSUM = b"# document_checksum: "  # begins the first line: a comment that states the checksum of all other lines
_DIGITS = 18  # the most digits that a number may have; each number of 18 digits fits into 64 bits


@dataclass(frozen=True)
class StoredConfig:
    """The parsed content of a configuration file. `bytes` and `records` are the sums over all splits."""

    fields: dict[str, FieldType]
    shapes: dict[str, Shape] | None  # None: the file states no shapes, because an earlier version wrote it
    bytes: int = 0
    records: int = 0


def config_text(
    fields: Mapping[str, FieldType], shapes: Mapping[str, Shape], sections: Mapping[str, Mapping[str, Any]]
) -> bytes:
    """Return the text of a configuration file.

    Args:
        fields: The types of the fields, in the order of declaration.
        shapes: The shapes of arrays that have one shape in all records.
        sections: The entries of all other sections, by the name of the section.
    """
    parser = _parser()
    for section, entries in sections.items():
        parser[section] = {name: str(value) for name, value in entries.items()}
    parser[_FIELDS] = {name: kind.name for name, kind in fields.items()}
    parser[_SHAPES] = {name: " ".join(map(str, shape)) for name, shape in shapes.items()}
    text = io.StringIO()
    parser.write(text)
    body = text.getvalue().encode()
    return _CHECKSUM + checksum_of(body).encode() + b"\n" + body


def parse_config(data: bytes, *, where: str) -> StoredConfig:
    """Parse a configuration file. Verify its checksum if it has one: files of earlier versions have none.

    Args:
        data: The content of the file.
        where: The file or URL, for errors.

    Raises:
        SchemaError: The file is damaged or states no fields.
    """
    first, _, body = data.partition(b"\n")
    if first.startswith(_CHECKSUM) and first[len(_CHECKSUM) :].decode("latin-1") != checksum_of(body):
        raise SchemaError(f"{where}: the document is damaged: its checksum does not match what it says")
    parser = _parser()
    try:
        parser.read_string(data.decode())
        return StoredConfig(
            {name: FieldType[kind] for name, kind in parser[_FIELDS].items()},
            {name: _sizes(sizes) for name, sizes in parser[_SHAPES].items()} if parser.has_section(_SHAPES) else None,
            bytes=_total(parser, "bytes"),
            records=_total(parser, "records"),
        )
    except (UnicodeDecodeError, configparser.Error, KeyError, ValueError) as error:
        raise SchemaError(
            f"{where}: it does not say which fields there are ({error!r}); pass example_class"
        ) from error


def _total(parser: configparser.ConfigParser, entry: str) -> int:
    return sum(_whole(parser.get(split, entry, fallback="0")) for split in SPLITS)


def _sizes(text: str) -> Shape:
    return tuple(map(_whole, text.split()))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ValueError(f"{text[:40]!r} is no number of things")
    return int(text)


def _parser() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # names of fields are case-sensitive
    return parser
