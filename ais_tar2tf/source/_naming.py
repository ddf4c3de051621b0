"""From what users write to the names of shards: templates are expanded, folders and globs are listed."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ais_tar2tf.account import Account
from ais_tar2tf.errors import ShardNotFound, StoreError, TemplateError, TransportError
from ais_tar2tf.globs import glob_match, glob_prefix, is_glob, is_prefix
from ais_tar2tf.listing import is_shard, natural_order
from ais_tar2tf.locations import Location, Locations, location_text, location_texts
from ais_tar2tf.options import Limits
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.stores import Store, split_url
from ais_tar2tf.stores.file import FileStore
from ais_tar2tf.templates import check_spelling, escape, expand, unescape

__all__ = ["given_places", "refuse_folder", "shard_names"]

_WHOLE_BUCKET = "**"
_PLAIN_HTTP = ("http", "https")
_FILES = (".bz2", ".gz", ".lz4", ".record", ".tar", ".tfr", ".tfrecord", ".tgz", ".xz", ".zip", ".zst")
_EXAMPLES = 3  # names in the text of an error
_MANIFEST = "manifest.json"  # of an export, beside its record files

_log = logging.getLogger("ais_tar2tf")
_has_star = re.compile(r"(?<!\\)(?:\\\\)*\*").search


def given_places(urls: Locations) -> list[tuple[str, str, str]]:
    """Return (scheme, bucket, template of names) of each URL or path; a bucket alone is everything in it.

    Raises:
        TemplateError: Nothing is named, or no bucket.
    """
    return [_place(text) for text in location_texts(urls, _as_template)]


def _as_template(location: Location) -> str:
    """Return a path of a file that is there as the template of this very file: its braces are part of its name."""
    text = location_text(location)
    if isinstance(location, str) or escape(text) == text:
        return text
    return escape(text) if Path(text).exists() else text


def _place(url: str) -> tuple[str, str, str]:
    scheme, bucket, name = split_url(url)
    if scheme == "file" and url.partition("://")[1:] == ("://", ""):
        raise TemplateError(f"{url!r} names no folder: give its path")
    if scheme != "file" and not bucket:
        raise TemplateError(
            f"{url!r} names no bucket: say {scheme}://bucket, or {scheme}://bucket/train-{{0..9}}.tar"
        )
    if name or scheme == "file":
        return scheme, bucket, name
    return scheme, bucket, "/" if scheme in _PLAIN_HTTP else _WHOLE_BUCKET


def shard_names(
    store: Store, templates: Locations, limits: Limits, account: Account | None = None, *, listable: bool = True
) -> Sequence[str]:
    """Return the names that templates stand for; a folder, a `prefix/` and a glob are resolved by listing.

    Names of a listing come in natural order, where `s-9.tar` stands before `s-10.tar`. Those that are no shards are
    left out, and counted in `account`.

    Raises:
        ShardNotFound: A folder, a prefix or a glob has no shards.
        TemplateError: A template cannot be expanded, names too many shards, or needs a listing that there is not.
    """
    given = location_texts(templates)
    for template in given:
        check_spelling(template)
    if not listable:
        _refuse_folders(store, given)
        return expand(given, limit=limits.template)
    if isinstance(store, FileStore):
        given = [each for template in given for each in _with_folders(store, template, limits)]
    if not any(is_prefix(each) or is_glob(each) for each in given):
        names = expand(given, limit=limits.template)
        refuse_folder(store, names[0])
        return names
    found: list[str] = []
    for pattern in expand(given, limit=limits.template, keep_escapes=True):
        found += _found(store, pattern, limits, account) if _is_listed(pattern) else [unescape(pattern)]
        if len(found) > limits.template:
            raise _too_many(pattern, limits)
    return found


def refuse_folder(store: Store, name: str) -> None:
    """Refuse a name without an extension where no object has it, and a folder of objects does.

    Raises:
        ShardNotFound: The slash at its end is missing.
    """
    if isinstance(store, FileStore) or not name or "." in name.rpartition("/")[2]:
        return
    try:
        is_folder = next(iter(store.list(f"{name}/")), None) is not None
    except TransportError:
        raise
    except StoreError:  # it may be readable, and not listed
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


def _is_listed(pattern: str) -> bool:
    return is_prefix(pattern) or is_glob(pattern)


def _refuse_folders(store: Store, templates: Iterable[str]) -> None:
    for name in templates:
        path = name.partition("?")[0]
        if is_prefix(path) or _has_star(path):
            what = "of a folder" if is_prefix(path) else r"for a glob (a star itself is \*)"
            raise TemplateError(
                f"{shown_url(store.url(name.lstrip('/')))}: plain HTTP has no listing {what}; name the shards, "
                "as train-{000..146}.tar, or give a list of URLs"
            )


def _with_folders(store: FileStore, template: str, limits: Limits) -> Iterator[str]:
    """Yield the templates that one stands for where names without a slash at their end are folders."""
    if template.endswith(_FILES) or is_prefix(template) or is_glob(template):
        yield template
        return
    names = expand(template, limit=limits.template)
    if not store.is_folder(names[0]):
        yield template
        return
    yield from (f"{escape(name)}/" if store.is_folder(name) else escape(name) for name in names)


def _found(store: Store, pattern: str, limits: Limits, account: Account | None) -> list[str]:
    """List the shards that a prefix or a glob stands for."""
    prefix = glob_prefix(pattern)
    matches: Callable[[str], bool] = glob_match(pattern) if is_glob(pattern) else bool
    folder = prefix[: prefix.rfind("/") + 1]
    found: list[str] = []
    others: list[str] = []
    for info in store.list(prefix):
        if not matches(info.name):
            continue
        chosen = found if is_shard(info.name.removeprefix(folder)) else others
        chosen.append(info.name)
        if len(found) > limits.template or len(others) > limits.template:
            raise _too_many(pattern, limits)
    if not found:
        raise _nothing(store, pattern, others)
    if account is not None and others:
        account.add(left_out=len(others))
    _warn_of_exports(store, found, others)
    return sorted(found, key=natural_order)


def _warn_of_exports(store: Store, found: Sequence[str], others: Sequence[str]) -> None:
    """Say when an export and other shards are read together, which often hold the same records."""
    for name in others:
        folder, _, last = name.rpartition("/")
        inside = sum(1 for each in found if each.startswith(f"{folder}/")) if last == _MANIFEST else 0
        if folder and 0 < inside < len(found):
            _log.warning(
                "%s: the %d record files of this export are read together with %d other shards; name one of both if "
                "they hold the same records",
                shown_url(store.url(f"{folder}/")),
                inside,
                len(found) - inside,
            )


def _too_many(pattern: str, limits: Limits) -> TemplateError:
    return TemplateError(f"{shown_url(pattern)!r} names over {limits.template:,} shards, Limits.template")


def _why_nothing(store: Store, pattern: str) -> str:
    if pattern == _WHOLE_BUCKET:
        return "the bucket is empty"
    if is_glob(pattern) or not isinstance(store, FileStore):
        return f"nothing matches {pattern!r}"
    return f"nothing matches {pattern!r}: {'it is empty' if store.is_folder(pattern) else 'there is no such folder'}"


def _nothing(store: Store, pattern: str, others: Sequence[str]) -> ShardNotFound:
    url = store.url(glob_prefix(pattern))
    if not others:
        return ShardNotFound(_why_nothing(store, pattern), url=url)
    some = ", ".join(others[:_EXAMPLES]) + (" …" if len(others) > _EXAMPLES else "")
    count = "one file" if len(others) == 1 else f"{len(others):,} files"
    return ShardNotFound(
        f"there are no shards, but {count} of other kinds ({some}); t2t.pack makes shards of a folder of files",
        url=url,
    )
