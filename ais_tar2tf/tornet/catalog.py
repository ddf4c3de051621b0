"""The reader of TorNet's catalog.csv, which assigns the files of samples to splits.

The reader imports pandas when it is called, not when this module is imported. It must not open the listed files.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ais_tar2tf.errors import MissingDependency, SchemaError, ShardNotFound
from ais_tar2tf.tornet.layout import split_of

__all__ = ["Missing", "evenly_divided", "read_catalog"]

Missing = Literal["error", "skip"]
_COLUMNS = ("type", "start_time", "end_time", "filename")
_SEED = 1234  # decides the order of the files in a split
_SHOWN_FILES = 3  # the number of absent files that an error names


def read_catalog(root: Path, *, missing: Missing = "error") -> dict[str, list[str]]:
    """Return the names of each split's files, shuffled by a fixed seed. Splits without files are left out.

    Args:
        root: The folder of catalog.csv. The names of files are relative to it.
        missing: "error", or "skip" to leave out files that catalog.csv lists and that do not exist.

    Raises:
        ShardNotFound: catalog.csv or a listed file does not exist.
        SchemaError: catalog.csv is malformed, or lists a file outside of `root`.
        MissingDependency: pandas is not installed.
    """
    path = root / "catalog.csv"
    if not path.is_file():
        raise ShardNotFound(
            "there is no catalog.csv: give the folder into which TorNet was extracted, as manual_dir or TORNET_ROOT",
            url=str(root),
        )
    splits = {name: _shuffled(rows) for name, rows in _by_split(path).items()}
    absent = {file for files in splits.values() for file in files if not (root / file).is_file()}
    if absent and missing == "error":
        shown = ", ".join(sorted(absent)[:_SHOWN_FILES]) + (" …" if len(absent) > _SHOWN_FILES else "")
        raise ShardNotFound(
            f'{len(absent):,} files that catalog.csv lists are absent: {shown}; missing="skip" leaves them out',
            url=str(root),
        )
    kept = {name: [file for file in files if file not in absent] for name, files in splits.items()}
    return {name: files for name, files in sorted(kept.items()) if files}


def _by_split(path: Path) -> dict[str, Any]:
    """Check all rows of catalog.csv. Return the rows of each split as a pandas.DataFrame."""
    try:
        pd: Any = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingDependency("pandas", extra="tornet") from error
    _check_columns(path)
    catalog = pd.read_csv(path, parse_dates=["start_time", "end_time"])
    if catalog["end_time"].isna().any() or catalog["filename"].isna().any():
        raise SchemaError(f"{path}: a row has no end_time or no filename")
    repeated = catalog["filename"][catalog["filename"].duplicated()]
    if len(repeated):
        raise SchemaError(f"{path}: {repeated.iloc[0]!r} is listed twice")
    for name in catalog["filename"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise SchemaError(f"{path}: {name!r} leads out of its folder")
    return dict(iter(catalog.groupby(catalog.apply(split_of, axis=1)))) if len(catalog) else {}


def _check_columns(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        columns = file.readline().strip().split(",")
    missing_columns = [name for name in _COLUMNS if name not in columns]
    if missing_columns:
        raise SchemaError(f"{path}: column {missing_columns[0]!r} is missing; there are: {', '.join(columns)}")


def _shuffled(rows: Any) -> Sequence[str]:
    return list(rows.sample(frac=1, random_state=_SEED)["filename"])


def evenly_divided(files: Sequence[str], number: int) -> Iterator[tuple[str, ...]]:
    """Yield `number` consecutive parts of `files`. The lengths of the parts differ by at most one.

    >>> list(evenly_divided("abcde", 2))
    [('a', 'b'), ('c', 'd', 'e')]
    """
    for at in range(number):
        yield tuple(files[at * len(files) // number : (at + 1) * len(files) // number])
