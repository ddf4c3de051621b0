"""The parser of Pascal VOC annotations: XML files that list the objects in an image. No I/O.

The objects become columns, such as "xmin" and "labels". Coordinates are divided by the width or the height of the
image, and so lie between 0 and 1 if the object lies within the image.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import Any
from xml.parsers import expat

import numpy as np

from ais_tar2tf.errors import SchemaError

__all__ = ["empty_objects", "parse_class_ids", "parse_objects"]

_FLOATS = ("xmin", "xmax", "ymin", "ymax", "area")
_INTEGERS = ("labels", "is_truncated", "labels_difficult")


def parse_class_ids(data: bytes, where: str) -> dict[str, int]:
    """Return the id of each class in a file `classes.names`. Each line has one class; the first id is 1."""
    names = [line.strip() for line in data.decode("utf-8", "surrogateescape").splitlines() if line.strip()]
    if not names:
        raise SchemaError(f"{where}: there are no names of classes in it, one on each line")
    return {name: number for number, name in enumerate(names, 1)}


def empty_objects() -> dict[str, Any]:
    """Return the columns of an image that has no annotations, and so no objects: all columns are empty."""
    return _columns([])


def parse_objects(data: bytes, class_ids: Mapping[str, int], where: str) -> dict[str, Any]:
    """Parse an annotation file, and return its objects as columns: for each property, the values of all objects.

    Args:
        data: The bytes of the file.
        class_ids: The id of each class.
        where: The file, for errors.

    Raises:
        SchemaError: The file is no annotation, defines XML entities, states an impossible size or box, or has an
            object whose class is not in `class_ids`.
    """
    try:
        _refuse_entities(data)
        root = ElementTree.fromstring(data)  # noqa: S314  # the text cannot expand, because it defines no entities
        size = _child(root, "size")
        width, height = (float(_text(_child(size, name))) for name in ("width", "height"))
        _check_size(width, height)
        return _columns([_parse_object(each, class_ids, width, height) for each in root.findall("object")])
    except (ElementTree.ParseError, expat.ExpatError, LookupError, ValueError) as error:
        problem = error.args[0] if isinstance(error, LookupError) else error
        raise SchemaError(f"{where}: this is no annotation that can be used ({problem})") from error


def _refuse_entities(data: bytes) -> None:
    """Raise ValueError at the first definition of an entity, before any entity is expanded."""

    def refuse(*_: object) -> None:
        raise ValueError("an annotation that defines entities is not read")

    # A search for "<!ENTITY" would miss definitions in other encodings, such as UTF-16.
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = refuse
    parser.Parse(data, True)


def _check_size(width: float, height: float) -> None:
    if min(width, height) <= 0:
        raise ValueError(f"the image is {width:g}×{height:g}")


def _parse_object(element: Any, class_ids: Mapping[str, int], width: float, height: float) -> dict[str, Any]:
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
        "labels": _class_id(_text(_child(element, "name")), class_ids),
        "is_truncated": _flag(element, "truncated"),
        "labels_difficult": _flag(element, "difficult"),
    }


def _class_id(name: str, class_ids: Mapping[str, int]) -> int:
    class_id = class_ids.get(name, class_ids.get(name.lower()))
    if class_id is None:
        raise LookupError(f"class {name!r} is not in classes.names; there are: {', '.join(class_ids)}")
    return class_id


def _child(element: Any, name: str) -> Any:
    child = element.find(name)
    if child is None:
        raise LookupError(f"<{element.tag}> has no <{name}>")
    return child


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
