"""One page of a bucket's names, in order; it must not hold more than the folders on the way to it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ais_tar2tf.server.archives import is_archive, joined, list_members
from ais_tar2tf.server.calls import whole_number
from ais_tar2tf.server.checksums import Checksums, Content
from ais_tar2tf.server.folder import TEMPORARY, Folder
from ais_tar2tf.server.refusals import bad_request, not_served, unreadable

__all__ = ["Listing", "Page", "page_as_json", "page_as_msgpack", "read_page"]

PAGE = 10_000  # names in a page at most, and when none is asked: AIStore's own
CACHED = 1 << 6  # a flag of every entry: the object is in the cluster
NOT_SERVED_FLAGS = 1 << 11 | 1 << 15  # not into folders, from an inventory
INSIDE = 1 << 3  # asked for: also the members of archives
IN_ARCHIVE, IS_ARCHIVE = 1 << 7, 1 << 9  # flags of such entries, and of the archive's own

_SHORT = {"name": "n", "checksum": "cs", "version": "v", "location": "t", "size": "s", "copies": "c", "flags": "f"}


@dataclass(frozen=True, slots=True)
class Listing:
    """What a client asks for: names that begin with `prefix` and come after `after`."""

    prefix: str
    after: str
    size: int
    props: frozenset[str]
    inside: bool = False

    @classmethod
    def of(cls, value: Mapping[str, object]) -> Listing:
        """Read the value of a list action.

        >>> Listing.of({"prefix": "train-", "pagesize": 2}).size
        2
        """
        if whole_number(value, "flags") & NOT_SERVED_FLAGS:
            raise not_served("a listing with these flags")
        if isinstance(value.get("pagesize"), str):
            raise unreadable("list (map[string]interface {}), err: apc.LsoMsg.PageSize: a number is expected")
        size = whole_number(value, "pagesize")
        if size < 0:
            raise bad_request(f"pagesize must be zero or more, not {size}")
        return cls(
            prefix=str(value.get("prefix") or ""),
            after=max(str(value.get("continuation_token") or ""), str(value.get("start_after") or "")),
            size=min(size or PAGE, PAGE),
            props=frozenset(str(value.get("props") or "name,size").replace(" ", "").split(",")),
            inside=bool(whole_number(value, "flags") & INSIDE),
        )


Entry = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Page:
    """Entries in order. A full page has a token, even when nothing follows: the last page may be empty."""

    entries: list[Entry]
    token: str


def read_page(folder: Folder, sums: Checksums, bucket: str, listing: Listing, *, location: str) -> Page:
    files = _walk(folder, str(folder.bucket(bucket)), listing)
    entries: list[Entry] = []
    for name, path in islice(files, listing.size):
        entries.append(_entry(folder, sums, bucket, name, path, listing.props, location))
        if listing.inside and is_archive(name):
            entries += _inside(entries[-1], path)
        if len(entries) >= listing.size:
            break
    if listing.inside:
        # As a real cluster: what does not fit on the page on which its archive begins, is on no page.
        entries = sorted(entries, key=lambda entry: str(entry["name"]))[: listing.size]
    return Page(entries, str(entries[-1]["name"]) if len(entries) == listing.size else "")


def page_as_json(page: Page, uuid: str) -> dict[str, object]:
    entries = [{**entry, "size": str(entry["size"])} if "size" in entry else entry for entry in page.entries]
    return {"uuid": uuid, "continuation_token": page.token, "entries": entries or None, "flags": 0}


def page_as_msgpack(page: Page, uuid: str) -> dict[str, object]:
    entries = [{_SHORT[key]: value for key, value in entry.items()} for entry in page.entries]
    return {"UUID": uuid, "ContinuationToken": page.token, "Entries": entries, "Flags": 0}


def _entry(
    folder: Folder, sums: Checksums, bucket: str, name: str, path: str, props: frozenset[str], location: str
) -> Entry:
    """Describe one file. Empty and zero fields are left out, an empty object's size among them, as AIStore does."""
    fields: Entry = {"name": name, "flags": CACHED}
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return fields  # it went away, or may not be read: the name was there when the listing passed
    try:
        content = Content.of(os.path.realpath(path), os.fstat(descriptor))
        known: Entry = {"size": content.size, "copies": 1, "location": location}
        if "version" in props:
            known["version"] = str(folder.versions.peek(bucket, name, content))
        if "checksum" in props:
            known["checksum"] = sums.compute(descriptor, content)
    finally:
        os.close(descriptor)
    return fields | {key: value for key, value in known.items() if key in props and value}


def _inside(entry: Entry, path: str) -> list[Entry]:
    """The members of an archive, and the mark of it on its own entry; nothing where it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # a path as scandir gives it
            members = joined(str(entry["name"]), list_members(file, path, most=PAGE))
    except Exception:  # noqa: BLE001  # decompressors and readers raise many kinds; the listing goes on without it
        return []
    entry["flags"] = CACHED | IS_ARCHIVE
    return [
        {"name": name, "flags": CACHED | IN_ARCHIVE, **({"size": size} if size else {})} for name, size in members
    ]


def _walk(folder: Folder, base: str, listing: Listing) -> Iterator[tuple[str, str]]:
    """Yield (name, path) in the order of the whole names. Only one folder a level is held."""
    levels = [iter(_children(folder, base, ""))]
    while levels:
        for name, path in levels[-1]:
            if name.endswith("/"):
                if _may_hold(name, listing):
                    levels.append(iter(_children(folder, path, name)))
                    break
            elif name.startswith(listing.prefix) and name > listing.after:
                yield name, path
        else:
            levels.pop()


def _may_hold(folder_name: str, listing: Listing) -> bool:
    on_the_way = folder_name.startswith(listing.prefix) or listing.prefix.startswith(folder_name)
    passed = folder_name < listing.after and not listing.after.startswith(folder_name)
    return on_the_way and not passed


def _children(folder: Folder, path: str, parent: str) -> list[tuple[str, str]]:
    """Give a folder's files and folders. A folder's name ends in "/", which is what sorts it among whole names."""
    try:
        with os.scandir(path) as entries:
            return sorted(_child(entry, parent) for entry in entries if _is_listed(folder, entry))
    except (FileNotFoundError, NotADirectoryError):
        return []  # it went away


def _child(entry: os.DirEntry[str], parent: str) -> tuple[str, str]:
    return parent + entry.name + ("/" if entry.is_dir() else ""), entry.path


def _is_listed(folder: Folder, entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(TEMPORARY) or not _is_utf8(entry.name):
        return False
    if entry.is_symlink():  # a linked folder could hold itself: only files are followed
        path = Path(os.path.realpath(entry.path))
        return folder.inside(path) and path.is_file()
    return entry.is_file() or entry.is_dir()


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)
