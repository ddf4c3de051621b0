"""All files below a folder, grouped into records by their names, in order. It reads names and sizes, and no file."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.packing.confined import Confined
from ais_tar2tf.packing.keys import Naming
from ais_tar2tf.packing.left_out import DOCUMENT, LINK, NO_EXTENSION, OWN, LeftOut
from ais_tar2tf.packing.texts import Texts
from ais_tar2tf.schema import KINDS as DECODED
from ais_tar2tf.schema import LABEL_FIELDS, extension_of
from ais_tar2tf.shard_index import is_beside

__all__ = ["KINDS", "UNDECODED", "Folder", "Tree", "gather", "kind_of"]

KINDS: dict[str, frozenset[str]] = {
    "image": frozenset(
        {"jpg", "jpeg", "jpe", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm", "pbm", "avif", "heic", "jp2"}
    ),
    "audio file": frozenset({"wav", "flac", "mp3", "ogg", "opus", "m4a"}),
    "video": frozenset({"mp4", "avi", "mov", "mkv", "webm"}),
    "array": frozenset({"npy", "npz"}),
    "text": frozenset({"txt", "text"}),
}
"""What a class may have in its folder, and by which extensions it is known."""

UNDECODED = KINDS["image"] - {"jpe"} - {name for name, kind in DECODED.items() if kind == "image"}
"""Extensions of images that TensorFlow does not decode."""

_DOCUMENTS = frozenset(
    {"readme", "license", "licence", "copying", "changelog", "contributing", "citation"}
    | {"classes", "labels", "class_names", "label_names"}
)
_OF_DOCUMENTS = frozenset(
    {"", "md", "txt", "rst", "html", "htm", "pdf", "csv", "tsv", "json", "names", "yaml", "yml"}
)

_KIND_OF = {extension: kind for kind, extensions in KINDS.items() for extension in extensions}


def kind_of(field_name: str) -> str | None:
    """Return which of `KINDS` a field is by its extension.

    >>> kind_of("seg.png"), kind_of("json")
    ('image', None)
    """
    return _KIND_OF.get(extension_of(field_name))


@dataclass(slots=True)
class Folder:
    """One folder below the root, and how many of its own files are of which kind; None counts all other kinds."""

    path: str
    kinds: Counter[str | None] = field(default_factory=Counter["str | None"])
    records: int = 0
    labelled: int = 0  # records with a file such as 1.cls
    is_link: bool = False  # that is not followed


class _Group(NamedTuple):
    order: str
    names: list[str]
    size: int


class Tree:
    """The records that the files below a folder are, by their number.

    A record costs some 20 bytes of memory, and each of its files 10 beside its name.
    """

    def __init__(self) -> None:
        self.folders: list[Folder] = []
        self.files: int = 0
        self._names = Texts()
        self._ends = array("Q")  # of each record, where its files end among the names
        self._sizes = array("Q")  # of each record, the bytes of its files
        self._folders = array("I")  # of each record, the number of its folder

    def __len__(self) -> int:
        return len(self._ends)

    def folder_number(self, record: int) -> int:
        return self._folders[record]

    def size(self, record: int) -> int:
        return self._sizes[record]

    def names(self, record: int) -> list[str]:
        """Return the names of a record's files within its folder."""
        begin = self._ends[record - 1] if record else 0
        return [self._names[at] for at in range(begin, self._ends[record])]

    def add_folder(self, folder: Folder) -> int:
        self.folders.append(folder)
        return len(self.folders) - 1

    def add(self, folder: int, names: list[str], size: int) -> None:
        """Add a record with its files, all of which lie in one folder."""
        for name in names:
            self._names.add(name)
        self._ends.append(len(self._names))
        self._sizes.append(size)
        self._folders.append(folder)


def gather(
    root: Confined,
    naming: Naming,
    left_out: LeftOut,
    *,
    most: int,
    found: Callable[[int], None] = lambda _: None,
    is_own: Callable[[str], bool] = lambda _: False,
) -> Tree:
    """Return all files below `root`; note in `left_out` what is no file of a record.

    Args:
        root: The folder.
        naming: Says which files are one record.
        left_out: Gets what is found and left out.
        most: How many files there may be, `Limits.files`.
        found: Is told how many files were found so far.
        is_own: Whether a file, by its name below the root, is a shard that this run writes.

    Raises:
        UnclearLayout: Two files would be the same field of one record, or there are more than `most` files.
        StoreError: A folder cannot be read.
    """
    gathering = _Gathering(root, naming, left_out, is_own)
    begun = [_Walk("", frozenset(), iter([""]))]
    while begun:
        walk = begun[-1]
        item = next(walk.items, None)
        if item is None:
            begun.pop()
        elif isinstance(item, _Group):
            gathering.tree.add(walk.folder, item.names, item.size)
        else:
            begun += gathering.entered(walk, item)
            found(gathering.tree.files)
            if gathering.tree.files > most:
                raise UnclearLayout(f"{root.root}: there are over {most:,} files, Limits.files; pack its sub-folders")
    return gathering.tree


@dataclass(slots=True)
class _Walk:
    """A folder whose records and sub-folders are being gone through, in the order of their names."""

    path: str
    above: frozenset[tuple[int, int]]  # the folder and those it lies in
    items: Iterator[_Group | str]
    folder: int = 0


class _Gathering:
    """Lists one folder after another, and groups its files."""

    def __init__(self, root: Confined, naming: Naming, left_out: LeftOut, is_own: Callable[[str], bool]) -> None:
        self.tree: Tree = Tree()
        self._root, self._naming, self._left_out, self._is_own = root, naming, left_out, is_own

    def entered(self, walk: _Walk, name: str) -> list[_Walk]:
        """Return the sub-folder `name`, to be gone through next; nothing when a link leads back to a folder above."""
        path = f"{walk.path}/{name}".strip("/")
        identity = self._root.identity(path)
        if identity in walk.above:
            self._left_out.add(LINK, path)
            return []
        listing = self._root.list(path, self._left_out)
        folder = Folder(path)
        number = self.tree.add_folder(folder)
        for each in listing.links:
            self.tree.add_folder(Folder(f"{path}/{each}".lstrip("/"), is_link=True))
        self.tree.files += len(listing.files)
        items: list[tuple[str, _Group | str]] = [(each.order, each) for each in self._groups(listing.files, folder)]
        items += [(f"{each}/", each) for each in listing.folders]
        items.sort(key=lambda pair: pair[0])
        return [_Walk(path, walk.above | {identity}, (item for _, item in items), number)]

    def _groups(self, files: list[tuple[str, int]], folder: Folder) -> Iterator[_Group]:
        """Yield the records that the files of one folder are."""
        named: list[tuple[str, str, str, int]] = []
        for name, size in files:
            key, field_name = self._naming.split(name) or ("", "")
            path = f"{folder.path}/{name}".lstrip("/")
            reason = OWN if self._is_own(path) else DOCUMENT if _is_document(name) else "" if key else NO_EXTENSION
            if reason:
                self._left_out.add(reason, path)
                continue
            folder.kinds[kind_of(field_name)] += 1
            named.append((key, field_name, name, size))
        named.sort()
        for key, group in groupby(named, lambda each: each[0]):
            members = list(group)
            _check(members, folder.path or ".", self._naming)
            folder.records += 1
            folder.labelled += any(extension_of(field_name) in LABEL_FIELDS for _, field_name, *_ in members)
            yield _Group(f"{key}.", [name for _, _, name, _ in members], sum(size for *_, size in members))


def _is_document(name: str) -> bool:
    """Return whether a file tells people about the data: README.md, LICENSE, classes.txt.

    >>> _is_document("README.dataset.txt"), _is_document("labels.npy"), _is_document("license.jpg")
    (True, False, False)
    """
    stem, _, rest = name.lower().partition(".")
    return is_beside(name) or (stem in _DOCUMENTS and rest.rpartition(".")[2] in _OF_DOCUMENTS)


def _check(members: list[tuple[str, str, str, int]], where: str, naming: Naming) -> None:
    """Refuse files that would be one field, and files that are one record only because dots were replaced."""
    for (_, field_name, name, _), (_, other_field, other, _) in pairwise(members):
        if field_name == other_field:
            raise UnclearLayout(
                f"{where}: {name!r} and {other!r} would be the same field {field_name!r} of one record; rename one"
            )
    stems = {name[: -len(field_name) - 1] for _, field_name, name, _ in members}
    if len(stems) > 1 and naming.grouping == "last-dot":
        one, other, *_ = sorted(stems)
        raise UnclearLayout(f"{where}: {one!r} and {other!r} would both have the key {members[0][0]!r}; rename one")
