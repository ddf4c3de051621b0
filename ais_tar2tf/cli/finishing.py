"""`finish`: what the hosts of a job array have converted gets its final names."""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console
from ais_tar2tf.cli.converting import tell_finished
from ais_tar2tf.cli.verbs import Endpoint, Json, Quiet, Verbose, fail, verb
from ais_tar2tf.errors import PartMissing

__all__ = ["finish"]


@verb
def finish(
    out: Annotated[str, typer.Argument(help="where the hosts converted to: a folder or a URL", metavar="OUT")],
    split: Annotated[str | None, typer.Option(help="this split only")] = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Number and publish what a job array's hosts converted.

    Each of them ran `convert … --shard I/N`. Run again, it changes nothing. It ends with 7 when
    hosts are missing, and names them.

    \b
    Example:
      ais-tar2tf finish s3://bucket/imagenet
    """
    from ais_tar2tf.account import Stats
    from ais_tar2tf.export.finishing import finish as publish

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    try:
        files = publish(out, split=split, endpoint=endpoint)
    except PartMissing as missing:
        again = " and ".join(f"--shard {host}/{missing.of}" for host in missing.hosts[:3])
        fail(console, str(missing), f"run the missing ones: ais-tar2tf convert … {again}", exits.PART)
    tell_finished(console, out, endpoint, files, Stats(), split, read_here=False)
