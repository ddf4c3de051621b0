"""What the folders below a folder mean: splits, classes, or nothing, by their names and kinds of files. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.packing.tree import KINDS, Folder

__all__ = ["SPLIT_NAMES", "ClassFolders", "Layout", "lay_out"]

SPLIT_NAMES = r"(?:train|training|val|valid|validation|dev|eval|test|testing|holdout)(?:[-_]?\d+)?"
"""Folders of these names, in upper or lower case, hold a split each: `train`, `Validation`, `test1`, `train2017`."""

_is_split = re.compile(SPLIT_NAMES, re.IGNORECASE).fullmatch

_PARTS_OF_RECORDS = frozenset(
    {"image", "images", "img", "imgs", "jpegimages", "mask", "masks", "label", "labels", "annotation", "annotations"}
    | {"segmentation", "segmentations", "segmentationclass", "segmentationobject", "imagesets", "targets", "captions"}
)
_SHOWN = 4  # names of folders in an error


@dataclass(frozen=True)
class ClassFolders:
    """The class folders of one split: their names in order, and the kind of file that is one example (None: any)."""

    names: tuple[str, ...]
    kind: str | None


@dataclass(frozen=True)
class Layout:
    """What the folders mean.

    `splits` has the path of each split's folder by the split's name; without split folders it is `{"": ""}`.
    `classes` has the class folders of the splits that have some.
    """

    splits: Mapping[str, str]
    classes: Mapping[str, ClassFolders]

    @property
    def class_names(self) -> tuple[str, ...]:
        """All classes of all splits, in the order of Keras and torchvision."""
        return tuple(sorted({name for folders in self.classes.values() for name in folders.names}))


@dataclass(frozen=True)
class _Options:
    root: str
    labels: str | None
    splits: bool | None

    def unclear(self, text: str, path: str = "") -> UnclearLayout:
        where = f"{self.root.rstrip('/')}/{path}" if path else self.root
        return UnclearLayout(f"{where}: {text}")


def lay_out(
    folders: Sequence[Folder], root: str, *, labels: str | None = "auto", splits: bool | None = None
) -> Layout:
    """Return what the folders below `root` mean.

    Args:
        folders: All of them, the root itself included.
        root: The root's name, for errors.
        labels: "auto": folders are classes when that is beyond doubt; "folders": they are; None: they are not.
        splits: Whether folders named train, val, test … are splits; None: they are when all folders have such names.

    Raises:
        UnclearLayout: The folders can be understood in several ways. The text names the options that decide.
    """
    options = _Options(root, labels, splits)
    found = _split_folders(_Below(folders, ""), options)
    classes: dict[str, ClassFolders] = {}
    for split, path in found.items():
        made = _class_folders(_Below(folders, path), options)
        if made is not None:
            classes[split] = made
    return Layout(found, classes)


class _Below:
    """What is in one folder: its own files by kind, and of each sub-folder the files at any depth."""

    def __init__(self, folders: Sequence[Folder], path: str) -> None:
        self.path = path
        self.own: Counter[str | None] = Counter()
        self.children: dict[str, Counter[str | None]] = {}
        self.deeper: dict[str, set[str]] = {}  # of each sub-folder, its sub-folders that have files
        self.direct: set[str] = set()  # sub-folders with files of their own
        self.links: list[str] = []
        self.records = 0  # in sub-folders
        self.labelled = 0  # records with a file such as 1.cls
        prefix = f"{path}/" if path else ""
        for folder in folders:
            if folder.path == path:
                self.own += folder.kinds
            elif folder.path.startswith(prefix):
                self._add(folder, folder.path.removeprefix(prefix))

    def _add(self, folder: Folder, name: str) -> None:
        child, _, rest = name.partition("/")
        self.records += folder.records
        self.labelled += folder.labelled
        if folder.is_link:
            self.links += [child] if not rest else []
            return
        self.children.setdefault(child, Counter()).update(folder.kinds)
        if folder.kinds and rest:
            self.deeper.setdefault(child, set()).add(rest.partition("/")[0])
        elif folder.kinds:
            self.direct.add(child)

    @property
    def are_labelled(self) -> bool:
        """Whether at least half of the records have labels of their own: a stray file may look like one."""
        return 2 * self.labelled >= self.records

    @property
    def filled(self) -> list[str]:
        """The sub-folders that have files at any depth."""
        return [child for child, kinds in self.children.items() if kinds]


# Splits.


def _split_folders(below: _Below, options: _Options) -> dict[str, str]:
    """Return the path of each split's folder by the split's name, or `{"": ""}`."""
    named = [child for child in below.filled if _is_split(child)]
    if options.splits is False or not named:
        if options.splits:
            raise options.unclear("splits=True (--splits) finds no folder named train, val, test or alike")
        return {"": ""}
    others = [child for child in below.filled if child not in named]
    if others:
        raise options.unclear(
            f"{_listed(named)} could be splits, {_listed(others)} could not. Pack a split alone "
            f"(ais-tar2tf pack {options.root.rstrip('/')}/{named[0]} …), move the other folders away, or take every "
            "folder as a class: splits=False (--no-splits)"
        )
    _refuse_links(below, options, "split")
    _refuse_many_outside(below, options, "split folders")
    splits = {child.lower(): child for child in named}
    if len(splits) < len(named):
        raise options.unclear(f"{_listed(named)} have the same name in lower case, as splits are written; rename one")
    return splits


# Classes.


def _class_folders(below: _Below, options: _Options) -> ClassFolders | None:
    """Return the class folders, or None where folders say nothing of classes."""
    if options.labels is None:
        return None
    forced = options.labels == "folders"
    if not below.filled:
        if forced:
            raise options.unclear("labels='folders' (--labels folders) finds no sub-folder with files", below.path)
        return None
    kind = _kind(below)
    if not forced:
        if kind is None or below.are_labelled:
            return None
        _refuse_doubtful(below, kind, options)
    _refuse_links(below, options, "class")
    _refuse_many_outside(below, options, "class folders")
    return ClassFolders(tuple(sorted(below.children)), kind)


def _kind(below: _Below) -> str | None:
    """Return which kind of file there is most of in the sub-folders, if it is one that a class may have."""
    total: Counter[str | None] = Counter()
    for kinds in below.children.values():
        total.update(kinds)
    most = max((total[kind] for kind in KINDS), default=0)
    return next((kind for kind in KINDS if most and total[kind] == most), None)


def _refuse_doubtful(below: _Below, kind: str | None, options: _Options) -> None:
    """Refuse folders that hold parts of records, or something else than examples, or the class folders themselves."""
    filled = below.filled
    here = f"{options.root.rstrip('/')}/{below.path}".rstrip("/")
    parts = [child for child in filled if child.lower() in _PARTS_OF_RECORDS]
    if parts:
        raise options.unclear(
            f"folders named {_listed(parts)} usually hold parts of records, not classes. A record is made of files "
            f"with one name that lie in one folder; all others are given as rows, to t2t.pack. {_TO_DECIDE}",
            below.path,
        )
    without = [child for child in filled if not below.children[child][kind]]
    if without:
        raise options.unclear(
            f"there is no {kind} in {_listed(without)}, but in the other folders there is. Move it away, or decide: "
            f"{_TO_DECIDE}",
            below.path,
        )
    if len(filled) == 1 and len(below.children) == 1 and filled[0] not in below.direct:
        inner = below.deeper.get(filled[0], set())
        if len(inner) > 1:
            raise options.unclear(
                f"everything lies in one folder, {filled[0]!r}, whose sub-folders ({_listed(sorted(inner))}) look "
                f"like classes or splits: pack that one (ais-tar2tf pack {here}/{filled[0]} …). {_TO_DECIDE}",
                below.path,
            )


_TO_DECIDE = (
    "labels='folders' (--labels folders) takes each folder as a class, labels=None (--labels none) packs the files "
    "without labels"
)


def _refuse_links(below: _Below, options: _Options, what: str) -> None:
    if below.links:
        raise options.unclear(
            f"{_listed(below.links)} is a link to a folder, and would be a {what}; follow_links=True "
            "(--follow-links) follows links, wherever they lead",
            below.path,
        )


def _refuse_many_outside(below: _Below, options: _Options, what: str) -> None:
    """Some files beside the folders are left out; when they are as many as those within, that is a mistake."""
    own = sum(below.own[kind] for kind in KINDS)
    within = sum(kinds[kind] for kinds in below.children.values() for kind in KINDS)
    if own and own >= within:
        raise options.unclear(
            f"{own:,} files lie outside of the {what}, {within:,} within. {_TO_DECIDE}; splits=False (--no-splits) "
            "takes folders named train, val, test … as any others",
            below.path,
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown}, …" if len(names) > _SHOWN else shown
