"""`pack`: a folder or a CSV → tar shards in a store, each read back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.verbs import (
    Create,
    DryRun,
    Endpoint,
    Json,
    Quiet,
    ShardRecords,
    ShardSize,
    Stopped,
    Verbose,
    verb,
)

__all__ = ["pack"]


@verb
def pack(
    source: Annotated[
        Path, typer.Argument(help="a folder of files, or a CSV with a column filename", metavar="SOURCE")
    ],
    url: Annotated[str, typer.Argument(help="a template, as 'ais://bucket/train-{:05d}.tar'", metavar="URL")],
    shard_size: ShardSize = None,
    shard_records: ShardRecords = None,
    create: Create = True,
    replace: Annotated[bool, typer.Option("--replace", help="replace the shards that are there")] = False,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Pack files into tar shards, each read back to prove it.

    Files of one name are a record; images in a folder for each class get their class's number as cls.

    \b
    Example:
      ais-tar2tf pack photos/ 'ais://pets/train-{:05d}.tar'
    """
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if dry_run:
        _rehearse(console, source, url)
        return
    from ais_tar2tf.export import DEFAULT_SIZE
    from ais_tar2tf.packing.packer import pack as pack_into

    try:
        written = pack_into(
            source,
            url,
            shard_size=shard_size or (None if shard_records else DEFAULT_SIZE),
            shard_records=shard_records,
            create=create,
            exists="replace" if replace else "error",
            progress=console.bars,
            endpoint=endpoint,
        )
    except KeyboardInterrupt:
        raise Stopped(
            "the shards that are there are whole, the last ones are missing",
            "begin anew with --replace",
            in_part=True,
        ) from None

    def shown() -> None:
        for each in written:
            console.data(each)

    console.document({"shards": written}, shown)
    console.note(f"{counted(len(written), 'shard')}, each read back and found whole")


def _rehearse(console: Console, source: Path, url: str) -> None:
    from ais_tar2tf.packing import records_of

    records = size = 0
    with console.progress("counting") as progress:
        for record in records_of(source):
            records += 1
            taken = sum(len(value) for value in record.values() if isinstance(value, bytes))
            size += taken
            progress.add(1, taken)
    text = f"would pack {counted(records, 'record')} ({quantity(size)}) into {url}"
    console.document({"dry_run": True, "records": records, "bytes": size, "url": url}, lambda: console.data(text))
