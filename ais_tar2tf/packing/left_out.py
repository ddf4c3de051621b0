"""The account of files that are found and not packed: how many for which reason, and the first names. No I/O."""

from __future__ import annotations

from collections import Counter
from typing import Any

__all__ = [
    "BROKEN_LINK",
    "DOCUMENT",
    "EMPTY",
    "HIDDEN",
    "LINK",
    "NO_EXTENSION",
    "OUTSIDE",
    "OWN",
    "SPECIAL",
    "UNACCOMPANIED",
    "LeftOut",
]

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

_EXAMPLES = 5  # names that are kept for each reason


class LeftOut:
    """Counts what is not packed, by reason, and keeps the first names of each reason.

    >>> left_out = LeftOut()
    >>> left_out.add(HIDDEN, ".DS_Store")
    >>> left_out.count, str(left_out)
    (1, 'hidden or system files: 1 (.DS_Store)')
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.examples: dict[str, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        return "; ".join(self.told(reason) for reason in self.counts)

    @property
    def count(self) -> int:
        """The number of files, and of folders that were not looked into."""
        return sum(self.counts.values())

    def add(self, reason: str, name: str) -> None:
        """Count one more file or folder."""
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(name)

    def to_json(self) -> dict[str, Any]:
        """Return counts and names as plain values."""
        return {reason: {"count": count, "first": self.examples[reason]} for reason, count in self.counts.items()}

    def told(self, reason: str) -> str:
        """Return one reason in words, with the first names."""
        count, names = self.counts[reason], self.examples[reason]
        more = ", …" if count > len(names) else ""
        return f"{reason}: {count:,} ({', '.join(names)}{more})"
