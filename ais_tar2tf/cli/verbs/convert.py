"""`convert`: write shards as record files, or resume a conversion that was interrupted.

This module checks the flags and prints the result. `Source.export` or a pipeline of Apache Beam converts the shards.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.choices import ON_ERRORS
from ais_tar2tf.cli.command import (
    Align,
    DryRun,
    Endpoint,
    Exists,
    Fields,
    Format,
    Grouping,
    OnErrors,
    ShardRecords,
    ShardSize,
    Stopped,
    Urls,
    fail,
    refuse_flag,
    show_dry_run,
    verb,
)
from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.errors import AccessDenied, OptionError
from ais_tar2tf.stores import has_endpoint

if TYPE_CHECKING:
    from ais_tar2tf.base.monitoring.stats import Stats
    from ais_tar2tf.source import Source
    from ais_tar2tf.source.loaded import Loaded

__all__ = ["convert", "show_finished"]


@verb()
def convert(
    console: Console,
    urls: Urls,
    out: Annotated[str, typer.Argument(help="the folder or URL to write to", metavar="OUT")],
    kind: Format = "tfrecord",
    name: Annotated[str, typer.Option(help="the first part of the files' names", metavar="NAME")] = "dataset",
    split: Annotated[str, typer.Option(help="the split's name", metavar="NAME")] = "train",
    shard_size: ShardSize = None,
    shard_records: ShardRecords = None,
    align: Align = None,
    shard: Annotated[
        str | None,
        typer.Option(help="convert only part I of N (from 0) on this host; `finish` publishes", metavar="I/N"),
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option(
            help="convert with Apache Beam on this runner, as DirectRunner or DataflowRunner", metavar="NAME"
        ),
    ] = None,
    runner_option: Annotated[
        list[str] | None,
        typer.Option(help="an option of the runner, as direct_num_workers=2; repeatable", metavar="NAME=VALUE"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="the number of processes; all cores when left out", min=1, metavar="N")
    ] = None,
    exists: Exists = "resume",
    resume: Annotated[
        bool, typer.Option("--resume", help="continue an interrupted conversion; this is the default")
    ] = False,
    types: Annotated[
        str | None,
        typer.Option("--types", help="the types of fields that are numbers, as 'cls=int64'", metavar="NAME=TYPE"),
    ] = None,
    idx: Annotated[bool, typer.Option("--idx", help="also write DALI's index of each TFRecord file")] = False,
    on_error: OnErrors = "raise",
    fields: Fields = None,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
) -> None:
    """Convert shards into record files for TensorFlow, TFDS and others.

    After Ctrl-C or a crash, the same command resumes. The exit code is 7 when records were skipped. To convert on
    several hosts, run it on each host with --shard I/N, and when all are done, run `finish OUT` once.

    Example:
      ais-tar2tf convert 'ais://imagenet/train-{000..146}.tar' out/
    """
    from ais_tar2tf.cli.places import check_written, chosen_fields, chosen_grouping
    from ais_tar2tf.recordfiles.export import DEFAULT_SIZE
    from ais_tar2tf.source import open_source

    check_written(out, "OUT")
    if Path(out).is_file():
        raise OptionError(
            f"OUT, the last argument, is a folder or a URL, but {out} is a file: if this file is a shard, add OUT"
        )
    check_choice("--on-error", on_error, ON_ERRORS)
    share = None if shard is None else _share(shard)
    if resume and exists != "resume":
        raise OptionError(f"--resume and --exists {exists} contradict each other")
    _check_runner(runner, runner_option, workers, share)
    _check_format(kind, types, idx=idx)
    export: dict[str, Any] = {
        "format": kind,
        "name": name,
        "split": split,
        "shard_size": shard_size or (None if shard_records else DEFAULT_SIZE),
        "shard_records": shard_records,
        "align": align or ("stream" if share is None and runner is None else "shard"),
        "exists": exists,
        "idx": idx,
        "types": _types(types),
        "endpoint": endpoint if has_endpoint(out) else None,
    }
    reading: dict[str, Any] = {
        "endpoint": endpoint if any(map(has_endpoint, urls)) else None,
        "fields": chosen_fields(fields),
        "grouping": chosen_grouping(grouping),
        "on_error": on_error,
    }
    with open_source(list(urls), **reading) as source:
        if dry_run:
            _dry_run(console, urls, out, endpoint, {**export, "shard": share})
            return
        _make_bucket(out, endpoint)
        try:
            if runner is not None:
                _run_beam(source, out, runner, runner_option or [], reading, export)
                files = None
            else:
                files = source.export(out, **export, shard=share, workers=workers, progress=console.bars)
        except KeyboardInterrupt:
            done = f"{counted(source.stats.records_emitted, 'record')} of {out} are written and will be used"
            raise Stopped(done, "the same command goes on from there", in_part=True) from None
        stats = source.stats
    if share is not None and files is not None:
        _show_share(console, out, share, files, stats)
    else:
        show_finished(console, out, endpoint, files, stats, split, read_here=runner is None)


def _check_runner(
    runner: str | None, options: Sequence[str] | None, workers: int | None, share: tuple[int, int] | None
) -> None:
    """Refuse flags that contradict --runner, and flags that have no effect without --runner."""
    if runner is not None and (workers is not None or share is not None):
        raise OptionError("--workers and --shard are not for --runner: a runner decides who does what")
    if runner is None:
        refuse_flag("--runner-option", options, "without --runner", "say --runner DirectRunner, or leave it out")


def _check_format(kind: str, types: str | None, *, idx: bool) -> None:
    """Refuse flags that have no effect on files of this format."""
    from ais_tar2tf.recordfiles.formats import find_format

    record_format, where = find_format(kind), f"with --format {kind}"
    if not record_format.supports_index:
        refuse_flag("--idx", idx, where, "DALI's index is of TFRecord files; leave it out")
    if not record_format.holds_examples:
        refuse_flag("--types", types, where, f"members of a {kind} are bytes; say --format tfrecord")


def _types(text: str | None) -> dict[str, str] | None:
    """Return the type of each field that a text such as `cls=int64,score=float32` names."""
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name.strip() and how.strip() for name, _, how in pairs):
        raise OptionError(f"--types is NAME=TYPE, several with commas, as cls=int64, not {text!r}")
    return {name.strip(): how.strip() for name, _, how in pairs}


def _share(text: str) -> tuple[int, int]:
    """Return the number of a host and the number of hosts: (3, 16) for the text `3/16`."""
    host, separator, of = text.partition("/")
    if not (separator and host.isdecimal() and of.isdecimal()):
        raise OptionError(f"--shard is I/N, as 3/16, not {text!r}")
    if int(host) >= int(of):
        raise OptionError(f"--shard {text}: hosts are counted from 0, so the last of {of} is {int(of) - 1}/{of}")
    return int(host), int(of)


def _run_beam(
    source: Source,
    out: str,
    runner: str,
    options: Sequence[str],
    reading: dict[str, Any],
    export: dict[str, Any],
) -> None:
    from ais_tar2tf.cluster.beam import run_pipeline

    options = [each if each.startswith("--") else f"--{each}" for each in options]
    run_pipeline(list(source.shards), out, runner=runner, options=options, source=reading, **export)


def _show_share(console: Console, out: str, share: tuple[int, int], files: Sequence[str], stats: Stats) -> None:
    host, of = share
    document = {"host": host, "hosts": of, "files": list(files), "read": _read(stats)}
    console.document(document, lambda: console.data(f"part {host} of {of}: {stats.records_emitted:,} records"))
    console.note(f"when all {of} are done: ais-tar2tf finish {out}")


def show_finished(
    console: Console,
    out: str,
    endpoint: str | None,
    files: Sequence[str] | None,
    stats: Stats,
    split: str | None,
    *,
    read_here: bool = True,
) -> None:
    """Print the contents of the export at `out` as a table or a JSON document. Exit with 7 when records were skipped.

    Args:
        console: Prints the contents.
        out: The folder or URL of the export.
        endpoint: The endpoint of the store that holds the export.
        files: The files that this command wrote; None to show all files of `split`.
        stats: Counts of the shards and bytes that this command read.
        split: The split that was published; None for all splits.
        read_here: Whether this process read the shards.
    """
    from ais_tar2tf.source.loaded import load

    loaded = load(out, endpoint=endpoint if has_endpoint(out) else None)
    chosen = [split] if split else sorted(loaded.splits)
    shown = [file for each in chosen for file in loaded.files(each)] if files is None else files
    console.document(_document(loaded, shown, stats), lambda: _show(console, loaded, shown))
    if read_here and not stats.shards:
        console.note("all records were written before, so nothing was read")
    for each in chosen:
        _finish_split(console, loaded, each, out)


def _make_bucket(out: str, endpoint: str | None) -> None:
    """Create the bucket of `out` if it does not exist.

    A refusal is ignored, because a user who may not create buckets may still write to an existing bucket.
    """
    from ais_tar2tf.cli.places import as_listed, store_of

    if not out.startswith("ais://"):
        return
    store, _ = store_of(as_listed(out), endpoint)
    with contextlib.closing(store), contextlib.suppress(AccessDenied):
        store.create()


def _finish_split(console: Console, loaded: Loaded, split: str, out: str) -> None:
    """Print how to load a split, or exit with 7 when records of the split were skipped."""
    skipped = loaded.manifest.splits[split].skipped
    if skipped:
        counts = ", ".join(f"{count:,} × {kind}" for kind, count in skipped.items())
        fail(console, f"done in part: {counts} skipped", "see what was wrong: ais-tar2tf inspect URL…", exits.PART)
    console.note(f"load it: t2t.load({out!r}).dataset({split!r}) · prove it: ais-tar2tf verify {out}")


def _dry_run(
    console: Console, urls: Sequence[str], out: str, endpoint: str | None, export: Mapping[str, Any]
) -> None:
    """Check the options as the export does, and print what the export would read and write."""
    from ais_tar2tf.cli.places import extent
    from ais_tar2tf.recordfiles.export.request import ExportOptions

    ExportOptions(**export).check()
    show_dry_run(console, extent(urls, endpoint), f"write record files to {out}", out=out)


def _document(loaded: Loaded, files: Sequence[str], stats: Stats) -> dict[str, Any]:
    splits = {
        name: {"records": entry.records, "bytes": entry.bytes, "files": len(entry.files), "skipped": entry.skipped}
        for name, entry in loaded.manifest.splits.items()
    }
    return {"format": loaded.manifest.format, "files": list(files), "splits": splits, "read": _read(stats)}


def _read(stats: Stats) -> dict[str, int]:
    """Return the entry `read` of the JSON document, which counts shards, bytes, retries and resumes."""
    return {"shards": stats.shards, "bytes": stats.bytes, "retries": stats.retries, "resumes": stats.resumes}


def _show(console: Console, loaded: Loaded, files: Sequence[str]) -> None:
    for each in files:
        console.detail(each)
    rows = [
        [
            name,
            f"{len(entry.files):,}",
            f"{entry.records:,}",
            quantity(entry.bytes),
            f"{sum(entry.skipped.values()):,}",
            f"{entry.ignored:,}",
        ]
        for name, entry in loaded.manifest.splits.items()
    ]
    headings = ("split", "files", "records", "bytes", "skipped", "ignored")
    console.table(headings, rows, right=frozenset(range(1, len(headings))))
