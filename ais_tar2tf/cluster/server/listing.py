"""Listings: the sorted names of a bucket's objects, one page for each request.

This module must not hold all names of a bucket in memory. It holds one page, and for each level of folders the
entries of one folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ais_tar2tf.cluster.server.archives import is_archive, joined, list_members
from ais_tar2tf.cluster.server.calls import whole_number
from ais_tar2tf.cluster.server.checksums import Checksums, FileIdentity
from ais_tar2tf.cluster.server.folder import TEMPORARY, BucketRoot
from ais_tar2tf.cluster.server.refusals import bad_request, not_served, unreadable

__all__ = ["ListRequest", "Page", "page_as_json", "page_as_msgpack", "read_page"]

PAGE = 10_000  # the maximum and default number of names in a page, as in AIStore
CACHED = 1 << 6  # flag of every entry: the object is in the cluster
NOT_SERVED_FLAGS = 1 << 11 | 1 << 15  # refused flags of a request: not recursive; from an inventory
INSIDE = 1 << 3  # flag of a request: list also the members of archives
IN_ARCHIVE, IS_ARCHIVE = 1 << 7, 1 << 9  # flags of entries: a member of an archive; an archive

_SHORT = {"name": "n", "checksum": "cs", "version": "v", "location": "t", "size": "s", "copies": "c", "flags": "f"}


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A request for a page of names.

    Attributes:
        prefix: The prefix of the names.
        after: The name after which the page begins.
        size: The maximum number of names in the page.
        props: The requested properties of each object.
        inside: Whether to list the members of archives, too.
    """

    prefix: str
    after: str
    size: int
    props: frozenset[str]
    inside: bool = False

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> ListRequest:
        """Parse the value of AIStore's action `list`.

        >>> ListRequest.from_json({"prefix": "train-", "pagesize": 2}).size
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
    """A page of entries, sorted by name.

    Attributes:
        entries: The entries.
        token: The name after which the next page begins; "" if this page is not full. A full page always has a token,
            so the last page may be empty.
    """

    entries: list[Entry]
    token: str


def read_page(folder: BucketRoot, sums: Checksums, bucket: str, listing: ListRequest, *, location: str) -> Page:
    """Return the requested page of a bucket's names. `location` is the name of the node that has the objects."""
    files = (
        (_entry(folder, sums, bucket, name, path, listing.props, location), path)
        for name, path in _walk(folder, str(folder.bucket(bucket)), listing)
    )
    listed = _with_members(files, listing.size) if listing.inside else (entry for entry, _ in files)
    # As in a real cluster, members that do not fit on the page of their archive are on no page.
    entries = list(islice(listed, listing.size))
    return Page(entries, _name(entries[-1]) if len(entries) == listing.size else "")


def page_as_json(page: Page, uuid: str) -> dict[str, object]:
    entries = [{**entry, "size": str(entry["size"])} if "size" in entry else entry for entry in page.entries]
    return {"uuid": uuid, "continuation_token": page.token, "entries": entries or None, "flags": 0}


def page_as_msgpack(page: Page, uuid: str) -> dict[str, object]:
    entries = [{_SHORT[key]: value for key, value in entry.items()} for entry in page.entries]
    return {"UUID": uuid, "ContinuationToken": page.token, "Entries": entries, "Flags": 0}


def _entry(
    folder: BucketRoot, sums: Checksums, bucket: str, name: str, path: str, props: frozenset[str], location: str
) -> Entry:
    """Describe one file. As in AIStore, empty and zero fields are left out, even the size of an empty object."""
    fields: Entry = {"name": name, "flags": CACHED}
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return fields  # the file was deleted after it was listed, or cannot be read
    try:
        content = FileIdentity.from_stat(os.path.realpath(path), os.fstat(descriptor))
        found: Entry = {"size": content.size, "copies": 1, "location": location}
        if "version" in props:
            found["version"] = str(folder.versions.peek(bucket, name, content))
        if "checksum" in props:
            found["checksum"] = sums.compute(descriptor, content)
    finally:
        os.close(descriptor)
    return fields | {key: value for key, value in found.items() if key in props and value}


def _with_members(files: Iterator[tuple[Entry, str]], most: int) -> Iterator[Entry]:
    """Yield the entries of files and of the members of archives, sorted by name. `files` is sorted by name.

    Other files can sort between an archive and its members. At most `most` members wait for such files.
    """
    waiting: list[Entry] = []  # in descending order
    for entry, path in files:
        while waiting and _name(waiting[-1]) < _name(entry):
            yield waiting.pop()
        if is_archive(_name(entry)):
            waiting = sorted([*waiting, *_inside(entry, path)], key=_name)[:most][::-1]
        yield entry
    yield from reversed(waiting)


def _name(entry: Entry) -> str:
    return str(entry["name"])


def _inside(entry: Entry, path: str) -> list[Entry]:
    """Return the entries of an archive's members, and flag `entry`, the entry of the archive itself.

    If the archive cannot be read, return [], and leave `entry` unchanged.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123  # scandir gives paths as text
            members = joined(_name(entry), list_members(file, path, most=PAGE))
    except Exception:  # noqa: BLE001  # decompressors raise many kinds of errors; the listing omits the members
        return []
    entry["flags"] = CACHED | IS_ARCHIVE
    return [
        {"name": name, "flags": CACHED | IN_ARCHIVE, **({"size": size} if size else {})} for name, size in members
    ]


def _walk(folder: BucketRoot, base: str, listing: ListRequest) -> Iterator[tuple[str, str]]:
    """Yield (name, path) of each listed file, sorted by full name. Hold only one folder for each level."""
    levels = [iter(_children(folder, base, ""))]
    while levels:
        for name, path in levels[-1]:
            if name.endswith("/"):
                if _may_contain(name, listing):
                    levels.append(iter(_children(folder, path, name)))
                    break
            elif name.startswith(listing.prefix) and name > listing.after:
                yield name, path
        else:
            levels.pop()


def _may_contain(folder_name: str, listing: ListRequest) -> bool:
    """Return whether the page may contain names from a folder."""
    has_prefix = folder_name.startswith(listing.prefix) or listing.prefix.startswith(folder_name)
    is_before = folder_name < listing.after and not listing.after.startswith(folder_name)
    return has_prefix and not is_before


def _children(folder: BucketRoot, path: str, parent: str) -> list[tuple[str, str]]:
    """Return a folder's files and folders. A folder's name ends in "/", so that it sorts like the names in it."""
    try:
        with os.scandir(path) as entries:
            listed = (entry for entry in entries if _is_listed(folder, entry))
            return sorted((parent + each.name + ("/" if each.is_dir() else ""), each.path) for each in listed)
    except (FileNotFoundError, NotADirectoryError):
        return []  # the folder was deleted


def _is_listed(folder: BucketRoot, entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(TEMPORARY) or not _is_utf8(entry.name):
        return False
    if entry.is_symlink():  # only links to files are followed: a linked folder could contain itself
        path = Path(os.path.realpath(entry.path))
        return folder.inside(path) and path.is_file()
    return entry.is_file() or entry.is_dir()


def _is_utf8(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)
