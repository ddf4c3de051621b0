"""`serve`: serve a folder's sub-folders as AIStore buckets, until Ctrl-C."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path
from typing import Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.command import fail, verb
from ais_tar2tf.cli.console import Console

__all__ = ["serve"]

DEFAULT_PORT = 51080  # where AIStore's own proxy listens


@verb()
def serve(
    console: Console,
    folder: Annotated[Path, typer.Argument(help="the folder whose sub-folders are the buckets", metavar="DIR")],
    host: Annotated[
        str,
        typer.Option(help="the address to listen on; 0.0.0.0 admits other machines", metavar="ADDRESS"),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="the port to listen on; 0 takes a free one", min=0, max=65535, metavar="N")
    ] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str],
        typer.Option(help="a host name by which clients reach this server; repeatable", metavar="NAME"),
    ] = [],  # noqa: B006  # typer never changes it
) -> None:
    """Serve a folder as AIStore buckets, for trials and tests.

    The sub-folders are the buckets. Folders whose names a bucket cannot have, such as .git, are not served. The
    endpoint is printed to stdout; Ctrl-C stops the server. When AIS_AUTHN_TOKEN is set, clients must send that token.
    Requests must name the server by an address, by localhost, by this machine's name, or by a name that --allow-host
    gives.

    Example:
      ais-tar2tf serve folder/ --port 0
    """
    import os

    if not folder.is_dir():
        fail(
            console,
            f"{folder} is no folder",
            "name the folder whose sub-folders are the buckets"
            if folder.exists()
            else f"make it, with a bucket: mkdir -p {shlex.quote(str(folder / 'bucket'))}",
            exits.NOT_FOUND,
        )
    from ais_tar2tf.cluster.server import serve as start
    from ais_tar2tf.cluster.server.folder import BucketRoot
    from ais_tar2tf.cluster.stopping import stop_event
    from ais_tar2tf.errors import ServerError

    try:
        token = os.environ.get("AIS_AUTHN_TOKEN") or None
        server = start(folder, host=host, port=port, token=token, hosts=allow_host)
    except ServerError as error:
        fail(console, str(error), _next_of(error), exits.NETWORK)
    with server, stop_event() as stop:
        buckets = BucketRoot(folder).buckets()
        console.document(
            {"endpoint": server.url, "folder": str(folder), "buckets": buckets}, lambda: console.data(server.url)
        )
        typer.get_text_stream("stdout").flush()
        console.note(f"serving {folder}: {', '.join(buckets) or 'no buckets yet; make a sub-folder for each bucket'}")
        if buckets:
            console.note(f"try:  AIS_ENDPOINT={server.url} ais-tar2tf ls ais://{buckets[0]}")
        console.note("Ctrl-C ends it")
        stop.wait()
    console.note("ended")


def _next_of(error: BaseException) -> str:
    """Return what to do when the server cannot listen."""
    number = getattr(error.__cause__, "errno", None)
    if number in (errno.EADDRINUSE, errno.EACCES):
        return "choose another port: --port 0 takes a free one"
    return "choose an address of this machine: --host 127.0.0.1 is for this machine alone, 0.0.0.0 for everybody"
