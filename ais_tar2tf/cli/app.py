"""The program: its verbs and its help. A verb imports slow rooms only when it runs, for a quick `--help`."""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf import __version__
from ais_tar2tf.cli.usage import Verb, Verbs
from ais_tar2tf.cli.verbs.bench import bench
from ais_tar2tf.cli.verbs.card import card
from ais_tar2tf.cli.verbs.convert import convert
from ais_tar2tf.cli.verbs.demo import demo
from ais_tar2tf.cli.verbs.doctor import doctor
from ais_tar2tf.cli.verbs.finish import finish
from ais_tar2tf.cli.verbs.index import index
from ais_tar2tf.cli.verbs.inspect import inspect
from ais_tar2tf.cli.verbs.ls import ls
from ais_tar2tf.cli.verbs.pack import pack
from ais_tar2tf.cli.verbs.put import put
from ais_tar2tf.cli.verbs.serve import serve
from ais_tar2tf.cli.verbs.verify import verify

__all__ = ["app"]

_VERBS = (demo, ls, inspect, card, convert, finish, verify, index, pack, put, serve, bench, doctor)

app = typer.Typer(
    name="ais-tar2tf",
    cls=Verbs,
    help="Inspect, convert, pack and serve tar shards in object stores, for TensorFlow.",
    epilog="Begin with: ais-tar2tf demo. To use an AIStore cluster, set AIS_ENDPOINT to its proxy's URL, and "
    "AIS_AUTHN_TOKEN if it requires a token. Data is printed to stdout, everything else to stderr. Exit codes: "
    "0 done, 2 wrong usage, 3 not found, 4 access denied, 5 network error, 6 corrupt data, 7 done in part, "
    "130 interrupted, 1 any other error.",
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help takes a fifth of the time
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
def _options(  # pyright: ignore[reportUnusedFunction]  # typer calls it
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version
