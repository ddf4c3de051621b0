"""`t2t.open`: turn URLs into a `Source`, which has a store, the names of shards, and options.

`OpenOptions` declares the options of every reader of shards, with their defaults and their documentation. To add an
option, add a field to `OpenOptions`, and a key to one of the TypedDicts above that class. If the option becomes a
field of `options.Read`, add the key to `options.ReadKeywords` instead, with the name of the field. This module must
not read records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from ais_tar2tf.base.monitoring.stats import Account, OnError
from ais_tar2tf.base.nearest import known_options_and_those_of, known_options_with_hints_to
from ais_tar2tf.base.shared_options import takes_options_of
from ais_tar2tf.base.urls.locations import Locations, location_text
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.errors import TemplateError
from ais_tar2tf.options import Cache, Limits, Read, ReadKeywords, Retry, Timeouts, Tls
from ais_tar2tf.records import Grouping, Record, Selection
from ais_tar2tf.source.index_lookup import IndexLookup
from ais_tar2tf.source.opened import OpenedShards
from ais_tar2tf.source.source import Source
from ais_tar2tf.stores import Access, TokenSource, check_access, has_listing, open_store
from ais_tar2tf.stores.cache import aligned_to_blocks, cached
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.streams.index.files import place_at
from ais_tar2tf.streams.index.shards import Index
from ais_tar2tf.streams.naming import shard_names, split_locations
from ais_tar2tf.streams.reader import ReadSession, Shards

__all__ = [
    "LocatedKeywords",
    "OpenKeywords",
    "OpenOptions",
    "ReaderKeywords",
    "index_shards",
    "iter_records",
    "open_source",
]


class ReaderKeywords(ReadKeywords, total=False):
    """The options that every reader of shards takes: `t2t.open`, `AisDataset`, `t2t.index` and so on."""

    grouping: Grouping
    on_error: OnError
    cache: str | os.PathLike[str] | Cache | None


class LocatedKeywords(ReaderKeywords, total=False):
    """The options of readers that accept `endpoint`, `token` and `index`, but not `fields`."""

    endpoint: str | None
    token: TokenSource | None
    index: str | os.PathLike[str] | bool


class OpenKeywords(LocatedKeywords, total=False):
    """The options of `t2t.open`."""

    fields: str | Sequence[str] | None


@dataclass(frozen=True, kw_only=True)
class OpenOptions:
    """The options of `t2t.open`. `AisDataset` takes most of them, too.

    Attributes:
        endpoint: The URL of the AIStore proxy, or of the cloud's endpoint. Default: from the environment variables.
        token: An AuthN token for `ais://`, or a function that returns one. If the store refuses a token, the
            function is called again.
        fields: The fields to read, as `Source.select` takes them: one name, or a list. Default: all fields.
        grouping: How members become records. `"first-dot"`: the key ends at the first dot of the file's name, so that
            `7.seg.png` is the field `seg.png` of record `7`. `"last-dot"`: the key ends at the last dot. A
            function: it gets the name of a member, and returns the key and the field.
        on_error: What happens after an error: `"raise"`, `"skip-record"`, `"skip-shard"`, or a function that gets the
            error and returns whether to skip.
        limits: Bounds on sizes, counts and memory. Data that exceed a bound raise an error that names the bound.
        retry: How often a failed request is repeated, and after which delays.
        timeouts: How long to wait for a server.
        connections: The number of simultaneous connections of a stream. Default: 2 at first, and up to 8 as long as
            more connections make reading faster.
        tls: The certificates to trust, and the certificate to present.
        allow_missing_end: Accept a tar that ends between two members, without its end mark.
        allow_concatenated: Continue after a tar's end mark if another tar follows, as in the output of
            `cat a.tar b.tar`.
        index: The path or URL to which `t2t.index` wrote the index. True: use the index next to the shards, if there
            is one. False: use no index.
        cache: Where to keep shards for the next epoch: a folder, `"memory"` or an `options.Cache`. Default: no cache.
    """

    endpoint: str | None = None
    token: TokenSource | None = None
    fields: str | Sequence[str] | None = None
    grouping: Grouping = "first-dot"
    on_error: OnError = "raise"
    limits: Limits | None = None
    retry: Retry | None = None
    timeouts: Timeouts | None = None
    connections: int | None = None
    tls: Tls | None = None
    allow_missing_end: bool = Read.allow_missing_end
    allow_concatenated: bool = Read.allow_concatenated
    index: str | os.PathLike[str] | bool = True
    cache: str | os.PathLike[str] | Cache | None = None

    @property
    def read(self) -> Read:
        """The options as `options.Read`. With a cache, each requested range consists of whole blocks of the cache."""
        read = read_options(**{name: getattr(self, name) for name in ReadKeywords.__annotations__})
        return read if self.cache is None else aligned_to_blocks(read)


@known_options_with_hints_to(Source.dataset, Source.records)
@takes_options_of(OpenOptions, OpenKeywords)
def open_source(urls: Locations, **options: Unpack[OpenKeywords]) -> Source:
    """Open shards by URL or path.

    A folder, a bucket or a glob stands for all its shards, in natural order. `stats.left_out` counts the files that
    are not shards. No shard is read before records are requested.

    Args:
        urls: A template such as `train-{000..146}.tar`, a folder or `prefix/`, a bucket, a glob, or a list of these.
        **options: See `OpenOptions`.

    Returns:
        The shards as a `Source`, which iterates over records and makes datasets.

    Raises:
        OptionError: An option has a wrong value, or no effect.
        TemplateError: The template is malformed, or the URLs are of several buckets or hosts.
        ShardNotFound: A folder or a glob has no shards.
        StoreError: The store is unknown, or cannot be listed.

    Example:
        >>> import ais_tar2tf as t2t
        >>> src = t2t.open("memory://doc/train-{0..3}.tar")
        >>> list(src.shards)[-1]
        'memory://doc/train-3.tar'
    """
    given = OpenOptions(**options)
    read, endpoint, token = given.read, given.endpoint, given.token
    places = split_locations(urls)
    scheme, bucket, name = places[0]
    for other in places:
        if other[:2] != (scheme, bucket):
            several = len({place[:2] for place in places})
            raise TemplateError(f"one bucket or host at a time, not {several}: {shown_url(bucket)!r} …")
    where = name if scheme == "file" else f"{scheme}://{bucket}/{name}"
    elsewhere = [] if isinstance(given.index, bool) else [location_text(given.index, "index= is a path or a URL")]
    check_access(where, *elsewhere, endpoint=endpoint, token=token)
    store = open_store(scheme, bucket, read, endpoint=endpoint, token=token)
    account = Account(given.on_error)
    templates = [name for *_, name in places]
    names = shard_names(store, templates, read.limits, account, listable=has_listing(f"{scheme}://"))
    if given.cache is not None:
        store = cached(store, given.cache, account)
    selection = None if given.fields is None else Selection(given.fields)
    shards = Shards(store, names, read, given.grouping, selection)
    index = given.index
    place = index if isinstance(index, bool) else place_at(index, shards, endpoint=endpoint, token=token)
    return Source(
        OpenedShards(
            session=ReadSession(shards),
            index=IndexLookup(shards, place),
            account=account,
            access=Access(scheme, endpoint, token),
        )
    )


@known_options_and_those_of(open_source)
def index_shards(
    urls: Locations,
    out: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    progress: bool | None = None,
    counts_only: bool = False,
    **options: Unpack[ReaderKeywords],
) -> Index:
    """Write an index of shards. It states how many records each shard has, and where each record begins.

    The entry of a shard in an existing index is kept if the shard has not changed.

    Args:
        urls: The shards, as `t2t.open` takes them.
        out: The folder or file to write to. If the name ends in `.json`, the index is a `wids-shard-index-v1`, which
            states only how many records each shard has. Default: next to the shards.
        endpoint: As `t2t.open` takes it.
        token: As `t2t.open` takes it.
        progress: Whether to show a progress bar. Default: only on a terminal.
        counts_only: Only count the records. AIStore then lists the members of its shards, and a shard in AIStore is
            read only if this list is not enough.
        **options: Further options, as `t2t.open` takes them.

    Returns:
        The index.

    Raises:
        SchemaError: The grouping is a function. An index can state only a grouping with a name.
        ExportError: `out` is an existing file that is no index.
        StoreError: A shard cannot be read, or the index cannot be written.
        ArchiveError: A shard is damaged.
    """
    # The endpoint and the token may be meant only for the store of `out`. So `out` is passed as `index`: otherwise
    # `open_source` would refuse an endpoint or a token that no store of `urls` uses.
    place = False if out is None else out
    with open_source(urls, endpoint=endpoint, token=token, index=place, **options) as source:
        return source.write_index(out, endpoint=endpoint, token=token, progress=progress, counts_only=counts_only)


@known_options_and_those_of(open_source)
def iter_records(urls: Locations, **options: Unpack[OpenKeywords]) -> Iterator[Record]:
    """Open shards, read all their records one after the other, and close the shards at the end.

    Args:
        urls: The shards, as `t2t.open` takes them.
        **options: Further options, as `t2t.open` takes them.

    Returns:
        An iterator over records, as `Source.records` returns it.

    Raises:
        OptionError: An option has a wrong value, or no effect.
        StoreError: A shard cannot be read.
        ArchiveError: A shard is damaged.
    """
    return _closing(open_source(urls, **options))


def _closing(source: Source) -> Iterator[Record]:
    with source:
        yield from source.records()
