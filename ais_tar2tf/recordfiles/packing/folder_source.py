"""Pack a folder. Files with the same key are a record, and a class folder is the label of the records in it."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.packing.confined_folder import ConfinedFolder
from ais_tar2tf.recordfiles.packing.contents import Contents, SplitContents
from ais_tar2tf.recordfiles.packing.file_tree import UNDECODED, FileTree, build_tree, kind_of
from ais_tar2tf.recordfiles.packing.folder_layout import ClassFolders, FolderLayout, detect_layout
from ais_tar2tf.recordfiles.packing.left_out import LeftOut, Reason
from ais_tar2tf.recordfiles.packing.naming import DotCheck, Naming
from ais_tar2tf.recordfiles.packing.options import PackOptions
from ais_tar2tf.records import Record
from ais_tar2tf.streams.order import LargePermutation
from ais_tar2tf.values.default_mappings import LABEL
from ais_tar2tf.values.schema import LABEL_FIELDS, extension_of

__all__ = ["inspect_folder"]


def inspect_folder(
    root: Path,
    options: PackOptions,
    on_count: Callable[[int], None] = lambda _: None,
    is_own_shard: Callable[[str], bool] = lambda _: False,
) -> Contents:
    """Return the contents of the folder `root`, without opening a file.

    Args:
        root: The folder.
        options: How the names of files and folders are understood.
        on_count: Called with the number of files found so far.
        is_own_shard: Tells whether a file, by its path below the root, is a shard that this run will write.

    Raises:
        UnclearLayout: The names of files and folders do not decide what is a record, a class or a split.
        StoreError: A folder cannot be read.
    """
    limits = options.limits or Limits()
    confined = ConfinedFolder(root, follow_links=options.follow_links)
    left_out, naming = LeftOut(), Naming(options.grouping)
    tree = build_tree(
        confined, naming, left_out, max_files=limits.files, on_count=on_count, is_own_shard=is_own_shard
    )
    layout = detect_layout(tree.folders, os.fspath(root), labels=options.labels, splits=options.splits)
    records = _FolderRecords(confined, tree, layout, naming, left_out, limits.member_bytes)
    splits = tuple(
        SplitContents(name, partial(records.read, name), len(split.record_numbers), split.bytes, split.by_class)
        for name, split in records.splits.items()
    )
    return Contents(
        splits,
        layout.class_names,
        left_out,
        files=sum(split.files for split in records.splits.values()),
        shuffled=bool(layout.classes),
        labels="" if layout.classes else _label_files_text(tree),
        undecoded=records.undecoded,
    )


def _label_files_text(tree: FileTree) -> str:
    labelled = sum(folder.labelled for folder in tree.folders)
    return f"{labelled:,} of {len(tree):,} records have a label of their own, such as 1.cls" if labelled else ""


@dataclass(frozen=True, slots=True)
class _FolderRole:
    """What the records directly in one folder have in common: the split, the class, and the beginning of the keys."""

    split: str | None  # None: the folder is in no split, or in no class folder of its split
    class_name: str | None = None
    kind: str | None = None  # every record of the class must have a file of this kind
    key_prefix: str = ""


class _SplitRecords:
    """The records of one split, by their numbers in the tree, and counts of their files."""

    def __init__(self, class_names: tuple[str, ...]) -> None:
        self.record_numbers = array("I")
        self.bytes = 0
        self.files = 0
        self.by_class: Counter[str] = Counter(dict.fromkeys(class_names, 0))


class _FolderRecords:
    """The records of a folder. Each record is checked and assigned to a split, or left out.

    Args:
        root: The folder.
        tree: All records of the folder.
        layout: The folders that are splits and classes.
        naming: Splits the names of files into keys and fields.
        left_out: Counts the files of records that are left out.
        max_bytes: The largest size of a file, `Limits.member_bytes`.
    """

    def __init__(
        self,
        root: ConfinedFolder,
        tree: FileTree,
        layout: FolderLayout,
        naming: Naming,
        left_out: LeftOut,
        max_bytes: int,
    ) -> None:
        self._root, self._tree, self._naming = root, tree, naming
        self._left_out, self._max_bytes = left_out, max_bytes
        self._roles = [_role_of(folder.path, layout) for folder in tree.folders]
        self._dot_check = DotCheck(naming)
        self.splits: dict[str, _SplitRecords] = {
            split: _SplitRecords(layout.classes[split].names if split in layout.classes else ())
            for split in sorted(layout.splits)
        }
        self.undecoded: Counter[str] = Counter()  # images that TensorFlow does not decode, by extension
        for record in range(len(tree)):
            self._assign(record)

    def _assign(self, record: int) -> None:
        """Add a record to its split, or leave it out."""
        tree = self._tree
        number = tree.folder_numbers[record]
        folder, role, names = tree.folders[number], self._roles[number], tree.names(record)
        reason = self._reason_to_leave_out(role, names, tree.sizes[record])
        if reason:
            for name in names:
                self._left_out.add(reason, f"{folder.path}/{name}".lstrip("/"))
            return
        where = f"{os.fspath(self._root.root).rstrip('/')}/{folder.path}".rstrip("/")
        self._dot_check.check(where, names)
        if role.class_name is not None and role.kind is not None:
            self._check_one_example(where, role.kind, names)
        if role.class_name is not None:
            _check_one_label(where, names)
        assert role.split is not None
        split = self.splits[role.split]
        split.record_numbers.append(record)
        split.bytes += tree.sizes[record]
        split.files += len(names)
        self.undecoded.update(UNDECODED.intersection(map(extension_of, names)))
        if role.class_name is not None:
            split.by_class[role.class_name] += 1

    def _reason_to_leave_out(self, role: _FolderRole, names: list[str], size: int) -> Reason | None:
        if role.split is None:
            return Reason.OUTSIDE
        if role.kind is not None and not any(kind_of(name) == role.kind for name in names):
            return Reason.UNACCOMPANIED
        return Reason.EMPTY if role.kind is not None and not size and role.kind != "text" else None

    def _check_one_example(self, where: str, kind: str, names: list[str]) -> None:
        """Refuse `1.jpg` and `1.png` in a class folder, unless the user chose `grouping="first-dot"`."""
        if self._naming.grouping == "first-dot":
            return
        examples = [name for name in names if kind_of(name) == kind]
        plain = [name for name in examples if "." not in (self._naming.split(name) or ("", "."))[1]]
        if len(plain) > 1:
            raise UnclearLayout(
                f"{where}: {plain[0]!r} and {plain[1]!r} would be one record with two "
                f"{kind}s; rename one, or pack them as one record: grouping='first-dot' (--grouping first-dot)"
            )
        self._dot_check.check_examples(where, examples)

    def read(self, split: str, classes: Mapping[str, int], seed: int | None) -> Iterator[Record]:
        """Yield the records of a split in the order of names, or permuted by `seed`."""
        numbers = self.splits[split].record_numbers
        order = None if seed is None else LargePermutation(len(numbers), seed)
        for at in range(len(numbers)):
            yield self._read_record(numbers[at if order is None else order.at(at)], classes)

    def _read_record(self, number: int, classes: Mapping[str, int]) -> Record:
        folder_number = self._tree.folder_numbers[number]
        folder, role = self._tree.folders[folder_number], self._roles[folder_number]
        record: Record = {"__key__": ""}
        if role.class_name is not None:
            record[LABEL] = b"%d" % classes[role.class_name]
        for name in self._tree.names(number):
            key, field = self._naming.split(name) or ("", "")
            record["__key__"] = role.key_prefix + key
            record[field] = self._root.read(f"{folder.path}/{name}".lstrip("/"), self._max_bytes)
        return record


def _check_one_label(where: str, names: list[str]) -> None:
    """Refuse a file with a label in a class folder."""
    label = next((name for name in names if extension_of(name) in LABEL_FIELDS), None)
    if label is not None:
        raise UnclearLayout(
            f"{where}: {label!r} is a label, and so is the folder; remove the file, or "
            "use the labels in files: labels=None (--labels none)"
        )


def _role_of(path: str, layout: FolderLayout) -> _FolderRole:
    """Return the role that the layout gives to the folder `path`."""
    split, split_path = _split_of(path, layout)
    if split is None:
        return _FolderRole(None)
    inner = path.removeprefix(split_path).lstrip("/")
    key_prefix = f"{inner}/" if inner else ""
    classes: ClassFolders | None = layout.classes.get(split)
    if classes is None:
        return _FolderRole(split, key_prefix=key_prefix)
    if not inner:
        return _FolderRole(None)
    return _FolderRole(split, inner.partition("/")[0], classes.kind, key_prefix)


def _split_of(path: str, layout: FolderLayout) -> tuple[str | None, str]:
    """Return the split whose folder holds `path`, and the path of that folder."""
    for split, split_path in layout.splits.items():
        if not split_path or path == split_path or path.startswith(f"{split_path}/"):
            return split, split_path
    return None, ""
