"""The contents of a source: its splits and classes, and the counts known before files are read. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ais_tar2tf.errors import OptionError, UnclearLayout
from ais_tar2tf.recordfiles.packing.left_out import LeftOut, Reason
from ais_tar2tf.records import Record

__all__ = ["Contents", "ReadRecords", "SplitContents"]

_SHOWN = 8  # names in a sentence

ReadRecords = Callable[[Mapping[str, int], "int | None"], Iterator[Record]]
"""A function that yields the records of a split.

Its arguments are a dict from the name of a class to its number, and the seed of the order; None: the order of names.
"""


@dataclass(frozen=True)
class SplitContents:
    """The records of one split, or all records if the source has no splits.

    `records` and `bytes` are None for an iterable of dicts, which cannot be counted before it is read.
    """

    name: str  # "" if the source has no splits
    read: ReadRecords
    records: int | None = None
    bytes: int | None = None
    by_class: Mapping[str, int] = field(default_factory=Counter[str])  # how many records each class has, also if none

    @property
    def labelled(self) -> bool:
        """Whether the records have labels that are names of classes."""
        return bool(self.by_class)


@dataclass(frozen=True)
class Contents:
    """What a source holds: its splits, its classes in the order of their numbers, and the files left out."""

    splits: tuple[SplitContents, ...]
    classes: tuple[str, ...] = ()
    left_out: LeftOut = field(default_factory=LeftOut)
    files: int = 0  # the number of files to pack
    shuffled: bool = False  # the default of the option `shuffle`
    labels: str = ""  # a sentence about the origin of the labels; "" if the records have none
    undecoded: Mapping[str, int] = field(
        default_factory=Counter[str]
    )  # counts of images not for TensorFlow, by extension

    @property
    def class_numbers(self) -> dict[str, int]:
        """The label of each class: its place in `classes`, from 0."""
        return {name: number for number, name in enumerate(self.classes)}

    @property
    def by_class(self) -> dict[str, int]:
        """How many records each class has, in all splits together."""
        return {name: sum(split.by_class.get(name, 0) for split in self.splits) for name in self.classes}

    @property
    def size(self) -> int:
        """The bytes of all records; 0 if they are not counted yet."""
        return sum(split.bytes or 0 for split in self.splits)

    @property
    def empty_classes(self) -> list[str]:
        """The classes that have no record in any split."""
        return [name for name, count in self.by_class.items() if not count]

    @property
    def warnings(self) -> list[str]:
        """Sentences about images, classes and splits that a user should know before training."""
        found = [
            f".{extension} images: {count:,}; TensorFlow does not decode them: convert them to .png or .jpg and pack "
            "them again, or decode them by a mapping in Python"
            for extension, count in sorted(self.undecoded.items())
        ]
        if self.empty_classes:
            found.append(f"no files of {_listed(self.empty_classes)}: these classes have numbers but no records")
        for split in self.splits:
            if split.records == 0:
                found.append(f"the split {split.name!r} has no records: all files in its folder are left out")
                continue
            missing = [name for name in self.classes if name not in split.by_class and name not in self.empty_classes]
            if missing and split.labelled:
                found.append(f"the split {split.name!r} has no folder for {_listed(missing)}")
            elif self.classes and not split.labelled:
                found.append(f"the split {split.name!r} has no class folders, but other splits have")
        return found

    @property
    def unexpected(self) -> list[str]:
        """Sentences about files that are left out, except hidden files and documents about the data."""
        notable = [reason for reason in self.left_out.counts if reason not in (Reason.HIDDEN, Reason.DOCUMENT)]
        return [f"left out: {self.left_out.describe(reason)}" for reason in notable]

    def with_classes(self, classes: Sequence[str]) -> Contents:
        """Return the same contents, with the classes numbered in the order of `classes`, which the user gave."""
        if not self.classes:
            raise OptionError(
                "classes are given, but no record has a label: there are neither class folders nor a CSV file with "
                "words as labels"
            )
        return self.renumbered(tuple(classes), "the given classes")

    def renumbered(self, classes: tuple[str, ...], description: str) -> Contents:
        """Return the same contents, with the classes numbered in the order of `classes`.

        Args:
            classes: The names of all classes.
            description: A text that stands for `classes` in an error.

        Raises:
            UnclearLayout: A class of these contents is not in `classes`.
        """
        unknown = [name for name in self.classes if name not in classes]
        if unknown:
            raise UnclearLayout(
                f"there is a class {unknown[0]!r}, which is not among {description}: {', '.join(classes)}"
            )
        return replace(self, classes=classes)


def _listed(names: list[str]) -> str:
    return f"{', '.join(map(repr, names[:_SHOWN]))}{', …' if len(names) > _SHOWN else ''}"
