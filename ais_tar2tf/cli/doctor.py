"""`doctor`: is everything here that is needed, and can the data be reached? One line each, with a remedy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.cli.console import Console, folded
from ais_tar2tf.cli.verbs import Endpoint, Json, Quiet, Verbose, WithTensorflow, verb

if TYPE_CHECKING:
    from ais_tar2tf.cli.checks import Finding

__all__ = ["doctor"]

_WIDTH = len("extra tensorboard")  # the longest of what is looked at
_MARKS = {"ok": ("✓", "green"), "remark": ("!", "yellow"), "fault": ("✗", "red")}


@verb
def doctor(
    url: Annotated[str | None, typer.Argument(help="data to be reached as well", metavar="URL")] = None,
    endpoint: Endpoint = None,
    tensorflow: WithTensorflow = True,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Check this machine and the way to the data.

    One line each, and what to do where something is amiss. It ends with 0 when nothing is at fault; remarks are
    none. Secrets are never shown.

    \b
    Example:
      ais-tar2tf doctor ais://imagenet
    """
    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    findings: list[Finding] = []
    for finding in _findings(url, endpoint, with_tensorflow=tensorflow):
        findings.append(finding)
        if not as_json:
            _show(console, finding)
    faults = [finding for finding in findings if finding.state == "fault"]
    document = {"healthy": not faults, "checks": [finding.to_json() for finding in findings]}
    console.document(document, lambda: None)  # lines were told as they came
    console.note(f"{len(faults)} at fault" if faults else "nothing is at fault")
    if faults:
        raise typer.Exit(faults[0].code)


def _findings(url: str | None, endpoint: str | None, *, with_tensorflow: bool) -> Iterator[Finding]:
    from ais_tar2tf.cli import checks, exits, network_checks

    yield checks.python()
    yield checks.required()
    if with_tensorflow:
        yield checks.tensorflow()
    yield from checks.extras()
    yield checks.memory()
    yield checks.disk()
    yield checks.open_files()
    yield from checks.credentials(os.environ)
    reached = True
    if url is None or url.startswith("ais://"):
        for finding in network_checks.endpoint(endpoint):
            reached = reached and not (finding.state == checks.FAULT and finding.code == exits.NETWORK)
            yield finding
    if url is not None and reached:
        yield from network_checks.data(url, endpoint)


def _show(console: Console, finding: Finding) -> None:
    mark, colour = _MARKS[finding.state]
    console.data(
        f"{console.styled(mark, colour, 'bold')} {finding.what:<{_WIDTH}} {folded(finding.found, _WIDTH + 3)}"
    )
    if finding.remedy and finding.state != "ok":
        console.data(f"  {'':<{_WIDTH}} {console.styled('→', 'cyan')} {folded(finding.remedy, _WIDTH + 5)}")
