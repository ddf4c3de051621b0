"""`verify`: is everything that a conversion wrote still what its manifest says?"""

from __future__ import annotations

from typing import Annotated

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, duration, quantity
from ais_tar2tf.cli.verbs import Endpoint, Json, Quiet, Verbose, fail, verb
from ais_tar2tf.errors import AccessDenied, ExportError, Tar2TFError, TransportError

__all__ = ["verify"]

_NO_FAULT_OF_THE_FILES = (AccessDenied, TransportError)


@verb
def verify(
    out: Annotated[str, typer.Argument(help="where convert wrote to: a folder or a URL", metavar="OUT")],
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Read every byte, and hold checksums and counts against the manifest. It ends with 6 at the first fault."""
    import time

    from ais_tar2tf.loaded import load

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    try:
        loaded = load(out, endpoint=endpoint)
    except ExportError as error:
        code = exits.NOT_FOUND if error.__cause__ is None else exits.CORRUPT
        fail(console, str(error), "finish it: run convert again with the same arguments", code)
    began = time.perf_counter()
    try:
        with console.waiting(f"reading {quantity(sum(each.bytes for each in loaded.manifest.splits.values()))}"):
            found = loaded.verify()
    except _NO_FAULT_OF_THE_FILES:
        raise
    except Tar2TFError as error:
        remedy = "write it anew: convert … --exists replace"
        fail(console, f"{type(error).__name__}: {error}", remedy, exits.CORRUPT)
    document = {"whole": True, "files": found.files, "records": found.records, "bytes": found.bytes}
    text = f"whole: {found.files:,} files, {found.records:,} records, {quantity(found.bytes)}"
    console.document(document, lambda: console.data(text))
    console.detail(f"in {duration(time.perf_counter() - began)}")
