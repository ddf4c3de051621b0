"""Counts, for each reason, the files that are found in a folder but not packed. This module must not do I/O."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

__all__ = ["LeftOut", "Reason"]

_EXAMPLES = 5  # the largest number of names that `LeftOut` holds for each reason


class Reason(StrEnum):
    """The reason why a file or a folder is not packed."""

    HIDDEN = "hidden or system files"
    DOCUMENT = "documents about the data"
    NO_EXTENSION = "files without an extension"
    OUTSIDE = "files outside of the class folders"
    OWN = "shards of this name"
    UNACCOMPANIED = "files of another kind"
    EMPTY = "empty files"
    LINK = "links out of the folder"
    BROKEN_LINK = "links to nothing"
    SPECIAL = "neither files nor folders"


class LeftOut:
    """Counts, for each reason, the files that are not packed, and holds the names of the first files.

    >>> left_out = LeftOut()
    >>> left_out.add(Reason.HIDDEN, ".DS_Store")
    >>> left_out.count, str(left_out)
    (1, 'hidden or system files: 1 (.DS_Store)')
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return "; ".join(self.describe(reason) for reason in self.counts)

    @property
    def count(self) -> int:
        """The number of files that are left out. A folder that is left out counts as one."""
        return sum(self.counts.values())

    def add(self, reason: Reason, name: str) -> None:
        """Count a file or folder with this name as left out for `reason`."""
        self.counts[reason.value] += 1
        examples = self.examples.setdefault(reason.value, [])
        if len(examples) < _EXAMPLES:
            examples.append(name)

    def to_json(self) -> dict[str, Any]:
        """Return, for each reason, the count and the first names, as values for JSON."""
        return {reason: {"count": count, "first": self.examples[reason]} for reason, count in self.counts.items()}

    def describe(self, reason: str) -> str:
        """Return a text with the reason, its count and its first names."""
        count, names = self.counts[reason], self.examples[reason]
        more = ", …" if count > len(names) else ""
        return f"{reason}: {count:,} ({', '.join(names)}{more})"
