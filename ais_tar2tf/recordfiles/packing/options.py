"""`PackOptions`: the options of `pack`. They are checked when an instance is made. No I/O."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.errors import OptionError
from ais_tar2tf.options import Limits, whole_number
from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE, Bounds, bounds_of
from ais_tar2tf.recordfiles.formats.tar_members import END
from ais_tar2tf.recordfiles.packing.naming import GROUPINGS

__all__ = ["LABELS", "PackOptions"]

LABELS = ("auto", "folders", None)
_EXISTS = ("error", "replace")


@dataclass(frozen=True, kw_only=True)
class PackOptions:
    """The options of one call of `pack`. The docstring of `pack` describes each option."""

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
        self.bounds  # noqa: B018  # raises OptionError if a size cannot be parsed

    @property
    def bounds(self) -> Bounds:
        """The maximum size of a shard, and its maximum number of records."""
        return bounds_of(self.shard_size, self.shard_records, len(END))

    def refuse_for_rows(self) -> None:
        """Refuse options that apply only to files. Call this method when rows are packed."""
        for_files = (self.splits, self.root, self.classes)
        if self.labels != "auto" or self.follow_links or any(each is not None for each in for_files):
            raise OptionError(
                "labels, classes, splits, root and follow_links are for files: rows bring their own labels and bytes"
            )
        if self.shuffle is not None and self.shuffle is not False:
            raise OptionError("shuffle is for files: rows come one by one, so bring them in the order that you want")

    def refuse_for_csv(self) -> None:
        """Refuse options that apply only to folders. Call this method when a CSV file is packed."""
        if self.labels != "auto" or self.splits is not None:
            raise OptionError("labels and splits are for folders: a CSV file has its labels in a column")

    def refuse_for_folder(self) -> None:
        """Refuse options that apply only to CSV files. Call this method when a folder is packed."""
        if self.root is not None:
            raise OptionError("root is for CSV files, whose rows name files below it; leave it out for a folder")
