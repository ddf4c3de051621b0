"""Records of files → decoded values, by what the user says, or by a sample of the first records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

from ais_tar2tf.decoders import Decode, decoding_of
from ais_tar2tf.export.shelf import Records
from ais_tar2tf.options import MIB
from ais_tar2tf.reading import size_of
from ais_tar2tf.records import Record
from ais_tar2tf.schema import Inference, Schema

__all__ = ["decoded"]

_SAMPLE_RECORDS = 64
_SAMPLE_BYTES = 1 * MIB  # after which the sample ends


def decoded(records: Iterator[Record], decode: Decode, of: Records, where: str) -> Iterator[Record]:
    """Return what `decode` makes of records; the first ones of `of` tell what is in their fields.

    Raises:
        MappingError: A field does not decode. The text names the record, and `where` it lies.
    """

    @cache
    def sample() -> Schema:
        return _sampled(of)

    decoding = replace(decoding_of(decode, sample, known=lambda: of.schema.names, sampled=False), where=where)
    return map(decoding, records)


def _sampled(records: Records) -> Schema:
    inference, size = Inference(), 0
    for record in islice(records, _SAMPLE_RECORDS):
        inference.add(record)
        size += size_of(record)
        if size > _SAMPLE_BYTES:
            break
    return replace(inference.schema, sampled=True)
