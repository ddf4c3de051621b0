"""How `pack` understands what it is given, and what it writes. Options check themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ais_tar2tf.errors import OptionError
from ais_tar2tf.export.boundaries import DEFAULT_SIZE, Bounds, bounds_of
from ais_tar2tf.export.tarfiles import END
from ais_tar2tf.nearest import check_choice
from ais_tar2tf.options import Limits, whole_number
from ais_tar2tf.packing.keys import GROUPINGS

__all__ = ["LABELS", "PackOptions"]

LABELS = ("auto", "folders", None)
_EXISTS = ("error", "replace")


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """The options of `pack`, which says what each means."""

    shard_size: int | str | None = DEFAULT_SIZE
    shard_records: int | None = None
    shuffle: bool | int | None = None
    grouping: str | None = None
    labels: str | None = "auto"
    splits: bool | None = None
    classes: Sequence[str] | None = None
    root: str | os.PathLike[str] | None = None
    follow_links: bool = False
    exists: str = "error"
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if self.exists not in _EXISTS:
            raise OptionError(f"exists is 'error' or 'replace', not {self.exists!r}")
        if self.grouping is not None:
            check_choice("grouping", self.grouping, GROUPINGS)
        if self.labels not in LABELS:
            raise OptionError(f"labels is 'auto', 'folders' or None, not {self.labels!r}")
        if self.classes is not None and (
            isinstance(self.classes, str) or not self.classes or len(set(self.classes)) < len(self.classes)
        ):
            raise OptionError(f"classes are different names in the order of their numbers, not {self.classes!r}")
        if self.shuffle is not None and not isinstance(self.shuffle, bool):
            object.__setattr__(self, "shuffle", whole_number("shuffle", self.shuffle))
        self.bounds  # noqa: B018  # refuses sizes that are none

    @property
    def bounds(self) -> Bounds:
        """How large a shard may be."""
        return bounds_of(self.shard_size, self.shard_records, len(END))

    def refuse_for_rows(self) -> None:
        """Raise when there is an option that says something of files, and rows are packed."""
        if self.labels != "auto" or self.splits is not None or self.root is not None or self.follow_links:
            raise OptionError(
                "labels, splits, root and follow_links are for files: rows bring their own labels and bytes"
            )
        if self.shuffle is not None and self.shuffle is not False:
            raise OptionError("shuffle is for files: rows come one by one, so bring them in the order that you want")

    def refuse_for_csv(self) -> None:
        """Raise when there is an option that says something of folders, and a CSV file is packed."""
        if self.labels != "auto" or self.splits is not None:
            raise OptionError("labels and splits say what folders mean; a CSV file says it in its columns")

    def refuse_for_folder(self) -> None:
        """Raise when there is an option that says something of CSV files, and a folder is packed."""
        if self.root is not None:
            raise OptionError("root says where the files lie that a CSV file names; a folder needs none")
