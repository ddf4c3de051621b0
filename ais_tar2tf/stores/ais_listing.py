"""Parses the pages of AIStore's listings, and refuses a listing that may lose names between two pages.

AIStore (1.5) walks through folders entry by entry: the folder `a`, with all of its names such as `a/1`, comes before
`a-1`. But AIStore begins a page with the names that are greater than the last name of the previous page, and `a-1` is
less than `a/1`. So after a page that ends within the folder `a/`, AIStore loses each name that begins with `a` and a
character that sorts before the slash, such as `-`. At the end of each page, `all_entries` looks for such names, and
raises an error if there are any.

This module must not send requests by itself: its callers pass a function that requests a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from ais_tar2tf.base.documents.structure import Fail, Mismatch, check, fields, listed, maybe, text
from ais_tar2tf.errors import StoreError
from ais_tar2tf.stores.base import Identity, ObjectInfo
from ais_tar2tf.stores.listing import MAX_EMPTY_PAGES, WITHOUT_LISTING
from ais_tar2tf.stores.transport.answers import parsed_json

__all__ = ["all_entries", "not_aistore", "read_page"]

_Page = tuple[list[ObjectInfo], str]
"""The objects of a page, and the token of the next page; the token is empty after the last page."""

_SIZE = re.compile("[0-9]{1,18}")
_BELOW_SLASH = "".join(map(chr, range(ord(" "), ord("/"))))  # the printable characters that sort before the slash


def all_entries(prefix: str, ask: Callable[[str, str], _Page], url: str) -> Iterator[ObjectInfo]:
    """Yield the objects of a listing page by page; the last page may be empty.

    If there is a folder `a/`, AIStore lists nothing but this folder for the prefix `a`. So this function asks for the
    whole folder that contains the prefix, and also yields names that do not begin with `prefix`.

    Args:
        prefix: The beginning of the names.
        ask: Returns the page for a prefix and a token.
        url: The URL of the prefix, for errors.

    Raises:
        StoreError: The pages do not end, or AIStore may have lost names between two pages.
    """
    token, last, folder, empty = "", "", prefix[: prefix.rfind("/") + 1], 0
    complete: set[str] = set()  # the folders for which lost names were looked for
    while True:
        entries, following = ask(folder, token)
        empty = 0 if entries else empty + 1
        if following and (following == token or empty > MAX_EMPTY_PAGES):
            what = "its continuation token repeats" if following == token else f"{empty:,} pages are empty"
            raise StoreError(f"the listing does not go on: {what}; {WITHOUT_LISTING}", url=url)
        if entries and following:
            for name in _names_at_risk(entries[-1].name, folder, prefix, complete):
                for info in ask(name, "")[0]:
                    if info.name.startswith(name):  # for some prefixes, AIStore also lists other names
                        raise _lossy(info.name, entries[-1].name, url)
        for info in entries:
            if (token or following) and _is_lossy(last, info.name):
                raise _lossy(last, info.name, url)
            last = info.name
            yield info
        if not following:
            return
        token = following


def _names_at_risk(last: str, folder: str, prefix: str, complete: set[str]) -> Iterator[str]:
    """Yield the beginnings of names that AIStore loses after a page that ends with the name `last`.

    If the page ends with `a/1`, these beginnings are `a` followed by each character of `_BELOW_SLASH`. Only
    beginnings that fit `prefix` are yielded. The set `complete` contains the folders that earlier calls have handled.
    This function leaves out these folders, and adds the folders that it handles.
    """
    at = last.find("/", len(folder))
    while at >= 0:
        if last[:at] not in complete:
            complete.add(last[:at])
            names = (last[:at] + character for character in _BELOW_SLASH)
            yield from (name for name in names if name.startswith(prefix) or prefix.startswith(name))
        at = last.find("/", at + 1)


def _lossy(name: str, other: str, url: str) -> StoreError:
    return StoreError(
        f"AIStore may leave out names between the pages of a listing that has {name!r} and {other!r}; name the "
        "shards, or list one folder (pages: Limits.listing_page)",
        url=url,
    )


def _is_lossy(name: str, following: str) -> bool:
    """Return whether two neighbours in a listing are `a-…` and `a/…`, in this order.

    The `-` may also be another character that sorts before the slash. AIStore sorts the names of each page, so such
    neighbours show that the bucket has both a folder `a/` and names like `a-…`. In a listing of several pages,
    AIStore may then have lost names between two pages.

    >>> _is_lossy("x/a-1.tar", "x/a/1.tar"), _is_lossy("x/a/1.tar", "x/b.tar"), _is_lossy("x/a-1.tar", "x/b/1.tar")
    (True, False, False)
    """
    differ = ((ours, theirs) for ours, theirs in zip(name, following, strict=False) if ours != theirs)
    ours, theirs = next(differ, ("", ""))
    return theirs == "/" and ours < theirs


def read_page(content: bytes, url: str) -> _Page:
    """Parse a page of a listing. Errors name `url`.

    Raises:
        StoreError: The answer is not a page of a listing.
    """
    answer = parsed_json(content, "listing", url)
    page = check(answer, _PAGE, where=url, fail=not_aistore(url, "the answer is no listing"))
    return page.get("entries") or [], page.get("continuation_token") or ""


def not_aistore(url: str, what: str) -> Fail:
    """Return a function that makes the error for an answer that no AIStore proxy sends."""
    return lambda why: StoreError(f"{what}; is the endpoint an AIStore proxy? ({why})", url=url)


def _entry(value: Any) -> ObjectInfo:
    """Parse an entry of a listing. AIStore leaves out the fields of an entry that are empty or zero."""
    if not isinstance(value, dict):
        raise Mismatch("an object is expected", value)
    entry = cast("dict[str, Any]", value)
    name, version, digits = text(entry.get("name")), text(entry.get("version", "")), str(entry.get("size", "0"))
    if _SIZE.fullmatch(digits) is None:
        raise Mismatch("a size is expected", digits)
    size = int(digits)
    return ObjectInfo(name, size, Identity(version=version, size=size))


_PAGE = fields({}, {"entries": maybe(listed(_entry)), "continuation_token": maybe(text)})
