"""Python and commands of both READMEs run, in their order, on a bucket that has what they name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import tensorflow as tf
from typer.testing import CliRunner

import ais_tar2tf as t2t
import pages
import shards as made
from ais_tar2tf.cli.app import app

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "examples/README.md")}
COMMANDS = [
    words[1:]
    for block in pages.blocks("README.md", "console")
    for words in pages.commands(block)
    if words[0] == "ais-tar2tf" and "shards/train" not in block.code  # what needs photos, test_first_process.py runs
]
ELSEWHERE = {"demo", "bench"}  # they take long: test_cli.py runs them


def blocks(page: str) -> list[str]:
    """The page's Python, without programs of their own: test_first_process.py runs these."""
    return [block.code for block in pages.blocks(page) if not block.program]


@pytest.fixture
def bucket(tmp_path, monkeypatch, tornet_root):
    """A folder with the bucket `imagenet` (a few of the many shards have records) and one named `bucket`."""
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


def test_its_python_runs(bucket, capsys):
    model = tf.keras.Sequential([tf.keras.layers.GlobalAveragePooling2D(), tf.keras.layers.Dense(10)])
    model.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    names = {"model": model, "tf": tf}
    for page in PAGES:
        assert len(blocks(page)) > 3
        for block in blocks(page):
            code = block.replace("http://localhost:51080", bucket.url)
            code = code.replace("http://host/shards/train", f"{bucket.target_url}/v1/objects/imagenet/train")
            code = code.replace("train-2015-{00..09}", "train-2015-{00..05}")  # there are but six such samples
            exec(compile(code, page, "exec"), names)  # noqa: S102  # the pages are ours
    assert len(list(names["train"])) > 0
    assert len(names["src"]) == 6
    printed = capsys.readouterr().out
    assert "n0/000000" in printed
    assert "records_read=6" in printed


def test_its_commands_run(bucket):
    assert len(COMMANDS) > 8
    for command in COMMANDS:
        if command[0] not in ELSEWHERE:
            done = CliRunner().invoke(app, command)
            assert done.exit_code == 0, f"{command}: {done.stderr}"


def test_what_they_name_is_there():
    rooms = (ROOT / "ais_tar2tf" / "README.md").read_text(encoding="utf-8")
    for page, text in PAGES.items():
        for path in re.findall(r"\]\(([^)#:]+)\)", text):
            assert ((ROOT / page).parent / path).is_file(), path
        for name in re.findall(r"options\.([A-Z]\w+)", text):
            assert hasattr(t2t.options, name)
    for name in re.findall(r"(?:^|  )([a-z0-9_]+\.py|[a-z0-9_]+/)  ?", rooms, re.MULTILINE):
        assert (ROOT / "ais_tar2tf" / name).exists(), name
    headings = {
        each.lower().replace(" ", "-") for each in re.findall(r"^##+ (.*)$", PAGES["README.md"], re.MULTILINE)
    }
    assert set(re.findall(r"\(#([a-z-]+)\)", PAGES["README.md"])) <= headings
    for verb in re.findall(r"\./setup\.sh (\w+)", PAGES["README.md"]):
        assert re.search(rf"^ +(?:\S+ \| )?{verb}\b", (ROOT / "setup.sh").read_text(encoding="utf-8"), re.MULTILINE)
