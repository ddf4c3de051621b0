"""Reading everything that URLs name, for `inspect` and `card`: what is bad is noted and left out, never the end."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ais_tar2tf.account import Stats
from ais_tar2tf.card import Survey
from ais_tar2tf.class_names import find_class_names
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, counted
from ais_tar2tf.cli.places import as_listed, chosen_fields, chosen_grouping, extent, store_of
from ais_tar2tf.cli.verbs import fail
from ais_tar2tf.errors import AccessDenied, MissingField, SchemaError, ShardNotFound, Tar2TFError, TransportError
from ais_tar2tf.progress import Progress
from ais_tar2tf.signed_urls import shown_url
from ais_tar2tf.source import Source, open_source

if TYPE_CHECKING:
    from ais_tar2tf.loading.files import Loaded

__all__ = ["Reading", "extent_of", "next_of_bad", "opened", "read_all"]

_TRIED = 64  # records that all lack a field: as many as a source takes for its sample
_NO_FAULT_OF_THE_DATA = (ShardNotFound, AccessDenied, TransportError)


class Reading:
    """A survey, and what the source says of how it was read."""

    def __init__(self) -> None:
        self.survey: Survey = Survey()
        self.stats: Stats = Stats()
        self.shards: int = 0
        self.whole: bool = False  # whether every record was read
        self.stopped: bool = False  # by Ctrl-C
        self.split: str | None = None  # the first one, when record files were read


def opened(
    urls: Sequence[str],
    *,
    endpoint: str | None,
    fields: str | None,
    grouping: str | None = None,
    survey: Survey | None = None,
) -> Source:
    """The source; with `survey`, what is wrong with its data is noted there."""

    def noted(error: Tar2TFError) -> bool:
        if isinstance(error, _NO_FAULT_OF_THE_DATA) or survey is None:
            return False
        survey.fault(error)
        return not _fits_none(survey) or survey.faulty < _TRIED

    return open_source(
        list(urls),
        endpoint=endpoint,
        fields=chosen_fields(fields),
        grouping=chosen_grouping(grouping),
        on_error=noted if survey is not None else "raise",
    )


def read_all(
    urls: Sequence[str],
    console: Console,
    *,
    endpoint: str | None,
    fields: str | None,
    most: int | None,
    what: str,
    grouping: str | None = None,
) -> Reading:
    """Every record, or the first `most`. After Ctrl-C: what was read until then."""
    loaded = _export_at(urls[0], endpoint) if len(urls) == 1 and fields is grouping is None else None
    reading = Reading()
    if loaded is not None:
        _read_export(reading, loaded, console, most, what)
        return reading
    with opened(urls, endpoint=endpoint, fields=fields, grouping=grouping, survey=reading.survey) as source:
        reading.stats = source.stats
        reading.shards = sum(1 for _ in source.shards)
        console.detail(f"{reading.shards:,} shards")
        _name_classes(reading, source)
        with console.progress(what, reading.shards) as progress, contextlib.suppress(MissingField):
            _read(reading, source.records(), progress, most)
    if _fits_none(reading.survey):
        tried = f"the {'' if reading.whole else 'first '}{counted(reading.survey.faulty, 'record')}"
        there = f"see which fields there are: ais-tar2tf inspect --records 1 {shlex.quote(shown_url(urls[0]))}"
        fail(console, f"--fields {fields} fits none of {tried}: {reading.survey.bad[0].text}", there, exits.USAGE)
    reading.survey.check_classes()
    return reading


def _fits_none(survey: Survey) -> bool:
    """Return whether every record so far lacks a field that was asked for: its name is misspelt, most likely."""
    return not survey.records and 0 < survey.faults[MissingField.__name__] == survey.faulty


def _name_classes(reading: Reading, source: Source) -> None:
    try:
        found = find_class_names(source.as_shards)
        reading.survey.classes = {} if found is None else {found.field: found.names}
    except SchemaError as error:  # a damaged classes.json is bad, and not the end
        reading.survey.fault(error)


def next_of_bad(reading: Reading, urls: Sequence[str]) -> str:
    """Return what to do next about records that are bad."""
    survey = reading.survey
    where = shlex.quote(shown_url(urls[0]))
    if survey.records:
        return "read past them: on_error='skip-record', or convert --on-error skip-shard"
    return f"look at the shards: ais-tar2tf ls {where}; tar, zip and TFRecord files are read"


def extent_of(urls: Sequence[str], endpoint: str | None) -> tuple[int, int]:
    """How many files `read_all` would read, and their bytes."""
    loaded = _export_at(urls[0], endpoint) if len(urls) == 1 else None
    if loaded is None:
        return extent(urls, endpoint)
    splits = loaded.manifest.splits.values()
    return sum(len(entry.files) for entry in splits), sum(entry.bytes for entry in splits)


def _read(reading: Reading, records: Iterator[dict[str, Any]], progress: Progress, most: int | None) -> None:
    stats = reading.stats
    try:
        for record in records:
            reading.survey.add(record)
            progress.shard(max(stats.shards - 1 - progress.shards, 0))  # the last one is open, and not done
            progress.add(1, stats.bytes - progress.bytes)
            if most is not None and reading.survey.records >= most:
                return
        reading.whole = True
    except KeyboardInterrupt:
        reading.stopped = True


def _export_at(url: str, endpoint: str | None) -> Loaded | None:
    """What `convert` wrote, when that is what is there: its manifest tells."""
    from ais_tar2tf.export.manifest import MANIFEST
    from ais_tar2tf.loading.files import load

    folder = as_listed(url)
    if not folder.endswith("/"):
        return None
    store, name = store_of(folder, endpoint)
    try:
        store.head(f"{name}{MANIFEST}")
    except (ShardNotFound, AccessDenied):  # a store that lists nothing says 403 of what is not there
        return None
    finally:
        store.close()
    return load(folder.rstrip("/"), endpoint=endpoint)


def _read_export(reading: Reading, loaded: Loaded, console: Console, most: int | None, what: str) -> None:
    console.detail(f"{loaded!r}")
    reading.split = next(iter(loaded.splits), None)
    reading.survey.classes = loaded.manifest.classes
    reading.shards = sum(len(entry.files) for entry in loaded.manifest.splits.values())
    reading.stats = Stats(bytes=sum(entry.bytes for entry in loaded.manifest.splits.values()))
    with console.progress(what) as progress:
        try:
            _read(reading, _of_splits(loaded), progress, most)
        except _NO_FAULT_OF_THE_DATA:
            raise
        except Tar2TFError as error:  # there is no going on behind a record that is broken
            reading.survey.fault(error)
    reading.survey.check_classes()


def _of_splits(loaded: Loaded) -> Iterator[dict[str, Any]]:
    """The records with the split that they are of."""
    for split in loaded.splits:
        for record in loaded.records(split):
            yield {**record, "__shard__": f"split {split}"}
