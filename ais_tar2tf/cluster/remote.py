"""`remote_exec` of `AisDataset`: decides whether an ETL in the cluster converts the shards, and reads its output.

An ETL is recognized by the name of its definition. This module must not start an ETL, because that needs a container
image (`etl.start`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Unpack

from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.base.monitoring.stats import Account, OnError
from ais_tar2tf.cluster.etl.client import no_etls, running
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.errors import SchemaError, StoreError, Tar2TFError
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.ops import Pipeline, SelectDict, SelectList
from ais_tar2tf.options import Tls
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source
from ais_tar2tf.source.dataset_options import DatasetKeywords
from ais_tar2tf.source.index_lookup import IndexLookup
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.stores import TokenSource
from ais_tar2tf.streams.reader import ReadSession, Shards
from ais_tar2tf.values.decoders import Decoder
from ais_tar2tf.values.file_headers import array_header

__all__ = ["ExecutionPlace", "Leaves", "choose", "converted", "payloads"]


@dataclass(frozen=True)
class ExecutionPlace:
    """The place where shards are converted, and the reason. `etl` is None when this process converts them."""

    etl: str | None
    reason: str


def choose(
    define: Callable[[], Definition],
    wanted: bool | None,
    *,
    endpoint: str | None,
    token: TokenSource | None,
    tls: Tls,
) -> ExecutionPlace:
    """Return whether an ETL converts the shards, or this process.

    Args:
        define: Returns the definition that the ETL must have; it may raise.
        wanted: False for this process, None for the ETL if it runs, True for the ETL or an error that tells why not.
        endpoint: The proxy's URL; AIS_ENDPOINT when left out.
        token: The AuthN token.
        tls: The options for the proxy's certificate.

    Raises:
        Tar2TFError: `wanted` is True, and no such ETL runs or can be defined.
    """
    if wanted is False:
        return ExecutionPlace(None, "here: remote_exec=False")
    try:
        definition = define()
        names = running(endpoint, token=token, tls=tls)
        if names is None:
            raise no_etls(endpoint or "AIS_ENDPOINT")
        if definition.name not in names:
            raise StoreError(
                f"no ETL {definition.name!r} runs there: AisDataset.transformer() is its definition; make an image "
                "from its containerfile(), and start it by cluster.etl.start(….spec(image=…))",
                url=endpoint or "AIS_ENDPOINT",
            )
    except Tar2TFError as error:
        if wanted:
            raise
        return ExecutionPlace(None, f"here: {error}")
    return ExecutionPlace(definition.name, f"in the cluster: by the ETL {definition.name!r}")


@dataclass(frozen=True)
class Leaves:
    """Nested selections, flattened so that a tar can hold the values as members.

    Attributes:
        nest: The structure of the selections, with the name of a value at each leaf.
        fields: The selection that gives each value, by name.
    """

    nest: Any
    fields: dict[str, Any]

    @classmethod
    def from_pipeline(cls, pipeline: Pipeline | None) -> Leaves:
        """Flatten the selections of a pipeline; refuse a pipeline without selections."""
        if pipeline is None or not pipeline.selections:
            raise SchemaError("in the cluster selections say what comes back: give AisDataset selections=")
        fields: dict[str, Any] = {}

        def flatten(selection: Any) -> Any:
            if isinstance(selection, SelectDict):
                return {name: flatten(item) for name, item in selection.items}
            if isinstance(selection, SelectList):
                return tuple(flatten(item) for item in selection.items)
            name = f"v{len(fields)}"
            fields[name] = selection
            return name

        nest = tuple(flatten(selection) for selection in pipeline.selections)
        return cls(nest[0] if len(nest) == 1 else nest, fields)

    def definition(self, conversions: Sequence[Any], grouping: Any) -> Definition:
        return Definition.of(conversions, [SelectDict(self.fields)], None, "tar", grouping)

    def mapping(self, first: Record) -> tuple[tuple[str, ...], Callable[[Any], Any]]:
        """Return the members that hold the values, and a function from their tensors to the nested selections.

        Args:
            first: A record of the ETL's output; it shows which values are arrays.
        """
        members: dict[str, str] = {}
        decoders: dict[str, Decoder] = {}
        for name in self.fields:
            members[name] = f"{name}.npy" if f"{name}.npy" in first else name
            if members[name] != name:
                header = array_header(first[members[name]])
                assert header is not None  # the service wrote it
                shape = (None,) * len(header.shape)
                decoders[name] = Decoder("npy", header.dtype, shape=shape)

        def unflatten(nest: Any, record: Any) -> Any:
            if isinstance(nest, dict):
                return {name: unflatten(item, record) for name, item in nest.items()}
            if isinstance(nest, tuple):
                return tuple(unflatten(item, record) for item in nest)
            value = record[members[nest]]
            return decoders[nest].decode_tensor(value) if nest in decoders else value

        return tuple(members.values()), lambda record: unflatten(self.nest, record)


def converted(session: ReadSession, on_error: OnError, leaves: Leaves, **options: Unpack[DatasetKeywords]) -> Any:
    """Return the dataset that the same conversions and selections would give in this process.

    `session` reads the ETL's output. Answers of an ETL have no length, so no ranges can be requested.
    """
    shards = session.shards
    shards = replace(shards, read=replace(shards.read, connections=1, most_connections=0))
    index, account = IndexLookup(shards, at=False), Account(on_error)
    source = Source(OpenedShards(session=session.over(shards), index=index, account=account))
    records = source.records()
    try:
        first = next(records, None)
    finally:
        records.close()  # type: ignore[attr-defined]  # a generator
    if first is None:
        raise SchemaError(f"{source!r} has no records, so what it gives is not known")
    members, mapping = leaves.mapping(first)
    return source.select(*members, in_cluster=False).dataset(mapping, **options)


def payloads(shards: Shards, account: Account) -> Iterator[bytes]:
    """Yield the payloads of the TFRecords that an ETL makes of shards, after verifying their checksums."""
    limits, store = shards.read.limits, shards.store
    read = replace(shards.read, connections=1)
    with closing(Fetcher(store, map(ShardRange, shards.names), read, account)) as fetch:
        while (span := fetch.next_shard()) is not None:
            account.add(shards=1)
            archive = ShardArchive(store.url(span.name), limits)
            empty = True
            while block := fetch.read():
                empty = False
                for members in archive.feed(block):
                    data = members.data
                    for start, size in zip(members.starts, members.sizes, strict=True):
                        account.add_emitted(1)
                        yield bytes(data[start : start + size])
            if not empty:  # a shard without records has empty output, which is no TFRecord file
                archive.finish()
