"""tfrecord_files_config.txt: what was written, as INI, and what is needed to read it without the class.

[fields]           name = type, in the order of their declaration
[shapes]           name = sizes of the arrays that have one shape in all records: "120 240"
[train], [eval] …  ratio, files, records, bytes
"""

from __future__ import annotations

import configparser
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.documents import checksum_of
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tfrecorder.helpers.fields import FieldType, Shape
from ais_tar2tf.tfrecorder.rows import SPLITS

__all__ = ["CONFIG", "Stated", "config_text", "stated_in"]

CONFIG = "tfrecord_files_config.txt"
_FIELDS, _SHAPES = "fields", "shapes"
_CHECKSUM = b"# document_checksum: "  # the first line, of all others; a remark to other readers of INI
_DIGITS = 18  # of a number that 64 bits hold


@dataclass(frozen=True)
class Stated:
    """What a configuration file says of the record files beside it."""

    fields: dict[str, FieldType]
    shapes: dict[str, Shape] | None  # None: an earlier version wrote it, so nothing is known
    bytes: int = 0
    records: int = 0


def config_text(
    fields: Mapping[str, FieldType], shapes: Mapping[str, Shape], sections: Mapping[str, Mapping[str, Any]]
) -> bytes:
    """The file: the fields in the order of their declaration, and what else is to be known."""
    parser = _parser()
    for section, entries in sections.items():
        parser[section] = {name: str(value) for name, value in entries.items()}
    parser[_FIELDS] = {name: kind.name for name, kind in fields.items()}
    parser[_SHAPES] = {name: " ".join(map(str, shape)) for name, shape in shapes.items()}
    text = io.StringIO()
    parser.write(text)
    said = text.getvalue().encode()
    return _CHECKSUM + checksum_of(said).encode() + b"\n" + said


def stated_in(data: bytes, *, where: str) -> Stated:
    """What a file states, once its checksum is verified; earlier versions wrote none."""
    first, _, said = data.partition(b"\n")
    if first.startswith(_CHECKSUM) and first[len(_CHECKSUM) :].decode("latin-1") != checksum_of(said):
        raise SchemaError(f"{where}: the document is damaged: its checksum does not match what it says")
    parser = _parser()
    try:
        parser.read_string(data.decode())
        return Stated(
            {name: FieldType[kind] for name, kind in parser[_FIELDS].items()},
            {name: _sizes(sizes) for name, sizes in parser[_SHAPES].items()} if parser.has_section(_SHAPES) else None,
            *(sum(_whole(parser.get(split, of, fallback="0")) for split in SPLITS) for of in ("bytes", "records")),
        )
    except (UnicodeDecodeError, configparser.Error, KeyError, ValueError) as error:
        raise SchemaError(
            f"{where}: it does not say which fields there are ({error!r}); pass example_class"
        ) from error


def _sizes(text: str) -> Shape:
    return tuple(map(_whole, text.split()))


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS):
        raise ValueError(f"{text[:40]!r} is no number of things")
    return int(text)


def _parser() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # names of fields are as they are written
    return parser
