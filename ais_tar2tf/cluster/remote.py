"""The documented client's `remote_exec`: whether a cluster can do the work, and how what it did is read.

An ETL is found by its definition's name. It is made by `etl.start`, not by a reader: it takes an image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.archive import ShardArchive
from ais_tar2tf.cluster.etl.client import running
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.decoders import Decoder
from ais_tar2tf.errors import SchemaError, StoreError, Tar2TFError
from ais_tar2tf.fetch import Fetch, Span
from ais_tar2tf.headers import array_header
from ais_tar2tf.ops import Pipeline, SelectDict, SelectList
from ais_tar2tf.options import Tls
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source
from ais_tar2tf.stores import TokenSource

__all__ = ["Choice", "Leaves", "choose", "in_memory", "payloads", "source_of"]


@dataclass(frozen=True)
class Choice:
    """Where the work is done, and why."""

    etl: str | None
    said: str


def choose(
    define: Callable[[], Definition],
    wanted: bool | None,
    *,
    endpoint: str | None,
    token: TokenSource | None,
    tls: Tls,
) -> Choice:
    """`wanted`: True raises what speaks against it, None takes it as the reason to work here, False asks nobody."""
    if wanted is False:
        return Choice(None, "here: remote_exec=False")
    try:
        definition = define()
        names = running(endpoint, token=token, tls=tls)
        if names is None:
            raise StoreError(
                "this cluster has no ETLs: AIStore needs to be built with -tags=etl and to run on Kubernetes",
                url=endpoint or "AIS_ENDPOINT",
            )
        if definition.name not in names:
            raise StoreError(
                f"no ETL {definition.name!r} runs there: AisDataset.transformer() is its definition; make an image "
                "from its containerfile(), and start it by cluster.etl.start(….spec(image=…))",
                url=endpoint or "AIS_ENDPOINT",
            )
    except Tar2TFError as error:
        if wanted:
            raise
        return Choice(None, f"here: {error}")
    return Choice(definition.name, f"in the cluster: by the ETL {definition.name!r}")


@dataclass(frozen=True)
class Leaves:
    """Selections taken apart: each value under a name of its own, and how they stand together again."""

    nest: Any
    fields: dict[str, Any]

    @classmethod
    def of(cls, pipeline: Pipeline | None) -> Leaves:
        if pipeline is None or not pipeline.selections:
            raise SchemaError("in the cluster selections say what comes back: give AisDataset selections=")
        fields: dict[str, Any] = {}

        def taken_apart(selection: Any) -> Any:
            if isinstance(selection, SelectDict):
                return {name: taken_apart(item) for name, item in selection.items}
            if isinstance(selection, SelectList):
                return tuple(taken_apart(item) for item in selection.items)
            name = f"v{len(fields)}"
            fields[name] = selection
            return name

        nest = tuple(taken_apart(selection) for selection in pipeline.selections)
        return cls(nest[0] if len(nest) == 1 else nest, fields)

    def definition(self, conversions: Sequence[Any], grouping: Any) -> Definition:
        return Definition.of(conversions, [SelectDict(self.fields)], None, "tar", grouping)

    def mapping(self, first: Record) -> tuple[tuple[str, ...], Callable[[Any], Any]]:
        """The members that hold the values, and from their tensors to what the selections give."""
        members: dict[str, str] = {}
        decoders: dict[str, Decoder] = {}
        for name in self.fields:
            members[name] = f"{name}.npy" if f"{name}.npy" in first else name
            if members[name] != name:
                header = array_header(first[members[name]])
                assert header is not None  # the service wrote it
                shape = (None,) * len(header.shape)
                decoders[name] = Decoder("npy", header.dtype, shape=shape)

        def put_together(nest: Any, record: Any) -> Any:
            if isinstance(nest, dict):
                return {name: put_together(item, record) for name, item in nest.items()}
            if isinstance(nest, tuple):
                return tuple(put_together(item, record) for item in nest)
            value = record[members[nest]]
            return decoders[nest].in_graph(value) if nest in decoders else value

        def mapped(record: Any) -> Any:
            return put_together(self.nest, record)

        return tuple(members.values()), mapped


def source_of(shards: Shards, on_error: OnError) -> Source:
    """The shards as an ETL gives them: whole answers, without lengths."""
    read = replace(shards.read, connections=1, most_connections=0)
    return Source(replace(shards, read=read, tuning=None), Account(on_error), index=False)


def in_memory(source: Source, leaves: Leaves, **options: Any) -> Any:
    """The dataset that the same conversions and selections would give here."""
    records = source.records()
    try:
        first = next(records, None)
    finally:
        records.close()  # type: ignore[attr-defined]  # a generator
    if first is None:
        raise SchemaError(f"{source!r} has no records, so what it gives is not known")
    fields, mapped = leaves.mapping(first)
    return source.select(*fields, in_cluster=False).dataset(mapped, **options)


def payloads(shards: Shards, account: Account) -> Iterator[bytes]:
    """The TFRecord payloads that an ETL makes of shards, their checksums verified."""
    limits, store = shards.read.limits, shards.store
    read = replace(shards.read, connections=1)
    fetch = Fetch(store, map(Span, shards.names), read, account)
    try:
        while (span := fetch.next_shard()) is not None:
            account.add(shards=1)
            archive = ShardArchive(store.url(span.name), limits)
            came = False
            while block := fetch.read():
                came = True
                for members in archive.feed(block):
                    data = members.data
                    for start, size in zip(members.starts, members.sizes, strict=True):
                        account.emitted(1)
                        yield bytes(data[start : start + size])
            if came:  # of a shard without records nothing comes
                archive.finish()
    finally:
        fetch.close()
