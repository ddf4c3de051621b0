"""Pack a CSV file: each row, with the file that it names, is a record."""

from __future__ import annotations

import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath

from ais_tar2tf.base.csv_files import RowReader, csv_rows
from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import SchemaError, ShardNotFound
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.packing.confined_folder import ConfinedFolder
from ais_tar2tf.recordfiles.packing.contents import Contents, SplitContents
from ais_tar2tf.recordfiles.packing.file_tree import UNDECODED
from ais_tar2tf.recordfiles.packing.naming import DotCheck, Naming
from ais_tar2tf.recordfiles.packing.options import PackOptions
from ais_tar2tf.records import Record
from ais_tar2tf.records.keys import KeySet
from ais_tar2tf.streams.order import LargePermutation
from ais_tar2tf.values.default_mappings import LABEL
from ais_tar2tf.values.schema import extension_of

__all__ = ["inspect_csv"]

_KEY_COLUMNS = ("__key__", "key", "id")
_FILE_COLUMNS = ("filename", "file", "path", "image")
_LABEL_COLUMNS = ("label", "class", LABEL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # matches labels that are numbers
_NO_EXTENSION = "bin"  # the field of a file without an extension


def inspect_csv(path: Path, options: PackOptions, on_count: Callable[[int], None] = lambda _: None) -> Contents:
    """Return the contents of the CSV file `path`; `on_count` is called with the number of rows read so far.

    A row may name a file below `options.root`, by default the folder of the CSV file. If any label is a word, all
    labels become class numbers, in alphabetical order.

    Raises:
        SchemaError: The file is no CSV, a row lacks a label, or has more or fewer values than the header.
        UnsafeName: A row names a file outside of the root.
        ShardNotFound: A row names a file that does not exist.
    """
    limits = options.limits or Limits()
    root = ConfinedFolder(path.parent if options.root is None else options.root, follow_links=options.follow_links)
    table = _CsvTable(path, Naming(options.grouping), root)
    summary = table.scan(limits, on_count)
    by_class = summary.labels.counts if summary.labels.are_words else Counter[str]()
    read = partial(table.read, summary.offsets, limits.member_bytes)
    split = SplitContents("", read, len(summary.offsets), summary.bytes, by_class)
    are_unchanged = table.label is not None and not by_class
    labels = "" if not are_unchanged else f"the labels are the values of the column {table.label!r}, unchanged"
    classes = tuple(sorted(by_class))
    return Contents((split,), classes, files=summary.files, labels=labels, undecoded=summary.undecoded)


class _LabelCounts:
    """Counts the labels of the rows.

    If all labels are numbers, and more than `max_labels` of the labels are different, `counts` is empty.
    """

    def __init__(self, max_labels: int) -> None:
        self.counts: Counter[str] = Counter()
        self.are_words: bool = False  # at least one label is no number
        self._max_labels = max_labels
        self._too_many = False

    def add(self, label: str, where: str) -> None:
        """Count the label of a row; raise SchemaError if there are too many different words."""
        self.are_words |= _NUMBER.fullmatch(label) is None
        if not self._too_many:
            self.counts[label] += 1
            self._too_many = len(self.counts) > self._max_labels
        if self._too_many:
            self.counts.clear()
            if self.are_words:
                raise SchemaError(
                    f"{where}: there are more than {self._max_labels:,} different labels, Limits.vocabulary"
                )


class _CsvSummary:
    """The offset of each row in the file, the counts of labels, and the size of the files that rows name."""

    def __init__(self, limits: Limits) -> None:
        self.offsets = array("Q")
        self.bytes = 0
        self.files = 0
        self.undecoded: Counter[str] = Counter()  # images that TensorFlow does not decode, by extension
        self.labels = _LabelCounts(limits.vocabulary)


@dataclass(frozen=True, slots=True)
class _TableRow:
    """A row, with the meaning of each of its columns."""

    key: str
    file: str | None  # the path below the root
    field: str  # the field that the file's bytes become
    label: str | None
    others: dict[str, str]  # field → text, for all other columns


class _CsvTable:
    """A CSV file whose header names the columns."""

    def __init__(self, path: Path, naming: Naming, root: ConfinedFolder) -> None:
        self.path = path
        self.root = root
        self._naming = naming
        header = next(csv_rows(path), None)
        names = [] if header is None else [name.strip().lower() for name in header.cells]
        self._names = [
            name or f"column_{at}" for at, name in enumerate(names)
        ]  # pandas writes its index without a name
        self.label: str | None = next((name for name in _LABEL_COLUMNS if name in self._names), None)
        self._check_names()

    def _check_names(self) -> None:
        """Refuse two columns that would be the same field."""
        fields = [LABEL if name == self.label else _field_name(name) for name in self._names]
        for at, field in enumerate(fields):
            first = fields.index(field)
            if first < at:
                raise SchemaError(
                    f"{self.path}: the columns {self._names[first]!r} and {self._names[at]!r} would both be the "
                    f"field {field!r}; rename one"
                )

    def scan(self, limits: Limits, on_count: Callable[[int], None]) -> _CsvSummary:
        """Read and check every row, and check that its file exists, before anything is packed."""
        summary, keys, dot_check = _CsvSummary(limits), KeySet(), DotCheck(self._naming)
        for number, row in enumerate(islice(csv_rows(self.path), 1, None), 1):  # without the header
            if number > limits.files:
                raise SchemaError(f"{self.path}: there are more than {limits.files:,} rows, Limits.files")
            parsed = self.parse_row(number, row.cells)
            summary.offsets.append(row.offset)
            if not keys.add(parsed.key):
                raise SchemaError(f"{self.where(number)}: the key {parsed.key!r} came before")
            if parsed.file is not None:
                dot_check.check(self.where(number), [parsed.file.rpartition("/")[2]])
                summary.bytes += self._size(number, parsed.file)
                summary.files += 1
                summary.undecoded.update(UNDECODED & {extension_of(parsed.file)})
            if parsed.label is not None:
                summary.labels.add(parsed.label, self.where(number))
            on_count(number)
        return summary

    def where(self, number: int) -> str:
        """Return the file and the number of a row, for errors."""
        return f"{self.path}, row {number}"

    def parse_row(self, number: int, cells: list[str]) -> _TableRow:
        """Return the row that `cells` make; `number` is 1 for the first row after the header."""
        if len(cells) != len(self._names):
            raise SchemaError(f"{self.where(number)}: there are more or fewer values than columns")
        columns = dict(zip(self._names, cells, strict=True))
        key_column = next((name for name in _KEY_COLUMNS if columns.get(name)), None)
        file_column = next((name for name in _FILE_COLUMNS if columns.get(name)), None)
        label_column = self.label
        key, file, field = f"{number - 1:08d}", None, ""
        if file_column is not None:
            file = self._below_root(number, columns[file_column])
            key, field = self._naming.split(file) or (self._naming.written_key(file), _NO_EXTENSION)
        if key_column is not None:
            key = self._naming.written_key(columns[key_column])
        if label_column is not None and not columns[label_column].strip():
            raise SchemaError(f"{self.where(number)}: there is no label")
        used = (key_column, file_column, label_column, "__key__")
        others = {_field_name(name): value for name, value in columns.items() if name not in used}
        if field in others or (field == LABEL and label_column is not None):
            raise SchemaError(f"{self.where(number)}: the file and a column would both be the field {field!r}")
        return _TableRow(key, file, field, None if label_column is None else columns[label_column].strip(), others)

    def _below_root(self, number: int, name: str) -> str:
        """Return the path below the root of the file that a row names, by a relative or an absolute path."""
        path = PurePosixPath(name.strip())
        root = PurePosixPath(os.path.abspath(self.root.root))  # noqa: PTH100  # links are not resolved
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
                f"row {number} of {self.path} names it, but it does not exist", url=error.url
            ) from error

    def read(
        self, offsets: Sequence[int], max_bytes: int, classes: Mapping[str, int], seed: int | None
    ) -> Iterator[Record]:
        """Yield the records of the rows that begin at `offsets`: in the order of `offsets`, or permuted by `seed`."""
        order = None if seed is None else LargePermutation(len(offsets), seed)
        with RowReader(self.path) as reader:
            for at in range(len(offsets)):
                number = at if order is None else order.at(at)
                row = self.parse_row(number + 1, reader.cells_at(offsets[number]))
                record: Record = {"__key__": row.key}
                if row.file is not None:
                    record[row.field] = self.root.read(row.file, max_bytes)
                if row.label is not None:
                    record[LABEL] = b"%d" % classes[row.label] if classes else row.label.encode()
                yield record | {name: value.encode() for name, value in row.others.items()}


def _field_name(column: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "_", column)
