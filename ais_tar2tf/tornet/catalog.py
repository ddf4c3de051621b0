"""catalog.csv: which samples belong to which split. pandas is imported when something here is called."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ais_tar2tf.errors import MissingDependency, SchemaError, ShardNotFound
from ais_tar2tf.tornet.layout import split_of

__all__ = ["Missing", "read_catalog", "shares"]

Missing = Literal["error", "skip"]
_NEEDED = ("type", "start_time", "end_time", "filename")
_SEED = 1234  # of the order in which a split's samples are taken
_TOLD = 3  # absent files that an error names


def read_catalog(root: Path, *, missing: Missing = "error") -> dict[str, list[str]]:
    """The files of each split that has any; those that are listed and absent are an error, or left out."""
    path = root / "catalog.csv"
    if not path.is_file():
        raise ShardNotFound(
            "there is no catalog.csv: give the folder into which TorNet was extracted, as manual_dir or TORNET_ROOT",
            url=str(root),
        )
    splits = {name: _shuffled(rows) for name, rows in _by_split(path).items()}
    absent = {file for files in splits.values() for file in files if not (root / file).is_file()}
    if absent and missing == "error":
        told = ", ".join(sorted(absent)[:_TOLD])
        raise ShardNotFound(
            f"{len(absent):,} files that catalog.csv lists are absent: {told}{' …' if len(absent) > _TOLD else ''}; "
            f'missing="skip" leaves them out',
            url=str(root),
        )
    kept = {name: [file for file in files if file not in absent] for name, files in splits.items()}
    return {name: files for name, files in sorted(kept.items()) if files}


def _by_split(path: Path) -> dict[str, Any]:
    try:
        pd: Any = importlib.import_module("pandas")
    except ImportError as error:
        raise MissingDependency("pandas", extra="tornet") from error
    _check_columns(path)
    catalog = pd.read_csv(path, parse_dates=["start_time", "end_time"])
    if catalog["end_time"].isna().any() or catalog["filename"].isna().any():
        raise SchemaError(f"{path}: a row has no end_time or no filename")
    twice = catalog["filename"][catalog["filename"].duplicated()]
    if len(twice):
        raise SchemaError(f"{path}: {twice.iloc[0]!r} is listed twice")
    for name in catalog["filename"]:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise SchemaError(f"{path}: {name!r} leads out of its folder")
    return dict(iter(catalog.groupby(catalog.apply(split_of, axis=1)))) if len(catalog) else {}


def _check_columns(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        there = file.readline().strip().split(",")
    lacking = [name for name in _NEEDED if name not in there]
    if lacking:
        raise SchemaError(f"{path}: column {lacking[0]!r} is missing; there are: {', '.join(there)}")


def _shuffled(rows: Any) -> Sequence[str]:
    return list(rows.sample(frac=1, random_state=_SEED)["filename"])


def shares(files: Sequence[str], number: int) -> Iterator[tuple[str, ...]]:
    """`files` in `number` runs whose lengths differ by one at most.

    >>> list(shares("abcde", 2))
    [('a', 'b'), ('c', 'd', 'e')]
    """
    for at in range(number):
        yield tuple(files[at * len(files) // number : (at + 1) * len(files) // number])
