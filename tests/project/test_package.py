"""The package as a whole: import directions, the cost of importing it, and the examples in docstrings."""

from __future__ import annotations

import ast
import doctest
import importlib
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

import ais_tar2tf
from tests.support.modules import ROOT, modules

# From the bottom up: a module imports only modules of earlier entries. Each package is a room.
LAYERS = [
    "base.lazy_module", "base.completion", "base.causes", "base.urls.signed", "errors", "base.escaping",
    "base.urls.locations", "base.shared_options", "base.arguments", "base.nearest", "options", "native", "base",
    "archive", "stores", "records", "fetch", "values.features", "values", "streams", "ops", "tfdata",
    "recordfiles", "source", "cluster", "datum", "tfrecorder", "tfds", "tornet", "compat", "cli", "__main__",
]  # fmt: skip
PURE = [
    "errors", "options", "base.urls", "base.shared_options", "base.arguments", "base.nearest", "base.escaping",
    "base.documents.parsing", "base.documents.sealed", "base.documents.structure", "base.retries", "base.hosts",
    "base.monitoring.stats", "base.monitoring.metrics", "archive", "records", "streams.order", "streams.index.format",
    "streams.index.entry", "streams.index.shards", "streams.listing", "streams.reader.base", "values.features",
    "values.schema", "values.file_headers", "values.example_grouper", "fetch.tuning",
]  # fmt: skip
ROOMS = {each.split(".")[0] for each in LAYERS}
NETWORK = {"requests", "aiohttp", "http", "socket", "urllib3", "obstore"}


def room(module: str) -> str:
    return module.split(".")[1]


def layer(module: str) -> int:
    """Return the number of the layer that a module belongs to: the longest entry of `LAYERS` that contains it."""
    name = module.removeprefix("ais_tar2tf.")
    return LAYERS.index(max((each for each in LAYERS if f"{name}.".startswith(f"{each}.")), key=len))


def imports(module: str) -> set[str]:
    """Return every module that the source of `module` imports, also inside functions."""
    spec = importlib.util.find_spec(module)
    found: set[str] = set()
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def is_pure(module: str) -> bool:
    return any(f"{module}.".startswith(f"ais_tar2tf.{pure}.") for pure in PURE)


@pytest.mark.parametrize("module", modules())
def test_imports_go_downward(module):
    mine = layer(module)
    for name in imports(module):
        if name.startswith("ais_tar2tf.") and room(name) in ROOMS:
            assert layer(name) <= mine, f"{module} imports {name}"


@pytest.mark.parametrize("module", [m for m in modules() if is_pure(m)])
def test_the_middle_does_no_io(module):
    roots = {name.split(".")[0] for name in imports(module)}
    assert not roots & NETWORK
    if not module.startswith("ais_tar2tf.values.features"):  # its helpers create TensorFlow objects
        assert "tensorflow" not in roots


def test_importing_loads_neither_tensorflow_nor_a_network_library():
    script = (
        "import sys, ais_tar2tf as t2t; t2t.options, t2t.errors;"
        "print([m for m in ('tensorflow', 'aiohttp', 'requests', 'numpy', 'http.client') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == "[]"


def test_records_are_read_without_tensorflow():
    script = (
        "import sys, ais_tar2tf as t2t; from ais_tar2tf.stores.memory import MemoryStore\n"
        "import io, tarfile; b = io.BytesIO(); t = tarfile.open(fileobj=b, mode='w'); i = tarfile.TarInfo('a.txt')\n"
        "i.size = 2; t.addfile(i, io.BytesIO(b'hi')); t.close(); MemoryStore('m').put('a.tar', b.getvalue())\n"
        "print([r['txt'] for r in t2t.open('memory://m/a.tar').records()], 'tensorflow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT.parent)
    assert done.stdout.strip() == "[b'hi'] False"


def test_importing_takes_under_150_ms():
    def seconds(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)
        return time.perf_counter() - began

    costs = [seconds("import ais_tar2tf") - seconds("pass") for _ in range(5)]
    assert min(costs) < 0.15  # the minimum excludes other load of the machine


def test_every_public_name_exists_and_is_documented():
    for name in ais_tar2tf.__all__:
        assert getattr(ais_tar2tf, name).__doc__, name
    assert set(ais_tar2tf.__all__) <= set(dir(ais_tar2tf))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ais_tar2tf.nothing


def test_no_module_has_a_public_name():
    """A module with a public name would replace it when it is imported; for example, `t2t.load` is a function."""
    functions = {name for name in ais_tar2tf.__all__ if not isinstance(getattr(ais_tar2tf, name), ModuleType)}
    assert functions.isdisjoint(room(module) for module in modules())


@pytest.mark.parametrize("module", modules())
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


def sources() -> dict[str, ast.Module]:
    """Return the syntax tree of every module, by its path."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}


def test_no_module_has_over_400_lines() -> None:
    lengths = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in ROOT.rglob("*.py")}
    assert {path: lines for path, lines in lengths.items() if lines > 400} == {}


def test_no_two_classes_have_one_name() -> None:
    names = Counter(node.name for tree in sources().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert len(names) > 500
    assert [name for name, count in names.items() if count > 1] == []


def test_packages_hold_names_and_no_implementation() -> None:
    hooks = {"__getattr__", "__dir__", "main"}  # lazy imports, what TAB completes, and the program's entry point
    defined = {
        path: [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        for path, tree in sources().items()
        if path.endswith("__init__.py")
    }
    assert len(defined) > 20
    assert {path: names for path, names in defined.items() if not hooks.issuperset(names)} == {}


def test_at_most_24_names_stand_at_the_top() -> None:
    names = {path.name for path in ROOT.iterdir()} - {"__pycache__", "README.md", "py.typed"}
    assert len(names) <= 24
