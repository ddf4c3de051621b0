"""Decode the fields of records from record files. A sample of the first records tells the type of each field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

from ais_tar2tf.options import MIB
from ais_tar2tf.recordfiles.loading.random_access import RecordSequence
from ais_tar2tf.records import Record
from ais_tar2tf.streams.datasets import size_of
from ais_tar2tf.values.decoders import Decode, choose_decoding
from ais_tar2tf.values.schema import Inference, Schema

__all__ = ["decoded"]

_SAMPLE_RECORDS = 64
_SAMPLE_BYTES = 1 * MIB  # the sample ends with the record that exceeds this size


def decoded(records: Iterator[Record], decode: Decode, sequence: RecordSequence, where: str) -> Iterator[Record]:
    """Return records with decoded fields.

    Args:
        records: The records to decode.
        decode: The option `decode` of `Source.records`.
        sequence: All records of the same splits. The sample is taken from these.
        where: The folder or URL of the export, for errors.

    Raises:
        MappingError: A field cannot be decoded. The text names the record.
    """
    sample = cache(lambda: _sampled(sequence))
    decoding = replace(
        choose_decoding(decode, sample, names=lambda: sequence.schema.names, sampled=False), where=where
    )
    return map(decoding, records)


def _sampled(records: RecordSequence) -> Schema:
    inference, size = Inference(), 0
    for record in islice(records, _SAMPLE_RECORDS):
        inference.add(record)
        size += size_of(record)
        if size > _SAMPLE_BYTES:
            break
    return replace(inference.schema, sampled=True)
