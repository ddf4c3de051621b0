"""`t2t.load`: open the record files that a manifest lists, as a sequence of records and as datasets.

This module must not read record files by itself: `recordfiles/loading/` does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Unpack, overload

from ais_tar2tf.base.completion import Completed
from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.shared_options import takes_options_of
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.base.urls.templates import escape
from ais_tar2tf.errors import AccessDenied, ExportError, OptionError
from ais_tar2tf.options import RequestKeywords, Shuffle, check_effect
from ais_tar2tf.recordfiles.export.destinations import open_destination
from ais_tar2tf.recordfiles.export.manifest import MANIFEST, Manifest
from ais_tar2tf.recordfiles.export.publish import read_manifest
from ais_tar2tf.recordfiles.export.splits import SplitRange, host_ranges, split_ranges, unknown_split
from ais_tar2tf.recordfiles.loading.random_access import RecordFiles, RecordSequence
from ais_tar2tf.recordfiles.loading.stored_files import Files, files_at
from ais_tar2tf.recordfiles.loading.values import decoded
from ais_tar2tf.recordfiles.loading.verify import Verified, verify
from ais_tar2tf.records import Record
from ais_tar2tf.source import Source, open_source
from ais_tar2tf.source.dataset_options import DatasetOptions, LoadedDatasetKeywords, LoadedRecordsKeywords
from ais_tar2tf.source.opening import OpenOptions
from ais_tar2tf.stores import TokenSource, check_access
from ais_tar2tf.streams.arguments import host_of, read_options
from ais_tar2tf.streams.datasets.loops import in_batches
from ais_tar2tf.streams.order import start_after_end
from ais_tar2tf.values.schema import Schema

if TYPE_CHECKING:
    import tensorflow as tf

    from ais_tar2tf.recordfiles.loading.dataset import LoadRequest

__all__ = ["Loaded", "load"]


@known_options
@takes_options_of(OpenOptions, RequestKeywords)
def load(
    out: str | os.PathLike[str],
    *,
    endpoint: str | None = None,
    token: TokenSource | None = None,
    **options: Unpack[RequestKeywords],
) -> Loaded:
    """Open the record files that `Source.export` or `t2t.write_dataset` wrote.

    Args:
        out: The folder or the URL of the record files.
        endpoint: The URL of the AIStore proxy, or of the cloud's endpoint. Default: from the environment.
        token: An AuthN token for `ais://`, or a function that returns one.
        **options: See `OpenOptions`.

    Returns:
        The loaded export: a sequence of the records of all splits, with methods that make datasets.

    Raises:
        ExportError: There is no manifest, so no export was finished there; or the manifest is damaged.
        StoreError: The store cannot be read.
    """
    where = location_text(out)
    check_access(where, endpoint=endpoint, token=token)
    read = read_options(**options)
    place = open_destination(where, read=read, endpoint=endpoint, token=token)
    files = files_at(where, read, endpoint=endpoint, token=token)
    try:
        manifest = read_manifest(place)
    except PermissionError as error:
        raise AccessDenied("it may not be read", url=place.url(MANIFEST)) from error
    if manifest is None:
        why = "there is no manifest, so no export was finished there; shards are read by t2t.open"
        raise ExportError(f"{place.url(MANIFEST)}: {why}") from FileNotFoundError(MANIFEST)
    return Loaded(where, manifest, files, {"endpoint": endpoint, "token": token})


class Loaded(Completed):
    """The record files of an export, with all of their splits.

    `loaded[i]`, slices and `len` refer to the records of all splits. The splits are in the order of their names.

    Attributes:
        manifest: The document that lists the files, their checksums and the schema.
    """

    __hidden__ = frozenset({"local", "request"})

    def __init__(self, where: str, manifest: Manifest, files: Files, access: dict[str, Any]) -> None:
        self.manifest: Manifest = manifest
        self._where = where
        self._unbound = files  # for `verify`: reading a bound file fails if the file was replaced
        self._files = files.bound(file for entry in manifest.splits.values() for file in entry.files)
        self._access = access
        self._record_files = RecordFiles(self._files, manifest, lambda url: self._open_tar([url]).records())

    def __repr__(self) -> str:
        splits = ", ".join(f"{name}: {count:,}" for name, count in self.splits.items())
        return f"<Loaded {self.manifest.format} at {self._where}: {splits or 'no records'}>"

    @property
    def splits(self) -> dict[str, int]:
        """The number of records of each split."""
        return {name: entry.records for name, entry in sorted(self.manifest.splits.items())}

    @property
    def schema(self) -> Schema:
        """The types of the fields.

        `t2t.parsing.parse_spec(loaded.schema)` returns the features with which tf.io parses the tf.train.Examples.
        """
        return self.manifest.schema

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of their numbers; `()` if there are none, or the splits differ."""
        return next(iter(self.manifest.classes.values()), ())

    @property
    def local(self) -> bool:
        """Whether the files are in a folder, not in an object store."""
        return self._files.local

    @known_options
    def files(self, split: str) -> list[str]:
        """List the files of a split.

        Args:
            split: The name of the split.

        Returns:
            The paths or URLs, in order.

        Raises:
            OptionError: There is no split of this name.
        """
        entry = self.manifest.splits.get(split)
        if entry is None:
            raise unknown_split(split, self.splits)
        return [self._files.url(file.name) for file in entry.files]

    @known_options
    def split(self, expression: str) -> RecordSequence:
        """Select the records of one or more splits, or of parts of them.

        Args:
            expression: Names of splits, with slices written as in TFDS: `"train"`, `"train[:10%]+val"`.

        Returns:
            A sequence, from which records are read by number.

        Raises:
            OptionError: The expression is malformed, or there is no such split.
        """
        return self._sequence(expression)

    def __len__(self) -> int:
        """Return the number of records in all splits."""
        return sum(self.splits.values())

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        """Read records by their numbers in the sequence of all splits.

        Args:
            at: A number or a slice. Negative numbers count from the end.

        Returns:
            A record, or a list of records.

        Raises:
            NoSuchRecord: There is no record with this number.
        """
        return self._sequence(None)[at]

    def __iter__(self) -> Iterator[Record]:
        """Return `self.records()`."""
        return self.records()

    @known_options
    @takes_options_of(DatasetOptions, LoadedRecordsKeywords)
    def records(self, split: str | None = None, **options: Unpack[LoadedRecordsKeywords]) -> Iterator[Record]:
        """Iterate over the records as dicts. TensorFlow is not needed.

        The options mean the same as for `dataset`. With the same options, both methods give the same records in the
        same order, unless `tf.random.set_seed` was called.

        Args:
            split: The name of a split, or an expression for `split()`. Default: all splits.
            shuffle: True, or a window in records.
            seed: The seed of the shuffle. Default: every run draws another seed.
            **options: See `DatasetOptions`.

        Returns:
            An iterator over records. With `batch`, a dict holds a list for each field.

        Raises:
            OptionError: An option has a wrong value, or no effect; or there is no such split.
            StoreError: A file cannot be read, or was replaced since the export.
            ArchiveError: A file is damaged.
            MappingError: A field cannot be decoded.
        """
        from ais_tar2tf.recordfiles.loading.loops import records_of

        given = DatasetOptions(**options)
        request = self.request(split, given)
        records = records_of(request)
        if given.decoding is not None:
            records = decoded(records, given.decoding, self._sequence(split), self._where)
        if request.batch is None:
            return records
        return in_batches(records, request.batch, drop_remainder=request.drop_remainder)

    @known_options
    @takes_options_of(DatasetOptions, LoadedDatasetKeywords)
    def dataset(self, split: str = "train", **options: Unpack[LoadedDatasetKeywords]) -> tf.data.Dataset[Any]:
        """Make a tf.data.Dataset of known length. Its elements are dicts with a tensor for each field.

        If a record lacks a field, the tensor of this field is the empty string, or has no values.

        Args:
            split: The name of a split, or an expression for `split()`.
            shuffle: True, or a window in records.
            seed: The seed of the shuffle. Default: every run draws another seed.
            **options: See `DatasetOptions`.

        Returns:
            A dataset of records, or of batches.

        Raises:
            OptionError: An option has a wrong value, or no effect; or there is no such split.
            StoreError: A file cannot be read, or was replaced since the export.
            ArchiveError: A file is damaged.
        """
        from ais_tar2tf.recordfiles.loading.dataset import build_dataset

        return build_dataset(self.request(split, DatasetOptions(**options)))

    @known_options
    def verify(self, *, progress: bool | None = None) -> Verified:
        """Read every byte of every file, and check the checksums, the records and their number.

        Args:
            progress: Whether to show a progress bar. Default: only on a terminal.

        Returns:
            The number of files, records and bytes.

        Raises:
            StoreError: A file cannot be read, or was replaced since the export.
            ArchiveError: A file is damaged, or has another number of records than the manifest states. The error
                names the file and the offset.
            ExportError: An index or the document of features does not describe the files.
        """
        return verify(self._unbound, self.manifest, progress)

    def request(self, split: str | None, options: DatasetOptions) -> LoadRequest:
        """Check the options, and return the request from which a dataset is built.

        Raises:
            OptionError: An option has a wrong value, or no effect; or there is no such split.
        """
        from ais_tar2tf.recordfiles.loading.dataset import LoadRequest

        if not self.local or not self.manifest.record_format.read_by_tensorflow:
            where = f"with {self.manifest.format} files{'' if self.local else ' in a store'}"
            check_effect("interleave", options.interleave, where, "they are read one after the other; leave it out")
        strategy = options.strategy
        if strategy is not None and isinstance(options.shuffle, Shuffle | str):
            raise OptionError(f"for record files, shuffle is True or a window in records, not {options.shuffle!r}")
        loop = options.loop(None)
        parts = host_ranges(self._parts(split), *host_of(options.shard), options.even)
        records = RecordSequence(self._record_files, parts)
        if 0 <= loop.epochs * len(records) < loop.start_at:
            raise start_after_end(loop.start_at, loop.epochs * len(records))
        request = LoadRequest(
            manifest=self.manifest,
            records=records,
            check=lambda: [self._files.check(file.name) for file, _, _ in records.spans()],
            url=self._files.url,
            local=self.local,
            open_tar=lambda names: self._open_tar([self._files.url(name) for name in names]),
            window=0 if strategy is None else strategy.window,
            seed=options.seed,
            batch=loop.batch,
            drop_remainder=loop.drop_remainder,
            interleave=options.files_at_once,
            epochs=loop.epochs,
            start_at=loop.start_at,
            sharded=options.shard is not None,
        )
        return request.from_start()

    def _open_tar(self, urls: Sequence[str]) -> Source:
        return open_source(list(map(escape, urls)), index=False, **self._access)

    def _parts(self, split: str | None) -> list[SplitRange]:
        if split is not None:
            return split_ranges(split, self.splits)
        return [SplitRange(name, 0, count) for name, count in self.splits.items()]

    def _sequence(self, split: str | None) -> RecordSequence:
        return RecordSequence(self._record_files, self._parts(split))
