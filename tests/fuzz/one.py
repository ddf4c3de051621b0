"""One target under atheris, in a process of its own: `python -m tests.fuzz.one TARGET [libFuzzer's arguments]`."""

from __future__ import annotations

import os
import sys

import atheris

PROGRAM = "AIS_TAR2TF_FUZZ_PROGRAM"
"""The variable that names a program which runs this module and a target, for libFuzzer to start it again."""

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

with atheris.instrument_imports(include=["ais_tar2tf"], enable_loader_override=False):
    import importlib
    import pkgutil

    import ais_tar2tf
    from tests.fuzz import targets

    for package in ("archive", "records", "export", "plan", "cache", "features", "schema", "datum", "stores"):
        module = importlib.import_module(f"ais_tar2tf.{package}")
        for each in pkgutil.iter_modules(module.__path__):
            importlib.import_module(f"ais_tar2tf.{package}.{each.name}")
    for single in (
        "documents",
        "values",
        "class_names",
        "csv_files",
        "shard_index",
        "arrays",
        "headers",
        "templates",
        "examples",
        "names",
        "structure",
    ):
        importlib.import_module(f"ais_tar2tf.{single}")


def main() -> None:
    name, *arguments = sys.argv[1:]
    assert ais_tar2tf.__version__
    program = os.environ.get(PROGRAM, sys.argv[0])
    atheris.Setup([program, *arguments], lambda data: targets.run(name, data))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
