"""What people have → records: a folder, a CSV, or rows of their own. Sorted by name: always the same order."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ais_tar2tf.csv_files import rows_of
from ais_tar2tf.errors import SchemaError, ShardNotFound
from ais_tar2tf.mapping import IMAGE_FIELDS, LABEL
from ais_tar2tf.records import Record, splitter

__all__ = ["Rows", "records_of"]

Rows = str | os.PathLike[str] | Iterable[Mapping[str, Any]]
"""A folder, a CSV file, or records: dicts with `__key__` and fields."""

_KEY_COLUMNS = ("__key__", "key", "id")
_FILE_COLUMNS = ("filename", "file", "path", "image")
_LABEL_COLUMNS = ("label", "class", LABEL)
_split = splitter("first-dot")


def records_of(source: Rows) -> Iterator[Record]:
    """Records whose keys and fields come back as they are when a tar of them is read."""
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        if path.is_dir():
            made = _folder(path)
        elif path.suffix.lower() == ".csv" and path.is_file():
            made = _csv(path)
        else:
            raise ShardNotFound("there is no such folder, and no such CSV file", url=os.fspath(path))
    else:
        made = _rows(source)
    return map(_checked, made)


def _checked(record: Record) -> Record:
    key = record["__key__"]
    for field in record:
        if field != "__key__" and _split(f"{key}.{field}") != (key, field):
            raise SchemaError(
                f"record {key!r}, field {field!r}: a key has no dot in its last part, and a field is in lower case; "
                f"as a member's name {key + '.' + field!r} it would be read as another record"
            )
    if len(record) < 2:
        raise SchemaError(f"record {key!r} has no fields")
    return record


# A folder: files with one name and several extensions are a record. Images alone, in a folder for each class, are
# labelled with the number of their class.


def _folder(root: Path) -> Iterator[Record]:
    classes = _classes(root)
    record: Record = {}
    for path in _files(root):
        name = path.relative_to(root).as_posix()
        parts = _split(name)
        if parts is None or path.name.startswith("."):
            continue
        key, field = parts
        if record.get("__key__") != key:
            if record:
                yield record
            record = {"__key__": key}
            if classes is not None:
                record[LABEL] = b"%d" % classes[key.partition("/")[0]]
        record[field] = path.read_bytes()
    if record:
        yield record


def _files(folder: Path) -> Iterator[Path]:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name + "/" * entry.is_dir()):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path))
        elif entry.is_file():
            yield Path(entry.path)


def _classes(root: Path) -> dict[str, int] | None:
    """The numbers of the sub-folders, if there is nothing but images in sub-folders."""
    entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    folders = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
    first = next(_files(root), None)
    if first is None or any(entry.is_file() and not entry.name.startswith(".") for entry in entries):
        return None
    beside = [each for each in first.parent.iterdir() if each.name.startswith(f"{first.name.partition('.')[0]}.")]
    is_image = first.suffix[1:].lower() in IMAGE_FIELDS
    return {name: number for number, name in enumerate(folders)} if is_image and len(beside) == 1 else None


# A CSV: a row is a record.


def _csv(path: Path) -> Iterator[Record]:
    rows = rows_of(path)
    _, header = next(rows, (0, []))
    for number, (_, cells) in enumerate(rows):
        if len(cells) != len(header):
            raise SchemaError(f"{path}, row {number + 1}: there are more or fewer values than columns")
        yield _from_row(path, number, dict(zip(header, cells, strict=True)))


def _from_row(path: Path, number: int, row: Mapping[str, str]) -> Record:
    columns = {name.strip().lower(): value for name, value in row.items()}
    key_column = next((name for name in _KEY_COLUMNS if columns.get(name)), None)
    file_column = next((name for name in _FILE_COLUMNS if columns.get(name)), None)
    label_column = next((name for name in _LABEL_COLUMNS if name in columns), None)
    fields: dict[str, bytes] = {}
    key = f"{number:08d}"
    if file_column is not None:
        file = path.parent / columns[file_column]
        if not file.is_file():
            raise ShardNotFound(f"row {number + 1} of {path} names it, and it is not there", url=os.fspath(file))
        stem, _, extension = columns[file_column].rpartition("/")[2].partition(".")
        key = (columns[file_column].rpartition("/")[0] + "/" + stem).lstrip("/.")
        fields[extension.lower() or "bin"] = file.read_bytes()
    if key_column is not None:
        key = columns[key_column]
    if label_column is not None:
        fields[LABEL] = columns[label_column].encode()
    for name, value in columns.items():
        if name not in (key_column, file_column, label_column):
            fields[re.sub(r"[^a-z0-9_-]+", "_", name)] = value.encode()
    return {"__key__": key, **fields}


# Rows of one's own.


def _rows(rows: Any) -> Iterator[Record]:
    for number, row in enumerate(rows.records() if hasattr(rows, "records") else rows):
        if not isinstance(row, Mapping):
            raise SchemaError(f"row {number}: a record is a dict of fields, not {type(row).__name__}")
        key = str(row.get("__key__", f"{number:08d}"))
        fields = {name: value for name, value in row.items() if name not in ("__key__", "__shard__")}
        yield {"__key__": key, **{str(name): _as_bytes(key, name, value) for name, value in fields.items()}}


def _as_bytes(key: str, name: str, value: Any) -> bytes:
    """Bytes as they are; text as UTF-8; numbers as text; lists and dicts as JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool | int | float) or hasattr(value, "item"):
        plain: Any = value.item() if hasattr(value, "item") else value  # pyright: ignore[reportAttributeAccessIssue]  # numpy's
        return str(int(plain) if isinstance(plain, bool) else plain).encode()
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False).encode()
    raise SchemaError(f"record {key!r}, field {name!r}: {type(value).__name__} has no form in a tar; give bytes")
