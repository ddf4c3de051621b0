"""`index`: how many records each shard has and where they begin, written beside the shards."""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.verbs import DryRun, Endpoint, Grouping, Json, Quiet, Stopped, Urls, Verbose, refuse_flag, verb
from ais_tar2tf.signed_urls import shown_url

__all__ = ["index"]


@verb
def index(
    urls: Urls,
    out: Annotated[
        str | None,
        typer.Option(
            "--out", "-o", help="a folder or file elsewhere; one in .json is webdataset's wids", metavar="PLACE"
        ),
    ] = None,
    counts_only: Annotated[
        bool, typer.Option("--counts-only", help="how many records there are, and no more; AIStore lists that unread")
    ] = False,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Count and find records, so that datasets have a length.

    With an index beside the shards len(src) is known, and src[i] is one request. Shards whose entry is there and
    still true are not read again.

    \b
    Example:
      ais-tar2tf index 'ais://imagenet/train-{000..146}.tar'
    """
    from ais_tar2tf.cli.places import chosen_grouping, extent
    from ais_tar2tf.source import index_shards

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if not any(url.startswith("ais://") for url in urls):
        where = f"for {shown_url(urls[0])!r}"
        refuse_flag("--counts-only", counts_only, where, "AIStore (ais://) lists what is in shards; leave it out")
    where = out or "beside the shards"
    chosen = chosen_grouping(grouping)
    if dry_run:
        count, size = extent(urls, endpoint)
        text = f"would read {counted(count, 'shard')} ({quantity(size)}) and write an index {where}"
        console.document({"dry_run": True, "shards": count, "bytes": size}, lambda: console.data(text))
        return
    try:
        found = index_shards(
            list(urls),
            out,
            endpoint=endpoint,
            progress=console.bars,
            counts_only=counts_only,
            grouping=chosen,
        )
    except KeyboardInterrupt:
        raise Stopped("there is no new index", "name fewer shards at a time", in_part=False) from None
    shards = [{"shard": shard.name, "records": shard.records} for shard in found]

    def shown() -> None:
        rows = [[str(shard["shard"]), f"{shard['records']:,}"] for shard in shards]
        console.table(("shard", "records"), rows, right=frozenset({1}))

    console.document({"records": found.records, "shards": shards}, shown)
    console.note(f"{counted(found.records, 'record')} in {counted(len(shards), 'shard')}; the index is {where}")
