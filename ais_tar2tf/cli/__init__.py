"""The command line `ais-tar2tf`: one module a verb, over documented names. Nothing below it imports it."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line on the arguments of this process, and end it with the code of what happened."""
    from ais_tar2tf.cli.app import app

    app(prog_name="ais-tar2tf")
