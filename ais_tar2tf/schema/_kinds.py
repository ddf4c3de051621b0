"""What a field's name says of its content: extensions → kinds of files."""

from __future__ import annotations

__all__ = ["KINDS", "LABEL_FIELDS", "extension_of", "kind_of_field"]

LABEL_FIELDS = frozenset({"cls", "label", "class", "category"})
"""Fields whose text is a class: a number, or a word of a vocabulary."""

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
"""The kind of file that an extension stands for."""


def extension_of(name: str) -> str:
    """The last part of a field's name: `seg.png` is a PNG.

    >>> extension_of("seg.PNG")
    'png'
    """
    return name.rpartition(".")[2].lower()


def kind_of_field(name: str) -> str | None:
    """What a field of this name holds, as far as the name tells."""
    return KINDS.get(extension_of(name))
