"""Checks whether the records of a sample have the same fields and image depths. If not, advises what to select."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import lru_cache

from ais_tar2tf.errors import MissingField
from ais_tar2tf.records import KEY_AND_SHARD, Record, Selection, listed_fields
from ais_tar2tf.values.default_mappings import IMAGE_FIELDS
from ais_tar2tf.values.file_headers import image_header
from ais_tar2tf.values.schema import Field

__all__ = [
    "advice_on_differing",
    "advice_on_optional",
    "check_same_fields",
    "differing_fields",
    "warn_of_mixed_depths",
]

_warn_once = lru_cache(maxsize=256)(logging.getLogger("ais_tar2tf").warning)

_IN_GRAPHS = 'an absent field is then b"" in graphs and in elements of raw bytes'


def differing_fields(sample: Sequence[Record], names: Sequence[str]) -> list[str]:
    """Return the named fields that some records of the sample lack."""
    return [name for name in names if not all(name in record for record in sample)]


def check_same_fields(sample: Sequence[Record], names: Sequence[str]) -> None:
    """Refuse a dataset whose elements would have fields that no record of the sample has together.

    All elements of a dataset have the same fields. If some records have all of them, a record that lacks a field is
    an error when it is read, and `on_error` decides whether the record is skipped.

    Raises:
        MissingField: No record of the sample has all fields that occur in the sample.
    """
    if not sample or any(all(name in record for name in names) for record in sample):
        return
    first = sample[0]
    lacking = [name for name in names if name not in first]
    raise MissingField(
        f"field {' or '.join(lacking)!r} is missing (there are: {listed_fields(first)}), and a dataset's elements "
        f"have the same fields; no record of the first {len(sample):,} has all of {listed_fields(names)}"
        f"{advice_on_differing(sample, names)}",
        shard=first["__shard__"],
        key=first["__key__"],
    )


def advice_on_differing(sample: Sequence[Record], names: Sequence[str]) -> str:
    """Return how to select fields that some records lack, as the end of an error's sentence; "" if none lacks any.

    >>> advice_on_differing([{"cls": b"1", "jpg": b""}, {"cls": b"2", "png": b""}], ["cls", "jpg", "png"])[:56]
    "; select('image=jpg;png', 'cls') reads the one that a re"
    """
    differing = sorted(differing_fields(sample, names))
    others = [name for name in names if name not in differing and name not in KEY_AND_SHARD]
    if not differing:
        return ""
    each = _select_call([*(f"{name}?" for name in differing), *others])
    if len(differing) < 2 or any(sum(name in record for name in differing) != 1 for record in sample):
        return f"; {each} reads fields that may be absent: {_IN_GRAPHS}"
    one = _select_call([_alternatives(differing), *others])
    return f"; {one} reads the one that a record has, and {each} each that it has: {_IN_GRAPHS}"


def advice_on_optional(selection: Selection) -> str:
    """Return how to read optional fields in a graph, which cannot ask for them, as the end of an error's sentence."""
    optional = [source for want in selection.wants if want.optional for source in want.sources]
    others = [
        want.name if want.sources == (want.name,) else f"{want.name}={';'.join(want.sources)}"
        for want in selection.wants
        if not want.optional
    ]
    advice = '; in a graph, read the field without asking: an absent one is b""'
    if len(optional) < 2:
        return advice
    return f"{advice}. Or {_select_call([_alternatives(optional), *others])}, which reads the first that a record has"


def _alternatives(fields: Sequence[str]) -> str:
    """Return the text that selects the first of several fields that a record has.

    >>> _alternatives(["jpg", "png"]), _alternatives(["txt", "json"])
    ('image=jpg;png', 'txt;json')
    """
    sources = ";".join(fields)
    return f"image={sources}" if set(fields) <= set(IMAGE_FIELDS) else sources


def _select_call(fields: Sequence[str]) -> str:
    return f"select({', '.join(map(repr, fields))})"


def warn_of_mixed_depths(sample: Sequence[Record], fields: Iterable[Field]) -> None:
    """Warn of each field with images of 8 and of 16 bits, because the schema decodes all of them to 16 bits."""
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
