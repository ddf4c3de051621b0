"""The package as a whole: what importing it costs, who may import whom, and that its examples run."""

from __future__ import annotations

import ast
import doctest
import importlib
import pkgutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

import ais_tar2tf

ROOT = Path(ais_tar2tf.__file__).parent

# From the bottom up; a module imports only what stands before it. A package is one room.
LAYERS = [
    "later", "completion", "signed_urls",
    "errors", "escaping", "locations", "arguments", "nearest",
    "options", "names", "structure", "documents", "values", "owned", "retries", "allocation", "forking", "lookout",
    "waits",
    "account", "watching", "templates", "globs", "csv_files",
    "archive", "stores", "cache", "records", "extraction", "fetch", "index_format",
    "shard_index", "listing", "environment", "plan", "features",
    "headers", "schema", "netcdf", "arrays", "examples", "progress", "reader",
    "index_proof", "indexing", "class_names", "reading",
    "mapping", "decoders", "ops", "tfdata", "callbacks", "parsing", "export", "source", "mixing", "loading",
    "writing", "packing", "cluster", "dataset", "server", "card", "datum", "tfrecorder", "tfds", "tornet", "compat",
    "cli", "__main__",
]  # fmt: skip
PURE = [
    "signed_urls", "errors", "escaping", "locations", "arguments", "nearest",
    "options", "names", "structure", "documents", "values", "retries", "account",
    "watching", "templates", "globs", "archive", "records", "index_format", "shard_index", "listing",
    "environment", "plan", "features", "headers", "schema", "examples", "fetch.tuning", "reader.window",
    "reader.epochs",
]  # fmt: skip
NETWORK = {"requests", "aiohttp", "http", "socket", "urllib3", "obstore"}


def modules() -> list[str]:
    return [name for _, name, _ in pkgutil.walk_packages([str(ROOT)], "ais_tar2tf.")]


def room(module: str) -> str:
    return module.split(".")[1]


def imports(module: str) -> set[str]:
    """Every module that the source of `module` imports, also within functions."""
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
    mine = LAYERS.index(room(module))
    for name in imports(module):
        if name.startswith("ais_tar2tf.") and room(name) in LAYERS:
            assert LAYERS.index(room(name)) <= mine, f"{module} imports {name}"


@pytest.mark.parametrize("module", [m for m in modules() if is_pure(m)])
def test_the_middle_does_no_io(module):
    roots = {name.split(".")[0] for name in imports(module)}
    assert not roots & NETWORK
    if room(module) != "features":  # whose helpers make TensorFlow's own objects
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
    assert min(costs) < 0.15  # what else the machine does is not ours


def test_every_public_name_is_there_and_documented():
    for name in ais_tar2tf.__all__:
        assert getattr(ais_tar2tf, name).__doc__, name
    assert set(ais_tar2tf.__all__) <= set(dir(ais_tar2tf))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ais_tar2tf.nothing


def test_no_module_has_a_public_name():
    """Importing it would put the module in that name's place: `t2t.load` is a function."""
    functions = {name for name in ais_tar2tf.__all__ if not isinstance(getattr(ais_tar2tf, name), ModuleType)}
    assert functions.isdisjoint(room(module) for module in modules())


@pytest.mark.parametrize("module", modules())
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0
