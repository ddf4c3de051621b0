"""Write `classes.json` next to the shards, and give a class the same number in all splits of a data set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ais_tar2tf.errors import ExportError, ShardNotFound
from ais_tar2tf.options import Read
from ais_tar2tf.recordfiles.export.destinations import Destination, FolderDestination, StoreDestination
from ais_tar2tf.recordfiles.export.locking import exclusive
from ais_tar2tf.recordfiles.packing.contents import Contents
from ais_tar2tf.recordfiles.packing.folder_layout import SPLIT_NAMES
from ais_tar2tf.stores import LocalFiles, Store
from ais_tar2tf.streams.class_names import PLACE, ClassNames, document_of, folder_and_name, read_class_names
from ais_tar2tf.streams.index.shards import CLASSES_NAME

__all__ = ["ClassFiles"]

_SPLIT_WORD = re.compile(rf"(?<![a-z]){SPLIT_NAMES}(?![a-z])", re.IGNORECASE)


@dataclass
class _ShardFolder:
    """A folder to which this run writes shards."""

    existing: tuple[ClassNames, ...]  # the content of its classes.json before this run
    written: list[str] = field(default_factory=list[str])  # templates of the shards of this run
    labelled: list[str] = field(default_factory=list[str])  # the templates of shards whose records have labels


class ClassFiles:
    """The documents `classes.json` of one run: one in each folder to which it writes shards.

    Args:
        store: The store of the shards.
        read: Options for reading existing documents.
        contents: The contents that are packed.
        templates: From the name of a split to the template of its shards' names.
    """

    def __init__(self, store: Store, read: Read, contents: Contents, templates: Mapping[str, str]) -> None:
        self._store, self._read = store, read
        self._folders: dict[str, _ShardFolder] = {}
        for split in contents.splits:
            path, template = folder_and_name(templates[split.name])
            if path not in self._folders:
                self._folders[path] = _ShardFolder(read_class_names(store, path, read))
            self._folders[path].written.append(template)
            self._folders[path].labelled += [template] if split.labelled else []

    def with_existing_numbers(self, contents: Contents) -> Contents:
        """Return `contents` with the class numbers of existing splits of the same data set.

        Raises:
            ExportError: The existing splits lack a class of `contents`, or another program wrote the document.
        """
        for path, folder in self._folders.items():
            if folder.labelled and not folder.existing:
                self._refuse_foreign(path)
            for named in folder.existing if folder.labelled else ():
                splits = _other_splits(named.without(folder.written), folder.labelled)
                if splits and named.names != contents.classes:
                    contents = self._renumbered(path, named, splits, contents)
        return contents

    def remove_outdated(self, contents: Contents) -> None:
        """Remove the shards of this run from documents that state other classes for them.

        Call this before the first shard is replaced, so that no document ever describes a shard wrongly.
        """
        for path, folder in self._folders.items():
            if not folder.existing:
                continue
            with exclusive(self._destination(path)):
                existing = read_class_names(self._store, path, self._read)
                remaining = [
                    named.without(folder.written if named.names != contents.classes else _unlabelled(folder))
                    for named in existing
                ]
                if remaining != list(existing):
                    self._write(path, remaining)

    def write(self, contents: Contents) -> list[str]:
        """Write the documents and return their URLs."""
        written: list[str] = []
        for path, folder in self._folders.items():
            if not folder.labelled:
                continue
            with exclusive(self._destination(path)):
                existing = read_class_names(self._store, path, self._read)  # another run may have added its shards
                others = [named.without(folder.written) for named in existing]
                same = [template for named in others if named.names == contents.classes for template in named.shards]
                ours = ClassNames(contents.classes, tuple(sorted({*same, *folder.labelled})))
                self._write(path, [ours, *(named for named in others if named.names != contents.classes)])
            written.append(self._store.url(path + CLASSES_NAME))
        return written

    def _destination(self, path: str) -> Destination:
        if not isinstance(self._store, LocalFiles):
            return StoreDestination(self._store, path, self._read)
        folder = self._store.local_path(path)
        folder.mkdir(parents=True, exist_ok=True)
        return FolderDestination(folder)

    def _write(self, path: str, named: list[ClassNames]) -> None:
        named = [classes for classes in named if classes.shards]
        if named:
            self._store.put(path + CLASSES_NAME, document_of(named))
        else:
            self._store.delete(path + CLASSES_NAME)

    def _refuse_foreign(self, path: str) -> None:
        try:
            self._store.head(path + CLASSES_NAME)
        except ShardNotFound:
            return
        raise ExportError(
            f"{self._store.url(path + CLASSES_NAME)}: this file exists, and pack did not write it; the names of the "
            "classes would replace it. Choose another folder for the shards, or remove the file"
        )

    def _renumbered(self, path: str, existing: ClassNames, splits: list[str], contents: Contents) -> Contents:
        if set(contents.classes) <= set(existing.names):
            return contents.renumbered(existing.names, "those in classes.json")
        raise ExportError(
            f"{self._store.url(path + CLASSES_NAME)}: the shards {', '.join(splits)} of another split have the "
            f"classes {_first_names(existing.names)}, these shards have {_first_names(contents.classes)}: one number "
            "would mean two things. Pack all splits at once, from one folder with train/, val/ and so on, or choose "
            "another name"
        )


def _unlabelled(folder: _ShardFolder) -> list[str]:
    return [template for template in folder.written if template not in folder.labelled]


def _other_splits(named: ClassNames, templates: list[str]) -> list[str]:
    """Return the templates in `named` that differ from one of `templates` only in the name of the split.

    >>> _other_splits(ClassNames((), ("train-{}.tar", "pets-{}.tar")), ["val-{:05d}.tar"])
    ['train-{}.tar']
    """
    ours = {_without_split(template) for template in templates}
    return [template for template in named.shards if _without_split(template) in ours]


def _without_split(template: str) -> str:
    return PLACE.sub("{}", _SPLIT_WORD.sub("{split}", template))


def _first_names(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:4])}{', …' if len(names) > 4 else ''} ({len(names):,})"
