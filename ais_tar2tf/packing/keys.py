"""From the name of a file to the key and the field of a record that every grouping reads back the same. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.records import splitter

__all__ = ["GROUPINGS", "Dotted", "Naming"]

GROUPINGS = ("first-dot", "last-dot")
_first_dot, _last_dot = map(splitter, GROUPINGS)
_PARTS = frozenset(
    {"seg", "segm", "segmentation", "mask", "masks", "semantic", "instance", "panoptic", "matte", "alpha"}
    | {"label", "labels", "annotation", "target", "gt", "depth", "disparity", "normal", "normals", "flow"}
)
"""Words by which a file such as `a.seg.png` is known as a part of the record `a`, and not as an own example."""
_MOST_COMPOUND = 16  # different fields such as seg.png, of one folder; more are parts of names


class Naming:
    """How names of files become keys and fields.

    Args:
        grouping: Where the key ends. "first-dot": `a.seg.png` is the field `seg.png` of the record `a`, as webdataset
            has it. "last-dot": it is the field `png` of a record `a.seg`, whose key is written as `a_seg`, so that
            readers need no grouping of their own. None: as "first-dot", where that is beyond doubt.
    """

    def __init__(self, grouping: str | None = None) -> None:
        self.grouping: str | None = grouping

    def split(self, name: str) -> tuple[str, str] | None:
        """Return the key and the field of a file; None when its name has no extension.

        >>> Naming().split("ant/1.seg.PNG"), Naming("last-dot").split("ant/cat.0.jpg"), Naming().split("ant/notes")
        (('ant/1', 'seg.png'), ('ant/cat_0', 'jpg'), None)
        """
        if self.grouping == "last-dot":
            parts = _last_dot(name)
            return None if parts is None or not parts[1] else (self.plain(parts[0]), parts[1])
        parts = _first_dot(name)
        return parts if parts is not None and parts[1] else None

    def plain(self, key: str) -> str:
        """Return the key that is written: with grouping="last-dot", dots in its last part become `_`."""
        if self.grouping != "last-dot":
            return key
        folder, slash, last = key.rpartition("/")
        return f"{folder}{slash}{last.replace('.', '_')}"


class Dotted:
    """Watches for dots that belong to the names of files, and not to fields such as `seg.png`.

    Kaggle's `cat.0.jpg` and `cat.1.jpg` would be two fields of one record `cat`.
    """

    def __init__(self, naming: Naming) -> None:
        self._watching = naming.grouping is None
        self._seen: dict[str, str] = {}

    def check(self, where: str, names: Sequence[str]) -> None:
        """Raise `UnclearLayout` when the files of one record, which lie in the folder `where`, leave a doubt."""
        if not self._watching:
            return
        for name in names:
            before, dot, _ = name.partition(".")[2].rpartition(".")
            if not dot:
                continue
            self._seen.setdefault(name.partition(".")[2].lower(), name)
            parts = before.split(".")
            if len(self._seen) > _MOST_COMPOUND or any(part.isdecimal() or not part for part in parts):
                raise UnclearLayout(f"{where}: {_told(sorted(names), name)}; {_REMEDY}")

    def check_examples(self, where: str, names: Sequence[str]) -> None:
        """Refuse `a.jpg, a.edited.jpg`: examples of a class that would be fields of one record.

        Args:
            where: The folder.
            names: The files of one record that are of the kind of which each file is one example.
        """
        if not self._watching:
            return
        fields = {name: name.partition(".")[2].lower() for name in names}
        has_no_plain = all("." in field for field in fields.values())
        for name, field in fields.items():
            *words, _ = field.split(".")
            if words and (has_no_plain or not _PARTS.issuperset(words)):
                raise UnclearLayout(f"{where}: {_told(sorted(names), name)}; {_REMEDY}")


_REMEDY = (
    "grouping='last-dot' (--grouping last-dot) makes a record of each, with '_' for the dots in its key; "
    "grouping='first-dot' (--grouping first-dot) packs them as they are"
)


def _told(names: list[str], name: str) -> str:
    key = name.partition(".")[0]
    others = [each for each in names if each != name]
    if not others:
        return f"the name {name!r} has more than one dot: it would be a field {name.partition('.')[2]!r} of {key!r}"
    return f"{name!r} and {others[0]!r} would be two fields of one record {key!r}"
