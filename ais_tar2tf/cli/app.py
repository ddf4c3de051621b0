"""The verbs, put together. Everything a verb needs is imported when it runs, so that `--help` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf import __version__
from ais_tar2tf.cli.benching import bench
from ais_tar2tf.cli.carding import card
from ais_tar2tf.cli.converting import convert
from ais_tar2tf.cli.demo import demo
from ais_tar2tf.cli.doctor import doctor
from ais_tar2tf.cli.finishing import finish
from ais_tar2tf.cli.indexing import index
from ais_tar2tf.cli.inspecting import inspect
from ais_tar2tf.cli.listing import ls
from ais_tar2tf.cli.packing import pack
from ais_tar2tf.cli.putting import put
from ais_tar2tf.cli.serving import serve
from ais_tar2tf.cli.usage import Verb, Verbs
from ais_tar2tf.cli.verifying import verify

__all__ = ["app"]

_VERBS = (demo, ls, inspect, card, convert, finish, verify, index, pack, put, serve, bench, doctor)

app = typer.Typer(
    name="ais-tar2tf",
    cls=Verbs,
    help="Tar shards in an object store become a tf.data.Dataset or record files.",
    epilog="Begin with: ais-tar2tf demo. AIS_ENDPOINT and AIS_AUTHN_TOKEN say which cluster. Data goes to stdout, "
    "everything else to stderr. Exit: 0 done, 2 usage, 3 not found, 4 access, 5 network, 6 corrupt data, 7 done in "
    "part, 1 anything else.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help is there in a fifth of the time
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


for _verb in _VERBS:
    app.command(cls=Verb)(_verb)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ais-tar2tf {__version__}")
        raise typer.Exit


@app.callback()
def _options(  # pyright: ignore[reportUnusedFunction]  # typer keeps it
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
