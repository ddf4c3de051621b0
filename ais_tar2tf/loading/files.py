"""t2t.load: record files by their manifest — a dataset, single records, splits, and the proof that all is there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from ais_tar2tf.completion import Completed
from ais_tar2tf.errors import AccessDenied, ExportError, OptionError
from ais_tar2tf.export.manifest import MANIFEST, Manifest
from ais_tar2tf.export.places import place_of
from ais_tar2tf.export.publish import read_manifest
from ais_tar2tf.export.shelf import Records, Shelf
from ais_tar2tf.export.splits import Part, no_split, parts_of, share_of
from ais_tar2tf.export.streams import Files, files_at
from ais_tar2tf.export.verify import Verified, verify
from ais_tar2tf.loading.values import decoded
from ais_tar2tf.locations import location_text
from ais_tar2tf.nearest import known_options
from ais_tar2tf.options import Limits, Retry, Shuffle, Timeouts, check_effect, epochs_of, whole_number
from ais_tar2tf.plan import behind_the_end
from ais_tar2tf.reading.loops import in_batches
from ais_tar2tf.records import Record
from ais_tar2tf.schema import Schema
from ais_tar2tf.source import (
    Source,
    check_batching,
    check_even,
    host_of,
    open_source,
    read_options,
    shuffle_option,
)
from ais_tar2tf.stores import TokenSource, check_access
from ais_tar2tf.templates import escape

if TYPE_CHECKING:
    import tensorflow as tf

    from ais_tar2tf.decoders import Decode
    from ais_tar2tf.loading.dataset import LoadRequest

__all__ = ["Loaded", "load"]


@known_options
def load(
    out: str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    limits: Limits | None = None,
    retry: Retry | None = None,
    timeouts: Timeouts | None = None,
) -> Loaded:
    """What `export`, or `write_dataset`, wrote to a folder or a URL."""
    where = location_text(out)
    check_access(where, endpoint=endpoint, token=token)
    read = read_options(limits=limits, retry=retry, timeouts=timeouts)
    place, files = (
        place_of(where, read=read, endpoint=endpoint, token=token),
        files_at(where, read, endpoint=endpoint, token=token),
    )
    try:
        manifest = read_manifest(place)
    except PermissionError as error:
        raise AccessDenied("it may not be read", url=place.url(MANIFEST)) from error
    if manifest is None:
        why = "there is no manifest, so no export was finished there; shards are read by t2t.open"
        raise ExportError(f"{place.url(MANIFEST)}: {why}")
    return Loaded(where, manifest, files, {"endpoint": endpoint, "token": token})


class Loaded(Completed):
    """All splits of one place. `loaded[i]`, slices and `len` count through all, in the order of their names."""

    __hidden__ = frozenset({"local", "request"})

    def __init__(self, where: str, manifest: Manifest, files: Files, access: dict[str, Any]) -> None:
        self.manifest: Manifest = manifest
        self._where = where
        self._unbound = files  # for `verify`, which says where a file is another one
        self._files = files.bound(file for entry in manifest.splits.values() for file in entry.files)
        self._access = access
        self._shelf = Shelf(self._files, manifest, lambda url: self._open_tar([url]).records())

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}: {count:,}" for name, count in self.splits.items())
        return f"<Loaded {self.manifest.format} at {self._where}: {splits or 'no records'}>"

    @property
    def splits(self) -> dict[str, int]:
        """The number of records by split."""
        return {name: entry.records for name, entry in sorted(self.manifest.splits.items())}

    @property
    def schema(self) -> Schema:
        """What the records are.

        `t2t.parsing.parse_spec(loaded.schema)` is the spec that tf.io parses their tf.train.Examples with.
        """
        return self.manifest.schema

    @property
    def classes(self) -> tuple[str, ...]:
        """The names that the numbers of the label stand for; `()` where nobody named them, or splits differ."""
        return next(iter(self.manifest.classes.values()), ())

    @known_options
    def files(self, split: str) -> list[str]:
        """The files of a split, in order."""
        entry = self.manifest.splits.get(split)
        if entry is None:
            raise no_split(split, self.splits)
        return [self._files.url(file.name) for file in entry.files]

    @known_options
    def split(self, expression: str) -> Records:
        """The records of `"train"`, `"train[:10%]+val"`: a sequence."""
        return self._in_split(expression)

    def __len__(self) -> int:
        return sum(self.splits.values())

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        return Records(self._shelf, self._all())[at]

    def __iter__(self) -> Iterator[Record]:
        return self.records()

    @known_options
    def records(
        self,
        split: str | None = None,
        *,
        decode: Decode | None = None,
        shuffle: bool | int | None = None,
        seed: int | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        interleave: int | None = None,
        repeat: int | None = 1,
        shard: tuple[int, int] | tf.distribute.InputContext | str | None = None,
        even: str | None = None,
        start_at: int = 0,
    ) -> Iterator[Record]:
        """The records in order, streamed without TensorFlow; `split=None`: of all splits.

        The options mean what they mean to `dataset`, and give the same records in the same order, unless
        `tf.random.set_seed` was called. With `batch` a dict holds a list for each field. `decode` as
        `Source.records` takes it: pixels, numbers, text and what JSON says instead of bytes.
        """
        from ais_tar2tf.loading.loops import records_of

        request = self.request(
            split,
            shuffle=shuffle,
            seed=seed,
            batch=batch,
            drop_remainder=drop_remainder,
            interleave=interleave,
            repeat=repeat,
            shard=shard,
            even=even,
            start_at=start_at,
        )
        records = records_of(request)
        if decode is not None and decode is not False:
            records = decoded(records, decode, self._in_split(split), self._where)
        return records if request.batch is None else in_batches(records, request.batch, drop_remainder=drop_remainder)

    def _open_tar(self, urls: Sequence[str]) -> Source:
        return open_source(list(map(escape, urls)), index=False, **self._access)

    def _all(self) -> list[Part]:
        return [Part(name, 0, count) for name, count in self.splits.items()]

    def _parts(self, split: str | None) -> list[Part]:
        return self._all() if split is None else parts_of(split, self.splits)

    def _in_split(self, split: str | None) -> Records:
        return Records(self._shelf, self._parts(split))

    def verify(self, *, progress: bool | None = None) -> Verified:
        """Read every byte; raises a typed error with file and offset at the first fault."""
        return verify(self._unbound, self.manifest, progress)

    @known_options
    def dataset(
        self,
        split: str = "train",
        *,
        shuffle: bool | int | None = None,
        seed: int | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        interleave: int | None = None,
        repeat: int | None = 1,
        shard: tuple[int, int] | tf.distribute.InputContext | str | None = None,
        even: str | None = None,
        start_at: int = 0,
    ) -> tf.data.Dataset[Any]:
        """A tf.data.Dataset of known length: dicts with a tensor for each feature, in the order of the files.

        `interleave` files are read at once in turns, 1 in order and 16 when shuffled. A field that a record does
        not have is empty, or 0. `shuffle`: True, or a window in records. `shard`: a range of the records for this
        host, disjoint from the ranges of all other hosts, as `Source.dataset` takes it. `even="pad" | "drop" |
        "stop"`: as many records as every other host. `repeat=None`: for ever. `start_at`: a record's number in the
        order of all epochs.
        """
        from ais_tar2tf.loading.dataset import build_dataset

        request = self.request(
            split,
            shuffle=shuffle,
            seed=seed,
            batch=batch,
            drop_remainder=drop_remainder,
            interleave=interleave,
            repeat=repeat,
            shard=shard,
            even=even,
            start_at=start_at,
        )
        return build_dataset(request)

    @property
    def local(self) -> bool:
        """Whether the files lie in a folder."""
        return self._files.local

    def request(
        self,
        split: str | None,
        *,
        shuffle: bool | int | None = None,
        seed: int | None = None,
        batch: int | None = None,
        drop_remainder: bool = False,
        interleave: int | None = None,
        repeat: int | None = 1,
        shard: tuple[int, int] | tf.distribute.InputContext | str | None = None,
        even: str | None = None,
        start_at: int = 0,
    ) -> LoadRequest:
        """What `dataset` builds from."""
        from ais_tar2tf.loading.dataset import LoadRequest

        how = shuffle_option(shuffle, seed)
        check_batching(batch, drop_remainder=drop_remainder)
        check_even(even, shard)
        if not self._files.local or self.manifest.format != "tfrecord":
            what = f"with {self.manifest.format} files{'' if self._files.local else ' in a store'}"
            check_effect("interleave", interleave, what, "they are read one after the other; leave it out")
        if how is not None and isinstance(shuffle, Shuffle | str):
            raise OptionError(f"shuffle is True or a window in records here, not {shuffle!r}")
        records = Records(self._shelf, share_of(self._parts(split), *host_of(shard), even))
        request = LoadRequest(
            manifest=self.manifest,
            records=records,
            check=lambda: [self._files.check(file.name) for file, _, _ in records.spans()],
            url=self._files.url,
            local=self._files.local,
            open_tar=lambda names: self._open_tar([self._files.url(name) for name in names]),
            window=0 if how is None else how.window,
            seed=seed,
            batch=None if batch is None else whole_number("batch", batch, least=1),
            drop_remainder=drop_remainder,
            interleave=None if interleave is None else whole_number("interleave", interleave, least=1),
            epochs=epochs_of(repeat),
            start_at=whole_number("start_at", start_at, least=0),
            split=shard is not None,
        )
        each = len(records)
        if 0 <= request.epochs * each < request.start_at:
            raise behind_the_end(request.start_at, request.epochs * each)
        return request.from_start()
