"""Pascal VOC's annotations: boxes of objects, normalised; classes by name, their ids from 1."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError

__all__ = ["class_ids", "no_objects", "objects_of"]

_FLOATS = ("xmin", "xmax", "ymin", "ymax", "area")
_INTEGERS = ("labels", "is_truncated", "labels_difficult")


def class_ids(data: bytes, where: str) -> dict[str, int]:
    """Name → id from a `classes.names`: a name on each line."""
    names = [line.strip() for line in data.decode("utf-8", "surrogateescape").splitlines() if line.strip()]
    if not names:
        raise SchemaError(f"{where}: there are no names of classes in it, one on each line")
    return {name: number for number, name in enumerate(names, 1)}


def no_objects() -> dict[str, Any]:
    """Of an image without annotations."""
    return _columns([])


def objects_of(data: bytes, ids: Mapping[str, int], where: str) -> dict[str, Any]:
    """The objects of one annotation file, a column for each of their properties."""
    if b"<!ENTITY" in data:
        raise SchemaError(f"{where}: an annotation that defines entities is not read")
    try:
        root = ElementTree.fromstring(data)  # noqa: S314  # without entities of its own it can't grow
        size = _child(root, "size")
        width, height = (float(_text(_child(size, name))) for name in ("width", "height"))
        _check_size(width, height)
        return _columns([_object(each, ids, width, height) for each in root.findall("object")])
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        what = error.args[0] if isinstance(error, LookupError) else error
        raise SchemaError(f"{where}: this is no annotation that can be used ({what})") from error


def _check_size(width: float, height: float) -> None:
    if min(width, height) <= 0:
        raise ValueError(f"the image is {width:g}×{height:g}")


def _object(element: Any, ids: Mapping[str, int], width: float, height: float) -> dict[str, Any]:
    box = _child(element, "bndbox")
    xmin, xmax = (float(_text(_child(box, name))) / width for name in ("xmin", "xmax"))
    ymin, ymax = (float(_text(_child(box, name))) / height for name in ("ymin", "ymax"))
    if not (-math.inf < xmin <= xmax < math.inf and -math.inf < ymin <= ymax < math.inf):
        raise ValueError(f"a box from ({xmin:g}, {ymin:g}) to ({xmax:g}, {ymax:g}) of the image is none")
    return {
        "xmin": xmin,
        "xmax": xmax,
        "ymin": ymin,
        "ymax": ymax,
        "area": (xmax - xmin) * (ymax - ymin),
        "pose": (element.findtext("pose") or "unspecified").strip().lower(),
        "labels": _id(_text(_child(element, "name")), ids),
        "is_truncated": _flag(element, "truncated"),
        "labels_difficult": _flag(element, "difficult"),
    }


def _id(name: str, ids: Mapping[str, int]) -> int:
    found = ids.get(name, ids.get(name.lower()))
    if found is None:
        raise LookupError(f"class {name!r} is not in classes.names; there are: {', '.join(ids)}")
    return found


def _child(element: Any, name: str) -> Any:
    found = element.find(name)
    if found is None:
        raise LookupError(f"<{element.tag}> has no <{name}>")
    return found


def _text(element: Any) -> str:
    return (element.text or "").strip()


def _flag(element: Any, name: str) -> int:
    return int((element.findtext(name) or "0").strip() == "1")


def _columns(objects: list[dict[str, Any]]) -> dict[str, Any]:
    columns: dict[str, Any] = {name: np.array([each[name] for each in objects], np.float32) for name in _FLOATS}
    columns["pose"] = [each["pose"] for each in objects]
    for name in _INTEGERS:
        columns[name] = np.array([each[name] for each in objects], np.int64)
    return columns
