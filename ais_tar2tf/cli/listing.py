"""`ls`: what a bucket, a prefix, a glob or a template names, with sizes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ais_tar2tf.cli.console import Console, quantity
from ais_tar2tf.cli.verbs import Endpoint, Json, Quiet, Urls, Verbose, verb
from ais_tar2tf.errors import ShardNotFound

if TYPE_CHECKING:
    from ais_tar2tf.stores import ObjectInfo

__all__ = ["ls"]


@verb
def ls(
    urls: Urls, endpoint: Endpoint = None, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = 0
) -> None:
    """List shards and their sizes.

    Examples: ls ais://imagenet · ls 'ais://imagenet/train-{000..146}.tar' · ls 'data/**/*.tar'
    """
    from ais_tar2tf.cli.places import objects

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    count = size = 0
    with console.progress("listing", unit="objects") as meter:
        for url, info in _told(objects(urls, endpoint, shards_only=False), console):
            count += 1
            size += info.size or 0
            meter(1)
            if not as_json:
                console.data(f"{quantity(info.size or 0):>9}  {url}")
    if as_json:
        sys.stdout.write(f'], "count": {count}, "bytes": {size}}}\n')
    if not count:
        raise ShardNotFound("nothing is there", url=urls[0])
    console.note(f"{count:,} object{'s' if count != 1 else ''}, {quantity(size)}")


def _told(found: Iterator[tuple[str, ObjectInfo]], console: Console) -> Iterator[tuple[str, ObjectInfo]]:
    """As JSON while they come: a listing is never held whole."""
    if console.as_json:
        first = next(found, None)  # before anything is printed: most errors come here
        sys.stdout.write('{"objects": [')
        found = iter(()) if first is None else _chain(first, found)
    for at, (url, info) in enumerate(found):
        if console.as_json:
            sys.stdout.write((",\n " if at else "\n ") + json.dumps({"url": url, "size": info.size}))
        yield url, info


def _chain(
    first: tuple[str, ObjectInfo], others: Iterator[tuple[str, ObjectInfo]]
) -> Iterator[tuple[str, ObjectInfo]]:
    yield first
    yield from others
