"""Write the API reference from docstrings, with pdoc: `python -m tests.support.reference FOLDER`."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import ais_tar2tf as t2t
from tests.support.api_snapshot import DOCUMENTED, MODULES, RESULTS


def modules() -> list[ModuleType]:
    """Return the modules that the reference describes, with all their public names loaded."""
    named = [t2t, *(getattr(t2t, name) for name in MODULES)]
    found = [*named, *(importlib.import_module(name) for name in (*DOCUMENTED, *RESULTS))]
    for module in found:
        for name in getattr(module, "__all__", ()):  # pdoc sees only names that a module has loaded
            vars(module).setdefault(name, getattr(module, name))
    return found


def write(folder: Path) -> None:
    """Write one page for each public module into `folder`."""
    import pdoc  # optional dependency

    pdoc.render.configure(docformat="google", show_source=False, footer_text=f"ais_tar2tf {t2t.__version__}")
    pdoc.pdoc(*_specifications(pdoc.extract.walk_specs), output_directory=folder)


def _specifications(walk: Callable[[list[str]], Iterable[str]]) -> list[str]:
    """Return the modules' names, except those that pdoc finds by itself inside another module."""
    found: list[str] = []
    walked: set[str] = set()
    for module in modules():
        if module.__name__ not in walked:
            found.append(module.__name__)
            walked.update(walk([module.__name__]))
    return found


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    write(Path(sys.argv[1]))
    print(f"open {sys.argv[1]}/index.html")
