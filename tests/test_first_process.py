"""Every block of the pages, every documented call and every verb, each the first thing in a process of its own.

What they need of each other is no excuse: a newcomer copies one block, into a process that has imported nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import ais_tar2tf as t2t
import pages
import shards as made
from documented_calls import PLAIN, TRAINING
from first_process import Scene

BLOCKS = [block for page in pages.pages() for block in pages.blocks(page)]


@pytest.fixture(scope="session")
def buckets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the buckets that the pages name; only the first shards have records."""
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
def scene(buckets: Path, bytecode: Path | None, tornet_root: Path, tmp_path: Path) -> Iterator[Scene]:
    shutil.copytree(buckets, tmp_path / "folder", copy_function=os.link)
    (tmp_path / "tornet").symlink_to(tornet_root)
    with t2t.serve(tmp_path / "folder") as server:
        yield Scene(tmp_path, server.url, server.target_url, bytecode)


def _fine(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    for amiss in ("Traceback", "Exception ignored", "Warning:"):
        assert amiss not in done.stderr, done.stderr


def test_there_are_blocks() -> None:
    assert len(BLOCKS) > 8


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_runs_as_the_first_thing_in_a_process(block: pages.Block, scene: Scene) -> None:
    _fine(scene.run_code(block.code.replace("train-2015-{00..09}", "train-2015-{00..05}")))  # there are six such samples


@pytest.mark.parametrize("call", [*TRAINING, *PLAIN])
def test_a_call_works_as_the_first_thing_in_a_process(call: str, scene: Scene) -> None:
    _fine(scene.run_code((TRAINING | PLAIN)[call]))
