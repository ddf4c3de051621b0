"""The kinds of files that fields hold, by the extensions in the names of the fields."""

from __future__ import annotations

__all__ = ["KINDS", "LABEL_FIELDS", "extension_of", "kind_of_field"]

LABEL_FIELDS = frozenset({"cls", "label", "class", "category"})
"""Extensions of fields that hold a label: the number of a class, or a word of a vocabulary."""

KINDS = {
    **dict.fromkeys(("jpg", "jpeg", "png", "gif", "bmp", "webp"), "image"),
    **dict.fromkeys(("txt", "text", *LABEL_FIELDS, "cls2", "index", "id"), "text"),
    **dict.fromkeys(("json", "jsn"), "json"),
    **dict.fromkeys(("msgpack", "msg", "mp"), "msgpack"),
    **dict.fromkeys(("wav", "flac"), "audio"),
    **dict.fromkeys(("h5", "hdf5"), "hdf5"),
    **dict.fromkeys(("nc", "nc4", "netcdf"), "netcdf"),
    "npy": "npy",
    "npz": "npz",
}
"""The kinds of files, by the extension of a field."""


def extension_of(name: str) -> str:
    """Return the extension of a field: the lower-case part of its name after the last dot.

    >>> extension_of("seg.PNG")
    'png'
    """
    return name.rpartition(".")[2].lower()


def kind_of_field(name: str) -> str | None:
    """Return the kind of file that the extension of a field means; None for an unknown extension."""
    return KINDS.get(extension_of(name))
