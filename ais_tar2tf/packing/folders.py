"""A folder of files → what will be packed of it: records of files with one name, labelled by their class folders."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.mapping import LABEL
from ais_tar2tf.options import Limits
from ais_tar2tf.packing.confined import Confined
from ais_tar2tf.packing.contents import Contents, Part
from ais_tar2tf.packing.keys import Dotted, Naming
from ais_tar2tf.packing.layout import ClassFolders, Layout, lay_out
from ais_tar2tf.packing.left_out import EMPTY, OUTSIDE, UNACCOMPANIED, LeftOut
from ais_tar2tf.packing.options import PackOptions
from ais_tar2tf.packing.tree import UNDECODED, Tree, gather, kind_of
from ais_tar2tf.plan.permuting import Permutation
from ais_tar2tf.records import Record
from ais_tar2tf.schema import LABEL_FIELDS, extension_of

__all__ = ["contents_of_folder"]


def contents_of_folder(
    root: Path,
    options: PackOptions,
    found: Callable[[int], None] = lambda _: None,
    is_own: Callable[[str], bool] = lambda _: False,
) -> Contents:
    """Return what will be packed of the folder `root`; the arguments are those of `gather`.

    Raises:
        UnclearLayout: The names of files and folders leave open what is a record, a class or a split.
        StoreError: A folder cannot be read.
    """
    limits = options.limits or Limits()
    confined, left_out, naming = (
        Confined(root, follow_links=options.follow_links),
        LeftOut(),
        Naming(options.grouping),
    )
    tree = gather(confined, naming, left_out, most=limits.files, found=found, is_own=is_own)
    layout = lay_out(tree.folders, os.fspath(root), labels=options.labels, splits=options.splits)
    sorted_in = _SortedIn(tree, layout, naming, left_out, os.fspath(root))
    parts = tuple(
        Part(
            split,
            _Records(confined, tree, naming, sorted_in.places, chosen.numbers, limits.member_bytes).read,
            len(chosen.numbers),
            chosen.bytes,
            chosen.by_class,
        )
        for split, chosen in sorted_in.chosen.items()
    )
    return Contents(
        parts,
        layout.class_names,
        left_out,
        files=sum(chosen.files for chosen in sorted_in.chosen.values()),
        shuffled=bool(layout.classes),
        labels="" if layout.classes else _labels_of_their_own(tree),
        undecoded=sorted_in.undecoded,
    )


def _labels_of_their_own(tree: Tree) -> str:
    labelled = sum(folder.labelled for folder in tree.folders)
    return f"{labelled:,} of {len(tree):,} records have a label of their own, such as 1.cls" if labelled else ""


@dataclass(frozen=True, slots=True)
class _Place:
    """What a folder means for the records in it."""

    split: str | None  # None: its files lie outside of everything that is packed
    class_name: str | None = None
    kind: str | None = None  # of file that a record of its class must have
    key: str = ""  # what keys of its records begin with


class _Chosen:
    """The records of one split."""

    def __init__(self, class_names: tuple[str, ...]) -> None:
        self.numbers = array("I")
        self.bytes = 0
        self.files = 0
        self.by_class: Counter[str] = Counter(dict.fromkeys(class_names, 0))


class _SortedIn:
    """Every record of a tree in its split, or left out."""

    def __init__(self, tree: Tree, layout: Layout, naming: Naming, left_out: LeftOut, root: str) -> None:
        self.places: list[_Place] = [_place_of(folder.path, layout) for folder in tree.folders]
        self.chosen: dict[str, _Chosen] = {
            split: _Chosen(layout.classes[split].names if split in layout.classes else ())
            for split in sorted(layout.splits)
        }
        self._tree, self._naming, self._left_out, self._root = tree, naming, left_out, root
        self._dotted = Dotted(naming)
        self.undecoded: Counter[str] = Counter()  # images that TensorFlow does not decode, by extension
        for record in range(len(tree)):
            self._sort_in(record)

    def _sort_in(self, record: int) -> None:
        tree = self._tree
        number = tree.folder_number(record)
        folder, place, names = tree.folders[number], self.places[number], tree.names(record)
        reason = self._reason_against(place, names, tree.size(record))
        if reason:
            for name in names:
                self._left_out.add(reason, f"{folder.path}/{name}".lstrip("/"))
            return
        where = f"{self._root.rstrip('/')}/{folder.path}".rstrip("/")
        self._dotted.check(where, names)
        if place.class_name is not None and place.kind is not None:
            self._check_one_example(where, place.kind, names)
        if place.class_name is not None:
            self._check_one_label(folder.path, names)
        assert place.split is not None
        chosen = self.chosen[place.split]
        chosen.numbers.append(record)
        chosen.bytes += tree.size(record)
        chosen.files += len(names)
        self.undecoded.update(UNDECODED.intersection(map(extension_of, names)))
        if place.class_name is not None:
            chosen.by_class[place.class_name] += 1

    def _reason_against(self, place: _Place, names: list[str], size: int) -> str:
        if place.split is None:
            return OUTSIDE
        if place.kind is not None and not any(kind_of(name) == place.kind for name in names):
            return UNACCOMPANIED
        return EMPTY if place.kind is not None and not size and place.kind != "text" else ""

    def _check_one_example(self, where: str, kind: str, names: list[str]) -> None:
        """Refuse `1.jpg` and `1.png` in a class folder: two examples, or one? "first-dot" says that it is one."""
        if self._naming.grouping == "first-dot":
            return
        examples = [name for name in names if kind_of(name) == kind]
        plain = [name for name in examples if "." not in (self._naming.split(name) or ("", "."))[1]]
        if len(plain) > 1:
            raise UnclearLayout(
                f"{where}: {plain[0]!r} and {plain[1]!r} would be one record with two "
                f"{kind}s; rename one, or take them as one record: grouping='first-dot' (--grouping first-dot)"
            )
        self._dotted.check_examples(where, examples)

    def _check_one_label(self, folder: str, names: list[str]) -> None:
        label = next((name for name in names if extension_of(name) in LABEL_FIELDS), None)
        if label is not None:
            raise UnclearLayout(
                f"{self._root.rstrip('/')}/{folder}: {label!r} is a label, and so is the folder; remove the file, or "
                "take the labels of the files: labels=None (--labels none)"
            )


def _place_of(path: str, layout: Layout) -> _Place:
    """Return what the layout says of the files directly in the folder `path`."""
    split, base = _split_of(path, layout)
    if split is None:
        return _Place(None)
    inner = path.removeprefix(base).lstrip("/")
    key = f"{inner}/" if inner else ""
    classes: ClassFolders | None = layout.classes.get(split)
    if classes is None:
        return _Place(split, key=key)
    if not inner:
        return _Place(None)
    return _Place(split, inner.partition("/")[0], classes.kind, key)


def _split_of(path: str, layout: Layout) -> tuple[str | None, str]:
    for split, base in layout.splits.items():
        if not base or path == base or path.startswith(f"{base}/"):
            return split, base
    return None, ""


class _Records:
    """Reads the records of one split."""

    def __init__(
        self, root: Confined, tree: Tree, naming: Naming, places: list[_Place], numbers: array[int], most: int
    ) -> None:
        self._root, self._tree, self._naming = root, tree, naming
        self._places, self._numbers, self._most = places, numbers, most

    def read(self, classes: Mapping[str, int], seed: int | None) -> Iterator[Record]:
        """Yield the records in the order of names, or as `seed` permutes them."""
        order = None if seed is None else Permutation(len(self._numbers), seed)
        for at in range(len(self._numbers)):
            yield self._record(self._numbers[at if order is None else order.at(at)], classes)

    def _record(self, number: int, classes: Mapping[str, int]) -> Record:
        at = self._tree.folder_number(number)
        folder, place = self._tree.folders[at], self._places[at]
        record: Record = {"__key__": ""}
        if place.class_name is not None:
            record[LABEL] = b"%d" % classes[place.class_name]
        for name in self._tree.names(number):
            key, field = self._naming.split(name) or ("", "")
            record["__key__"] = place.key + key
            record[field] = self._root.read(f"{folder.path}/{name}".lstrip("/"), self._most)
        return record
