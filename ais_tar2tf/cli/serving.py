"""`serve`: a folder as AIStore buckets, until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import shlex
import signal
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import typer

from ais_tar2tf import forking
from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console
from ais_tar2tf.cli.verbs import Json, Quiet, Verbose, fail, verb

__all__ = ["serve"]

DEFAULT_PORT = 51080  # where AIStore's own proxy listens


@verb
def serve(
    folder: Annotated[Path, typer.Argument(help="its sub-folders are the buckets", metavar="DIR")],
    host: Annotated[
        str, typer.Option(help="the address to listen on; 0.0.0.0 is everybody's", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes a free one", min=0, max=65535, metavar="N")] = DEFAULT_PORT,
    allow_host: Annotated[
        list[str],
        typer.Option(help="a host name by which clients reach this server; may be repeated", metavar="NAME"),
    ] = [],  # noqa: B006  # typer's way to say that there may be none
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Serve a folder as AIStore buckets, to try things with.

    Its sub-folders are the buckets; Ctrl-C ends it. The endpoint is printed on stdout. A token that clients must
    send is taken from AIS_AUTHN_TOKEN. Clients reach the server by an address, by localhost, by this machine's name,
    or by a name that --allow-host gives.

    \b
    Example:
      ais-tar2tf serve folder/ --port 0
    """
    import os

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if not folder.is_dir():
        fail(
            console,
            f"{folder} is no folder",
            "name the folder whose sub-folders are the buckets"
            if folder.exists()
            else f"make it, with a bucket: mkdir -p {shlex.quote(str(folder / 'bucket'))}",
            exits.NOT_FOUND,
        )
    from ais_tar2tf.errors import ServerError
    from ais_tar2tf.server import serve as start

    try:
        token = os.environ.get("AIS_AUTHN_TOKEN") or None
        server = start(folder, host=host, port=port, token=token, hosts=allow_host)
    except ServerError as error:
        fail(console, str(error), _next_of(error), exits.NETWORK)
    with server, _on_signal() as ended:
        buckets = sorted(each.name for each in folder.iterdir() if each.is_dir())
        console.document(
            {"endpoint": server.url, "folder": str(folder), "buckets": buckets}, lambda: console.data(server.url)
        )
        typer.get_text_stream("stdout").flush()
        console.note(f"serving {folder}: {', '.join(buckets) or 'no buckets yet, each sub-folder is one'}")
        if buckets:
            console.note(f"try:  AIS_ENDPOINT={server.url} ais-tar2tf ls ais://{buckets[0]}")
        console.note("Ctrl-C ends it")
        ended.wait()
    console.note("ended")


def _next_of(error: BaseException) -> str:
    """What to do when the server cannot listen: another port, or another address."""
    number = getattr(error.__cause__, "errno", None)
    if number in (errno.EADDRINUSE, errno.EACCES):
        return "choose another port: --port 0 takes a free one"
    return "choose an address of this machine: --host 127.0.0.1 is for this machine alone, 0.0.0.0 for everybody"


@contextlib.contextmanager
def _on_signal() -> Generator[threading.Event]:
    """Yield an event that Ctrl-C or SIGTERM sets."""
    ended = forking.event()
    before = {number: signal.signal(number, lambda *_: ended.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
