"""The scan of `inspect` and `card`: read all records, collect statistics, and note and skip bad records."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.monitoring.progress import Progress
from ais_tar2tf.base.monitoring.stats import Stats
from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.card import DataStatistics
from ais_tar2tf.cli.command import fail
from ais_tar2tf.cli.console import Console, counted
from ais_tar2tf.cli.places import as_listed, chosen_fields, chosen_grouping, extent, store_of
from ais_tar2tf.errors import AccessDenied, MissingField, SchemaError, ShardNotFound, Tar2TFError, TransportError
from ais_tar2tf.source import Source, open_source
from ais_tar2tf.streams.class_names import find_class_names

if TYPE_CHECKING:
    from ais_tar2tf.source.loaded import Loaded

__all__ = ["ScanResult", "extent_of", "next_of_bad", "scan"]

_MOST_WITHOUT_FIELD = 64  # records that all lack a requested field, until reading stops
_NOT_THE_DATA = (ShardNotFound, AccessDenied, TransportError)  # errors that are raised: the data are not at fault


class ScanResult:
    """The result of a scan.

    Attributes:
        statistics: The statistics of the records.
        stats: The counters of the source; for an export, the size of its files.
        shards: How many shards, or record files, the URLs name.
        whole: Whether every record was read.
        stopped: Whether Ctrl-C ended the reading.
        split: The first split, when record files of `convert` were read.
    """

    def __init__(self) -> None:
        self.statistics: DataStatistics = DataStatistics()
        self.stats: Stats = Stats()
        self.shards: int = 0
        self.whole: bool = False
        self.stopped: bool = False
        self.split: str | None = None


def _open(
    urls: Sequence[str],
    *,
    endpoint: str | None,
    fields: str | None,
    grouping: str | None,
    statistics: DataStatistics,
) -> Source:
    """Open the shards as a source that notes bad data in `statistics` and skips them."""

    def note(error: Tar2TFError) -> bool:
        if isinstance(error, _NOT_THE_DATA):
            return False
        statistics.add_error(error)
        return not _fits_none(statistics) or statistics.error_count < _MOST_WITHOUT_FIELD

    return open_source(
        list(urls),
        endpoint=endpoint,
        fields=chosen_fields(fields),
        grouping=chosen_grouping(grouping),
        on_error=note,
    )


def scan(
    urls: Sequence[str],
    console: Console,
    *,
    endpoint: str | None,
    fields: str | None,
    most: int | None,
    what: str,
    grouping: str | None = None,
) -> ScanResult:
    """Read every record, or the first `most` records. Ctrl-C ends the reading early.

    Args:
        urls: Shards, or the OUT of `convert`.
        console: Prints progress and errors.
        endpoint: The value of --endpoint.
        fields: The value of --fields.
        most: The value of --records.
        what: The label of the progress bar.
        grouping: The value of --grouping.
    """
    loaded = _export_at(urls[0], endpoint) if len(urls) == 1 and fields is grouping is None else None
    reading = ScanResult()
    if loaded is not None:
        _read_export(reading, loaded, console, most, what)
        return reading
    with _open(urls, endpoint=endpoint, fields=fields, grouping=grouping, statistics=reading.statistics) as source:
        reading.stats = source.stats
        reading.shards = sum(1 for _ in source.shards)
        console.detail(f"{reading.shards:,} shards")
        _name_classes(reading, source)
        with console.progress(what, reading.shards) as progress, contextlib.suppress(MissingField):
            _read(reading, source.records(), progress, most)
    if _fits_none(reading.statistics):
        tried = f"the {'' if reading.whole else 'first '}{counted(reading.statistics.error_count, 'record')}"
        remedy = f"see which fields there are: ais-tar2tf inspect --records 1 {shlex.quote(shown_url(urls[0]))}"
        fail(
            console,
            f"--fields {fields} fits none of {tried}: {reading.statistics.first_errors[0].text}",
            remedy,
            exits.USAGE,
        )
    reading.statistics.check_classes()
    return reading


def _fits_none(statistics: DataStatistics) -> bool:
    """Return whether every record so far lacks a requested field, whose name is then probably misspelt."""
    return not statistics.records and 0 < statistics.errors_by_kind[MissingField.__name__] == statistics.error_count


def _name_classes(reading: ScanResult, source: Source) -> None:
    try:
        found = find_class_names(source.opened.shards)
        reading.statistics.classes = {} if found is None else {found.field: found.names}
    except SchemaError as error:  # a damaged classes.json is noted like a bad record
        reading.statistics.add_error(error)


def next_of_bad(reading: ScanResult, urls: Sequence[str]) -> str:
    """Return what to do next about records that are bad."""
    statistics = reading.statistics
    where = shlex.quote(shown_url(urls[0]))
    if statistics.records:
        return "read past them: on_error='skip-record', or convert --on-error skip-shard"
    return f"look at the shards: ais-tar2tf ls {where}; tar, zip and TFRecord files are read"


def extent_of(urls: Sequence[str], endpoint: str | None) -> tuple[int, int]:
    """Return how many files `scan` would read, and the sum of their bytes."""
    loaded = _export_at(urls[0], endpoint) if len(urls) == 1 else None
    if loaded is None:
        return extent(urls, endpoint)
    splits = loaded.manifest.splits.values()
    return sum(len(entry.files) for entry in splits), sum(entry.bytes for entry in splits)


def _read(reading: ScanResult, records: Iterator[dict[str, Any]], progress: Progress, most: int | None) -> None:
    stats = reading.stats
    try:
        for record in records:
            reading.statistics.add(record)
            progress.add_shard(max(stats.shards - 1 - progress.shards, 0))  # the last shard is still being read
            progress.add(1, stats.bytes - progress.bytes)
            if most is not None and reading.statistics.records >= most:
                return
        reading.whole = True
    except KeyboardInterrupt:
        reading.stopped = True


def _export_at(url: str, endpoint: str | None) -> Loaded | None:
    """Return the export at a URL, or None when there is no manifest."""
    from ais_tar2tf.recordfiles.export.manifest import MANIFEST
    from ais_tar2tf.source.loaded import load

    folder = as_listed(url)
    if not folder.endswith("/"):
        return None
    store, name = store_of(folder, endpoint)
    with contextlib.closing(store):
        try:
            store.head(f"{name}{MANIFEST}")
        except (ShardNotFound, AccessDenied):  # without the right to list, stores answer 403, not 404
            return None
    return load(folder.rstrip("/"), endpoint=endpoint)


def _read_export(reading: ScanResult, loaded: Loaded, console: Console, most: int | None, what: str) -> None:
    console.detail(f"{loaded!r}")
    reading.split = next(iter(loaded.splits), None)
    reading.statistics.classes = loaded.manifest.classes
    reading.shards = sum(len(entry.files) for entry in loaded.manifest.splits.values())
    reading.stats = Stats(bytes=sum(entry.bytes for entry in loaded.manifest.splits.values()))
    with console.progress(what) as progress:
        try:
            _read(reading, _records_of(loaded), progress, most)
        except _NOT_THE_DATA:
            raise
        except Tar2TFError as error:  # a record file cannot be read past a damaged record
            reading.statistics.add_error(error)
    reading.statistics.check_classes()


def _records_of(loaded: Loaded) -> Iterator[dict[str, Any]]:
    """Yield the records of all splits, with the split's name in place of the shard's."""
    for split in loaded.splits:
        for record in loaded.records(split):
            yield {**record, "__shard__": f"split {split}"}
