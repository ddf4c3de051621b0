"""From URLs to a source: which store, which names, which options."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.cache import aligned, cached
from ais_tar2tf.errors import ShardNotFound, TemplateError
from ais_tar2tf.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.indexing import place_at
from ais_tar2tf.nearest import known_options, known_options_and_those_of
from ais_tar2tf.options import Cache, Limits, Retry, Timeouts, Tls
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Grouping, Record, Selection
from ais_tar2tf.shard_index import Index, is_beside
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.source._arguments import read_options
from ais_tar2tf.source._source import Source
from ais_tar2tf.stores import Store, TokenSource, open_store, split_url
from ais_tar2tf.templates import expand, unescape

__all__ = ["index_shards", "iter_records", "open_source", "shard_names"]

_LISTABLE = frozenset({"ais", "az", "file", "gs", "memory", "s3"})  # in plain HTTP's URLs a `?` begins a query


@known_options
def open_source(
    urls: str | Sequence[str],
    *,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    fields: Sequence[str] | None = None,
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
    """Shards by URL: a template, a list of them, a `prefix/`, or a glob.

    `token`, for `ais://`: text, or a function that gives one and is asked again when it is refused.
    `cache`: a folder, `"memory"`, or `options.Cache`: where what was read is kept for the next epoch.
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
    given = [urls] if isinstance(urls, str) else list(urls)
    if not given or not all(given):
        raise TemplateError("no shards are named: give a URL, a path, or a list of them")
    parts = [split_url(url) for url in given]
    places = {(scheme, bucket) for scheme, bucket, _ in parts}
    if len(places) > 1:
        raise TemplateError(f"one bucket or host at a time, not {len(places)}: {shown_url(given[0])!r} …")
    ((scheme, bucket),) = places
    store = open_store(scheme, bucket, read, endpoint=endpoint, token=token)
    account = Account(on_error)
    if cache is not None:
        store, read = cached(store, cache, account), aligned(read)
    names = shard_names(store, [name for *_, name in parts], read.limits, listable=scheme in _LISTABLE)
    selection = Selection(fields) if fields is not None else None
    shards = Shards(store, names, read, grouping, selection)
    place = None if isinstance(index, bool) else place_at(index, shards, endpoint=endpoint, token=token)
    return Source(shards, account, index=place if place is not None else bool(index))


@known_options_and_those_of(open_source)
def index_shards(
    urls: str | Sequence[str],
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
    source = open_source(urls, endpoint=endpoint, token=token, index=False, **options)
    with source:
        return source.write_index(out, endpoint=endpoint, token=token, progress=progress, counts_only=counts_only)


@known_options_and_those_of(open_source)
def iter_records(urls: str | Sequence[str], **options: Any) -> Iterator[Record]:
    """The records of shards by URL, one after the other; options as `open` takes them."""
    return _closing(open_source(urls, **options))


def _closing(source: Source) -> Iterator[Record]:
    with source:
        yield from source.records()


def shard_names(store: Store, templates: str | Sequence[str], limits: Limits, *, listable: bool) -> Sequence[str]:
    """The names that templates stand for; a prefix/ and a glob are resolved by listing."""
    given = [templates] if isinstance(templates, str) else list(templates)
    if not listable or not any(is_prefix(each) or is_glob(each) for each in given):
        return expand(templates if isinstance(templates, str) else given, limit=limits.template)
    names: list[str] = []
    for pattern in expand(given, limit=limits.template, keep_escapes=True):
        if not is_prefix(pattern) and not is_glob(pattern):
            names.append(unescape(pattern))
            continue
        found = _listed(store, pattern)
        before = len(names)
        for name in found:
            names.append(name)
            if len(names) > limits.template:
                raise TemplateError(f"{shown_url(pattern)!r} names over {limits.template:,} shards, Limits.template")
        if len(names) == before:
            raise ShardNotFound(f"nothing matches {pattern!r}", url=store.url(glob_prefix(pattern)))
    return names


def _listed(store: Store, pattern: str) -> Iterator[str]:
    matches: Callable[[str], bool] = glob_match(pattern) if is_glob(pattern) else bool
    for info in store.list(glob_prefix(pattern)):
        if matches(info.name) and not is_beside(info.name):
            yield info.name
