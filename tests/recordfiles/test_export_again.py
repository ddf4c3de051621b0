"""An export that is killed, repeated, replaced, refused, or cannot be written is published whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.export import publish
from ais_tar2tf.recordfiles.export.destinations import FolderDestination
from tests.support.interrupted import Killed, until
from tests.support.record_folders import ROOT, examples, killed_runs, source, start_export, tree

COUNTS = [150, 30, 0, 120, 200]


@pytest.fixture(scope="module")
def interrupted_template(tmp_path_factory) -> str:
    return source(tmp_path_factory.mktemp("source"), COUNTS)


@pytest.fixture
def src(interrupted_template) -> t2t.open:
    return t2t.open(interrupted_template)


def _killed(template: str, tmp_path: Path, kills: int, workers: int, seed: int) -> int:
    began = time.monotonic()
    assert start_export(template, tmp_path / "whole", "tfrecord", workers).wait(60) == 0
    seconds = 1.2 * (time.monotonic() - began)
    happened = killed_runs(template, tmp_path / "killed", "tfrecord", workers, seconds, kills, seed)
    assert tree(tmp_path / "whole") == tree(tmp_path / "killed")
    return happened


@pytest.mark.parametrize("workers", [1, 2])
def test_killed_at_random_moments(interrupted_template, tmp_path, workers):
    assert _killed(interrupted_template, tmp_path, 4, workers, seed=workers) >= 1


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_twenty_times_in_new_folders(interrupted_template, tmp_path, workers):
    """Kill 40 exports. Every second one resumes the one before."""
    happened = 0
    for seed in range(10):
        happened += _killed(interrupted_template, tmp_path, 2, workers, seed)
        shutil.rmtree(tmp_path / "killed")
        shutil.rmtree(tmp_path / "whole")
    assert happened >= 5


@pytest.mark.parametrize("exists", ["resume", "replace"])
def test_killed_between_any_two_steps_of_publishing(src, tmp_path, monkeypatch, exists):
    """The process is killed after each change under a final name, in turn."""
    src.export(tmp_path / "whole", shard_records=90, workers=1, idx=True)
    t2t.open(src.shards).export(tmp_path / "old", shard_records=200, workers=1)
    steps = ("write", "move_in", "delete", "sync")
    for last in range(100):
        out = tmp_path / "out"
        shutil.rmtree(out, ignore_errors=True)
        if exists == "replace":
            shutil.copytree(tmp_path / "old", out)
        left = iter(range(last))
        with monkeypatch.context() as patched:
            for step in steps:
                patched.setattr(FolderDestination, step, until(getattr(FolderDestination, step), left))
            try:
                src.export(out, shard_records=90, workers=1, idx=True, exists=exists)
                break
            except Killed:
                pass
        for path in out.glob("dataset-*[0-9]"):
            assert examples([str(path)])
        src.export(out, shard_records=90, workers=1, idx=True, exists=exists)
        assert tree(out) == tree(tmp_path / "whole"), last
    assert 10 < last < 100


def test_a_finished_export_is_kept(src, tmp_path):
    files = src.export(tmp_path / "out")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    again = t2t.open(src.shards)
    assert again.export(tmp_path / "out") == files
    assert again.stats.records_read == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == before


def test_another_plan_is_refused_and_replaced(src, tmp_path):
    src.export(tmp_path / "out", shard_records=50)
    with pytest.raises(ExportError, match="exists='replace'"):
        src.export(tmp_path / "out", shard_records=60)
    with pytest.raises(ExportError, match="exists='replace'"):
        src.export(tmp_path / "out", shard_records=50, exists="error")
    src.export(tmp_path / "out", shard_records=60, exists="replace")
    src.export(tmp_path / "new", shard_records=60)
    assert tree(tmp_path / "out") == tree(tmp_path / "new")


def test_the_plan_of_a_function_is_the_same_in_every_process(interrupted_template, tmp_path):
    """The order of a set of texts, which is a constant of a function, depends on the seed of Python's hashes."""
    code = (
        "import sys, ais_tar2tf as t2t\n"
        "def encode(record): return {'a': record['__key__'][0] in {'n', 'a', 'b', 'c', 'd'}}\n"
        "t2t.open(sys.argv[1]).export(sys.argv[2], record_to_example=encode, workers=1)"
    )
    for seed in "123":
        command = [sys.executable, "-c", code, interrupted_template, str(tmp_path / "out")]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, env=environment)
        assert done.returncode == 0, done.stderr


def _interrupted_by_split(template, out):
    """Interrupt an export with splits by a function; return the function."""

    def is_small(record):
        if killed and record["__key__"] == "n4/000100":
            raise Killed
        return len(record["jpg"]) < 500

    killed = True
    with pytest.raises(Killed):
        t2t.open(template).export(out, splits={"small": is_small}, shard_records=10, workers=1)
    killed = False
    return is_small


def test_splits_by_another_function_of_the_same_name_are_refused(interrupted_template, tmp_path):
    def is_small(record):
        return len(record["jpg"]) < 600

    theirs = _interrupted_by_split(interrupted_template, tmp_path / "out")
    is_small.__qualname__ = theirs.__qualname__
    src = t2t.open(interrupted_template)
    with pytest.raises(ExportError, match="another plan"):
        src.export(tmp_path / "out", splits={"small": is_small}, shard_records=10)
    src.export(tmp_path / "out", splits={"small": theirs}, shard_records=10)
    with pytest.raises(ExportError, match="another export"):
        src.export(tmp_path / "out", splits={"small": is_small}, shard_records=10)


def test_splits_by_a_function_are_resumed_from_a_journal_without_its_code(interrupted_template, tmp_path):
    """Earlier versions wrote only the names of the functions into the plan."""
    is_small = _interrupted_by_split(interrupted_template, tmp_path / "out")
    journal = tmp_path / "out" / ".export-small" / "journal"
    first, *others = journal.read_bytes().splitlines(keepends=True)
    plan = json.loads(first)["plan"]
    plan["splits"]["functions"] = [f"{is_small.__module__}.{is_small.__qualname__}"]
    journal.write_bytes(json.dumps({"plan": plan}).encode() + b"\n" + b"".join(others))
    src = t2t.open(interrupted_template)
    src.export(tmp_path / "out", splits={"small": is_small}, shard_records=10)
    assert src.stats.records_read < 500  # finished files are not read again
    t2t.open(interrupted_template).export(tmp_path / "whole", splits={"small": is_small}, shard_records=10)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


def test_files_without_a_manifest_are_refused_and_replaced(src, tmp_path):
    (tmp_path / "dataset-train.tfrecord-00007-of-00008").write_bytes(b"stale")
    (tmp_path / "notes.txt").write_bytes(b"mine")
    with pytest.raises(ExportError, match="00007-of-00008"):
        src.export(tmp_path)
    src.export(tmp_path, exists="replace")
    assert sorted(tree(tmp_path)) == [
        "dataset-train.tfrecord-00000-of-00001", "dataset_info.json", "features.json", "manifest.json", "notes.txt",
    ]  # fmt: skip


def test_an_unfinished_export_of_another_plan_is_refused(interrupted_template, tmp_path):
    process = start_export(interrupted_template, tmp_path / "out", "tfrecord", 1)
    journal = tmp_path / "out" / ".export-train" / "journal"
    while process.poll() is None and not (journal.exists() and b"file" in journal.read_bytes()):
        os.sched_yield()
    process.kill()
    process.wait()
    if (tmp_path / "out" / "manifest.json").exists():
        pytest.fail("the export was faster than the test; make its source larger")
    with pytest.raises(ExportError, match="did not end"):
        t2t.open(interrupted_template).export(tmp_path / "out", shard_records=77)
    t2t.open(interrupted_template).export(tmp_path / "out", shard_records=77, exists="replace")
    assert len(t2t.load(tmp_path / "out").files("train")) == 7


def test_a_changed_source_is_an_error(tmp_path):
    template = source(tmp_path / "in", [30, 30])
    t2t.open(template).export(tmp_path / "out", shard_records=20)
    source(tmp_path / "in", [30, 31])
    with pytest.raises(ExportError, match=r"changed since.*exists='replace'"):
        t2t.open(template).export(tmp_path / "out", shard_records=20)
    t2t.open(template).export(tmp_path / "out", shard_records=20, exists="replace")
    assert len(t2t.load(tmp_path / "out")) == 61


def test_splits_are_exported_one_after_another(src, interrupted_template, tmp_path):
    src.export(tmp_path / "out", split="train")
    t2t.open(interrupted_template.replace("{0..4}", "{0..1}")).export(tmp_path / "out", split="val")
    loaded = t2t.load(tmp_path / "out")
    assert loaded.splits == {"train": 500, "val": 180}
    assert loaded.verify().records == 680
    t2t.open(interrupted_template.replace("{0..4}", "0")).export(tmp_path / "out", split="val", exists="replace")
    assert t2t.load(tmp_path / "out").splits == {"train": 500, "val": 150}
    with pytest.raises(ExportError, match="other splits"):
        src.export(tmp_path / "out", split="test", format="tar")


def test_two_concurrent_exports_are_refused(src, tmp_path):
    def during(record):
        if record["__key__"] == "n0/000009":
            with pytest.raises(ExportError, match="another export is writing"):
                src.export(tmp_path / "out", record_to_example=during)
        return {"key": record["__key__"]}

    assert src.export(tmp_path / "out", record_to_example=during)


# Outputs that cannot be written


def test_a_full_disk(src, interrupted_template, tmp_path):
    """A limit on the size of files simulates a disk that is full at that byte."""
    src.export(tmp_path / "whole", shard_records=250)
    code = (
        "import resource, signal, sys, ais_tar2tf as t2t\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try: t2t.open(sys.argv[1]).export(sys.argv[2], shard_records=250, workers=int(sys.argv[3]))\n"
        "except t2t.errors.ExportError as error: print(error)"
    )
    for workers in "12":
        out = tmp_path / workers
        command = [sys.executable, "-c", code, interrupted_template, str(out), workers]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT, timeout=200)
        assert (done.returncode, done.stderr) == (0, "")
        assert "File too large" in done.stdout
        assert not [path for path in out.iterdir() if not path.name.startswith(".")]
        src.export(out, shard_records=250)
        assert tree(out) == tree(tmp_path / "whole")


def test_an_invalid_output_folder(src, tmp_path):
    (tmp_path / "file").write_bytes(b"mine")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ExportError, match="file"):
            src.export(out)
    assert (tmp_path / "file").read_bytes() == b"mine"


def test_no_permission(src, tmp_path, monkeypatch):
    def refused(self, *_arguments, **_options):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refused)  # simulated, because root may write everywhere
    with pytest.raises(ExportError, match="Permission denied"):
        src.export(tmp_path / "out")


def test_a_failure_to_publish_is_repaired(src, tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(publish, "metadata", full)
        with pytest.raises(ExportError, match="No space left"):
            src.export(tmp_path / "out")
    src.export(tmp_path / "out")
    src.export(tmp_path / "whole")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
