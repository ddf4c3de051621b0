"""What a run of `pack` gives back: the URLs of the shards, and the account of what is in them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ais_tar2tf.headers import is_cut_image
from ais_tar2tf.mapping import LABEL
from ais_tar2tf.packing.contents import Contents
from ais_tar2tf.packing.left_out import LeftOut
from ais_tar2tf.records import Record

__all__ = ["Packed", "summary"]

_SHOWN = 5  # names in a sentence


class Packed(list[str]):
    """The URLs of the shards, in order, as a list; and the account of what is in them.

    Attributes:
        records: The number of records.
        bytes: The bytes of the files that are packed; of rows, those of their fields.
        splits: The URLs by split; `{}` where there are no split folders.
        seed: The seed of the order; None when records are in the order of their names.
        classes_files: The URLs of the documents that name the classes.
        cut_images: The number of images whose end is missing; they are packed as they are.
    """

    def __init__(self, contents: Contents, seed: int | None) -> None:
        super().__init__()
        self.records: int = 0
        self.bytes: int = 0
        self.splits: dict[str, list[str]] = {part.split: [] for part in contents.parts if part.split}
        self.seed: int | None = seed
        self.classes_files: list[str] = []
        self.cut_images: int = 0
        self._first_cut: list[str] = []
        self._contents = contents

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers; `()` where nothing is labelled by its folder."""
        return self._contents.classes

    @property
    def by_class(self) -> Mapping[str, int]:
        """The number of records of each class."""
        return self._contents.by_class

    @property
    def files(self) -> int:
        """The number of files that are packed; with `left_out.count` it is all that was found."""
        return self._contents.files

    @property
    def left_out(self) -> LeftOut:
        """What was found and is not packed, by reason: `left_out.counts`, `left_out.examples`."""
        return self._contents.left_out

    @property
    def warnings(self) -> list[str]:
        """What a user would want to know of the files that were packed, in sentences."""
        if not self.cut_images:
            return []
        names = f"{', '.join(self._first_cut)}{', …' if self.cut_images > len(self._first_cut) else ''}"
        return [
            f"images that are cut: {self.cut_images:,} ({names}); they do not decode, since their end is missing: "
            "replace or remove them, and pack again"
        ]

    def add_shard(self, split: str, url: str) -> None:
        self.append(url)
        if split:
            self.splits[split].append(url)

    def add_record(self, record: Record) -> int:
        """Count a record; return its bytes, without those of a label that its folder gave it."""
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
        """Return everything as plain values."""
        said = summary(self._contents, self.seed)
        for split, shards in self.splits.items():
            said["splits"][split]["shards"] = shards
        counted = {"records": self.records, "bytes": self.bytes}
        return {"shards": list(self), **said, **counted, "classes_files": self.classes_files}


def summary(contents: Contents, seed: int | None) -> dict[str, Any]:
    """Return what will be packed, as plain values."""
    known = [part for part in contents.parts if part.records is not None]
    return {
        "records": sum(part.records or 0 for part in known) if known else None,
        "bytes": sum(part.bytes or 0 for part in known) if known else None,
        "classes": contents.numbers,
        "records_by_class": dict(contents.by_class),
        "splits": {part.split: {"records": part.records, "bytes": part.bytes} for part in known if part.split},
        "files": contents.files,
        "left_out": contents.left_out.to_json(),
        "seed": seed,
    }
