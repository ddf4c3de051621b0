"""The names of the classes that labels stand for: the document `classes.json` beside the shards.

    {"version": 1,
     "classes": [{"shards": ["train-{:05d}.tar"], "field": "cls", "numbers": {"ant": 0, "bee": 1}}],
     "document_checksum": …}

It speaks only of the shards whose names fit its templates: others in the same folder may have other labels. Of files
that were exported, the manifest beside them names the classes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.documents import CHECKSUM, checksum_of, document_bytes, parse_document
from ais_tar2tf.errors import AccessDenied, LimitExceeded, SchemaError, ShardNotFound
from ais_tar2tf.fetch.whole import fetch_whole
from ais_tar2tf.options import Read
from ais_tar2tf.reader import Shards
from ais_tar2tf.shard_index import CLASSES_NAME, EXPORTED, MANIFEST_NAME
from ais_tar2tf.stores import Store
from ais_tar2tf.structure import Mismatch, fields, keyed, listed, made, one_of, text, whole

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
"""Where the number of a shard goes in the template of its name."""

_VERSION = 1


@dataclass(frozen=True)
class ClassNames:
    """Names in the order of their numbers, and the templates of the shards whose `field` has the numbers."""

    names: tuple[str, ...]
    shards: tuple[str, ...] = ()
    field: str = "cls"

    def covers(self, name: str) -> bool:
        """Return whether a shard, by its name within the folder, is one of these.

        >>> ClassNames(("ant", "bee"), ("train-{:05d}.tar",)).covers("train-00017.tar")
        True
        """
        return any(_compiled(template).fullmatch(name) for template in self.shards)

    def without(self, templates: Iterable[str]) -> ClassNames:
        """Return the same for fewer shards."""
        return replace(self, shards=tuple(each for each in self.shards if each not in set(templates)))

    def to_json(self) -> dict[str, Any]:
        """Return the names as plain values."""
        numbers = {name: number for number, name in enumerate(self.names)}
        return {"shards": list(self.shards), "field": self.field, "numbers": numbers}


def document_of(named: Iterable[ClassNames]) -> bytes:
    """Return the document that names the classes of several sets of shards."""
    return document_bytes({"version": _VERSION, "classes": [each.to_json() for each in named]})


def parse_classes(data: bytes, *, where: str) -> tuple[ClassNames, ...]:
    """Return what a document says; nothing when another program wrote it.

    Raises:
        SchemaError: It was written by this package, and is damaged.
    """
    if not _is_ours(data):
        return ()
    return tuple(parse_document(data, _DOCUMENT, where=where, fail=SchemaError)["classes"])


def _is_ours(data: bytes) -> bool:
    """Return whether this package wrote a document, also one that was cut short, or whose checksum is damaged."""
    begun = data.startswith(_BEGIN) or (bool(data) and _BEGIN.startswith(data))
    return begun or any(mark in data for mark in _MARKS)


def _numbered(value: Any) -> tuple[str, ...]:
    """Accept the number of each class, and return the classes in that order."""
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
    """Split the name of an object behind its last slash.

    >>> folder_and_name("train/ants-{:05d}.tar")
    ('train/', 'ants-{:05d}.tar')
    """
    folder, slash, rest = name.rpartition("/")
    return folder + slash, rest


def find_class_names(shards: Shards) -> ClassNames | None:
    """Return the class names that all of `shards` have; None when some have none, or others.

    Raises:
        SchemaError: There is a classes.json, or the manifest of an export, and it is damaged.
    """
    if not len(shards.names) or "?" in shards.names[0]:  # a query: nothing lies beside
        return None
    by_folder: dict[str, _Documents] = {}
    found: ClassNames | None = None
    for name in shards.names:
        folder, last = folder_and_name(name)
        if folder not in by_folder:
            by_folder[folder] = _Documents(shards.store, folder, shards.read)
        covering = by_folder[folder].naming(last)
        if covering is None or (found is not None and found.names != covering.names):
            return None
        found = covering
    return found


class _Documents:
    """The documents of one folder that name classes, each read when it is needed."""

    def __init__(self, store: Store, folder: str, read: Read) -> None:
        self._place = (store, folder, read)
        self._packed = read_class_names(*self._place)

    def naming(self, name: str) -> ClassNames | None:
        """Return the class names of a shard, by its name within the folder."""
        covering = next((each for each in self._packed if each.covers(name)), None)
        return self._exported.get(name) if covering is None and EXPORTED.search(name) else covering

    @functools.cached_property
    def _exported(self) -> dict[str, ClassNames]:
        store, folder, read = self._place
        data = _fetched(store, folder + MANIFEST_NAME, read)
        if not data.startswith(_MANIFEST_BEGIN):
            return {}
        document = parse_document(data, _MANIFEST, where=store.url(folder + MANIFEST_NAME), fail=SchemaError)
        return {
            file["name"]: ClassNames(tuple(names), (), field)
            for split in document["splits"].values()
            for field, names in list(split.get("classes", {}).items())[:1]
            for file in split["files"]
        }


def read_class_names(store: Store, folder: str, read: Read) -> tuple[ClassNames, ...]:
    """Return what the classes.json in a folder says, which may end in a slash; nothing when there is none of ours.

    Raises:
        SchemaError: The document is damaged.
    """
    name = folder + CLASSES_NAME
    return parse_classes(_fetched(store, name, read), where=store.url(name))


def _fetched(store: Store, name: str, read: Read) -> bytes:
    """Return a document; b"" where there is none."""
    try:
        return fetch_whole(store, name, read, limit="document_bytes")
    except (ShardNotFound, AccessDenied, LimitExceeded):  # or a server that answers any name with something
        return b""


@functools.lru_cache(256)
def _compiled(template: str) -> re.Pattern[str]:
    return re.compile(pattern_of(template))


def pattern_of(template: str) -> str:
    """Return a regular expression of the names of a template's shards.

    Digits are never given back: a template from a document may have many places, whose matches could be divided in
    as many ways.
    """
    parts, at = list[str](), 0
    for found in PLACE.finditer(template):
        parts += [re.escape(template[at : found.start()]), r"\d++"]
        at = found.end()
    return "".join([*parts, re.escape(template[at:])])
