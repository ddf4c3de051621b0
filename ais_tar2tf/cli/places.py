"""URLs on the command line: the store that each names, and the objects in it. This module must not read shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.base.urls.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.base.urls.templates import expand, unescape
from ais_tar2tf.cli.choices import GROUPINGS
from ais_tar2tf.errors import OptionError, TemplateError
from ais_tar2tf.options import Read
from ais_tar2tf.stores import ObjectInfo, Store, has_listing, open_store, split_url
from ais_tar2tf.streams.listing import is_shard

__all__ = [
    "as_listed",
    "check_written",
    "chosen_fields",
    "chosen_grouping",
    "extent",
    "objects",
    "store_of",
]


def store_of(url: str, endpoint: str | None) -> tuple[Store, str]:
    """Open the store that a URL names, and return it with the name in the store."""
    scheme, bucket, name = split_url(url)
    return open_store(scheme, bucket, Read(), endpoint=endpoint), name


def as_listed(url: str) -> str:
    """Return a URL; a bucket or a local folder gets a final slash.

    >>> as_listed("ais://imagenet"), as_listed("ais://imagenet/train-{0..3}.tar")
    ('ais://imagenet/', 'ais://imagenet/train-{0..3}.tar')
    """
    scheme, bucket, name = split_url(url)
    if bucket and not name and has_listing(url):
        return f"{scheme}://{bucket}/"
    return url.rstrip("/") + "/" if scheme == "file" and Path(name).is_dir() else url


def chosen_fields(fields: str | None) -> list[str] | None:
    """Return the fields of a list that is separated by commas.

    >>> chosen_fields("jpg, cls?")
    ['jpg', 'cls?']
    """
    if fields is None:
        return None
    named = [field.strip() for field in fields.split(",") if field.strip()]
    if not named:
        raise OptionError(f"--fields names no field: {fields!r}; say them as jpg,cls")
    return named


def chosen_grouping(grouping: str | None) -> str:
    """Return the grouping that was given, or the default; refuse an unknown word.

    >>> chosen_grouping(None), chosen_grouping("last-dot")
    ('first-dot', 'last-dot')
    """
    chosen = grouping or GROUPINGS[0]
    check_choice("--grouping", chosen, GROUPINGS)
    return chosen


def check_written(url: str, what: str) -> None:
    """Refuse to write to plain HTTP; `what` names the argument."""
    if not has_listing(url):
        raise OptionError(
            f"{what} is a folder or a bucket, as ais://bucket/; plain HTTP is only read: {shown_url(url)}"
        )


def objects(
    urls: Sequence[str], endpoint: str | None, *, shards_only: bool = True
) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield (URL, information) of all objects that the URLs name. Hold only one page of a listing in memory.

    Args:
        urls: Templates, prefixes, globs, buckets or folders.
        endpoint: The value of --endpoint.
        shards_only: Whether to leave out objects that are no shards, by their names.
    """
    for url in map(as_listed, urls):
        store, name = store_of(url, endpoint)
        with closing(store):
            for info in _named(store, name, listable=has_listing(url)):
                if not shards_only or is_shard(info.name):
                    yield store.url(info.name), info


def extent(urls: Sequence[str], endpoint: str | None) -> tuple[int, int]:
    """Return how many shards the URLs name, and the sum of their bytes."""
    shards = size = 0
    for _, info in objects(urls, endpoint):
        shards += 1
        size += info.size or 0
    return shards, size


def _named(store: Store, template: str, *, listable: bool) -> Iterator[ObjectInfo]:
    from ais_tar2tf.streams.naming import refuse_folder

    limit = Read().limits.template
    if listable and not template:
        yield from store.list("")
        return
    if not template:
        raise TemplateError("plain HTTP has no listing: name the shards, as 'http://host/train-{0..9}.tar'")
    for pattern in expand(template, limit=limit, keep_escapes=True):
        if listable and is_glob(pattern):
            matches = glob_match(pattern)
            yield from (info for info in store.list(glob_prefix(pattern)) if matches(info.name))
        elif listable and is_prefix(pattern):
            yield from store.list(glob_prefix(pattern))
        else:
            if listable:
                refuse_folder(store, unescape(pattern))
            yield store.head(unescape(pattern) if listable else pattern)
