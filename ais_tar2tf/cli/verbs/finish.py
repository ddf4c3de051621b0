"""`finish`: publish the files that the hosts of a job array have converted."""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.command import Endpoint, fail, verb
from ais_tar2tf.cli.console import Console
from ais_tar2tf.cli.verbs.convert import show_finished
from ais_tar2tf.errors import PartMissing

__all__ = ["finish"]


@verb()
def finish(
    console: Console,
    out: Annotated[str, typer.Argument(help="the folder or URL that the hosts converted to", metavar="OUT")],
    split: Annotated[str | None, typer.Option(help="publish only this split", metavar="NAME")] = None,
    endpoint: Endpoint = None,
) -> None:
    """Publish the files that several hosts converted.

    Run it once, after every host has run `convert … --shard I/N`. It numbers the files and gives them their final
    names; running it again changes nothing. The exit code is 7 when hosts are missing; they are named.

    Example:
      ais-tar2tf finish s3://bucket/imagenet
    """
    from ais_tar2tf.base.monitoring.stats import Stats
    from ais_tar2tf.recordfiles.export.finishing import finish as publish

    try:
        files = publish(out, split=split, endpoint=endpoint)
    except PartMissing as missing:
        again = " and ".join(f"--shard {host}/{missing.of}" for host in missing.hosts[:3])
        fail(console, str(missing), f"run the missing ones: ais-tar2tf convert … {again}", exits.PART)
    show_finished(console, out, endpoint, files, Stats(), split, read_here=False)
