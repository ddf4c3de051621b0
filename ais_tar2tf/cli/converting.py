"""`convert`: shards → record files; run again, it goes on where it was."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.verbs import (
    Align,
    DryRun,
    Endpoint,
    Exists,
    Fields,
    Format,
    Json,
    OnErrors,
    Out,
    Quiet,
    ShardRecords,
    ShardSize,
    Stopped,
    Urls,
    Verbose,
    fail,
    verb,
)
from ais_tar2tf.errors import AccessDenied

if TYPE_CHECKING:
    from ais_tar2tf.account import Stats
    from ais_tar2tf.loaded import Loaded

__all__ = ["convert"]


@verb
def convert(
    urls: Urls,
    out: Out,
    kind: Format = "tfrecord",
    name: Annotated[str, typer.Option(help="the first part of the files' names", metavar="NAME")] = "dataset",
    split: Annotated[str, typer.Option(help="the split's name", metavar="NAME")] = "train",
    shard_size: ShardSize = None,
    shard_records: ShardRecords = None,
    align: Align = "stream",
    workers: Annotated[
        int | None, typer.Option(help="processes; all cores when left out", min=1, metavar="N")
    ] = None,
    exists: Exists = "resume",
    idx: Annotated[bool, typer.Option("--idx", help="DALI's index beside each TFRecord file")] = False,
    on_error: OnErrors = "raise",
    fields: Fields = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write record files that TensorFlow, TFDS and others read.

    Ended by Ctrl-C or killed, the same command goes on. It ends with 7 when records were skipped.

    \b
    Example:
      ais-tar2tf convert 'ais://imagenet/train-{000..146}.tar' out/
    """
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if dry_run:
        _rehearse(console, urls, out, endpoint)
        return
    from ais_tar2tf.cli.places import as_template, chosen_fields
    from ais_tar2tf.export import DEFAULT_SIZE
    from ais_tar2tf.loaded import load
    from ais_tar2tf.source import open_source

    size = shard_size or (None if shard_records else DEFAULT_SIZE)
    templates = [as_template(url) for url in urls]
    with open_source(templates, endpoint=endpoint, fields=chosen_fields(fields), on_error=on_error) as source:
        _make_bucket(out, endpoint)
        try:
            files = source.export(
                out,
                format=kind,
                name=name,
                split=split,
                shard_size=size,
                shard_records=shard_records,
                align=align,
                workers=workers,
                exists=exists,
                idx=idx,
                progress=console.bars,
                endpoint=endpoint,
            )
        except KeyboardInterrupt:
            done = f"{counted(source.stats.records_emitted, 'record')} of {out} are written and will be used"
            raise Stopped(done, "the same command goes on from there", in_part=True) from None
        stats = source.stats
    loaded = load(out, endpoint=endpoint)
    console.document(_document(loaded, files, stats), lambda: _show(console, loaded, files))
    if not stats.shards:
        console.note("all records were written before, so nothing was read")
    _end(console, loaded, split, out)


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
        fail(console, f"done in part: {told} skipped", "see what was wrong: ais-tar2tf inspect URL", exits.PART)
    console.note(f"load it: t2t.load({out!r}).dataset({split!r}) · prove it: ais-tar2tf verify {out}")


def _rehearse(console: Console, urls: Sequence[str], out: str, endpoint: str | None) -> None:
    from ais_tar2tf.cli.places import objects

    shards = size = 0
    for _, info in objects(urls, endpoint):
        shards += 1
        size += info.size or 0
    document = {"dry_run": True, "shards": shards, "bytes": size, "out": out}
    text = f"would read {counted(shards, 'shard')} ({quantity(size)}) and write record files to {out}"
    console.document(document, lambda: console.data(text))


def _document(loaded: Loaded, files: Sequence[str], stats: Stats) -> dict[str, Any]:
    splits = {
        name: {"records": entry.records, "bytes": entry.bytes, "files": len(entry.files), "skipped": entry.skipped}
        for name, entry in loaded.manifest.splits.items()
    }
    read = {"shards": stats.shards, "bytes": stats.bytes, "retries": stats.retries, "resumes": stats.resumes}
    return {"format": loaded.manifest.format, "files": list(files), "splits": splits, "read": read}


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
