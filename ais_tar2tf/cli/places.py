"""What a URL of the command line names: a store, and the objects there with their sizes. It reads no shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ais_tar2tf.errors import OptionError, TemplateError
from ais_tar2tf.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.listing import is_shard
from ais_tar2tf.nearest import check_choice
from ais_tar2tf.options import Read
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores import ObjectInfo, Store, open_store, split_url
from ais_tar2tf.templates import expand, unescape

__all__ = [
    "GROUPINGS",
    "as_listed",
    "check_written",
    "chosen_fields",
    "chosen_grouping",
    "extent",
    "objects",
    "store_of",
]

GROUPINGS = ("first-dot", "last-dot")
_PLAIN_HTTP = frozenset({"http", "https"})  # whose URLs have queries where others have globs, and no listing


def store_of(url: str, endpoint: str | None, read: Read | None = None) -> tuple[Store, str]:
    """The store that a URL is in, and the name within it."""
    scheme, bucket, name = split_url(url)
    return open_store(scheme, bucket, read or Read(), endpoint=endpoint), name


def as_listed(url: str) -> str:
    """A bucket or a folder that is named without its slash is meant with it.

    >>> as_listed("ais://imagenet"), as_listed("ais://imagenet/train-{0..3}.tar")
    ('ais://imagenet/', 'ais://imagenet/train-{0..3}.tar')
    """
    scheme, bucket, name = split_url(url)
    if bucket and not name and scheme not in _PLAIN_HTTP:
        return f"{scheme}://{bucket}/"
    return url.rstrip("/") + "/" if scheme == "file" and Path(name).is_dir() else url


def chosen_fields(fields: str | None) -> list[str] | None:
    """The fields of a list with commas.

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
    """The grouping that was given, or the one that is usual; an OptionError when there is none of that name.

    >>> chosen_grouping(None), chosen_grouping("last-dot")
    ('first-dot', 'last-dot')
    """
    chosen = grouping or GROUPINGS[0]
    check_choice("--grouping", chosen, GROUPINGS)
    return chosen


def check_written(url: str, what: str) -> None:
    """Refuse a place that is only read."""
    scheme, *_ = split_url(url)
    if scheme in _PLAIN_HTTP:
        raise OptionError(
            f"{what} is a folder or a bucket, as ais://bucket/; plain HTTP is only read: {shown_url(url)}"
        )


def objects(
    urls: Sequence[str], endpoint: str | None, *, shards_only: bool = True
) -> Iterator[tuple[str, ObjectInfo]]:
    """(URL, what the store says) of everything that the URLs name, in order; one page of a listing at a time.

    `shards_only` leaves out what is no shard, as `open` does.
    """
    for url in map(as_listed, urls):
        store, name = store_of(url, endpoint)
        try:
            for info in _named(store, name, listable=split_url(url)[0] not in _PLAIN_HTTP):
                if not shards_only or is_shard(info.name):
                    yield store.url(info.name), info
        finally:
            store.close()


def extent(urls: Sequence[str], endpoint: str | None) -> tuple[int, int]:
    """How many shards the URLs name, and their bytes."""
    shards = size = 0
    for _, info in objects(urls, endpoint):
        shards += 1
        size += info.size or 0
    return shards, size


def _named(store: Store, template: str, *, listable: bool) -> Iterator[ObjectInfo]:
    from ais_tar2tf.source import refuse_folder

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
