"""The command line `ais-tar2tf`. It must not do anything that the Python API cannot do.

To add a verb: write a module in `verbs/` with a function decorated by `command.verb()`, and add it to `_VERBS` in
`app.py`. The options that several verbs take are defined in `command.py`; `console.py` prints; `failures.py` turns an
error into an exit code and a suggestion of what to do next.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line with this process's arguments, and exit with one of the codes in `exits.py`."""
    from ais_tar2tf.cli.app import app

    app(prog_name="ais-tar2tf")
