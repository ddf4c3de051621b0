"""Whether the records of a sample have the same fields and depths, and what to do where they do not. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ais_tar2tf.errors import MissingField
from ais_tar2tf.headers import image_header
from ais_tar2tf.mapping import IMAGE_FIELDS
from ais_tar2tf.records import NAMES, Record, Selection, said_fields
from ais_tar2tf.schema import Field

__all__ = ["check_alike", "differing_fields", "warn_of_depths", "what_else_to_select", "what_to_select"]

_warn_once = lru_cache(maxsize=256)(logging.getLogger("ais_tar2tf").warning)

_IN_GRAPHS = 'an absent field is then b"" in graphs and in elements of raw bytes'


def differing_fields(sample: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Return the fields that some records of the sample have, and some do not."""
    return [name for name in names if not all(name in record for record in sample)]


def check_alike(sample: Sequence[Record], names: Sequence[str]) -> None:
    """Refuse a dataset of elements that no record of the sample fits.

    A dataset's elements have the same fields. Where some records have them all, one that lacks any is told when it
    is read, and `on_error` decides what it costs.

    Raises:
        MissingField: No record of the sample has all fields that its records have together.
    """
    if not sample or any(all(name in record for name in names) for record in sample):
        return
    first = sample[0]
    lacking = [name for name in names if name not in first]
    raise MissingField(
        f"field {' or '.join(lacking)!r} is missing (there are: {said_fields(first)}), and a dataset's elements have "
        f"the same fields; no record of the first {len(sample):,} has all of {said_fields(names)}"
        f"{what_to_select(sample, names)}",
        shard=first["__shard__"],
        key=first["__key__"],
    )


def what_to_select(sample: Sequence[Record], names: Sequence[str]) -> str:
    """Return the end of an error's sentence: how to select the fields of a sample's records; "" if all have the same.

    >>> what_to_select([{"cls": b"1", "jpg": b""}, {"cls": b"2", "png": b""}], ["cls", "jpg", "png"])[:56]
    "; select('image=jpg;png', 'cls') reads the one that a re"
    """
    differing = sorted(differing_fields(sample, names))
    rest = [name for name in names if name not in differing and name not in NAMES]
    if not differing:
        return ""
    each = f"select({_said([*(f'{name}?' for name in differing), *rest])})"
    if len(differing) < 2 or any(sum(name in record for name in differing) != 1 for record in sample):
        return f"; {each} reads fields that may be absent: {_IN_GRAPHS}"
    one = f"select({_said([_alternatives(differing), *rest])})"
    return f"; {one} reads the one that a record has, and {each} each that it has: {_IN_GRAPHS}"


def what_else_to_select(selection: Selection) -> str:
    """The same of a selection with fields that may be absent, of which a graph cannot ask."""
    optional = [source for want in selection.wants if want.optional for source in want.sources]
    rest = [
        want.name if want.sources == (want.name,) else f"{want.name}={';'.join(want.sources)}"
        for want in selection.wants
        if not want.optional
    ]
    advice = '; in a graph, read the field without asking: an absent one is b""'
    if len(optional) < 2:
        return advice
    return f"{advice}. Or select({_said([_alternatives(optional), *rest])}), which reads the first that a record has"


def _alternatives(fields: Sequence[str]) -> str:
    """How to select the first of several fields that a record has.

    >>> _alternatives(["jpg", "png"]), _alternatives(["txt", "json"])
    ('image=jpg;png', 'txt;json')
    """
    sources = ";".join(fields)
    return f"image={sources}" if set(fields) <= set(IMAGE_FIELDS) else sources


def _said(fields: Sequence[str]) -> str:
    return ", ".join(map(repr, fields))


def warn_of_depths(sample: Sequence[Record], fields: Iterable[Field]) -> None:
    """Warn of each field that is decoded to 16 bits since some images of the sample have 16, and others 8."""
    for field in fields:
        if field.encoding != "image" or field.dtype != "uint16":
            continue
        first: dict[str, Record] = {}
        for record in sample:
            header = image_header(record[field.name]) if isinstance(record.get(field.name), bytes) else None
            if header is not None:
                first.setdefault(header.dtype, record)
        if len(first) < 2:
            continue
        deep = first["uint16"]
        _warn_once(
            f"{deep['__shard__']}, record {deep['__key__']!r}: field {field.name!r} has 16 bits, others of the first "
            "records have 8: all are decoded to uint16, which makes values of 8 bits 257 times as large. For uint8 "
            f"say decode=src.schema.with_field(t2t.schema.Field({field.name!r}, 'uint8', {field.shape!r}, 'image'))"
        )
