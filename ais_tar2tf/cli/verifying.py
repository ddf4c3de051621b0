"""`verify`: is everything that a conversion wrote still what its manifest says?"""

from __future__ import annotations

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, counted, duration, quantity
from ais_tar2tf.cli.verbs import Endpoint, Json, Out, Quiet, Verbose, fail, verb
from ais_tar2tf.errors import AccessDenied, ExportError, Tar2TFError, TransportError

__all__ = ["verify"]

_NO_FAULT_OF_THE_FILES = (AccessDenied, TransportError)


@verb
def verify(
    out: Out,
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Prove checksums and counts of what convert wrote.

    Every byte is read. It ends with 6 at the first fault, and names the file.

    \b
    Example:
      ais-tar2tf verify out/
    """
    import time

    from ais_tar2tf.loading.files import load

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    try:
        loaded = load(out, endpoint=endpoint)
    except ExportError as error:
        code = exits.NOT_FOUND if error.__cause__ is None else exits.CORRUPT
        remedy = "name the OUT of a convert that has ended; if it was ended early, run it again"
        fail(console, str(error), remedy, code)
    began = time.perf_counter()
    try:
        found = loaded.verify(progress=console.bars)
    except _NO_FAULT_OF_THE_FILES:
        raise
    except Tar2TFError as error:
        told = f"{type(error).__name__}: {error}"
        console.document({"whole": False, "fault": told}, lambda: None)
        fail(console, told, "write it anew: ais-tar2tf convert … --exists replace", exits.CORRUPT)
    document = {"whole": True, "files": found.files, "records": found.records, "bytes": found.bytes}
    text = f"whole: {counted(found.files, 'file')}, {counted(found.records, 'record')}, {quantity(found.bytes)}"
    console.document(document, lambda: console.data(text))
    console.detail(f"in {duration(time.perf_counter() - began)}")
