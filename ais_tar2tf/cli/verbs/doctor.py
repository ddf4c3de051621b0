"""`doctor`: checks the installation and the connection to the data, and prints a line for each check.

This module orders the checks and prints their results. It must not check anything itself: `cli/checks.py` and
`cli/network_checks.py` do.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.cli.command import Endpoint, WithTensorflow, verb
from ais_tar2tf.cli.console import Console, folded

if TYPE_CHECKING:
    from ais_tar2tf.cli.checks import CheckResult

__all__ = ["doctor"]

_WIDTH = len("extra tensorboard")  # the longest name of a check
_MARKS = {"ok": ("✓", "green"), "remark": ("!", "yellow"), "fault": ("✗", "red")}


@verb(check_endpoint=False)
def doctor(
    console: Console,
    url: Annotated[str | None, typer.Argument(help="data to read a first byte of, too", metavar="URL")] = None,
    endpoint: Endpoint = None,
    tensorflow: WithTensorflow = True,
) -> None:
    """Check the installation and the connection to the data.

    Each check prints a line, and what to do when something is wrong. The exit code is 0 when there are only remarks
    (!) and no faults (✗). Secrets are never printed.

    Example:
      ais-tar2tf doctor ais://imagenet
    """
    results: list[CheckResult] = []
    for result in _run_checks(url, endpoint, with_tensorflow=tensorflow):
        results.append(result)
        if not console.as_json:
            _show(console, result)
    faults = [result for result in results if result.state == "fault"]
    document = {"healthy": not faults, "checks": [result.to_json() for result in results]}
    console.document(document, lambda: None)  # without --json, the lines have been printed
    console.note(f"{len(faults)} at fault" if faults else "nothing is at fault")
    if faults:
        raise typer.Exit(faults[0].code)


def _run_checks(url: str | None, endpoint: str | None, *, with_tensorflow: bool) -> Iterator[CheckResult]:
    from ais_tar2tf.cli import checks, exits, network_checks

    yield checks.python()
    yield checks.required()
    yield checks.native()
    if with_tensorflow:
        yield checks.tensorflow()
    yield from checks.extras()
    yield checks.memory()
    yield checks.disk()
    yield checks.open_files()
    yield from checks.credentials(os.environ)
    reached = True
    if url is None or url.startswith("ais://"):
        for result in network_checks.endpoint(endpoint):
            reached = reached and not (result.state == checks.FAULT and result.code == exits.NETWORK)
            yield result
    if url is not None and reached:
        yield from network_checks.data(url, endpoint)


def _show(console: Console, result: CheckResult) -> None:
    mark, colour = _MARKS[result.state]
    console.data(f"{console.styled(mark, colour, 'bold')} {result.what:<{_WIDTH}} {folded(result.found, _WIDTH + 3)}")
    if result.remedy and result.state != "ok":
        console.data(f"  {'':<{_WIDTH}} {console.styled('→', 'cyan')} {folded(result.remedy, _WIDTH + 5)}")
