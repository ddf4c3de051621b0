"""`convert`: shards → record files; run again, it goes on where it was."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.verbs import (
    ON_ERRORS,
    Align,
    DryRun,
    Endpoint,
    Exists,
    Fields,
    Format,
    Grouping,
    Json,
    OnErrors,
    Quiet,
    ShardRecords,
    ShardSize,
    Stopped,
    Urls,
    Verbose,
    fail,
    refuse_flag,
    verb,
)
from ais_tar2tf.errors import AccessDenied, OptionError
from ais_tar2tf.nearest import check_choice
from ais_tar2tf.stores import has_endpoint

if TYPE_CHECKING:
    from ais_tar2tf.account import Stats
    from ais_tar2tf.loading.files import Loaded
    from ais_tar2tf.source import Source

__all__ = ["convert", "tell_finished"]


@verb
def convert(
    urls: Urls,
    out: Annotated[str, typer.Argument(help="where to write: a folder or a URL", metavar="OUT")],
    kind: Format = "tfrecord",
    name: Annotated[str, typer.Option(help="the first part of the files' names", metavar="NAME")] = "dataset",
    split: Annotated[str, typer.Option(help="the split's name", metavar="NAME")] = "train",
    shard_size: ShardSize = None,
    shard_records: ShardRecords = None,
    align: Align = None,
    shard: Annotated[
        str | None, typer.Option(help="i/n, from 0: this host's part of a job array, for `finish`", metavar="I/N")
    ] = None,
    runner: Annotated[
        str | None,
        typer.Option(
            help="of Apache Beam, as DirectRunner or DataflowRunner: a work item for each shard", metavar="NAME"
        ),
    ] = None,
    runner_option: Annotated[
        list[str] | None,
        typer.Option(help="for the runner, as direct_num_workers=2; may be repeated", metavar="NAME=VALUE"),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="processes; all cores when left out", min=1, metavar="N")
    ] = None,
    exists: Exists = "resume",
    resume: Annotated[bool, typer.Option("--resume", help="go on with what is there: the default")] = False,
    types: Annotated[
        str | None, typer.Option("--types", help="fields that are numbers, as 'cls=int64'", metavar="NAME=TYPE")
    ] = None,
    idx: Annotated[bool, typer.Option("--idx", help="DALI's index beside each TFRecord file")] = False,
    on_error: OnErrors = "raise",
    fields: Fields = None,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write record files that TensorFlow, TFDS and others read.

    Ended by Ctrl-C or killed, the same command goes on. It ends with 7 when records were skipped. On many hosts:
    each runs it with --shard I/N, and when all are done, one runs `finish OUT`.

    \b
    Example:
      ais-tar2tf convert 'ais://imagenet/train-{000..146}.tar' out/
    """
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    from ais_tar2tf.cli.places import check_written, chosen_fields, chosen_grouping
    from ais_tar2tf.export import DEFAULT_SIZE
    from ais_tar2tf.source import open_source

    check_written(out, "OUT")
    if Path(out).is_file():
        raise OptionError(f"OUT is a folder or a URL, and {out} is a file: is OUT missing behind the shards?")
    check_choice("--on-error", on_error, ON_ERRORS)
    share = None if shard is None else _share(shard)
    if resume and exists != "resume":
        raise OptionError(f"--resume and --exists {exists} contradict each other")
    if runner is not None and (workers is not None or share is not None):
        raise OptionError("--workers and --shard are not for --runner: a runner decides who does what")
    if runner is None:
        refuse_flag(
            "--runner-option", runner_option, "without --runner", "say --runner DirectRunner, or leave it out"
        )
    if kind != "tfrecord":
        refuse_flag("--idx", idx, f"with --format {kind}", "DALI's index is of TFRecord files; leave it out")
    if kind == "tar":
        refuse_flag("--types", types, "with --format tar", "members of a tar are bytes; say --format tfrecord")
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
            _rehearse(console, urls, out, endpoint, {**export, "shard": share})
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
        _show_part(console, out, share, files, stats)
    else:
        tell_finished(console, out, endpoint, files, stats, split, read_here=runner is None)


def _types(text: str | None) -> dict[str, str] | None:
    """Read `cls=int64,score=float32`."""
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(name.strip() and how.strip() for name, _, how in pairs):
        raise OptionError(f"--types is NAME=TYPE, several with commas, as cls=int64, not {text!r}")
    return {name.strip(): how.strip() for name, _, how in pairs}


def _share(text: str) -> tuple[int, int]:
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


def _show_part(console: Console, out: str, share: tuple[int, int], files: Sequence[str], stats: Stats) -> None:
    host, of = share
    document = {"host": host, "hosts": of, "files": list(files), "read": _read(stats)}
    console.document(document, lambda: console.data(f"part {host} of {of}: {stats.records_emitted:,} records"))
    console.note(f"when all {of} are done: ais-tar2tf finish {out}")


def tell_finished(
    console: Console,
    out: str,
    endpoint: str | None,
    files: Sequence[str] | None,
    stats: Stats,
    split: str | None,
    *,
    read_here: bool = True,
) -> None:
    """What stands in `out` now, as a table or a document; ends with 7 when records were skipped."""
    from ais_tar2tf.loading.files import load

    loaded = load(out, endpoint=endpoint if has_endpoint(out) else None)
    chosen = [split] if split else sorted(loaded.splits)
    shown = [file for each in chosen for file in loaded.files(each)] if files is None else files
    console.document(_document(loaded, shown, stats), lambda: _show(console, loaded, shown))
    if read_here and not stats.shards:
        console.note("all records were written before, so nothing was read")
    for each in chosen:
        _end(console, loaded, each, out)


def _make_bucket(out: str, endpoint: str | None) -> None:
    """As `put` and `pack` do. Who may not make one may still write into one that is there."""
    from ais_tar2tf.cli.places import as_listed, store_of

    if not out.startswith("ais://"):
        return
    store, _ = store_of(as_listed(out), endpoint)
    with contextlib.closing(store), contextlib.suppress(AccessDenied):
        store.create()


def _end(console: Console, loaded: Loaded, split: str, out: str) -> None:
    skipped = loaded.manifest.splits[split].skipped
    if skipped:
        told = ", ".join(f"{count:,} × {kind}" for kind, count in skipped.items())
        fail(console, f"done in part: {told} skipped", "see what was wrong: ais-tar2tf inspect URL…", exits.PART)
    console.note(f"load it: t2t.load({out!r}).dataset({split!r}) · prove it: ais-tar2tf verify {out}")


def _rehearse(
    console: Console, urls: Sequence[str], out: str, endpoint: str | None, export: Mapping[str, Any]
) -> None:
    """What does not fit together is refused here as well."""
    from ais_tar2tf.cli.places import extent
    from ais_tar2tf.export.request import ExportOptions

    ExportOptions(**export).check()
    shards, size = extent(urls, endpoint)
    document = {"dry_run": True, "shards": shards, "bytes": size, "out": out}
    text = f"would read {counted(shards, 'shard')} ({quantity(size)}) and write record files to {out}"
    console.document(document, lambda: console.data(text))


def _document(loaded: Loaded, files: Sequence[str], stats: Stats) -> dict[str, Any]:
    splits = {
        name: {"records": entry.records, "bytes": entry.bytes, "files": len(entry.files), "skipped": entry.skipped}
        for name, entry in loaded.manifest.splits.items()
    }
    return {"format": loaded.manifest.format, "files": list(files), "splits": splits, "read": _read(stats)}


def _read(stats: Stats) -> dict[str, int]:
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
