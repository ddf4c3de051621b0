"""Rows of one's own → what will be packed of them: dicts with `__key__` and fields, encoded by their extensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.packing.contents import Contents, Part
from ais_tar2tf.packing.encoding import encoded
from ais_tar2tf.packing.keys import Naming
from ais_tar2tf.packing.options import PackOptions
from ais_tar2tf.records import NAMES, Record

__all__ = ["contents_of_rows"]


def contents_of_rows(rows: Any, options: PackOptions) -> Contents:
    """Return what will be packed of `rows`, an iterable or something with `records()`, such as a source."""
    naming = Naming(options.grouping)

    def read(classes: Mapping[str, int], seed: int | None) -> Iterator[Record]:
        del classes, seed  # rows come with their labels, and in their order
        for number, row in enumerate(rows.records() if hasattr(rows, "records") else rows):
            yield _record(number, row, naming)

    return Contents((Part("", read),))


def _record(number: int, row: Any, naming: Naming) -> Record:
    if not isinstance(row, Mapping):
        raise SchemaError(f"row {number}: a record is a dict of fields, not {type(row).__name__}")
    key = naming.plain(str(row.get("__key__", f"{number:08d}")))
    fields = {str(name): encoded(key, str(name), value) for name, value in row.items() if name not in NAMES}
    return {"__key__": key, **fields}
