"""Determine the contents of a source: a folder, a CSV file, or records. Of all files, only a CSV file is read.

Records are dicts with `__key__` and fields. The extension of a field decides how it is encoded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.errors import OptionTypeError, SchemaError, ShardNotFound
from ais_tar2tf.recordfiles.packing.contents import Contents, SplitContents
from ais_tar2tf.recordfiles.packing.csv_source import inspect_csv
from ais_tar2tf.recordfiles.packing.encoding import encode_field
from ais_tar2tf.recordfiles.packing.folder_source import inspect_folder
from ais_tar2tf.recordfiles.packing.naming import Naming
from ais_tar2tf.recordfiles.packing.options import PackOptions
from ais_tar2tf.records import KEY_AND_SHARD, Record

__all__ = ["Rows", "inspect_source"]

Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""A folder, a CSV file, or records: dicts with `__key__` and fields."""


def inspect_source(
    source: Rows,
    options: PackOptions,
    on_count: Callable[[int], None] = lambda _: None,
    is_own_shard: Callable[[str], bool] = lambda _: False,
) -> Contents:
    """Return the contents of `source`. No file is read, except a CSV file.

    Args:
        source: A folder, a CSV file, or rows.
        options: How the names of files and folders are understood.
        on_count: Called with the number of files or rows found so far.
        is_own_shard: Tells whether a file, by its path below the folder, is a shard that this run will write.

    Raises:
        ShardNotFound: There is nothing to pack.
        UnclearLayout: The names of files do not decide what is a record, a class or a split.
        OptionError: An option has no effect on this kind of source.
    """
    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "__iter__") and not hasattr(source, "records"):
            raise OptionTypeError(f"source is a folder, a CSV file or dicts of fields, not {source!r}")
        options.refuse_for_rows()
        return _inspect_rows(source, options)
    path = Path(location_text(source, "a source is a folder or a file (a str or a path)"))
    if path.is_dir():
        options.refuse_for_folder()
        contents = inspect_folder(path, options, on_count, is_own_shard)
    elif path.suffix.lower() == ".csv" and path.is_file():
        options.refuse_for_csv()
        contents = inspect_csv(path, options, on_count)
    else:
        not_csv = "this file is no CSV file; give its folder, or a CSV file that names it"
        missing = "there is no such folder or CSV file"
        raise ShardNotFound(not_csv if path.is_file() else missing, url=os.fspath(path))
    if not any(split.records for split in contents.splits):
        left_out = f": all files are left out: {contents.left_out}" if contents.left_out else ""
        raise ShardNotFound(f"there is nothing to pack{left_out}", url=os.fspath(path))
    return contents if options.classes is None else contents.with_classes(options.classes)


def _inspect_rows(rows: Any, options: PackOptions) -> Contents:
    """Return the contents of `rows`: an iterable of dicts, or an object with `records()`. No row is read."""
    naming = Naming(options.grouping)

    def read(classes: Mapping[str, int], seed: int | None) -> Iterator[Record]:
        del classes, seed  # rows have their own labels and their own order
        for number, row in enumerate(rows.records() if hasattr(rows, "records") else rows):
            yield _encode_row(number, row, naming)

    return Contents((SplitContents("", read),))


def _encode_row(number: int, row: Any, naming: Naming) -> Record:
    if not isinstance(row, Mapping):
        raise SchemaError(f"row {number}: a record is a dict of fields, not {type(row).__name__}")
    key = naming.written_key(str(row.get("__key__", f"{number:08d}")))
    fields = {
        str(name): encode_field(key, str(name), value) for name, value in row.items() if name not in KEY_AND_SHARD
    }
    return {"__key__": key, **fields}
