"""Completion in IPython is quick, does not load TensorFlow, and offers only public names."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import pytest

import ais_tar2tf as t2t

ROOT = Path(__file__).resolve().parents[2]
MODULES = ["arrays", "cluster", "errors", "features", "ops", "options", "parsing", "schema", "tfds", "tornet"]
OBJECTS = {"src": "t2t.open('memory://a/b.tar')", "ais": "t2t.AisDataset('b', 'http://localhost:51080')"}
_HEAVY = ("tensorflow", "keras", "apache_beam")

_IN_IPYTHON = """
import json, sys
from IPython.core.completer import provisionalcompleter
from IPython.core.interactiveshell import InteractiveShell

before, with_jedi, texts = json.loads(sys.argv[1])
shell = InteractiveShell.instance()
shell.run_cell(before, silent=True)
shell.Completer.use_jedi = with_jedi
found = {}
for text in texts:
    with provisionalcompleter():
        found[text] = [each.text.lstrip(".") for each in shell.Completer.completions(text, len(text))]
    found[text] = {"names": found[text], "loaded": sorted(sys.modules)}
print(json.dumps(found))
"""


def _completions(with_jedi: bool, texts: list[str], before: str = "") -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", _IN_IPYTHON, json.dumps([f"import ais_tar2tf as t2t\n{before}", with_jedi, texts])],
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": os.devnull},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("with_jedi", [True, False])
def test_names_are_completed_without_tensorflow(with_jedi):
    (found,) = _completions(with_jedi, ["t2t."]).values()
    assert sorted(found["names"]) == sorted(t2t.__all__)
    assert not {module.partition(".")[0] for module in found["loaded"]} & {*_HEAVY, "requests", "aiohttp"}


@pytest.mark.parametrize("with_jedi", [True, False])
def test_public_modules_and_objects_show_public_names(with_jedi):
    texts = [f"t2t.{module}." for module in MODULES]
    before = "\n".join(f"{name} = {made}" for name, made in OBJECTS.items())
    found = _completions(with_jedi, [*texts, *(f"{name}." for name in OBJECTS)], before)
    for module in MODULES:
        public = getattr(t2t, module).__all__
        assert set(found[f"t2t.{module}."]["names"]) == {name for name in public if not name.startswith("_")}
    assert set(found["ais."]["names"]) == {"executed", "load", "load_from_tar", "source", "stop", "transformer"}
    assert {"dataset", "export", "records", "schema", "select", "stats"} <= set(found["src."]["names"])
    assert not {"opened", "write_index"} & set(found["src."]["names"])


@pytest.mark.parametrize("name", t2t.__all__)
def test_a_public_name_imports_nothing_heavy(name):
    """Evaluating a public name loads nothing heavy, whether by jedi, `hasattr` or a type hint."""
    script = f"import sys, ais_tar2tf as t2t; t2t.{name}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT)
    assert not {module.partition(".")[0] for module in done.stdout.split()} & {*_HEAVY, "requests", "aiohttp"}


@pytest.mark.parametrize(
    "module",
    [
        *MODULES,
        *("cluster.etl", "cluster.service", "datum", "datum.configs", "datum.export", "datum.problem"),
        *("tfrecorder", "tfrecorder.factory", "tfrecorder.helpers.decorator", "tfrecorder.helpers.marshaller"),
    ],
)
def test_a_public_module_lists_its_public_names(module):
    found = getattr(t2t, module) if module in MODULES else importlib.import_module(f"ais_tar2tf.{module}")
    assert dir(found) == sorted(found.__all__)
    assert all(getattr(found, name) is not None for name in dir(found) if name not in ("beam", "Builder"))


def test_instances_list_nothing_private(imagenet):
    ais = t2t.AisDataset("imagenet", imagenet.url)
    source = ais.source("train-{0..7}.tar.gz")
    for each in (ais, source, t2t.mix([source]), t2t.AisDataset):
        assert not [name for name in dir(each) if name.startswith("_") and not name.startswith("__")]


def test_callbacks_are_keras_callbacks():
    class Own(t2t.Watch):
        pass

    watch = Own(t2t.open("memory://a/b.tar"))
    assert isinstance(watch, keras.callbacks.Callback)
    assert isinstance(watch, t2t.Watch)
    assert isinstance(watch, Own)
    assert type(watch).__name__ == "Own"
    assert type(Own(t2t.open("memory://a/b.tar"))) is type(watch)


def test_naming_a_public_name_loads_neither_tensorflow_nor_a_server():
    """IPython's completion evaluates names if it has the time."""
    named = "import sys, ais_tar2tf as t2t; [getattr(t2t, name) for name in t2t.__all__]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", named], capture_output=True, text=True, timeout=100, check=True)
    assert not {module.partition(".")[0] for module in done.stdout.split()} & {*_HEAVY, "requests", "aiohttp"}
