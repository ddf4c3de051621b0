"""Build the servers and run a command in a private network: `python -m tests.servers.enter COMMAND…`.

If that is not possible, the command runs all the same, and the environment variable `MISSING` tells it the reason.
"""

from __future__ import annotations

import os
import sys

from tests.servers import namespace
from tests.servers.build import BuildError, build_all
from tests.servers.environments import ENVIRONMENTS

MISSING = "AIS_TAR2TF_NO_SERVERS"  # the environment variable with the reason why there are no real servers


def main(command: list[str]) -> None:
    reason = _build_all(full="--full" in command) or _enter()
    if reason:
        os.environ[MISSING] = reason
    os.execvp(command[0], command)


def _build_all(*, full: bool) -> str:
    try:
        build_all(full=full)
        if full:
            for environment in ENVIRONMENTS:
                environment.build()
    except (BuildError, OSError) as error:
        return str(error)
    return ""


def _enter() -> str:
    try:
        namespace.enter()
    except OSError as error:
        return f"this machine allows no private network namespace ({error.strerror or error})"
    return ""


if __name__ == "__main__":
    main(sys.argv[1:])
