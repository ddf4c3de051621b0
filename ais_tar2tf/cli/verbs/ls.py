"""`ls`: list the objects of a bucket, a prefix, a glob or a template, or the buckets of a cluster."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ais_tar2tf.cli.command import Endpoint, Urls, verb
from ais_tar2tf.cli.console import Console, counted, json_text, quantity
from ais_tar2tf.errors import ShardNotFound

if TYPE_CHECKING:
    from ais_tar2tf.stores import ObjectInfo

__all__ = ["ls"]

_EVERY_BUCKET = "ais://"


@verb()
def ls(console: Console, urls: Urls, endpoint: Endpoint = None) -> None:
    """List objects and their sizes, or a cluster's buckets.

    ais:// alone lists the buckets of the cluster.

    Examples:
      ais-tar2tf ls ais://
      ais-tar2tf ls ais://imagenet
      ais-tar2tf ls 'ais://imagenet/train-{000..146}.tar'
      ais-tar2tf ls 'data/**/*.tar'
    """
    if urls == [_EVERY_BUCKET]:
        _list_buckets(console, endpoint)
        return
    from ais_tar2tf.cli.places import objects

    count = size = 0
    with console.progress("listing", counted="objects") as progress:
        found = objects(urls, endpoint, shards_only=False)
        for url, info in _print_json(found) if console.as_json else found:  # a listing is never held in memory
            count += 1
            size += info.size or 0
            progress.add(records=1, size=0)
            if not console.as_json:
                console.name(f"{quantity(info.size or 0):>9}  {url}")
    if console.as_json:
        sys.stdout.write(f'], "count": {count}, "bytes": {size}}}\n')
    if not count:
        raise ShardNotFound("there are no objects here", url=urls[0])
    console.note(f"{counted(count, 'object')}, {quantity(size)}")


def _list_buckets(console: Console, endpoint: str | None) -> None:
    from ais_tar2tf.stores.clusters import bucket_names

    names = bucket_names(endpoint)
    console.document({"buckets": names}, lambda: console.names(names))
    console.note(
        f"{counted(len(names), 'bucket')}; ais-tar2tf ls {names[0]}" if names else "there are no buckets yet"
    )


def _print_json(found: Iterator[tuple[str, ObjectInfo]]) -> Iterator[tuple[str, ObjectInfo]]:
    """Yield all objects; print each before it is yielded, as an entry of a JSON list that the caller must close."""
    first = next(found, None)  # before anything is printed, because most errors are raised here
    sys.stdout.write('{"objects": [')
    if first is None:
        return
    for number, (url, info) in enumerate(itertools.chain([first], found)):
        sys.stdout.write((",\n " if number else "\n ") + json_text({"url": url, "size": info.size}))
        yield url, info
