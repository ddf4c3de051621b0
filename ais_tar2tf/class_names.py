"""The names of the classes that labels stand for: the document `classes.json` beside the shards.

    {"version": 1,
     "classes": [{"shards": ["train-{:05d}.tar"], "field": "cls", "numbers": {"ant": 0, "bee": 1}}],
     "document_checksum": …}

It speaks only of the shards whose names fit its templates: others in the same folder may have other labels.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.documents import CHECKSUM, parse_json, seal, verify_seal
from ais_tar2tf.errors import AccessDenied, SchemaError, ShardNotFound
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.options import Read
from ais_tar2tf.reader import Shards
from ais_tar2tf.shard_index import CLASSES_NAME
from ais_tar2tf.stores import Store

__all__ = [
    "PLACE",
    "ClassNames",
    "document_of",
    "find_class_names",
    "folder_and_name",
    "parse_document",
    "read_class_names",
]

PLACE = re.compile(r"\{(:0?\d*d?)?\}")
"""Where the number of a shard goes in the template of its name."""

_VERSION = 1
_NAME_BYTES = 256  # that a class takes in the document at most, on average: names of folders end at 255 bytes


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
        return any(_pattern(template).fullmatch(name) for template in self.shards)

    def without(self, templates: Iterable[str]) -> ClassNames:
        """Return the same for fewer shards."""
        return replace(self, shards=tuple(each for each in self.shards if each not in set(templates)))

    def to_json(self) -> dict[str, Any]:
        """Return the names as plain values."""
        numbers = {name: number for number, name in enumerate(self.names)}
        return {"shards": list(self.shards), "field": self.field, "numbers": numbers}

    @classmethod
    def from_json(cls, said: Any, *, where: str) -> ClassNames:
        """Return what `to_json` gave; raise SchemaError for anything else."""
        numbers, shards, field = (said.get(name) for name in ("numbers", "shards", "field"))
        if (
            not isinstance(numbers, dict)
            or sorted(map(repr, numbers.values())) != sorted(map(repr, range(len(numbers))))
            or not isinstance(shards, list)
            or not all(isinstance(each, str) for each in (field, *shards))
        ):
            raise SchemaError(f"{where}: the document is damaged; pack again, or remove it")
        return cls(tuple(sorted(numbers, key=numbers.__getitem__)), tuple(shards), str(field))


def document_of(named: Iterable[ClassNames]) -> bytes:
    """Return the document that names the classes of several sets of shards."""
    document = {"version": _VERSION, "classes": [each.to_json() for each in named]}
    return json.dumps(seal(document), indent=1).encode() + b"\n"


def parse_document(data: bytes, *, where: str) -> tuple[ClassNames, ...] | None:
    """Return what a document says, or None when another program wrote it.

    Raises:
        SchemaError: It was written by this package, and is damaged.
    """
    try:
        document = parse_json(data, where=where, fail=SchemaError)
    except SchemaError:
        if CHECKSUM.encode() in data:
            raise
        return None
    if not document.keys() >= {"version", "classes"}:
        return None
    document = verify_seal(document, where=where, fail=SchemaError)
    named: Any = document["classes"]
    if document["version"] != _VERSION or not isinstance(named, list) or not all(isinstance(e, dict) for e in named):
        raise SchemaError(f"{where}: the document is damaged; pack again, or remove it")
    return tuple(ClassNames.from_json(each, where=where) for each in named)


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
        SchemaError: There is a classes.json, and it is damaged.
    """
    by_folder: dict[str, tuple[ClassNames, ...]] = {}
    found: ClassNames | None = None
    for name in shards.names:
        folder, last = folder_and_name(name)
        if folder not in by_folder:
            by_folder[folder] = read_class_names(shards.store, folder, shards.read)
        covering = next((each for each in by_folder[folder] if each.covers(last)), None)
        if covering is None or (found is not None and found.names != covering.names):
            return None
        found = covering
    return found


def read_class_names(store: Store, folder: str, read: Read) -> tuple[ClassNames, ...]:
    """Return what the classes.json in a folder says, which may end in a slash; nothing when there is none of ours.

    Raises:
        SchemaError: The document is damaged, or larger than `Limits.vocabulary` allows.
    """
    name, most = folder + CLASSES_NAME, read.limits.vocabulary * _NAME_BYTES
    fetch = Fetch(store, iter([Span(name)]), read, Account())
    data = bytearray()
    try:
        fetch.next_shard()
        while block := fetch.read():
            data += block
            if max(len(data), fetch.size or 0) > most:
                raise SchemaError(f"{store.url(name)}: the document has over {most:,} bytes (Limits.vocabulary)")
    except (ShardNotFound, AccessDenied):  # a store that lists nothing says 403 of what is not there
        return ()
    finally:
        fetch.close()
    return parse_document(bytes(data), where=store.url(name)) or ()


@functools.lru_cache(256)
def _pattern(template: str) -> re.Pattern[str]:
    """Return what the names of a template's shards look like."""
    parts, at = list[str](), 0
    for found in PLACE.finditer(template):
        parts += [re.escape(template[at : found.start()]), r"\d+"]
        at = found.end()
    return re.compile("".join([*parts, re.escape(template[at:])]))
