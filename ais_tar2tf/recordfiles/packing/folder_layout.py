"""Decide which folders are splits and which are classes, by their names and the kinds of their files. No I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.recordfiles.packing.file_tree import KINDS, TreeFolder

__all__ = ["SPLIT_NAMES", "ClassFolders", "FolderLayout", "detect_layout"]

SPLIT_NAMES = r"(?:train|training|val|valid|validation|dev|eval|test|testing|holdout)(?:[-_]?\d+)?"
"""A folder with such a name, in upper or lower case, may be a split: `train`, `Validation`, `test1`, `train2017`."""

_is_split = re.compile(SPLIT_NAMES, re.IGNORECASE).fullmatch

_PARTS_OF_RECORDS = frozenset(
    {"image", "images", "img", "imgs", "jpegimages", "mask", "masks", "label", "labels", "annotation", "annotations"}
    | {"segmentation", "segmentations", "segmentationclass", "segmentationobject", "imagesets", "targets", "captions"}
)
_SHOWN = 4  # folder names listed in an error


@dataclass(frozen=True)
class ClassFolders:
    """The class folders of one split."""

    names: tuple[str, ...]  # sorted
    kind: str | None  # every record has a file of this kind; None: of any kind


@dataclass(frozen=True)
class FolderLayout:
    """The decision which folders are splits, and which are classes.

    Attributes:
        splits: From the name of each split to the path of its folder; `{"": ""}` where there are no split folders.
        classes: From the name of a split to its class folders. A split without class folders has no entry.
    """

    splits: Mapping[str, str]
    classes: Mapping[str, ClassFolders]

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes of all splits, sorted by name, as Keras and torchvision do."""
        return tuple(sorted({name for folders in self.classes.values() for name in folders.names}))


@dataclass(frozen=True)
class _LayoutOptions:
    root: str
    labels: str | None
    splits: bool | None

    def unclear(self, text: str, path: str = "") -> UnclearLayout:
        where = f"{self.root.rstrip('/')}/{path}" if path else self.root
        return UnclearLayout(f"{where}: {text}")


def detect_layout(
    folders: Sequence[TreeFolder], root: str, *, labels: str | None = "auto", splits: bool | None = None
) -> FolderLayout:
    """Return the layout of the folders below `root`.

    Args:
        folders: The root and all folders below it.
        root: The root's name, for errors.
        labels: "folders": sub-folders are classes. None: sub-folders are no classes. "auto": they are classes if each
            holds examples of the same kind, such as images.
        splits: Whether folders named train, val, test … are splits. None: they are, if all folders have such names.

    Raises:
        UnclearLayout: The folders can be understood in several ways. The text names the options that decide.
    """
    options = _LayoutOptions(root, labels, splits)
    found = _split_folders(_FolderSummary(folders, ""), options)
    classes: dict[str, ClassFolders] = {}
    for split, path in found.items():
        class_folders = _class_folders(_FolderSummary(folders, path), options)
        if class_folders is not None:
            classes[split] = class_folders
    return FolderLayout(found, classes)


class _FolderSummary:
    """Counts of the files in one folder: its own files, and for each sub-folder the files at any depth below it."""

    def __init__(self, folders: Sequence[TreeFolder], path: str) -> None:
        self.path = path
        self.own: Counter[str | None] = Counter()  # files by kind
        self.children: dict[str, Counter[str | None]] = {}  # sub-folder → its files by kind
        self.grandchildren: dict[str, set[str]] = {}  # sub-folder → its sub-folders that have files
        self.direct: set[str] = set()  # sub-folders with files of their own
        self.links: list[str] = []  # links to folders; they are not followed
        self.records = 0  # number of records in sub-folders
        self.labelled = 0  # number of records with a file such as 1.cls
        prefix = f"{path}/" if path else ""
        for folder in folders:
            if folder.path == path:
                self.own += folder.kinds
            elif folder.path.startswith(prefix):
                self._add(folder, folder.path.removeprefix(prefix))

    def _add(self, folder: TreeFolder, name: str) -> None:
        child, _, rest = name.partition("/")
        self.records += folder.records
        self.labelled += folder.labelled
        if folder.is_link:
            self.links += [child] if not rest else []
            return
        self.children.setdefault(child, Counter()).update(folder.kinds)
        if folder.kinds and rest:
            self.grandchildren.setdefault(child, set()).add(rest.partition("/")[0])
        elif folder.kinds:
            self.direct.add(child)

    @property
    def has_labels(self) -> bool:
        """Whether at least half of the records have a label file. Fewer label files may be something else."""
        return 2 * self.labelled >= self.records

    @property
    def filled(self) -> list[str]:
        """The sub-folders that have files at any depth."""
        return [child for child, kinds in self.children.items() if kinds]


# Splits.


def _split_folders(folder: _FolderSummary, options: _LayoutOptions) -> dict[str, str]:
    """Return the path of each split's folder by the split's name, or `{"": ""}` where there are no splits."""
    named = [child for child in folder.filled if _is_split(child)]
    if options.splits is False or not named:
        if options.splits:
            raise options.unclear("splits=True (--splits) finds no folder named train, val, test or alike")
        return {"": ""}
    others = [child for child in folder.filled if child not in named]
    if others:
        raise options.unclear(
            f"{_listed(named)} could be splits, {_listed(others)} could not. Pack one split alone "
            f"(ais-tar2tf pack {options.root.rstrip('/')}/{named[0]} …), move the other folders away, or take every "
            "folder as a class: splits=False (--no-splits)"
        )
    _refuse_omissions(folder, options, "split")
    splits = {child.lower(): child for child in named}
    if len(splits) < len(named):
        raise options.unclear(
            f"{_listed(named)} have the same name in lower case, and names of splits are in lower case; rename one"
        )
    return splits


# Classes.


def _class_folders(folder: _FolderSummary, options: _LayoutOptions) -> ClassFolders | None:
    """Return the class folders in `folder`, or None when its sub-folders are not classes."""
    if options.labels is None:
        return None
    forced = options.labels == "folders"
    if not folder.filled:
        if forced:
            raise options.unclear("labels='folders' (--labels folders) finds no sub-folder with files", folder.path)
        return None
    kind = _kind(folder)
    if not forced:
        if kind is None or folder.has_labels:
            return None
        _refuse_doubtful(folder, kind, options)
    _refuse_omissions(folder, options, "class")
    return ClassFolders(tuple(sorted(folder.children)), kind)


def _kind(folder: _FolderSummary) -> str | None:
    """Return the most frequent kind of file in the sub-folders; None when they have no file of any of `KINDS`."""
    total = sum(folder.children.values(), Counter[str | None]())
    most = max((total[kind] for kind in KINDS), default=0)
    return next((kind for kind in KINDS if most and total[kind] == most), None)


def _refuse_doubtful(folder: _FolderSummary, kind: str | None, options: _LayoutOptions) -> None:
    """Refuse sub-folders that may be no classes.

    A sub-folder is doubtful if it seems to hold parts of records, if it lacks the kind of file that the others have,
    or if it is the only one and seems to hold the class folders.
    """
    filled = folder.filled
    path = f"{options.root.rstrip('/')}/{folder.path}".rstrip("/")
    parts = [child for child in filled if child.lower() in _PARTS_OF_RECORDS]
    if parts:
        raise options.unclear(
            f"folders named {_listed(parts)} usually hold parts of records, not classes. The files of "
            f"a record must have one name and lie in one folder; give t2t.pack others as dicts. {_TO_DECIDE}",
            folder.path,
        )
    without = [child for child in filled if not folder.children[child][kind]]
    if without:
        raise options.unclear(
            f"there is no {kind} in {_listed(without)}, but there is in the other folders. Move it away, or decide: "
            f"{_TO_DECIDE}",
            folder.path,
        )
    if len(filled) == 1 and len(folder.children) == 1 and filled[0] not in folder.direct:
        inner = folder.grandchildren.get(filled[0], set())
        if len(inner) > 1:
            raise options.unclear(
                f"everything lies in one folder, {filled[0]!r}, whose sub-folders ({_listed(sorted(inner))}) look "
                f"like classes or splits: pack this folder (ais-tar2tf pack {path}/{filled[0]} …). {_TO_DECIDE}",
                folder.path,
            )


_TO_DECIDE = (
    "labels='folders' (--labels folders) takes each folder as a class, labels=None (--labels none) packs the files "
    "without labels"
)


def _refuse_omissions(folder: _FolderSummary, options: _LayoutOptions, what: str) -> None:
    """Refuse a layout that would leave out links to folders, or as many files as it packs.

    Args:
        folder: The folder that holds the split folders or class folders.
        options: The options, for the error.
        what: "split" or "class".
    """
    if folder.links:
        raise options.unclear(
            f"{_listed(folder.links)} is a link to a folder, and would be a {what}; follow_links=True "
            "(--follow-links) follows links, wherever they lead",
            folder.path,
        )
    own = sum(folder.own[kind] for kind in KINDS)
    within = sum(kinds[kind] for kinds in folder.children.values() for kind in KINDS)
    if own and own >= within:
        raise options.unclear(
            f"{own:,} files lie outside of the {what} folders, {within:,} within. {_TO_DECIDE}; splits=False "
            "(--no-splits) treats folders named train, val, test … as any other folders",
            folder.path,
        )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN])
    return f"{shown}, …" if len(names) > _SHOWN else shown
