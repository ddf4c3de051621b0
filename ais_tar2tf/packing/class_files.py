"""The documents `classes.json` of a run: the splits of one data set never have two numberings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ais_tar2tf.class_names import PLACE, ClassNames, document_of, folder_and_name, read_class_names
from ais_tar2tf.errors import ExportError, ShardNotFound
from ais_tar2tf.export.alone import alone
from ais_tar2tf.export.places import Destination, Folder, StorePlace
from ais_tar2tf.options import Read
from ais_tar2tf.packing.contents import Contents
from ais_tar2tf.packing.layout import SPLIT_NAMES
from ais_tar2tf.shard_index import CLASSES_NAME
from ais_tar2tf.stores import Store
from ais_tar2tf.stores.file import FileStore

__all__ = ["ClassFiles"]

_SPLIT_WORD = re.compile(rf"(?<![a-z]){SPLIT_NAMES}(?![a-z])", re.IGNORECASE)


@dataclass
class _Folder:
    """One folder of shards: the templates that are written now, and what its classes.json said before."""

    before: tuple[ClassNames, ...]
    written: list[str] = field(default_factory=list[str])
    labelled: list[str] = field(default_factory=list[str])


class ClassFiles:
    """Looks at the documents that are there, and writes those of this run.

    Args:
        store: Where the shards go.
        read: How documents are read.
        contents: What is packed.
        templates: The template of the shards' names by split.
    """

    def __init__(self, store: Store, read: Read, contents: Contents, templates: Mapping[str, str]) -> None:
        self._store, self._read = store, read
        self._folders: dict[str, _Folder] = {}
        for part in contents.parts:
            path, template = folder_and_name(templates[part.split])
            if path not in self._folders:
                self._folders[path] = _Folder(read_class_names(store, path, read))
            self._folders[path].written.append(template)
            self._folders[path].labelled += [template] if part.labelled else []

    def agreed(self, contents: Contents) -> Contents:
        """Return the contents, with the numbers that classes have in other splits of the same data set.

        Raises:
            ExportError: Those splits have other classes, or the document there is another program's.
        """
        for path, folder in self._folders.items():
            if folder.labelled and not folder.before:
                self._refuse_foreign(path)
            for named in folder.before if folder.labelled else ():
                splits = _other_splits(named.without(folder.written), folder.labelled)
                if splits and named.names != contents.classes:
                    contents = self._renumbered(path, named, splits, contents)
        return contents

    def retire(self, contents: Contents) -> None:
        """Before the first shard is replaced: no document may say something else of it than this run will."""
        for path, folder in self._folders.items():
            if not folder.before:
                continue
            with alone(self._place(path)):
                before = read_class_names(self._store, path, self._read)
                stays = [
                    named.without(folder.written if named.names != contents.classes else _unlabelled(folder))
                    for named in before
                ]
                if stays != list(before):
                    self._write(path, stays)

    def write(self, contents: Contents) -> list[str]:
        """Write the documents; return their URLs."""
        written: list[str] = []
        for path, folder in self._folders.items():
            if not folder.labelled:
                continue
            with alone(self._place(path)):
                now = read_class_names(self._store, path, self._read)  # another run may have added its shards
                stays = [named.without(folder.written) for named in now]
                same = [template for named in stays if named.names == contents.classes for template in named.shards]
                ours = ClassNames(contents.classes, tuple(sorted({*same, *folder.labelled})))
                self._write(path, [ours, *(named for named in stays if named.names != contents.classes)])
            written.append(self._store.url(path + CLASSES_NAME))
        return written

    def _place(self, path: str) -> Destination:
        if not isinstance(self._store, FileStore):
            return StorePlace(self._store, path, self._read)
        folder = Path(self._store.url(path))
        folder.mkdir(parents=True, exist_ok=True)
        return Folder(folder)

    def _write(self, path: str, named: list[ClassNames]) -> None:
        named = [each for each in named if each.shards]
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
            f"{self._store.url(path + CLASSES_NAME)}: this file is there, and pack did not write it; the class names "
            "would replace it. Choose another folder for the shards, or remove the file"
        )

    def _renumbered(self, path: str, there: ClassNames, splits: list[str], contents: Contents) -> Contents:
        if set(contents.classes) <= set(there.names):
            return contents.numbered_as(there.names, "those in classes.json")
        raise ExportError(
            f"{self._store.url(path + CLASSES_NAME)}: the shards {', '.join(splits)}, another split, have the "
            f"classes {_few(there.names)}, these would have {_few(contents.classes)}: one number would mean two "
            "things. Pack all splits at once, from one folder with train/, val/ and so on, or choose another name"
        )


def _unlabelled(folder: _Folder) -> list[str]:
    return [template for template in folder.written if template not in folder.labelled]


def _other_splits(named: ClassNames, templates: list[str]) -> list[str]:
    """Return the shards that are, by their names, other splits of the data set that `templates` are of.

    >>> _other_splits(ClassNames((), ("train-{}.tar", "pets-{}.tar")), ["val-{:05d}.tar"])
    ['train-{}.tar']
    """
    ours = {_without_split(template) for template in templates}
    return [template for template in named.shards if _without_split(template) in ours]


def _without_split(template: str) -> str:
    return PLACE.sub("{}", _SPLIT_WORD.sub("{split}", template))


def _few(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:4])}{', …' if len(names) > 4 else ''} ({len(names):,})"
