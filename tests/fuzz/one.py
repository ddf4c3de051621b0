"""Run one target under atheris in this process: `python -m tests.fuzz.one TARGET [arguments of libFuzzer]`."""

from __future__ import annotations

import os
import sys

import atheris

PROGRAM = "AIS_TAR2TF_FUZZ_PROGRAM"
"""The environment variable with the path of a program that runs this module and a target. libFuzzer restarts it."""

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

with atheris.instrument_imports(include=["ais_tar2tf"], enable_loader_override=False):
    import importlib
    import pkgutil

    import ais_tar2tf
    from tests.fuzz import targets

    for room in ("archive", "base", "datum", "records", "recordfiles", "stores", "streams", "values"):
        package = importlib.import_module(f"ais_tar2tf.{room}")
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(each.name)


def main() -> None:
    name, *arguments = sys.argv[1:]
    assert ais_tar2tf.__version__
    program = os.environ.get(PROGRAM, sys.argv[0])
    atheris.Setup([program, *arguments], lambda data: targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
