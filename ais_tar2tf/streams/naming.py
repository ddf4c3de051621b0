"""The names of the shards that templates, folders, prefixes and globs stand for. This module must not read shards."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.base.urls.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.base.urls.locations import Location, Locations, location_text, location_texts
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.base.urls.templates import check_spelling, escape, expand, unescape
from ais_tar2tf.errors import ShardNotFound, StoreError, TemplateError, TransportError
from ais_tar2tf.options import Limits
from ais_tar2tf.stores import LocalFiles, Store, has_listing, split_url
from ais_tar2tf.streams.listing import is_shard, natural_order

__all__ = ["refuse_folder", "shard_names", "split_locations"]

_WHOLE_BUCKET = "**"  # the glob that matches all names in a bucket
# A local template with one of these endings names shards. Only other local templates may name folders.
_ENDINGS = (".bz2", ".gz", ".lz4", ".record", ".tar", ".tfr", ".tfrecord", ".tgz", ".xz", ".zip", ".zst")
_MAX_SHOWN = 3  # the most files that one error names
_MANIFEST = "manifest.json"  # the manifest of an export, next to its record files

_log = logging.getLogger("ais_tar2tf")
# Finds a star that no backslash escapes.
_has_star = re.compile(r"(?<!\\)(?:\\\\)*\*").search


def split_locations(urls: Locations) -> list[tuple[str, str, str]]:
    """Split each URL or path into scheme, bucket and template of names.

    A URL that names only a bucket stands for all shards of this bucket. If the store of such a URL has no listing,
    `shard_names` refuses the returned template.

    Raises:
        TemplateError: There is no URL, or a URL has no bucket.
    """
    return [_split(text) for text in location_texts(urls, _as_template)]


def _as_template(location: Location) -> str:
    """Return a location as a template.

    Text is a template already. An `os.PathLike` that names an existing file or folder is escaped, because braces in
    an existing name are not part of a template. Any other `os.PathLike` is used as a template without a change.
    """
    text = location_text(location)
    if isinstance(location, str) or escape(text) == text:
        return text
    return escape(text) if Path(text).exists() else text


def _split(url: str) -> tuple[str, str, str]:
    scheme, bucket, name = split_url(url)
    if scheme == "file" and url.partition("://")[1:] == ("://", ""):
        raise TemplateError(f"{url!r} names no folder: give its path")
    if scheme != "file" and not bucket:
        raise TemplateError(
            f"{url!r} names no bucket: say {scheme}://bucket, or {scheme}://bucket/train-{{0..9}}.tar"
        )
    if name or scheme == "file":
        return scheme, bucket, name
    # If the store has no listing, return the template "/". `shard_names` refuses it, with an error that says that the
    # store has no listing.
    return scheme, bucket, _WHOLE_BUCKET if has_listing(url) else "/"


def shard_names(
    store: Store, templates: Locations, limits: Limits, account: Account | None = None, *, listable: bool = True
) -> Sequence[str]:
    """Return the names of all shards that the templates stand for.

    For a folder, a prefix or a glob, the store is asked for a listing. The listed shards are sorted in natural order:
    `s-9.tar` comes before `s-10.tar`. Listed files that are no shards are left out.

    Args:
        store: The store of the shards.
        templates: One template, or several.
        limits: `limits.template` is the largest number of names.
        account: Counts the listed files that are left out. If it is None, these files are not counted.
        listable: Whether the store can list names. If not, folders, prefixes and globs are refused.

    Raises:
        ShardNotFound: A folder, a prefix or a glob has no shards, or the first name is that of a folder without the
            slash at its end (see `refuse_folder`).
        TemplateError: A template is malformed, names too many shards, or needs a listing that the store lacks.
    """
    texts = location_texts(templates)
    for template in texts:
        check_spelling(template)
    if not listable:
        _refuse_listings(store, texts)
        return expand(texts, limit=limits.template)
    if isinstance(store, LocalFiles):
        texts = [each for template in texts for each in _with_folders(store, template, limits)]
    if not any(map(_needs_listing, texts)):
        names = expand(texts, limit=limits.template)
        refuse_folder(store, names[0])
        return names
    found: list[str] = []
    for pattern in expand(texts, limit=limits.template, keep_escapes=True):
        found += _listed(store, pattern, limits, account) if _needs_listing(pattern) else [unescape(pattern)]
        if len(found) > limits.template:
            raise _too_many(pattern, limits)
    return found


def _needs_listing(pattern: str) -> bool:
    return is_prefix(pattern) or is_glob(pattern)


def refuse_folder(store: Store, name: str) -> None:
    """Raise an error if a name is that of a folder, written without the slash at its end.

    A name with an extension is not checked, because it is hardly the name of a folder. Local names are not checked
    either, because `_with_folders` adds the slash to the names of local folders.

    Raises:
        ShardNotFound: The store has a folder of this name, and no object of this name.
    """
    if isinstance(store, LocalFiles) or not name or "." in name.rpartition("/")[2]:
        return
    try:
        is_folder = next(iter(store.list(f"{name}/")), None) is not None
    except TransportError:
        raise
    except StoreError:  # the user may be allowed to read objects, but not to list them
        is_folder = False
    if not is_folder:
        return
    try:
        store.head(name)
    except ShardNotFound:
        meant = shown_url(store.url(f"{name}/"))
        raise ShardNotFound(
            f"there is no such object, but a folder of that name; did you mean {meant!r}?", url=store.url(name)
        ) from None


def _refuse_listings(store: Store, templates: Iterable[str]) -> None:
    """Refuse templates that are prefixes or globs, because the store has no listing."""
    for name in templates:
        path = name.partition("?")[0]
        if is_prefix(path) or _has_star(path):
            purpose = "of a folder" if is_prefix(path) else r"for a glob (a star itself is \*)"
            raise TemplateError(
                f"{shown_url(store.url(name.lstrip('/')))}: plain HTTP has no listing {purpose}; name the shards, "
                "as train-{000..146}.tar, or give a list of URLs"
            )


def _with_folders(store: LocalFiles, template: str, limits: Limits) -> Iterator[str]:
    """Expand a template that stands for local folders, and yield a template for each of its names.

    Yield any other template unchanged.

    A template names local folders if its first name is that of a local folder. Each folder gets a template that ends
    in a slash, and is therefore listed.
    """
    if template.endswith(_ENDINGS) or _needs_listing(template):
        yield template
        return
    names = expand(template, limit=limits.template)
    if not store.local_path(names[0]).is_dir():
        yield template
        return
    yield from (f"{escape(name)}/" if store.local_path(name).is_dir() else escape(name) for name in names)


def _listed(store: Store, pattern: str, limits: Limits, account: Account | None) -> list[str]:
    """Return the names of the shards that begin with a prefix or match a glob, in natural order."""
    prefix = glob_prefix(pattern)
    matches: Callable[[str], bool] = glob_match(pattern) if is_glob(pattern) else bool
    folder = prefix[: prefix.rfind("/") + 1]
    found: list[str] = []
    other_files: list[str] = []
    for info in store.list(prefix):
        if not matches(info.name):
            continue
        (found if is_shard(info.name.removeprefix(folder)) else other_files).append(info.name)
        if len(found) > limits.template or len(other_files) > limits.template:
            raise _too_many(pattern, limits)
    if not found:
        raise _no_shards(store, pattern, other_files)
    if account is not None and other_files:
        account.add(left_out=len(other_files))
    _warn_of_exports(store, found, other_files)
    return sorted(found, key=natural_order)


def _warn_of_exports(store: Store, found: Sequence[str], other_files: Sequence[str]) -> None:
    """Warn if the record files of an export are read together with shards that may hold the same records."""
    for name in other_files:
        folder, _, last = name.rpartition("/")
        inside = sum(1 for each in found if each.startswith(f"{folder}/")) if last == _MANIFEST else 0
        if folder and 0 < inside < len(found):
            _log.warning(
                "%s: the %d record files of this export are read together with %d other shards; if they hold the "
                "same records, name only one of the two",
                shown_url(store.url(f"{folder}/")),
                inside,
                len(found) - inside,
            )


def _too_many(pattern: str, limits: Limits) -> TemplateError:
    limit = f"{limits.template:,} shards, Limits.template"
    return TemplateError(f"{shown_url(pattern)!r} names over {limit}; raise this limit if so many exist")


def _why_no_match(store: Store, pattern: str) -> str:
    if pattern == _WHOLE_BUCKET:
        return "the bucket is empty"
    if is_glob(pattern) or not isinstance(store, LocalFiles):
        return f"nothing matches {pattern!r}"
    exists = store.local_path(pattern).is_dir()
    return f"nothing matches {pattern!r}: {'the folder is empty' if exists else 'there is no such folder'}"


def _no_shards(store: Store, pattern: str, other_files: Sequence[str]) -> ShardNotFound:
    url = store.url(glob_prefix(pattern))
    if not other_files:
        return ShardNotFound(_why_no_match(store, pattern), url=url)
    some = ", ".join(other_files[:_MAX_SHOWN]) + (" …" if len(other_files) > _MAX_SHOWN else "")
    count = "one file" if len(other_files) == 1 else f"{len(other_files):,} files"
    return ShardNotFound(
        f"there are no shards, but {count} of other kinds ({some}); t2t.pack makes shards of a folder of files",
        url=url,
    )
