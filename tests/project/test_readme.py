"""The project's pages: Python and commands run in their order, and every link leads to something that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf
from typer.testing import CliRunner

import ais_tar2tf as t2t
from ais_tar2tf.cli.app import app
from tests.support import pages
from tests.support import shards as made
from tests.support.first_process import definitions

PAGES = {name: (pages.ROOT / name).read_text(encoding="utf-8") for name in pages.pages()}
COMMANDS = [
    words[1:]
    for page in ("README.md", "examples/command_line.md")
    for block in pages.blocks(page, "console")
    for words in pages.commands(block)
    if words[0] == "ais-tar2tf"
    and "shards/train" not in block.code  # test_first_process.py runs commands that need photos
]
ELSEWHERE = {"demo", "bench"}  # these take long; test_cli.py runs them


def blocks(page: str) -> list[str]:
    """Return the page's blocks of Python, except whole programs, which test_first_process.py runs."""
    return [block.code for block in pages.blocks(page) if not block.program]


@pytest.fixture
def documented_bucket(tmp_path, monkeypatch, tornet_root):
    """Serve a folder with the buckets `imagenet` (a few of its many shards have records), `bucket` and `little`."""
    folder = tmp_path / "folder"
    for name, shards in (("imagenet", 147), ("bucket", 1)):
        (folder / name).mkdir(parents=True)
        for number in range(shards):
            records = 2 if number < 3 else 0
            shard = made.labelled(f"n{number}", records)
            (folder / name / f"train-{number:03d}.tar").write_bytes(shard)
            (folder / name / f"train-{number}.tar").write_bytes(shard)
            (folder / name / f"test-{number:02d}.tar.gz").write_bytes(made.gzipped(shard))
    (folder / "little").mkdir()
    for name in ("train-0", "train-1", "train-2", "train-3", "test-0"):
        (folder / "little" / f"{name}.tar").write_bytes(made.labelled(name, 3))
    (tmp_path / "tornet").symlink_to(tornet_root)
    monkeypatch.chdir(tmp_path)
    with t2t.serve(folder) as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        yield server


def run(page, bucket):
    """Run the page's blocks one after another, and return the names that they define."""
    model = tf.keras.Sequential([tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(10)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    names = {"model": model, "tf": tf, "t2t": t2t}
    for block in [*definitions("\n".join(blocks(page)), names), *blocks(page)]:
        code = block.replace("http://localhost:51080", bucket.url)
        code = code.replace("http://host/shards/train", f"{bucket.target_url}/v1/objects/imagenet/train")
        code = code.replace("train-2015-{00..09}", "train-2015-{00..05}")  # the small data have six such samples
        exec(compile(code, page, "exec"), names)  # noqa: S102  # the pages are ours
    return names


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_python_blocks_run(page, documented_bucket, capsys):
    names = run(page, documented_bucket)
    printed = capsys.readouterr().out
    if page == "README.md":
        assert len(blocks(page)) > 3
        assert "n0/000000" in printed
    if page == "examples/training.md":
        assert "n0/000000" in printed
        assert "records_read=6" in printed
    if page == "examples/order_and_resume.md":
        assert len(list(names["train"])) > 0
        assert len(names["src"]) == 6


def test_commands_run(documented_bucket):
    assert len(COMMANDS) > 8
    for command in COMMANDS:
        if command[0] not in ELSEWHERE:
            done = CliRunner().invoke(app, command)
            assert done.exit_code == 0, f"{command}: {done.stderr}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_files_and_headings(page):
    for path, anchor in re.findall(r"\]\(([^)#:]*)#?([^):]*)\)", PAGES[page]):
        target = (pages.ROOT / page).parent / path if path else pages.ROOT / page
        assert target.exists(), path
        if anchor:
            assert anchor in anchors(target), f"{path}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_options_and_verbs_exist(page):
    for name in re.findall(r"options\.([A-Z]\w+)", PAGES[page]):
        assert hasattr(t2t.options, name)
    setup = (pages.ROOT / "setup.sh").read_text(encoding="utf-8")
    for verb in re.findall(r"\./setup\.sh (\w+)", PAGES[page]):
        assert re.search(rf"^ +(?:\S+ \| )?{verb}\b", setup, re.MULTILINE)


def test_rooms_of_the_map_exist():
    package = pages.ROOT / "ais_tar2tf"
    named = set(re.findall(r"`([a-z0-9_/]+(?:\.py|/))`", (package / "README.md").read_text(encoding="utf-8")))
    assert len(named) > 20
    for name in named:
        assert any((root / name).exists() for root in (package, package / "stores", pages.ROOT)) or any(
            package.rglob(name.rstrip("/"))
        ), name


def test_the_first_page_is_short():
    assert PAGES["README.md"].count("\n") <= 200
