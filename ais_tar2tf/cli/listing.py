"""`ls`: what a bucket, a prefix, a glob or a template names, with sizes; of a cluster, its buckets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ais_tar2tf.cli.console import Console, counted, json_text, quantity
from ais_tar2tf.cli.verbs import Endpoint, Json, Quiet, Urls, Verbose, verb
from ais_tar2tf.errors import ShardNotFound

if TYPE_CHECKING:
    from ais_tar2tf.stores import ObjectInfo

__all__ = ["ls"]

_EVERY_BUCKET = "ais://"


@verb
def ls(
    urls: Urls, endpoint: Endpoint = None, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = 0
) -> None:
    """List shards and their sizes, or buckets.

    \b
    Examples:
      ais-tar2tf ls ais://
      ais-tar2tf ls ais://imagenet
      ais-tar2tf ls 'ais://imagenet/train-{000..146}.tar'
      ais-tar2tf ls 'data/**/*.tar'
    """
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if urls == [_EVERY_BUCKET]:
        _list_buckets(console, endpoint)
        return
    from ais_tar2tf.cli.places import objects

    count = size = 0
    with console.progress("listing", counted="objects") as progress:
        for url, info in _told(objects(urls, endpoint, shards_only=False), console):
            count += 1
            size += info.size or 0
            progress.add(1, 0)
            if not as_json:
                console.name(f"{quantity(info.size or 0):>9}  {url}")
    if as_json:
        sys.stdout.write(f'], "count": {count}, "bytes": {size}}}\n')
    if not count:
        raise ShardNotFound("nothing is there", url=urls[0])
    console.note(f"{counted(count, 'object')}, {quantity(size)}")


def _list_buckets(console: Console, endpoint: str | None) -> None:
    from ais_tar2tf.stores.ais import bucket_names

    names = bucket_names(endpoint)

    def shown() -> None:
        for each in names:
            console.name(each)

    console.document({"buckets": names}, shown)
    console.note(
        f"{counted(len(names), 'bucket')}; ais-tar2tf ls {names[0]}" if names else "there are no buckets yet"
    )


def _told(found: Iterator[tuple[str, ObjectInfo]], console: Console) -> Iterator[tuple[str, ObjectInfo]]:
    """As JSON while they come: a listing is never held whole."""
    if console.as_json:
        first = next(found, None)  # before anything is printed: most errors come here
        sys.stdout.write('{"objects": [')
        found = iter(()) if first is None else _chain(first, found)
    for at, (url, info) in enumerate(found):
        if console.as_json:
            sys.stdout.write((",\n " if at else "\n ") + json_text({"url": url, "size": info.size}))
        yield url, info


def _chain(
    first: tuple[str, ObjectInfo], others: Iterator[tuple[str, ObjectInfo]]
) -> Iterator[tuple[str, ObjectInfo]]:
    yield first
    yield from others
