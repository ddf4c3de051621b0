"""Splits the names of files into keys and fields, and refuses ambiguous names. No I/O.

A reader of the shards finds the same keys and fields with its default grouping, "first-dot".
"""

from __future__ import annotations

from collections.abc import Sequence

from ais_tar2tf.errors import UnclearLayout
from ais_tar2tf.records import splitter

__all__ = ["GROUPINGS", "DotCheck", "Naming"]

GROUPINGS = ("first-dot", "last-dot")
_first_dot, _last_dot = map(splitter, GROUPINGS)
_PARTS = frozenset(
    {"seg", "segm", "segmentation", "mask", "masks", "semantic", "instance", "panoptic", "matte", "alpha"}
    | {"label", "labels", "annotation", "target", "gt", "depth", "disparity", "normal", "normals", "flow"}
)
"""Words that mark a file such as `a.seg.png` as a part of the record `a`, not as an example of its own."""
_MAX_COMPOUND_FIELDS = 16  # different fields such as seg.png; beyond this, the dots are part of the names


class Naming:
    """Splits the names of files into keys and fields.

    Args:
        grouping: Where the key ends. "first-dot": `a.seg.png` is the field `seg.png` of the record `a`, as in
            webdataset. "last-dot": `a.seg.png` is the field `png` of a record whose key is written as `a_seg`, so
            that readers need not set a grouping. None: as "first-dot", but `DotCheck` refuses names for which this
            may be wrong.
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
            return None if parts is None or not parts[1] else (self.written_key(parts[0]), parts[1])
        parts = _first_dot(name)
        return parts if parts is not None and parts[1] else None

    def written_key(self, key: str) -> str:
        """Return the key as it is written: with grouping="last-dot", dots after its last `/` become `_`."""
        if self.grouping != "last-dot":
            return key
        folder, slash, last = key.rpartition("/")
        return f"{folder}{slash}{last.replace('.', '_')}"


class DotCheck:
    """Refuses names whose dots seem to be part of the key, and not of a field such as `seg.png`.

    Kaggle's `cat.0.jpg` and `cat.1.jpg` would be two fields of one record `cat`. If the user chose a grouping, no
    name is refused.
    """

    def __init__(self, naming: Naming) -> None:
        self._enabled = naming.grouping is None
        self._compound_fields: set[str] = set()

    def check(self, where: str, names: Sequence[str]) -> None:
        """Check the names of the files of one record, which lie in the folder `where`.

        Raises:
            UnclearLayout: It is unclear which dot in a name ends the key.
        """
        if not self._enabled:
            return
        for name in names:
            before, dot, _ = name.partition(".")[2].rpartition(".")
            if not dot:
                continue
            self._compound_fields.add(name.partition(".")[2].lower())
            too_many = len(self._compound_fields) > _MAX_COMPOUND_FIELDS
            if too_many or any(part.isdecimal() or not part for part in before.split(".")):
                raise UnclearLayout(f"{where}: {_conflict_text(sorted(names), name)}; {_REMEDY}")

    def check_examples(self, where: str, names: Sequence[str]) -> None:
        """Refuse names such as `a.jpg` and `a.edited.jpg`: two examples of a class would be fields of one record.

        Args:
            where: The folder.
            names: The files of one record that have the kind of the folder's examples, for instance images.
        """
        if not self._enabled:
            return
        fields = {name: name.partition(".")[2].lower() for name in names}
        all_have_dots = all("." in field for field in fields.values())
        for name, field in fields.items():
            *words, _ = field.split(".")
            if words and (all_have_dots or not _PARTS.issuperset(words)):
                raise UnclearLayout(f"{where}: {_conflict_text(sorted(names), name)}; {_REMEDY}")


_REMEDY = (
    "grouping='last-dot' (--grouping last-dot) makes a record of each, with '_' for the dots in its key; "
    "grouping='first-dot' (--grouping first-dot) packs them as they are"
)


def _conflict_text(names: list[str], name: str) -> str:
    key = name.partition(".")[0]
    others = [other for other in names if other != name]
    if not others:
        return f"the name {name!r} has more than one dot: it would be a field {name.partition('.')[2]!r} of {key!r}"
    return f"{name!r} and {others[0]!r} would be two fields of one record {key!r}"
