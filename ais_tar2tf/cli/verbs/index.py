"""`index`: write an index of shards, which tells how many records they have and where each record begins."""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.cli.command import DryRun, Endpoint, Grouping, Stopped, Urls, refuse_flag, show_dry_run, verb
from ais_tar2tf.cli.console import Console, counted

__all__ = ["index"]


@verb()
def index(
    console: Console,
    urls: Urls,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="write the index to this folder or file; to a .json file, in webdataset's wids format",
            metavar="PLACE",
        ),
    ] = None,
    counts_only: Annotated[
        bool,
        typer.Option("--counts-only", help="only count the records, which AIStore can do without reading the shards"),
    ] = False,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
) -> None:
    """Index the records of shards.

    With an index, a source knows its number of records, len(src), and reads a single record, src[i], in one request.
    By default, the index is a file next to the shards. Shards that have not changed since the last indexing are not
    read again.

    Example:
      ais-tar2tf index 'ais://imagenet/train-{000..146}.tar'
    """
    from ais_tar2tf.cli.places import chosen_grouping, extent
    from ais_tar2tf.source import index_shards

    if not any(url.startswith("ais://") for url in urls):
        advice = "only AIStore (ais://) can count records without reading; leave out --counts-only"
        refuse_flag("--counts-only", counts_only, f"for {shown_url(urls[0])!r}", advice)
    place = f"at {out}" if out else "next to the shards"
    checked_grouping = chosen_grouping(grouping)
    if dry_run:
        show_dry_run(console, extent(urls, endpoint), f"write an index {place}")
        return
    try:
        written = index_shards(
            list(urls),
            out,
            endpoint=endpoint,
            progress=console.bars,
            counts_only=counts_only,
            grouping=checked_grouping,
        )
    except KeyboardInterrupt:
        raise Stopped("no index was written", "name fewer shards at a time", in_part=False) from None
    shards = [{"shard": shard.name, "records": shard.records} for shard in written]
    rows = [[shard.name, f"{shard.records:,}"] for shard in written]
    document = {"records": written.records, "shards": shards}
    console.document(document, lambda: console.table(("shard", "records"), rows, right=frozenset({1})))
    console.note(f"{counted(written.records, 'record')} in {counted(len(shards), 'shard')}; the index is {place}")
