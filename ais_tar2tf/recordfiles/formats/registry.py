"""The registry of record-file formats. The module of a format is imported when `find_format` first needs it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from ais_tar2tf.base.nearest import check_choice

if TYPE_CHECKING:
    from ais_tar2tf.recordfiles.formats.base import RecordFormat

__all__ = ["FORMATS", "all_formats", "find_format"]

FORMATS = ("tfrecord", "array_record", "tar")
"""The names of the formats; each is also the name of the module in this package that defines it as `FORMAT`."""


def find_format(name: str) -> RecordFormat:
    """Return the format with this name.

    Raises:
        OptionError: There is no such format.
    """
    check_choice("format", name, FORMATS)
    return importlib.import_module(f"ais_tar2tf.recordfiles.formats.{name}").FORMAT


def all_formats() -> tuple[RecordFormat, ...]:
    """Return every format, in the order of `FORMATS`."""
    return tuple(map(find_format, FORMATS))
