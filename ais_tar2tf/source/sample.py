"""The sample of a source: the first records of its shards, from which the fields of all records are inferred.

This module states which fields a dataset can have. It must not decide which of them the dataset needs: `elements.py`
does so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import MIB
from ais_tar2tf.records import KEY_AND_SHARD, Record, Selection
from ais_tar2tf.source.description import as_line
from ais_tar2tf.source.field_checks import (
    advice_on_differing,
    advice_on_optional,
    differing_fields,
    warn_of_mixed_depths,
)
from ais_tar2tf.stores import Caching
from ais_tar2tf.streams.datasets import size_of, timed_records
from ais_tar2tf.streams.order import Plan
from ais_tar2tf.streams.reader import ReadSession, RecordStream
from ais_tar2tf.values.schema import Inference, Schema

if TYPE_CHECKING:
    from ais_tar2tf.tfdata.mappings.traced_record import KnownFields
    from ais_tar2tf.values.decoders import Decode

__all__ = ["ElementFields", "Sample", "read_sample"]

_RECORDS = 64
_READ_AHEAD = 1 * MIB
_MAX_KEPT_BYTES = 8 * MIB  # a larger sample is not kept, but read again when it is needed again
_GRACE = 2.0  # seconds that a request in flight gets to end, so that its bytes are cached for the first epoch


class ElementFields(NamedTuple):
    """The fields that the elements of a dataset have."""

    names: tuple[str, ...]  # the key and the shard come last
    optional: frozenset[str]  # fields that a record may lack


@dataclass(frozen=True)
class Sample:
    """The first records of a source.

    Attributes:
        session: The session with the shards from which the records were read.
        account: Holds the option `on_error`, which decides whether a record that does not fit the schema raises an
            error or is skipped.
        records: The records, in the order of the shards.
    """

    session: ReadSession
    account: Account
    records: list[Record]

    @property
    def is_small(self) -> bool:
        """Whether the records may be kept in memory."""
        return sum(map(size_of, self.records)) <= _MAX_KEPT_BYTES

    @property
    def fields(self) -> ElementFields:
        """The fields of a dataset's elements. Without a selection of fields, these are all fields of the sample.

        Raises:
            SchemaError: No fields are selected, and the sample has no records.
        """
        if self._selection is not None:
            optional = frozenset(want.name for want in self._selection.wants if want.optional)
            return ElementFields((*self._selection.names, *KEY_AND_SHARD), optional)
        if not self.records:
            shown = as_line(self.session.shards)
            raise SchemaError(f"{shown} has no records, so its fields are not known; say select(…)")
        names = dict.fromkeys(name for record in self.records for name in record if name not in KEY_AND_SHARD)
        return ElementFields((*names, *KEY_AND_SHARD), frozenset())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of `fields`, or an empty tuple where `fields` would raise SchemaError."""
        return self.fields.names if self._selection is not None or self.records else ()

    @property
    def schema(self) -> Schema:
        """The types of the fields, as far as the sample shows them."""
        inference = Inference(limits=self.session.shards.read.limits)
        account = self.account.with_new_stats()
        for record in self.records:
            try:
                inference.add(record)
            except SchemaError as error:
                account.record_error(error)
        return replace(inference.schema, sampled=True)

    def schema_to_decode(self, decode: Decode) -> Schema:
        """Return `schema`. Warn of each decoded field whose images have different bit depths."""
        schema = self.schema
        decoded = (field for field in schema if not isinstance(decode, Mapping) or field.name in decode)
        warn_of_mixed_depths(self.records, decoded)
        return schema

    def known_fields(self, *, all_read: bool) -> KnownFields:
        """Return the fields that a mapping can read while it is traced.

        Args:
            all_read: Whether the mapping reads every field, as it does when the user gave no mapping.
        """
        from ais_tar2tf.tfdata.mappings.traced_record import KnownFields

        names, optional = self.fields
        if self._selection is not None:
            return KnownFields(names, True, optional, advice=advice_on_optional(self._selection))
        differing = () if all_read else differing_fields(self.records, names)
        return KnownFields(names, differing=frozenset(differing), advice=advice_on_differing(self.records, names))

    def check(self) -> None:
        """Read the sample and one more record, to raise the error if an error ended the sample early."""
        stream = _first_records(self.session, self.account)
        for _ in islice(timed_records(stream, Account()), len(self.records) + 1):
            pass

    @property
    def _selection(self) -> Selection | None:
        return self.session.shards.selection


def read_sample(session: ReadSession, account: Account) -> Sample:
    """Read the first records of the shards in `session`.

    The sample ends with record 64, or with the record that reaches `Limits.chunk_bytes`. The records are read through
    one connection, and are not counted in `account`.
    """
    shards = session.shards
    limits = replace(shards.read.limits, read_ahead_bytes=_READ_AHEAD, chunk_records=_RECORDS)
    read = replace(shards.read, limits=limits, connections=1, most_connections=0)
    stream = _first_records(session.over(replace(shards, read=read)), account)
    try:
        records = [*stream.next_chunk(full=True)]
    finally:
        stream.close(grace=_GRACE if isinstance(shards.store, Caching) else 0.0)
    return Sample(session, account, records)


def _first_records(session: ReadSession, account: Account) -> RecordStream:
    plan = Plan(len(session.shards.names))
    return RecordStream(session, plan, plan.begin(0, 0, 1), account.with_new_stats())
