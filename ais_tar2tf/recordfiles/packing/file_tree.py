"""Groups all files below a folder into records by their names.

This module reads the names and sizes of files. It must not open a file.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import NamedTuple

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.recordfiles.packing.confined_folder import ConfinedFolder
from ais_tar2tf.recordfiles.packing.left_out import LeftOut, Reason
from ais_tar2tf.recordfiles.packing.naming import Naming
from ais_tar2tf.streams.index.shards import is_sidecar
from ais_tar2tf.values.schema import KINDS as DECODED
from ais_tar2tf.values.schema import LABEL_FIELDS, extension_of

__all__ = ["KINDS", "UNDECODED", "FileTree", "TreeFolder", "build_tree", "kind_of"]

KINDS: dict[str, frozenset[str]] = {
    "image": frozenset(
        {"jpg", "jpeg", "jpe", "png", "gif", "bmp", "webp", "tif", "tiff", "ppm", "pgm", "pbm", "avif", "heic", "jp2"}
    ),
    "audio file": frozenset({"wav", "flac", "mp3", "ogg", "opus", "m4a"}),
    "video": frozenset({"mp4", "avi", "mov", "mkv", "webm"}),
    "array": frozenset({"npy", "npz"}),
    "text": frozenset({"txt", "text"}),
}
"""The kinds of files that class folders may hold, and their extensions."""

UNDECODED = KINDS["image"] - {"jpe"} - {name for name, kind in DECODED.items() if kind == "image"}
"""Extensions of images that TensorFlow does not decode."""

# Files that describe the data for people, such as README.md: their names up to the first dot, and their extensions.
_DOCUMENTS = frozenset(
    {"readme", "license", "licence", "copying", "changelog", "contributing", "citation"}
    | {"classes", "labels", "class_names", "label_names"}
)
_OF_DOCUMENTS = frozenset(
    {"", "md", "txt", "rst", "html", "htm", "pdf", "csv", "tsv", "json", "names", "yaml", "yml"}
)

_KIND_OF = {extension: kind for kind, extensions in KINDS.items() for extension in extensions}


def kind_of(field_name: str) -> str | None:
    """Return the kind of a field, one of `KINDS`, by its extension; None for any other extension.

    >>> kind_of("seg.png"), kind_of("json")
    ('image', None)
    """
    return _KIND_OF.get(extension_of(field_name))


@dataclass(slots=True)
class TreeFolder:
    """The root, whose path is "", or a folder below it, with counts of the files directly in it."""

    path: str
    kinds: Counter[str | None] = field(default_factory=Counter["str | None"])  # files by kind; None: any other kind
    records: int = 0
    labelled: int = 0  # records with a file such as 1.cls
    is_link: bool = False  # whether this is a link to a folder, which is not followed


class _FileGroup(NamedTuple):
    """The files of one record."""

    order: str  # the text that sorts the record among the records and sub-folders of its folder
    names: list[str]
    size: int


class _StringList:
    """A list of very many short strings that takes little more memory than their bytes.

    >>> strings = _StringList()
    >>> strings.append("a.jpg")
    >>> strings.append("b.jpg")
    >>> strings[1], len(strings)
    ('b.jpg', 2)
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("Q")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        begin = self._ends[number - 1] if number else 0
        return self._bytes[begin : self._ends[number]].decode("utf-8", "surrogateescape")

    def append(self, text: str) -> None:
        self._bytes += text.encode("utf-8", "surrogateescape")
        self._ends.append(len(self._bytes))


class FileTree:
    """The files below a folder, grouped into records. Records are numbered in the order of their names.

    A record takes some 20 bytes of memory. Each of its files takes some 10 bytes more, and the bytes of its name.
    """

    def __init__(self) -> None:
        self.folders: list[TreeFolder] = []
        self.files: int = 0
        self._names = _StringList()
        # Each of these arrays has one entry for each record.
        self._ends = array("Q")  # the index in `_names` after the last of the record's names
        self.sizes: array[int] = array("Q")  # the bytes of the record's files
        self.folder_numbers: array[int] = array("I")  # the index in `folders` of the folder with the record's files

    def __len__(self) -> int:
        return len(self._ends)

    def names(self, record: int) -> list[str]:
        """Return the names of a record's files within its folder."""
        begin = self._ends[record - 1] if record else 0
        return [self._names[at] for at in range(begin, self._ends[record])]

    def add_folder(self, folder: TreeFolder) -> int:
        """Add a folder and return its number."""
        self.folders.append(folder)
        return len(self.folders) - 1

    def add_record(self, folder: int, names: list[str], size: int) -> None:
        """Add a record whose files lie in the folder with the number `folder`."""
        for name in names:
            self._names.append(name)
        self._ends.append(len(self._names))
        self.sizes.append(size)
        self.folder_numbers.append(folder)


def build_tree(
    root: ConfinedFolder,
    naming: Naming,
    left_out: LeftOut,
    *,
    max_files: int,
    on_count: Callable[[int], None] = lambda _: None,
    is_own_shard: Callable[[str], bool] = lambda _: False,
) -> FileTree:
    """Return the tree of all files below `root`.

    Args:
        root: The folder.
        naming: Decides which files form one record.
        left_out: Counts the files that are part of no record.
        max_files: The largest number of files, `Limits.files`.
        on_count: Called with the number of files found so far.
        is_own_shard: Tells by the path of a file below `root` whether the file is a shard that this run will write.

    Raises:
        UnclearLayout: Two files would be the same field of one record, or there are more than `max_files` files.
        StoreError: A folder cannot be read.
    """
    builder = _TreeBuilder(root, naming, left_out, is_own_shard)
    entered = [_OpenFolder("", frozenset(), iter([""]))]  # its only sub-folder, "", is the root
    while entered:
        folder = entered[-1]
        item = next(folder.items, None)
        if item is None:
            entered.pop()
        elif isinstance(item, _FileGroup):
            builder.tree.add_record(folder.number, item.names, item.size)
        else:
            entered += builder.enter(folder, item)
            on_count(builder.tree.files)
            if builder.tree.files > max_files:
                raise UnclearLayout(
                    f"{root.root}: there are over {max_files:,} files, Limits.files; pack its sub-folders"
                )
    return builder.tree


@dataclass(slots=True)
class _OpenFolder:
    """A folder whose records and sub-folders are being visited in the order of their names."""

    path: str
    ancestors: frozenset[tuple[int, int]]  # (device, inode) of this folder and of all folders that contain it
    items: Iterator[_FileGroup | str]  # the records and sub-folders (str) that are still to be visited
    number: int = 0  # the folder's number in the tree


class _TreeBuilder:
    """Lists one folder after another, and groups the files of each folder into records."""

    def __init__(
        self, root: ConfinedFolder, naming: Naming, left_out: LeftOut, is_own_shard: Callable[[str], bool]
    ) -> None:
        self.tree: FileTree = FileTree()
        self._root, self._naming, self._left_out, self._is_own_shard = root, naming, left_out, is_own_shard

    def enter(self, parent: _OpenFolder, name: str) -> list[_OpenFolder]:
        """List the sub-folder `name`, and return the opened folder in a list.

        The list is empty if the sub-folder is a link that leads back to one of the folders that contain it.
        """
        path = f"{parent.path}/{name}".strip("/")
        identity = self._root.identity(path)
        if identity in parent.ancestors:
            self._left_out.add(Reason.LINK, path)
            return []
        listing = self._root.list(path, self._left_out)
        folder = TreeFolder(path)
        number = self.tree.add_folder(folder)
        for link in listing.links:
            self.tree.add_folder(TreeFolder(f"{path}/{link}".lstrip("/"), is_link=True))
        self.tree.files += len(listing.files)
        items: list[tuple[str, _FileGroup | str]] = [
            (group.order, group) for group in self._groups(listing.files, folder)
        ]
        items += [(f"{child}/", child) for child in listing.folders]
        items.sort(key=lambda pair: pair[0])
        return [_OpenFolder(path, parent.ancestors | {identity}, (item for _, item in items), number)]

    def _groups(self, files: list[tuple[str, int]], folder: TreeFolder) -> Iterator[_FileGroup]:
        """Group the files directly in one folder into records, count them in `folder`, and yield the groups."""
        named: list[tuple[str, str, str, int]] = []
        for name, size in files:
            key, field_name = self._naming.split(name) or ("", "")
            path = f"{folder.path}/{name}".lstrip("/")
            reason = self._reason_to_leave_out(path, name, key)
            if reason:
                self._left_out.add(reason, path)
                continue
            folder.kinds[kind_of(field_name)] += 1
            named.append((key, field_name, name, size))
        named.sort()
        for key, group in groupby(named, lambda member: member[0]):
            members = list(group)
            _check_members(members, folder.path or ".", self._naming)
            folder.records += 1
            folder.labelled += any(extension_of(field_name) in LABEL_FIELDS for _, field_name, *_ in members)
            yield _FileGroup(f"{key}.", [name for _, _, name, _ in members], sum(size for *_, size in members))

    def _reason_to_leave_out(self, path: str, name: str, key: str) -> Reason | None:
        if self._is_own_shard(path):
            return Reason.OWN
        if _is_document(name):
            return Reason.DOCUMENT
        return None if key else Reason.NO_EXTENSION


def _is_document(name: str) -> bool:
    """Return whether a file only describes the data, as README.md, LICENSE, classes.txt or an index does.

    >>> _is_document("README.dataset.txt"), _is_document("labels.npy"), _is_document("license.jpg")
    (True, False, False)
    """
    stem, _, rest = name.lower().partition(".")
    return is_sidecar(name) or (stem in _DOCUMENTS and rest.rpartition(".")[2] in _OF_DOCUMENTS)


def _check_members(members: list[tuple[str, str, str, int]], where: str, naming: Naming) -> None:
    """Refuse two files that would be the same field of a record.

    Refuse also two names that would get the same key only because grouping "last-dot" replaces the dots in keys.
    """
    for (_, field_name, name, _), (_, other_field, other, _) in pairwise(members):
        if field_name == other_field:
            raise UnclearLayout(
                f"{where}: {name!r} and {other!r} would be the same field {field_name!r} of one record; rename one"
            )
    stems = {name[: -len(field_name) - 1] for _, field_name, name, _ in members}
    if len(stems) > 1 and naming.grouping == "last-dot":
        one, other, *_ = sorted(stems)
        raise UnclearLayout(f"{where}: {one!r} and {other!r} would both have the key {members[0][0]!r}; rename one")
