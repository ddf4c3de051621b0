"""`verify`: check the files of a conversion against its manifest."""

from __future__ import annotations

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.command import Endpoint, Out, fail, verb
from ais_tar2tf.cli.console import Console, counted, duration, quantity
from ais_tar2tf.errors import AccessDenied, ExportError, MissingDependency, Tar2TFError, TransportError

__all__ = ["verify"]

_NO_FAULT_OF_THE_FILES = (AccessDenied, MissingDependency, TransportError)
_REPAIR = "write it anew: ais-tar2tf convert … --exists replace"


@verb()
def verify(
    console: Console,
    out: Out,
    endpoint: Endpoint = None,
) -> None:
    """Check the checksums and counts of converted files.

    Every byte is read. At the first fault, it stops with exit code 6 and names the file.

    Example:
      ais-tar2tf verify out/
    """
    import time

    from ais_tar2tf.source.loaded import load

    try:
        loaded = load(out, endpoint=endpoint)
    except ExportError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            fail(console, str(error), _REPAIR, exits.CORRUPT)
        remedy = "name the OUT of a convert that has ended; if it was ended early, run it again"
        fail(console, str(error), remedy, exits.NOT_FOUND)
    began = time.perf_counter()
    try:
        found = loaded.verify(progress=console.bars)
    except _NO_FAULT_OF_THE_FILES:
        raise
    except Tar2TFError as error:
        fault = f"{type(error).__name__}: {error}"
        console.document({"whole": False, "fault": fault}, lambda: None)
        fail(console, fault, _REPAIR, exits.CORRUPT)
    document = {"whole": True, "files": found.files, "records": found.records, "bytes": found.bytes}
    text = f"whole: {counted(found.files, 'file')}, {counted(found.records, 'record')}, {quantity(found.bytes)}"
    console.document(document, lambda: console.data(text))
    console.detail(f"in {duration(time.perf_counter() - began)}")
