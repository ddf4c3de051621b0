"""python -m tests.servers.enter COMMAND… — builds the servers, then runs the command in a network of its own.

What cannot be had is said in one line; the command runs all the same, and learns it from the environment.
"""

from __future__ import annotations

import os
import sys

from tests.servers import namespace
from tests.servers.build import BuildError, build_all
from tests.servers.environments import BESIDE

MISSING = "AIS_TAR2TF_NO_SERVERS"  # in the environment: why there are no real servers


def main(command: list[str]) -> None:
    reason = _build_all(full="--full" in command) or _enter()
    if reason:
        os.environ[MISSING] = reason
    os.execvp(command[0], command)


def _build_all(*, full: bool) -> str:
    try:
        build_all(full=full)
        if full:
            for environment in BESIDE:
                environment.build()
    except (BuildError, OSError) as error:
        return str(error)
    return ""


def _enter() -> str:
    try:
        namespace.enter()
    except OSError as error:
        return f"no private network namespace is to be had here ({error.strerror or error})"
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
