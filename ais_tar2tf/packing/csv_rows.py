"""A CSV file → what will be packed of it: a record of each row, and of the file that the row names."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ais_tar2tf.csv_files import RowReader, placed_rows
from ais_tar2tf.errors import SchemaError, ShardNotFound
from ais_tar2tf.mapping import LABEL
from ais_tar2tf.names import SafeName
from ais_tar2tf.options import Limits
from ais_tar2tf.packing.confined import Confined
from ais_tar2tf.packing.contents import Contents, Part
from ais_tar2tf.packing.keys import Dotted, Naming
from ais_tar2tf.packing.options import PackOptions
from ais_tar2tf.packing.tree import UNDECODED
from ais_tar2tf.plan.permuting import Permutation
from ais_tar2tf.records import Record
from ais_tar2tf.records.keys import Keys
from ais_tar2tf.schema import extension_of

__all__ = ["contents_of_csv"]

_KEY_COLUMNS = ("__key__", "key", "id")
_FILE_COLUMNS = ("filename", "file", "path", "image")
_LABEL_COLUMNS = ("label", "class", LABEL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # as labels that are no words
_NO_EXTENSION = "bin"  # the field of a file without one


def contents_of_csv(path: Path, options: PackOptions, found: Callable[[int], None] = lambda _: None) -> Contents:
    """Return what will be packed of the CSV file `path`; `found` is told how many rows were seen so far.

    The files that rows name lie below `options.root`, by default the folder of the CSV file. Labels that are words
    become numbers, in the order of the words.

    Raises:
        SchemaError: The file is no CSV, a row has other columns than the header, or lacks a label.
        UnsafeName: A row names a file outside of the root.
        ShardNotFound: A row names a file that is not there.
    """
    limits = options.limits or Limits()
    root = Confined(path.parent if options.root is None else options.root, follow_links=options.follow_links)
    table = _Table(path, Naming(options.grouping), root)
    rows = table.look_through(limits, found)
    reading = _Records(table, rows, limits.member_bytes)
    by_class = rows.labels.counts if rows.labels.are_words else Counter[str]()
    part = Part("", reading.read, len(rows.offsets), rows.bytes, by_class)
    labels = "" if table.label is None else f"the labels are those of the column {table.label!r}, as they are"
    classes = tuple(sorted(by_class))
    return Contents((part,), classes, files=rows.files, labels=labels, undecoded=rows.undecoded)


class _Labels:
    """How often each label came; no more than that they are numbers, when there are very many."""

    def __init__(self, most: int) -> None:
        self.counts: Counter[str] = Counter()
        self.are_words: bool = False
        self._most = most
        self._are_many = False

    def add(self, label: str, where: str) -> None:
        self.are_words |= _NUMBER.fullmatch(label) is None
        if not self._are_many:
            self.counts[label] += 1
            self._are_many = len(self.counts) > self._most
        if self._are_many:
            self.counts.clear()
            if self.are_words:
                raise SchemaError(f"{where}: there are over {self._most:,} different labels, Limits.vocabulary")


class _Rows:
    """What is known of all rows: 8 bytes of each, and the labels."""

    def __init__(self, limits: Limits) -> None:
        self.offsets = array("Q")
        self.bytes = 0
        self.files = 0
        self.undecoded: Counter[str] = Counter()  # images that TensorFlow does not decode, by extension
        self.labels = _Labels(limits.vocabulary)


@dataclass(frozen=True, slots=True)
class _Row:
    key: str
    file: str | None  # below the root
    field: str  # of the file's bytes
    label: str | None
    others: dict[str, str]


class _Table:
    """A CSV file, whose header says what the columns are."""

    def __init__(self, path: Path, naming: Naming, root: Confined) -> None:
        self.path = path
        self.root = root
        self._naming = naming
        header = next(placed_rows(path), None)
        given = [] if header is None else [name.strip().lower() for name in header.cells]
        self._names = [name or f"column_{at}" for at, name in enumerate(given)]  # pandas leaves its index nameless
        self.label: str | None = next((name for name in _LABEL_COLUMNS if name in self._names), None)
        self._check_names()

    def _check_names(self) -> None:
        """Refuse columns of which one would take the other's place."""
        fields = [LABEL if name == self.label else _field_name(name) for name in self._names]
        for at, field in enumerate(fields):
            before = fields.index(field)
            if before < at:
                raise SchemaError(
                    f"{self.path}: the columns {self._names[before]!r} and {self._names[at]!r} would both be the "
                    f"field {field!r}; rename one"
                )

    def look_through(self, limits: Limits, found: Callable[[int], None]) -> _Rows:
        """Read every row, and look for its file, before anything is packed."""
        rows, keys, dotted = _Rows(limits), Keys(), Dotted(self._naming)
        for number, row in enumerate(placed_rows(self.path)):
            if number == 0:
                continue
            if number > limits.files:
                raise SchemaError(f"{self.path}: there are over {limits.files:,} rows, Limits.files")
            made = self.row_of(number, row.cells)
            rows.offsets.append(row.offset)
            if not keys.add(made.key):
                raise SchemaError(f"{self.where(number)}: the key {made.key!r} came before")
            if made.file is not None:
                dotted.check(self.where(number), [made.file.rpartition("/")[2]])
                rows.bytes += self._size(number, made.file)
                rows.files += 1
                rows.undecoded.update(UNDECODED & {extension_of(made.file)})
            if made.label is not None:
                rows.labels.add(made.label, self.where(number))
            found(number)
        return rows

    def where(self, number: int) -> str:
        return f"{self.path}, row {number}"

    def row_of(self, number: int, cells: list[str]) -> _Row:
        """Return what a row says; `number` counts from 1, behind the header."""
        if len(cells) != len(self._names):
            raise SchemaError(f"{self.where(number)}: there are more or fewer values than columns")
        columns = dict(zip(self._names, cells, strict=True))
        key_column = next((name for name in _KEY_COLUMNS if columns.get(name)), None)
        file_column = next((name for name in _FILE_COLUMNS if columns.get(name)), None)
        label_column = self.label
        key, file, field = f"{number - 1:08d}", None, ""
        if file_column is not None:
            file = self._below_root(number, columns[file_column])
            key, field = self._naming.split(file) or (self._naming.plain(file), _NO_EXTENSION)
        if key_column is not None:
            key = self._naming.plain(columns[key_column])
        if label_column is not None and not columns[label_column].strip():
            raise SchemaError(f"{self.where(number)}: there is no label")
        used = (key_column, file_column, label_column)
        others = {_field_name(name): value for name, value in columns.items() if name not in used}
        if field in others or (field == LABEL and label_column is not None):
            raise SchemaError(f"{self.where(number)}: the file and a column would both be the field {field!r}")
        return _Row(key, file, field, None if label_column is None else columns[label_column].strip(), others)

    def _below_root(self, number: int, name: str) -> str:
        """Return the name of a file below the root; one that is absolute may lie there, too."""
        path = PurePosixPath(name.strip())
        root = PurePosixPath(os.path.abspath(self.root.root))  # noqa: PTH100  # links as they are
        if path.is_absolute() and path.is_relative_to(root):
            path = path.relative_to(root)
        return SafeName(
            str(path), where=f"{self.where(number)} (files lie below {self.root.root}; root= (--root) says where)"
        )

    def _size(self, number: int, file: str) -> int:
        try:
            return self.root.size(file)
        except ShardNotFound as error:
            raise ShardNotFound(
                f"row {number} of {self.path} names it, and it is not there", url=error.url
            ) from error


class _Records:
    def __init__(self, table: _Table, rows: _Rows, most: int) -> None:
        self._table, self._rows, self._most = table, rows, most

    def read(self, classes: Mapping[str, int], seed: int | None) -> Iterator[Record]:
        """Yield the rows' records in their order, or as `seed` permutes them."""
        offsets = self._rows.offsets
        order = None if seed is None else Permutation(len(offsets), seed)
        with RowReader(self._table.path) as reader:
            for at in range(len(offsets)):
                place = at if order is None else order.at(at)
                yield self._record(self._table.row_of(place + 1, reader.cells_at(offsets[place])), classes)

    def _record(self, row: _Row, classes: Mapping[str, int]) -> Record:
        record: Record = {"__key__": row.key}
        if row.file is not None:
            record[row.field] = self._table.root.read(row.file, self._most)
        if row.label is not None:
            record[LABEL] = b"%d" % classes[row.label] if classes else row.label.encode()
        return record | {name: value.encode() for name, value in row.others.items()}


def _field_name(column: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "_", column)
