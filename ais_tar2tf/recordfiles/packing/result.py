"""The result of `pack`: the URLs of the shards, and counts of their records and files. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ais_tar2tf.recordfiles.packing.contents import Contents
from ais_tar2tf.recordfiles.packing.left_out import LeftOut
from ais_tar2tf.records import Record
from ais_tar2tf.values.default_mappings import LABEL
from ais_tar2tf.values.file_headers import is_cut_image

__all__ = ["PackResult", "contents_to_json"]

_SHOWN = 5  # names in a sentence


class PackResult(list[str]):
    """The URLs of the shards that `pack` wrote, as a list in order, with counts as attributes.

    Attributes:
        records: The number of records.
        bytes: The size of the packed files, or of the fields of rows.
        files: The number of packed files. Together with `left_out.count`, it is the number of files found.
        left_out: The files that were found and not packed, by reason: `left_out.counts`, `left_out.examples`.
        classes: The names of the classes, in the order of their numbers; `()` without labels by folder or word.
        by_class: The number of records of each class.
        splits: The URLs by split; `{}` where there are no split folders.
        seed: The seed of the order; None when records are in the order of their names.
        classes_files: The URLs of the documents that name the classes.
        cut_images: The number of packed images whose end is missing.
    """

    def __init__(self, contents: Contents, seed: int | None) -> None:
        super().__init__()
        self.records: int = 0
        self.bytes: int = 0
        self.files: int = contents.files
        self.left_out: LeftOut = contents.left_out
        self.classes: tuple[str, ...] = contents.classes
        self.by_class: Mapping[str, int] = contents.by_class
        self.splits: dict[str, list[str]] = {split.name: [] for split in contents.splits if split.name}
        self.seed: int | None = seed
        self.classes_files: list[str] = []
        self.cut_images: int = 0
        self._first_cut: list[str] = []
        self._contents = contents

    @property
    def warnings(self) -> list[str]:
        """Sentences about damaged files among those that were packed."""
        if not self.cut_images:
            return []
        names = f"{', '.join(self._first_cut)}{', …' if self.cut_images > len(self._first_cut) else ''}"
        return [
            f"images that are cut: {self.cut_images:,} ({names}); they do not decode, because their end is missing: "
            "replace or remove them, and pack again"
        ]

    def add_shard(self, split: str, url: str) -> None:
        """Add a shard that was written."""
        self.append(url)
        if split:
            self.splits[split].append(url)

    def add_record(self, record: Record) -> int:
        """Count a record, and return the bytes of its fields, except a label that is the number of a class."""
        label = record.get(LABEL) if self.classes else None
        size = sum(len(value) for value in record.values() if isinstance(value, bytes)) - len(label or b"")
        for name, value in record.items():
            if isinstance(value, bytes) and is_cut_image(value):
                self.cut_images += 1
                self._first_cut += [f"{record['__key__']}.{name}"] if len(self._first_cut) < _SHOWN else []
        self.records += 1
        self.bytes += size
        return size

    def to_json(self) -> dict[str, Any]:
        """Return the URLs and all counts as JSON values."""
        document = contents_to_json(self._contents, self.seed)
        for split, shards in self.splits.items():
            document["splits"][split]["shards"] = shards
        totals = {"records": self.records, "bytes": self.bytes, "cut_images": self.cut_images}
        return {"shards": list(self), **document, **totals, "classes_files": self.classes_files}


def contents_to_json(contents: Contents, seed: int | None) -> dict[str, Any]:
    """Return the contents of a source, and the seed of the records' order, as JSON values."""
    counted = [split for split in contents.splits if split.records is not None]
    return {
        "records": sum(split.records or 0 for split in counted) if counted else None,
        "bytes": sum(split.bytes or 0 for split in counted) if counted else None,
        "classes": contents.class_numbers,
        "records_by_class": dict(contents.by_class),
        "splits": {split.name: {"records": split.records, "bytes": split.bytes} for split in counted if split.name},
        "files": contents.files,
        "left_out": contents.left_out.to_json(),
        "seed": seed,
    }
