"""What a listing must be, whatever its server sends: in order, without an end only as far as bounds allow. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.errors import StoreError
from ais_tar2tf.names import SafeName
from ais_tar2tf.options import Limits
from ais_tar2tf.stores._base import ObjectInfo

__all__ = ["MOST_EMPTY", "below"]

MOST_EMPTY = 1_000
"""Pages without a name in a row; a store that looks for few names among many may send some."""


def below(prefix: str, found: Iterator[ObjectInfo], url: str, limits: Limits) -> Iterator[ObjectInfo]:
    """Yield the objects of a listing whose names begin with `prefix`.

    Names that end in a slash mark folders, and hold no data: they are left out.

    Args:
        prefix: What was listed.
        found: All objects that the server shows, page by page, among them perhaps some before and behind the prefix.
        url: What was listed, for errors.
        limits: Bounds the names, and how many there are.

    Raises:
        StoreError: A name comes twice or out of order, so that names may be lost or doubled; or there are too many.
        UnsafeName: The listing holds a name that could leave a folder it is joined to.
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
                f"the listing shows {info.name!r} behind {last!r}: its pages overlap or are not in the order of "
                "names, so names may be missing or come twice; name the shards",
                url=url,
            )
        last = info.name
        yield info
