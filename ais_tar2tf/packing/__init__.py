"""What people have → what will be packed of it: a folder of files, a CSV file, or rows of their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf.errors import OptionTypeError, ShardNotFound
from ais_tar2tf.locations import location_text
from ais_tar2tf.packing.contents import Contents
from ais_tar2tf.packing.csv_rows import contents_of_csv
from ais_tar2tf.packing.folders import contents_of_folder
from ais_tar2tf.packing.options import PackOptions
from ais_tar2tf.packing.rows import contents_of_rows

__all__ = ["Contents", "PackOptions", "Rows", "contents_of"]

Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""A folder, a CSV file, or records: dicts with `__key__` and fields."""


def contents_of(
    source: Rows,
    options: PackOptions,
    found: Callable[[int], None] = lambda _: None,
    is_own: Callable[[str], bool] = lambda _: False,
) -> Contents:
    """Return what will be packed of `source`. No file is read, except a CSV file.

    Args:
        source: A folder, a CSV file, or rows.
        options: How names are understood.
        found: Is told how many files or rows were seen so far.
        is_own: Whether a file in a folder, by its name there, is a shard that will be written.

    Raises:
        ShardNotFound: There is nothing to pack.
        UnclearLayout: The names of files leave open what is a record, a class or a split.
        OptionError: An option has no effect on such a source.
    """
    if not isinstance(source, str | os.PathLike):
        if not hasattr(source, "__iter__") and not hasattr(source, "records"):
            raise OptionTypeError(f"source is a folder, a CSV file or dicts of fields, not {source!r}")
        options.refuse_for_rows()
        return contents_of_rows(source, options)
    path = Path(location_text(source, "a source is a folder or a file (a str or a path)"))
    if path.is_dir():
        options.refuse_for_folder()
        contents = contents_of_folder(path, options, found, is_own)
    elif path.suffix.lower() == ".csv" and path.is_file():
        options.refuse_for_csv()
        contents = contents_of_csv(path, options, found)
    else:
        raise ShardNotFound(_no_source(path), url=os.fspath(path))
    if not any(part.records for part in contents.parts):
        found_there = f": all that was found is left out: {contents.left_out}" if contents.left_out else ""
        raise ShardNotFound(f"there is nothing to pack{found_there}", url=os.fspath(path))
    return contents if options.classes is None else contents.with_classes(options.classes)


def _no_source(path: Path) -> str:
    if path.is_file():
        return "this is a file, and no CSV file; give the folder it lies in, or a CSV file that names it"
    return "there is no such folder, and no such CSV file"
