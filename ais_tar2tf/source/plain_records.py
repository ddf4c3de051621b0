"""Reads records as Python dicts, decoded or as bytes, in the order that the options select. Needs no TensorFlow."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import MappingError
from ais_tar2tf.records import Record
from ais_tar2tf.source.dataset_options import DatasetOptions
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.source.read_plan import plan_reading
from ais_tar2tf.stores import LocalFiles
from ais_tar2tf.streams.datasets import all_records
from ais_tar2tf.streams.datasets.loops import RecordLoop

if TYPE_CHECKING:
    from ais_tar2tf.values.decoders import Decode

__all__ = ["decoded_batches", "read_records"]


def read_records(opened: OpenedShards, options: DatasetOptions) -> Iterator[Any]:
    """Return the records of one source as dicts, or batches of these dicts."""
    loop = options.loop(options.strategy)
    if options.strategy is None and options.shard is None and loop.epochs == 1 and not loop.start_at:
        records = _all_records(opened)
    else:
        if options.strategy is not None:
            opened.account.stats.seed = loop.seed.value
        reading = plan_reading(opened, options.strategy, options.shard, options.even)
        records = loop.records(reading, opened.account)
    return decoded_batches(records, loop, options, opened, opened.account)


def decoded_batches(
    records: Generator[Record], loop: RecordLoop, options: DatasetOptions, sampled: OpenedShards, account: Account
) -> Iterator[Any]:
    """Decode records, and put them into batches, as far as the options ask for it.

    Args:
        records: The records, with bytes in their fields.
        loop: The size of the batches.
        options: How fields are decoded.
        sampled: The source whose first records show how to decode fields.
        account: Counts the records, and decides whether an error is raised or skips its record.
    """
    decode = options.decoding
    return loop.batched(records if decode is None else _decoded(records, decode, sampled, account))


def _all_records(opened: OpenedShards) -> Generator[Record]:
    """Return every record once, in the order of the shards."""
    shards = opened.with_members
    if shards is None:
        shards = opened.shards
        if shards.selection is not None and not isinstance(shards.store, LocalFiles):
            shards = replace(shards, unverified_index=opened.index.index_or_none())
    return all_records(opened.session.over(shards), opened.account)


def _decoded(records: Generator[Record], decode: Decode, sampled: OpenedShards, account: Account) -> Iterator[Record]:
    """Yield the decoded records. A record that cannot be decoded is left out if `account` skips it.

    An error closes `records`, so that the records before the failed one are counted.
    """
    from ais_tar2tf.values.decoders import choose_decoding

    decoding = choose_decoding(
        decode, lambda: sampled.sample.schema_to_decode(decode), names=lambda: sampled.sample.names
    )
    with closing(records):
        for record in records:
            try:
                decoded = decoding(record)
            except MappingError as error:
                account.take_back(error)
                continue
            yield decoded
