"""Processes publish into one folder at the same time. The shared documents contain all of them."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.export.destinations import FolderDestination, StoreDestination
from ais_tar2tf.recordfiles.export.locking import CLAIMS, Claims, exclusive
from ais_tar2tf.stores import open_store, split_url
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.arguments import read_options
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name
from tests.support.record_folders import tree

SPLITS = ("train", "val", "test")
QUICK = Claims(first_pause=0.001, max_pause=0.01)


@pytest.fixture
def split_template(tmp_path: Path) -> str:
    for split in SPLITS:
        (tmp_path / f"{split}.tar").write_bytes(made.labelled(split, 20, lambda n: {"txt": b"%d" % n}))
    return str(tmp_path / "{}.tar")


def objects(base: str) -> dict[str, str]:
    """Return the digest of every object below a URL by its name, as `tree` does for a folder."""
    scheme, bucket, prefix = split_url(base)
    store = open_store(scheme, bucket, read_options())
    found: dict[str, str] = {}
    for info in store.list(f"{prefix}/"):
        body = store.open(info.name)
        buffer, data = memoryview(bytearray(1 << 16)), bytearray()
        while count := body.readinto(buffer):
            data += buffer[:count]
        body.close()
        found[info.name.removeprefix(f"{prefix}/")] = hashlib.sha256(data).hexdigest()
    store.close()
    return found


def run_concurrently(script: str, each: list[list[str]]) -> None:
    """Run a script in one process for each list of arguments.

    The processes wait for one another after their imports.
    """
    wait = "import sys; print('ready', flush=True); sys.stdin.readline()\n"
    begin = "import ais_tar2tf as t2t, ais_tar2tf.source, ais_tar2tf.recordfiles.export.run\n"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", begin + wait + script, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for arguments in each
    ]  # fmt: skip
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0


EXPORT = "t2t.open(sys.argv[1]).export(sys.argv[2], split=sys.argv[3], workers=1, shard_records=7)\n"


@pytest.mark.parametrize(
    "where", ["folder", *(pytest.param(name, marks=pytest.mark.servers(name)) for name in ("aistore", "minio"))]
)
def test_splits_exported_at_the_same_time_are_all_published(
    where: str, split_template: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = str(tmp_path / "out")
    if where != "folder":
        bucket, scheme = new_name(), "s3" if where == "minio" else "ais"
        server = request.getfixturevalue(where)
        for name, value in server.environment.items() if where == "minio" else [("AIS_ENDPOINT", server.url)]:
            monkeypatch.setenv(name, value)
        t2t.pack([{"__key__": "a", "txt": "a"}], f"{scheme}://{bucket}/any.tar", create=True)
        base = f"{scheme}://{bucket}/deep/out"
    run_concurrently(EXPORT, [[split_template.format(split), base, split] for split in SPLITS])
    assert sorted(t2t.load(base).splits) == sorted(SPLITS)
    assert t2t.load(base).verify().records == 20 * len(SPLITS)
    for split in SPLITS:
        t2t.open(split_template.format(split)).export(tmp_path / "one", split=split, workers=1, shard_records=7)
    assert (tree(Path(base)) if where == "folder" else objects(base)) == tree(tmp_path / "one")


def count_up(place: Any, times: int, failures: list[BaseException]) -> None:
    try:
        for _ in range(times):
            with exclusive(place, QUICK):
                data = place.read("number")
                place.write("number", b"%d" % (int(data or b"0") + 1))
    except BaseException as error:  # noqa: BLE001
        failures.append(error)


@pytest.mark.parametrize("kind", ["store", "folder"])
def test_no_change_of_a_shared_document_is_lost(kind: str, tmp_path: Path) -> None:
    place = FolderDestination(tmp_path) if kind == "folder" else StoreDestination(MemoryStore(new_name()), "deep")
    failures: list[BaseException] = []
    threads = [threading.Thread(target=count_up, args=(place, 5, failures)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert place.read("number") == b"30"
    assert list(place.names(f"{CLAIMS}/")) == []


def test_a_claim_of_a_killed_process_is_deleted() -> None:
    place = StoreDestination(MemoryStore(new_name()), "")
    place.write(f"{CLAIMS}/left", b"")
    now = [0.0]
    claims = Claims(clock=lambda: now[0], pause=lambda _: now.__setitem__(0, now[0] + 10))
    with exclusive(place, claims):
        assert now[0] > claims.dead
        assert list(place.names(f"{CLAIMS}/")) != [f"{CLAIMS}/left"]
    assert list(place.names("")) == []


def test_a_process_that_lost_its_claim_raises_an_error() -> None:
    place = StoreDestination(MemoryStore(new_name()), "")
    with pytest.raises(ExportError, match="took this one for dead"), exclusive(place, QUICK):
        _delete_claim(place)


def _delete_claim(place: StoreDestination) -> None:
    for name in list(place.names(f"{CLAIMS}/")):
        place.delete(name)


def test_waiting_for_a_claim_ends_with_an_error() -> None:
    place = StoreDestination(MemoryStore(new_name()), "")
    now, number = [0.0], [0]

    def others(_: float) -> None:
        now[0] += 10
        number[0] += 1
        place.write(f"{CLAIMS}/other-{number[0]}", b"")

    place.write(f"{CLAIMS}/other-0", b"")
    with (
        pytest.raises(ExportError, match="other exports have been publishing"),
        exclusive(place, Claims(clock=lambda: now[0], pause=others)),
    ):
        pass


PACK = """
rows = [{"__key__": f"{sys.argv[2]}{n}", "cls": n % 2, "txt": "x"} for n in range(4)]
import os, pathlib
root = pathlib.Path(sys.argv[1]).parent / sys.argv[2]
for name in ("ant", "bee"):
    (root / name).mkdir(parents=True)
    (root / name / "a.txt").write_text("x")
t2t.pack(root, f"{sys.argv[1]}/{sys.argv[2]}-{{}}.tar")
"""


def test_packs_that_write_their_classes_at_the_same_time(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    names = ["cats", "dogs", "fish"]
    run_concurrently(PACK, [[str(out), name] for name in names])
    from ais_tar2tf.streams.class_names import parse_classes

    named = parse_classes((out / "classes.json").read_bytes(), where="classes.json")
    assert sorted(template for each in named for template in each.shards) == [f"{name}-{{}}.tar" for name in names]
    assert not (out / CLAIMS).exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked here")
def test_a_forked_child_leaves_its_parents_folder(tmp_path: Path) -> None:
    """A forked child that exits runs inherited finalizers, which must not delete the parent's folder."""
    script = (
        "import io, os, sys, tempfile\n"
        "from ais_tar2tf.recordfiles.loading import random_access\n"
        "class Files:\n"
        "    def stream(self, name): return io.BufferedReader(io.BytesIO(b'content'))\n"
        "tempfile.tempdir = sys.argv[1]\n"
        "downloads = random_access._Downloads()\n"
        "copy = downloads.copy_of(Files(), 'a/file')\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(copy.read_bytes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "b'content'"
    assert list(tmp_path.iterdir()) == []
