"""t2t.pack: a folder, a CSV, or records → tar shards in a store, each proved by reading it back."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path

import xxhash

from ais_tar2tf.errors import ChecksumMismatch, ExportError, OptionError, ShardNotFound, Tar2TFError, TemplateError
from ais_tar2tf.export.boundaries import DEFAULT_SIZE, Boundaries, bounds_of
from ais_tar2tf.export.tarfiles import END, record_members
from ais_tar2tf.packing import Rows, records_of
from ais_tar2tf.progress import progress_for
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source, read_options
from ais_tar2tf.stores import Store, open_store, split_url

__all__ = ["pack"]

_PLACE = re.compile(r"\{(:0?\d*d?)?\}")


def pack(
    source: Rows,
    url: str,
    *,
    shard_size: int | str | None = DEFAULT_SIZE,
    shard_records: int | None = None,
    create: bool = False,
    exists: str = "error",
    progress: bool | None = None,
    endpoint: str | None = None,
    token: str | None = None,
) -> list[str]:
    """Write records as tar shards `url`, a template such as `ais://bucket/train-{}.tar`; gives the shards' URLs.

    `source`: a folder, where files of one name are a record, and images alone in a folder for each class are
    labelled by `cls`; a CSV, where a column `filename` names a file; or dicts with `__key__` and fields. Numbers
    begin at 0, `{:05d}` pads them. `create=True` makes the bucket; `exists="replace"` replaces the shards that are
    there, and removes those of a longer run.

    >>> import ais_tar2tf as t2t
    >>> t2t.pack([{"__key__": "a", "txt": "hello"}], "memory://doc-pack/train-{}.tar", create=True)
    ['memory://doc-pack/train-0.tar']
    """
    if exists not in ("error", "replace"):
        raise OptionError(f"exists is 'error' or 'replace', not {exists!r}")
    scheme, bucket, template = split_url(url)
    bounds = bounds_of(shard_size, shard_records, len(END))
    names, records = _Names(template, str(url)), records_of(source)  # both refuse before a bucket is made
    store = open_store(scheme, bucket, read_options(), endpoint=endpoint, token=token)
    try:
        if create:
            store.create()
        if exists == "error" and _is_there(store, names.at(0)):
            raise ExportError(f"{store.url(names.at(0))}: there is a shard already; exists='replace' replaces it")
        written: list[str] = []
        with (
            progress_for("pack", wanted=progress) as shown,
            tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder,
            contextlib.closing(_shards(records, Boundaries(bounds), Path(folder, "shard.tar"))) as made,
        ):
            for number, shard in enumerate(made):
                _put(store, names.at(number), shard)
                written.append(names.at(number))
                shown.add(shard.records, shard.size)
        _remove_behind(store, names, len(written))
        return [store.url(name) for name in written]
    finally:
        store.close()


class _Names:
    def __init__(self, template: str, url: str) -> None:
        if not template or template.endswith("/"):
            raise TemplateError(f"{url}: no name for the shards; as '{url.rstrip('/')}/train-{{:05d}}.tar'")
        self._template = template
        self._many = _PLACE.search(template) is not None

    def at(self, number: int) -> str:
        if not self._many and number:
            raise ExportError(f"{self._template}: one shard is not enough; say where a number goes: 'a-{{}}.tar'")
        return _PLACE.sub(lambda found: found[0].format(number), self._template)

    @property
    def many(self) -> bool:
        return self._many


class _Shard:
    """One tar that is being made, in a file, and what must come back when it is read."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._file = path.open("wb")
        self._digest = xxhash.xxh3_128()
        self.records: int = 0
        self.size: int = 0

    def add(self, record: Record, members: tuple[bytes, ...]) -> None:
        self._file.writelines(members)
        self.size += sum(map(len, members))
        _sum_up(self._digest, record)
        self.records += 1

    def finish(self) -> bytes:
        """The tar is whole; gives the digest of its records."""
        self._file.write(END)
        self.close()
        return self._digest.digest()

    def close(self) -> None:
        self._file.close()


def _sum_up(digest: xxhash.xxh3_128, record: Record) -> None:
    for name, value in record.items():
        if name != "__shard__":
            body: bytes = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            digest.update(f"{name}\0{len(body)}\0".encode("utf-8", "surrogateescape") + body)


def _shards(records: Iterator[Record], boundaries: Boundaries, path: Path) -> Generator[_Shard]:
    """One at a time: the next one is written over it."""
    shard = _Shard(path)
    try:
        for record in records:
            members = record_members(record)
            size = sum(map(len, members))
            if not boundaries.fitting([size]):
                yield shard
                shard = _Shard(path)
                boundaries.close()
                boundaries.fitting([size])
            shard.add(record, members)
        if shard.records:
            yield shard
    finally:
        shard.close()


def _put(store: Store, name: str, shard: _Shard) -> None:
    """Write a shard, and read it back; one that does not come back as it was does not stay."""
    expected = shard.finish()
    store.put(name, shard.path)
    try:
        _prove(store, name, shard, expected)
    except Tar2TFError:
        with contextlib.suppress(Tar2TFError):
            store.delete(name)
        raise


def _prove(store: Store, name: str, shard: _Shard, expected: bytes) -> None:
    digest, records = xxhash.xxh3_128(), 0
    for record in Source(Shards(store, [name])).records():
        _sum_up(digest, record)
        records += 1
    if records != shard.records or digest.digest() != expected:
        raise ChecksumMismatch(
            f"what was read back is not what was written ({records:,} of {shard.records:,} records)",
            url=store.url(name),
        )


def _is_there(store: Store, name: str) -> bool:
    try:
        store.head(name)
    except ShardNotFound:
        return False
    return True


def _remove_behind(store: Store, names: _Names, number: int) -> None:
    """The shards of a run that was longer, without a gap."""
    if not names.many:
        return
    for at in count(number):
        if not _is_there(store, names.at(at)):
            return
        store.delete(names.at(at))
