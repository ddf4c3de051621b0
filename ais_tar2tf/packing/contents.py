"""What will be packed, as it is known before any file is read. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ais_tar2tf.errors import OptionError, UnclearLayout
from ais_tar2tf.packing.left_out import DOCUMENT, HIDDEN, LeftOut
from ais_tar2tf.records import Record

__all__ = ["Contents", "Part", "Read"]

_SHOWN = 8  # names in a sentence

Read = Callable[[Mapping[str, int], "int | None"], Iterator[Record]]
"""From the number of each class, and the seed of the order (None: the order of names), to records."""


@dataclass(frozen=True)
class Part:
    """One split, or everything where there are no splits.

    Counts are None for rows, which are known when they come.
    """

    split: str
    read: Read
    records: int | None = None
    bytes: int | None = None
    by_class: Mapping[str, int] = field(default_factory=Counter[str])  # records, also of classes that have none

    @property
    def labelled(self) -> bool:
        return bool(self.by_class)


@dataclass(frozen=True)
class Contents:
    """All that will be packed: parts, the names of the classes in the order of their numbers, what is left out."""

    parts: tuple[Part, ...]
    classes: tuple[str, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    files: int = 0  # that are packed
    shuffled: bool = False  # unless somebody says otherwise
    labels: str = ""  # where labels come from, in a sentence; "" where the records have none
    undecoded: Mapping[str, int] = field(default_factory=Counter[str])  # images TensorFlow can't decode, by extension

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each class."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def by_class(self) -> dict[str, int]:
        """The number of records of each class, in all splits."""
        return {name: sum(part.by_class.get(name, 0) for part in self.parts) for name in self.classes}

    @property
    def size(self) -> int:
        """The bytes of all records; 0 when nobody knows."""
        return sum(part.bytes or 0 for part in self.parts)

    @property
    def empty_classes(self) -> list[str]:
        """The classes that have no record in any split."""
        return [name for name, count in self.by_class.items() if not count]

    @property
    def warnings(self) -> list[str]:
        """What a user would want to know of images, classes and splits before training, in sentences."""
        told = [
            f".{extension} images: {count:,}; TensorFlow does not decode them: convert them to .png or .jpg and pack "
            "them again, or decode them by a mapping in Python"
            for extension, count in sorted(self.undecoded.items())
        ]
        if self.empty_classes:
            told.append(f"no files of {_listed(self.empty_classes)}: these classes have numbers, and no records")
        for part in self.parts:
            if part.records == 0:
                told.append(f"the split {part.split!r} has no records: all that is in its folder is left out")
                continue
            missing = [name for name in self.classes if name not in part.by_class and name not in self.empty_classes]
            if missing and part.labelled:
                told.append(f"the split {part.split!r} has no folder for {_listed(missing)}")
            elif self.classes and not part.labelled:
                told.append(f"the split {part.split!r} has no labels: its files lie in no class folders")
        return told

    @property
    def unexpected(self) -> list[str]:
        """What is left out, in words, except what nobody means as data."""
        notable = [reason for reason in self.left_out.counts if reason not in (HIDDEN, DOCUMENT)]
        return [f"left out: {self.left_out.told(reason)}" for reason in notable]

    def with_classes(self, classes: Sequence[str]) -> Contents:
        """Return the same with the numbers that a user gives the classes."""
        if not self.classes:
            raise OptionError("classes are given, but nothing is labelled by class folders or by words in a CSV file")
        return self.numbered_as(tuple(classes), "the given classes")

    def numbered_as(self, classes: tuple[str, ...], why: str) -> Contents:
        """Return the same with the numbers that classes have in `classes`, among which all of them must be."""
        unknown = [name for name in self.classes if name not in classes]
        if unknown:
            raise UnclearLayout(f"there is a class {unknown[0]!r}, which is not among {why}: {', '.join(classes)}")
        return replace(self, classes=classes)


def _listed(names: list[str]) -> str:
    return f"{', '.join(map(repr, names[:_SHOWN]))}{', …' if len(names) > _SHOWN else ''}"
