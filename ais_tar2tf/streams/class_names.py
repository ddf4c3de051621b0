"""Class names: the names that the numbers in a label field stand for, from the document `classes.json`.

    {"version": 1,
     "classes": [{"shards": ["train-{:05d}.tar"], "field": "cls", "numbers": {"ant": 0, "bee": 1}}],
     "document_checksum": …}

The document is in the folder of the shards. It is about the shards whose names match one of its templates: other
shards in that folder may have other labels. The class names of exported files are in their manifest instead.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.base.documents.sealed import CHECKSUM, checksum_of, document_bytes, parse_document
from ais_tar2tf.base.documents.structure import Mismatch, fields, keyed, listed, made, one_of, text, whole
from ais_tar2tf.errors import AccessDenied, LimitExceeded, SchemaError, ShardNotFound
from ais_tar2tf.fetch.whole import fetch_whole
from ais_tar2tf.options import Read
from ais_tar2tf.stores import Store
from ais_tar2tf.streams.index.shards import CLASSES_NAME, EXPORTED, MANIFEST_NAME
from ais_tar2tf.streams.reader import Shards

__all__ = [
    "PLACE",
    "ClassNames",
    "document_of",
    "find_class_names",
    "folder_and_name",
    "parse_classes",
    "pattern_of",
    "read_class_names",
]

PLACE = re.compile(r"\{(:0?\d*d?)?\}")
"""Matches the part of a template that stands for the number of a shard."""

_VERSION = 1


@dataclass(frozen=True)
class ClassNames:
    """The class names of some shards.

    Attributes:
        names: The names, in the order of the numbers that stand for them.
        shards: The templates of the shards' names.
        field: The field that has the numbers.
    """

    names: tuple[str, ...]
    shards: tuple[str, ...] = ()
    field: str = "cls"

    def covers(self, name: str) -> bool:
        """Return whether these are the class names of a shard, by the shard's name within its folder.

        >>> ClassNames(("ant", "bee"), ("train-{:05d}.tar",)).covers("train-00017.tar")
        True
        """
        return any(_compiled(template).fullmatch(name) for template in self.shards)

    def without(self, templates: Iterable[str]) -> ClassNames:
        """Return the same names for fewer shards."""
        return replace(self, shards=tuple(each for each in self.shards if each not in set(templates)))

    def to_json(self) -> dict[str, Any]:
        """Return the class names as the document has them."""
        numbers = {name: number for number, name in enumerate(self.names)}
        return {"shards": list(self.shards), "field": self.field, "numbers": numbers}


def document_of(named: Iterable[ClassNames]) -> bytes:
    """Return the document that names the classes of several sets of shards."""
    return document_bytes({"version": _VERSION, "classes": [each.to_json() for each in named]})


def parse_classes(data: bytes, *, where: str) -> tuple[ClassNames, ...]:
    """Parse a document; return nothing if another program wrote it.

    Args:
        data: The bytes of the document.
        where: Its name or URL, for errors.

    Raises:
        SchemaError: This package wrote the document, and it is damaged.
    """
    if not _is_ours(data):
        return ()
    return tuple(parse_document(data, _DOCUMENT, where=where, fail=SchemaError)["classes"])


def _is_ours(data: bytes) -> bool:
    """Return whether this package wrote a document, which may be cut short or damaged."""
    if data and (data.startswith(_BEGIN) or _BEGIN.startswith(data)):
        return True
    return any(mark in data for mark in _MARKS)


def _numbered(value: Any) -> tuple[str, ...]:
    """Check the number of each class, and return the classes in the order of the numbers."""
    numbers = keyed(whole())(value)
    if sorted(numbers.values()) != list(range(len(numbers))):
        raise Mismatch("each number from 0 on is expected once", list(numbers.values()))
    return tuple(sorted(numbers, key=numbers.__getitem__))


def _named(numbers: tuple[str, ...], shards: list[str], field: str) -> ClassNames:
    return ClassNames(numbers, tuple(shards), field)


_NAMES = made(_named, fields({"shards": listed(text), "field": text, "numbers": _numbered}))
_BEGIN = b'{\n "version": 1,\n "classes": ['
_MARKS = (CHECKSUM.encode(), checksum_of(b"")[:9].encode())
_DOCUMENT = fields({"version": one_of(_VERSION), "classes": listed(_NAMES)})
_MANIFEST_BEGIN = b'{\n "manifest": '
_SPLIT = fields({"files": listed(fields({"name": text}))}, {"classes": keyed(listed(text))})
_MANIFEST = fields({"splits": keyed(_SPLIT)})


def folder_and_name(name: str) -> tuple[str, str]:
    """Split the name of an object after its last slash.

    >>> folder_and_name("train/ants-{:05d}.tar")
    ('train/', 'ants-{:05d}.tar')
    """
    folder, slash, rest = name.rpartition("/")
    return folder + slash, rest


def find_class_names(shards: Shards) -> ClassNames | None:
    """Return the class names that all shards share; None if a shard has none, or has other names.

    Raises:
        SchemaError: A classes.json, or the manifest of an export, is damaged.
    """
    if not len(shards.names) or "?" in shards.names[0]:  # with a query, a URL has no folder that could be read
        return None
    by_folder: dict[str, _FolderDocuments] = {}
    found: ClassNames | None = None
    for name in shards.names:
        folder, last = folder_and_name(name)
        if folder not in by_folder:
            by_folder[folder] = _FolderDocuments(shards.store, folder, shards.read)
        covering = by_folder[folder].naming(last)
        if covering is None or (found is not None and found.names != covering.names):
            return None
        found = covering
    return found


class _FolderDocuments:
    """The documents of one folder that name classes. The manifest is read only when it is needed."""

    def __init__(self, store: Store, folder: str, read: Read) -> None:
        self._store, self._folder, self._read = store, folder, read
        self._packed = read_class_names(store, folder, read)

    def naming(self, name: str) -> ClassNames | None:
        """Return the class names of a shard, by the shard's name within the folder."""
        covering = next((each for each in self._packed if each.covers(name)), None)
        return self._exported.get(name) if covering is None and EXPORTED.search(name) else covering

    @functools.cached_property
    def _exported(self) -> dict[str, ClassNames]:
        """The class names of each exported file, from the manifest."""
        name = self._folder + MANIFEST_NAME
        data = _fetched(self._store, name, self._read)
        if not data.startswith(_MANIFEST_BEGIN):
            return {}
        document = parse_document(data, _MANIFEST, where=self._store.url(name), fail=SchemaError)
        return {
            file["name"]: ClassNames(tuple(names), (), field)
            for split in document["splits"].values()
            for field, names in list(split.get("classes", {}).items())[:1]
            for file in split["files"]
        }


def read_class_names(store: Store, folder: str, read: Read) -> tuple[ClassNames, ...]:
    """Read the classes.json in a folder; return nothing if there is none, or another program wrote it.

    Args:
        store: The store of the folder.
        folder: The folder, with its slash; "" for the top folder.
        read: The options of reading.

    Raises:
        SchemaError: The document is damaged.
    """
    name = folder + CLASSES_NAME
    return parse_classes(_fetched(store, name, read), where=store.url(name))


def _fetched(store: Store, name: str, read: Read) -> bytes:
    """Return the bytes of a document; b"" if it is missing, denied, or cannot be one of ours."""
    try:
        return fetch_whole(store, name, read, limit="document_bytes")
    except (ShardNotFound, AccessDenied, LimitExceeded):  # the last: some servers answer any name with a page
        return b""


@functools.lru_cache(256)
def _compiled(template: str) -> re.Pattern[str]:
    return re.compile(pattern_of(template))


def pattern_of(template: str) -> str:
    """Return a regular expression that matches the names of a template's shards.

    The numbers are matched without backtracking. A hostile document could otherwise have a template with so many
    numbers that matching never ends.
    """
    parts, at = list[str](), 0
    for found in PLACE.finditer(template):
        parts += [re.escape(template[at : found.start()]), r"\d++"]
        at = found.end()
    return "".join([*parts, re.escape(template[at:])])
