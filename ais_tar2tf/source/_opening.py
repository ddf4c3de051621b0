"""From URLs to a source: which store, which names, which options."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.cache import aligned, cached
from ais_tar2tf.errors import TemplateError
from ais_tar2tf.indexing import place_at
from ais_tar2tf.locations import Locations, location_text
from ais_tar2tf.nearest import known_options_and_those_of, known_options_unlike_those_of
from ais_tar2tf.options import Cache, Limits, Retry, Timeouts, Tls
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Grouping, Record, Selection
from ais_tar2tf.shard_index import Index
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.source._arguments import read_options
from ais_tar2tf.source._naming import given_places, shard_names
from ais_tar2tf.source._source import Source
from ais_tar2tf.stores import Access, TokenSource, check_access, open_store

__all__ = ["index_shards", "iter_records", "open_source"]

_LISTABLE = frozenset({"ais", "az", "file", "gs", "memory", "s3"})  # in plain HTTP's URLs a `?` begins a query


@known_options_unlike_those_of(Source.dataset, Source.records)
def open_source(
    urls: Locations,
    *,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    fields: str | Sequence[str] | None = None,
    grouping: Grouping = "first-dot",
    on_error: OnError = "raise",
    limits: Limits | None = None,
    retry: Retry | None = None,
    timeouts: Timeouts | None = None,
    connections: int | None = None,
    tls: Tls | None = None,
    allow_missing_end: bool = False,
    allow_concatenated: bool = False,
    index: str | os.PathLike[str] | bool = True,
    cache: str | os.PathLike[str] | Cache | None = None,
) -> Source:
    """Shards by URL or path: a template, a folder or `prefix/`, a bucket, a glob, or a list of these.

    Of a folder, a bucket or a glob all shards are read, in natural order; `stats.left_out` counts the other files.

    `token`, for `ais://`: text, or a function that gives one and is asked again when it is refused.
    `cache`: a folder, `"memory"`, or `options.Cache`: where what was read is kept for the next epoch.
    `fields`: those that are read, as `select` takes them; the name of one, or a list.
    `index`: where `t2t.index` put one, if not beside the shards; False: none is looked for.

    >>> import ais_tar2tf as t2t
    >>> src = t2t.open("memory://doc/train-{0..3}.tar")
    >>> list(src.shards)[-1]
    'memory://doc/train-3.tar'
    """
    read = read_options(
        timeouts=timeouts,
        retry=retry,
        limits=limits,
        connections=connections,
        tls=tls,
        allow_missing_end=allow_missing_end,
        allow_concatenated=allow_concatenated,
    )
    places = given_places(urls)
    scheme, bucket, name = places[0]
    for other in places:
        if other[:2] != (scheme, bucket):
            several = len({place[:2] for place in places})
            raise TemplateError(f"one bucket or host at a time, not {several}: {shown_url(bucket)!r} …")
    where = name if scheme == "file" else f"{scheme}://{bucket}/{name}"
    _check_access(where, index, endpoint, token)
    store = open_store(scheme, bucket, read, endpoint=endpoint, token=token)
    account = Account(on_error)
    templates = [name for *_, name in places]
    names = shard_names(store, templates, read.limits, account, listable=scheme in _LISTABLE)
    if cache is not None:
        store, read = cached(store, cache, account), aligned(read)
    selection = Selection(fields) if fields is not None else None
    shards = Shards(store, names, read, grouping, selection)
    place = None if isinstance(index, bool) else place_at(index, shards, endpoint=endpoint, token=token)
    access = Access(scheme, endpoint, token)
    return Source(shards, account, index=place if place is not None else bool(index), access=access)


def _check_access(where: str, index: object, endpoint: str | None, token: TokenSource | None) -> None:
    """Refuse what has no effect on the shards, nor on an index that is elsewhere."""
    elsewhere = [] if isinstance(index, bool) else [location_text(index, "index= is a path or a URL")]
    check_access(where, *elsewhere, endpoint=endpoint, token=token)


@known_options_and_those_of(open_source)
def index_shards(
    urls: Locations,
    out: str | os.PathLike[str] | None = None,
    *,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    progress: bool | None = None,
    counts_only: bool = False,
    **options: Any,
) -> Index:
    """Write an index of shards beside them, or to `out`; entries that are there and still true are kept.

    `out` may be a folder, a file, or a file that ends in .json: that becomes a `wids-shard-index-v1`, which counts
    records and no more. `counts_only`: lengths are all that is wanted; AIStore then lists what is in its shards, and
    none of them is read.
    """
    place = False if out is None else out  # which may be where the endpoint is of
    with open_source(urls, endpoint=endpoint, token=token, index=place, **options) as source:
        return source.write_index(out, endpoint=endpoint, token=token, progress=progress, counts_only=counts_only)


@known_options_and_those_of(open_source)
def iter_records(urls: Locations, **options: Any) -> Iterator[Record]:
    """The records of shards by URL, one after the other; options as `open` takes them."""
    return _closing(open_source(urls, **options))


def _closing(source: Source) -> Iterator[Record]:
    with source:
        yield from source.records()
