"""Run every code block of the pages, every documented call and every verb, each in a new process.

Each must work alone, because users copy single blocks into new processes.
"""

from __future__ import annotations

import doctest
import importlib
import io
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

import ais_tar2tf as t2t
from ais_tar2tf.cli.app import app
from tests.support import pages
from tests.support import shards as made
from tests.support.documented_calls import PLAIN, TRAINING
from tests.support.first_process import DocumentationRunner

PYTHON = [block for page in pages.pages() for block in pages.blocks(page)]
BLOCKS = [block for block in PYTHON if not block.program]
PROGRAMS = {block.program: block.code for block in PYTHON if block.program}


@pytest.fixture(scope="session")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the buckets that the pages name. Only their first shards have records."""
    folder = tmp_path_factory.mktemp("first") / "folder"
    for number in range(147):
        shard = made.labelled(f"n{number}", 2 if number < 3 else 0)
        _put(folder, f"imagenet/train-{number:03d}.tar", shard)
        _put(folder, f"imagenet/train-{number}.tar", shard)
        _put(folder, f"imagenet/test-{number:02d}.tar.gz", made.gzipped(shard))
    _put(folder, "bucket/train-0.tar", made.labelled("n", 2))
    for name in ("train-0", "train-1", "train-2", "train-3", "test-0"):
        _put(folder, f"little/{name}.tar", made.labelled(name, 3))
    return folder


def _put(folder: Path, name: str, data: bytes) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


@pytest.fixture(scope="session")
def bytecode(request: pytest.FixtureRequest) -> Path | None:
    cache = getattr(request.config, "cache", None)
    return None if cache is None else cache.mkdir("bytecode")


@pytest.fixture
def runner(buckets: Path, bytecode: Path | None, tornet_root: Path, tmp_path: Path) -> Iterator[DocumentationRunner]:
    shutil.copytree(buckets, tmp_path / "folder", copy_function=os.link)
    (tmp_path / "tornet").symlink_to(tornet_root)
    with t2t.serve(tmp_path / "folder") as server:
        yield DocumentationRunner(tmp_path, server.url, server.target_url, bytecode)


def _check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    for symptom in ("Traceback", "Exception ignored", "Warning:"):
        assert symptom not in done.stderr, done.stderr


def test_the_pages_have_blocks() -> None:
    assert len(BLOCKS) > 8


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_runs_in_a_new_process(block: pages.Block, runner: DocumentationRunner) -> None:
    code = block.code.replace("train-2015-{00..09}", "train-2015-{00..05}")  # the small data have six such samples
    _check(runner.run_code(code))


@pytest.mark.parametrize("call", [*TRAINING, *PLAIN])
def test_a_call_works_in_a_new_process(call: str, runner: DocumentationRunner) -> None:
    _check(runner.run_code((TRAINING | PLAIN)[call]))


VERBS = {
    "ls": [["ls", "ais://"], ["ls", "ais://little", "--json"]],
    "inspect": [["inspect", "ais://little/train-{0..3}.tar"]],
    "card": [["card", "ais://little/train-{0..3}.tar", "-o", "card.html"]],
    "convert": [["convert", "ais://little/train-{0..3}.tar", "out/", "--shard-records", "5"]],
    "finish": [
        ["convert", "ais://little/train-{0..3}.tar", "out/", "--shard", "0/1", "--align", "shard", "--workers", "1"],
        ["finish", "out/"],
    ],
    "verify": [["convert", "ais://little/train-{0..3}.tar", "out/", "--workers", "1"], ["verify", "out/"]],
    "index": [["index", "ais://little/train-{0..3}.tar"]],
    "pack": [["pack", "tornet", "ais://packed/{split}-{:05d}.tar", "--create"]],
    "put": [["put", "folder/little/train-0.tar", "ais://little/copy.tar"]],
    "bench": [["bench", "ais://little/train-{0..3}.tar", "--seconds", "0.05", "--batch", "4"]],
    "doctor": [["doctor", "ais://little"]],
    "demo": [["demo", "shown"]],
}
"""For each verb, the commands that prepare and run it."""


def test_every_verb_is_tested() -> None:
    assert VERBS.keys() | {"serve"} == {command.callback.__name__ for command in app.registered_commands}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_works_in_a_new_process(verb: str, runner: DocumentationRunner) -> None:
    for arguments in VERBS[verb]:
        _check(runner.run_command("ais-tar2tf", *arguments))


CONSOLE = [block for page in pages.pages() for block in pages.blocks(page, "console") if pages.commands(block)]
_TOO_LONG = {"demo", "bench"}  # the pages' commands take too long; VERBS has shorter ones


@pytest.mark.parametrize("block", CONSOLE, ids=str)
def test_commands_work_in_order(block: pages.Block, runner: DocumentationRunner) -> None:
    """Run a block's commands, with the pages' programs and a folder `photos` of three classes."""
    for name, code in PROGRAMS.items():
        (runner.folder / name).write_text(code, encoding="utf-8")
    for number in range(30):
        _put(runner.folder, f"photos/{('cat', 'dog', 'owl')[number % 3]}/{number}.JPG", made.image(number))
    for command in pages.commands(block):
        if command[1] not in _TOO_LONG:
            _check(runner.run_command(*command))


def test_the_five_commands_train_a_model(runner: DocumentationRunner) -> None:
    """Run the first page's five commands. The model learns to tell classes that differ in one colour."""
    (block,) = [block for block in CONSOLE if "photos/" in block.code]
    assert len(re.findall(r"^\$ ", block.code, re.MULTILINE)) == 5
    for number in range(96):
        _put(runner.folder, f"photos/{('cat', 'dog')[number % 2]}/{number}.jpg", _plain(200 * (number % 2)))
    program = PROGRAMS["train.py"].replace("epochs=3", "epochs=12")
    seeded = program.replace(
        "model = ", "tf.keras.utils.set_random_seed(0)\nmodel = ", 1
    )  # with some initial weights, training is slow
    strict = "import warnings\n\nwarnings.simplefilter('error', UserWarning)  # also those of Keras\n"
    (runner.folder / "train.py").write_text(f"{strict}{seeded}", encoding="utf-8")
    for command in pages.commands(block):
        done = runner.run_command(*command)
        _check(done)
    accuracy = re.findall(r"accuracy: ([\d.]+)", done.stdout)
    assert float(accuracy[-1]) > 0.9


def _plain(red: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 48), (red, 90, 90)).save(buffer, "JPEG")
    return buffer.getvalue()


def _modules() -> set[str]:
    """Return the names of the modules in which public names are defined, or which are public themselves."""
    values = [getattr(t2t, name) for name in t2t.__all__]
    return {value.__name__ if isinstance(value, ModuleType) else value.__module__ for value in values}


EXAMPLES = [
    (module, found.name)
    for module in sorted(_modules())
    for found in doctest.DocTestFinder().find(importlib.import_module(module))
    if found.examples
]
_RUN_EXAMPLE = """
import doctest, importlib, sys
(example,) = [e for e in doctest.DocTestFinder().find(importlib.import_module(sys.argv[1])) if e.name == sys.argv[2]]
sys.exit(doctest.DocTestRunner().run(example).failed)
"""


def test_docstrings_have_examples() -> None:
    assert len(EXAMPLES) > 10


@pytest.mark.parametrize(("module", "name"), EXAMPLES, ids=[name for _, name in EXAMPLES])
def test_a_docstrings_example_runs_in_a_new_process(module: str, name: str, runner: DocumentationRunner) -> None:
    _check(runner.run("-c", _RUN_EXAMPLE, module, name))


_ELSEWHERE = {"beam"}  # test_beam.py runs it in an environment of its own


def test_every_public_call_is_documented() -> None:
    """Each public name, and each method of a source, is used in a block of a page or in a documented call."""
    documented = {block.code for block in BLOCKS} | {*TRAINING.values(), *PLAIN.values()}
    words = set(re.findall(r"\w+", "\n".join(documented)))
    source = t2t.open("memory://a/b.tar")
    for holder in (t2t, source, t2t.AisDataset, t2t.ops, t2t.cluster, t2t.parsing):
        missing = {name for name in dir(holder) if not name.startswith("_")} - words - _ELSEWHERE
        assert not missing, f"{holder} has {missing}, which no block and no call uses"
