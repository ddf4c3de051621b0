"""Checks listings that servers return: names must be in order, confined to a folder, not too many and not too long.

This module must not do I/O.
"""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.base.urls.names import SafeName
from ais_tar2tf.errors import StoreError
from ais_tar2tf.options import Limits
from ais_tar2tf.stores.base import ObjectInfo

__all__ = ["MAX_EMPTY_PAGES", "WITHOUT_LISTING", "checked_listing"]

MAX_EMPTY_PAGES = 1_000
"""The most consecutive pages of a listing that may be empty.

A store may divide names into pages first, and then drop names by a filter. So a page may become empty.
"""

WITHOUT_LISTING = "to read without a listing, use a template, such as train-{000..146}.tar"
"""The end of an error about a listing: what to do next."""


def checked_listing(prefix: str, found: Iterator[ObjectInfo], url: str, limits: Limits) -> Iterator[ObjectInfo]:
    """Yield the objects of a listing whose names begin with `prefix`.

    Objects whose names end in a slash are left out, because they mark folders and hold no data.

    Args:
        prefix: The beginning of the names.
        found: All objects that the server lists, in the order of their names. Objects whose names do not begin with
            `prefix` may come first and last.
        url: The URL of the prefix, for errors.
        limits: The bounds on the number of names and on their length.

    Raises:
        StoreError: A name is repeated or out of order, so that names may be missing; there are too many names; or a
            name is too long.
        UnsafeName: A name is no `SafeName`: it could lead out of a folder, or has an empty part or a part `.`.
    """
    where = f"the listing of {url}"
    for info in _in_order(found, url, limits):
        if info.name.startswith(prefix):
            if not info.name.endswith("/"):
                SafeName(info.name, where=where)
                yield info
        elif info.name > prefix:
            return


def _in_order(found: Iterator[ObjectInfo], url: str, limits: Limits) -> Iterator[ObjectInfo]:
    last: str | None = None
    for number, info in enumerate(found, 1):
        if number > limits.listed:
            raise StoreError(
                f"the listing shows over {limits.listed:,} names, Limits.listed; list a longer prefix", url=url
            )
        if len(info.name) > limits.name_bytes:
            raise StoreError(
                f"the listing shows a name of {len(info.name):,} characters, Limits.name_bytes is "
                f"{limits.name_bytes:,}",
                url=url,
            )
        if last is not None and info.name <= last:
            raise StoreError(
                f"the listing shows {info.name!r} after {last!r}: its pages overlap or are not in the order of "
                f"names, so objects may be missing or repeated; {WITHOUT_LISTING}",
                url=url,
            )
        last = info.name
        yield info
