"""Only our own files are deleted: in work folders, folders of parts and caches, and nothing outside of an export."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.documents import folders as owned
from ais_tar2tf.base.documents.folders import MARKER
from ais_tar2tf.errors import ExportError, UnsafeName
from ais_tar2tf.recordfiles.export import journal as work
from ais_tar2tf.recordfiles.export import write_payloads
from ais_tar2tf.recordfiles.export.staging import plan_key
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.record_folders import tree

NAMES = ["{folder}/victim", "../victim", "a/../../victim", "", "/", "x\0y", "a//victim", ".."]


def template(folder: Path, shards: int = 2) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(shards):
        (folder / f"{number}.tar").write_bytes(made.labelled(f"s{number}", 6, lambda n: {"x": b"%d" % n}))
    return f"{folder}/{{0..{shards - 1}}}.tar"


def precious(folder: Path) -> dict[str, str]:
    """Write files that must not be changed, and return their digests."""
    (folder / "deep" / "er").mkdir(parents=True)
    for name in ("a", "journal", "lock", "train-00000.part", "deep/b", "deep/er/c", "finished"):
        (folder / name).write_text(name)
    return tree(folder)


def unsealed(path: Path, change) -> None:
    """Rewrite a document as an earlier version or another program could have written it."""
    document = json.loads(path.read_text())
    document.pop("document_checksum", None)
    change(document)
    path.write_text(json.dumps(document))


def export(url: str, out: object, **options) -> list[str]:
    return t2t.open(url, index=False).export(out, progress=False, workers=1, **options)


# Names in manifests


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_cannot_name_files_elsewhere(tmp_path, name):
    url, out, victim = template(tmp_path / "in"), tmp_path / "out", tmp_path / "victim"
    export(url, out)
    victim.write_text("mine")
    file = {"name": name.format(folder=tmp_path), "records": 1, "bytes": 4, "checksum": ""}
    unsealed(out / "manifest.json", lambda manifest: manifest["splits"]["train"]["files"].append(file))
    for act in (lambda: export(url, out, exists="replace"), lambda: t2t.load(out), lambda: export(url, out)):
        with pytest.raises(UnsafeName, match=r"out/manifest\.json: the name"):
            act()
    assert victim.read_text() == "mine"


def test_replacing_deletes_only_files_of_an_export(tmp_path):
    """A file in the manifest's folder whose name no export would use belongs to the user."""
    url, out = template(tmp_path / "in"), tmp_path / "out"
    export(url, out)
    (out / "notes.txt").write_text("mine")
    file = {"name": "notes.txt", "records": 1, "bytes": 4, "checksum": ""}
    unsealed(out / "manifest.json", lambda manifest: manifest["splits"]["train"]["files"].append(file))
    export(url, out, exists="replace")
    assert (out / "notes.txt").read_text() == "mine"


def test_a_manifest_in_a_store_cannot_name_objects_elsewhere(tmp_path):
    url, place = template(tmp_path / "in"), "memory://owned/deep/out"
    export(url, place)
    store = MemoryStore("owned")
    store.put("deep/victim", b"mine")
    manifest = store._object("deep/out/manifest.json")[0]
    changed = json.loads(manifest)
    del changed["document_checksum"]
    changed["splits"]["train"]["files"][0]["name"] = "../victim"
    store.put("deep/out/manifest.json", json.dumps(changed).encode())
    with pytest.raises(UnsafeName, match=r"memory://owned/deep/out/manifest\.json"):
        export(url, place, exists="replace")
    assert store.head("deep/victim").size == 4


# Descriptions of parts


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "", "a/b", "a.b"])
def test_finish_writes_nothing_elsewhere(tmp_path, name):
    url, out = template(tmp_path / "in"), tmp_path / "deep" / "out"
    for host in range(2):
        export(url, out, shard=(host, 2), align="shard")
    parts = out / ".parts-train"
    for description in list(parts.glob("*.json")):
        unsealed(description, lambda said: said["plan"].update(name=name))
        label, old, _ = description.name.split(".")
        new = plan_key(json.loads(description.read_text())["plan"])
        for path in list(parts.glob(f"{label}.{old}.*")):
            path.rename(path.with_name(path.name.replace(old, new)))
    before = tree(tmp_path)
    with pytest.raises(ExportError, match=r"\.parts-train/.*\.json: the document is damaged: plan\.name|name: "):
        t2t.finish(out)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.update(label="../../evil"),
        lambda said: said["files"][0].update(split="../../evil"),
        lambda said: said["splits"].append("../evil"),
        lambda said: said["plan"].update(shards=2**62),
        lambda said: said["shards"][0].update(observed=[]),
        lambda said: said.pop("files"),
    ],
)
def test_a_part_that_describes_something_else_is_refused(tmp_path, change):
    url, out = template(tmp_path / "in"), tmp_path / "deep" / "out"
    for host in range(2):
        export(url, out, shard=(host, 2), align="shard")
    unsealed(min((out / ".parts-train").glob("*.json")), change)
    before = tree(tmp_path)
    with pytest.raises(ExportError, match=r"\.parts-train"):
        t2t.finish(out)
    assert tree(tmp_path) == before


# Work folders


@pytest.mark.parametrize("link", [".export-train", ".parts-train", ".parts-train/.work-00000-of-00002"])
def test_a_link_in_place_of_a_work_folder_is_not_followed(tmp_path, link):
    url, out, target = template(tmp_path / "in"), tmp_path / "out", tmp_path / "precious"
    kept = precious(target)
    (out / link).parent.mkdir(parents=True)
    (out / link).symlink_to(target)
    how = {"shard": (0, 2), "align": "shard"} if "parts" in link else {}
    for exists in ("resume", "replace"):
        with pytest.raises(ExportError, match=r"a link or a file stands where|did not make"):
            export(url, out, exists=exists, **how)
    if "parts" in link:
        with pytest.raises(ExportError):
            t2t.finish(out)
    assert tree(target) == kept


@pytest.mark.parametrize("folder", [".export-train", ".parts-train", ".parts-train/.work-00000-of-00002"])
def test_a_foreign_folder_is_refused(tmp_path, folder):
    url, out = template(tmp_path / "in"), tmp_path / "out"
    kept = precious(out / folder)
    how = {"shard": (0, 2), "align": "shard"} if "parts" in folder else {}
    for exists in ("resume", "replace"):
        with pytest.raises(ExportError, match="which ais_tar2tf did not make"):
            export(url, out, exists=exists, **how)
    assert {name: digest for name, digest in tree(out / folder).items() if name != MARKER} == kept


def test_a_users_file_in_a_work_folder_is_kept(tmp_path):
    """The folder is ours, but the file is not."""
    url, out = template(tmp_path / "in"), tmp_path / "out"
    folder = out / ".export-train"
    owned.claim(folder, owned.Layout(re.compile("x")), fail=ExportError)
    (folder / "notes.txt").write_text("mine")
    (folder / "train-00007.part").write_text("a leftover")
    files = export(url, out)
    assert len(files) == 1
    assert [path.name for path in folder.iterdir() if path.name != MARKER] == ["notes.txt"]


def test_a_link_among_the_parts_of_a_work_folder_is_not_written_through(tmp_path):
    url, out, target = template(tmp_path / "in"), tmp_path / "out", tmp_path / "precious"
    target.write_text("mine")
    folder = out / ".export-train"
    owned.claim(folder, owned.Layout(re.compile("x")), fail=ExportError)
    (folder / "train-00000.part").symlink_to(target)
    export(url, out)
    assert target.read_text() == "mine"
    assert not next(out.glob("dataset-train*")).is_symlink()


@pytest.mark.parametrize("name", [".manifest.json.new", ".export-train/.journal.new", ".export-train/lock"])
def test_a_link_in_place_of_a_small_file_is_not_written_through(tmp_path, name):
    url, out, target = template(tmp_path / "in"), tmp_path / "out", tmp_path / "precious"
    target.write_text("mine")
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(target)
    with pytest.raises(ExportError):
        export(url, out)
    assert target.read_text() == "mine"


def test_the_folder_of_path_is_ours_or_refused(tmp_path):
    """`path=` writes in a hidden folder next to the file."""
    kept = precious(tmp_path / ".x.record.part")
    with pytest.raises(ExportError, match="did not make"):
        write_payloads(tmp_path / "x.record", [b"a"])
    assert tree(tmp_path / ".x.record.part") == kept


def test_the_staging_of_a_store_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = template(tmp_path / "in")
    seen: list[int] = []

    open_journal = work.WorkFolder._open_journal

    def spied(self, plan):
        seen.append(self.path.stat().st_mode & 0o777)
        open_journal(self, plan)

    monkeypatch.setattr(work.WorkFolder, "_open_journal", spied)
    export(url, "memory://owned/private")
    assert seen == [0o700]
    assert list((tmp_path / "cache").rglob("*.part")) == []
    (staging,) = (tmp_path / "cache").rglob("exports")
    assert list(staging.iterdir()) == []


# Folders

LAYOUT = owned.Layout(re.compile(r"\d+\.x"), ((re.compile(r"in-\d"), owned.Layout(re.compile("y"))),))


@pytest.mark.parametrize(
    ("names", "ours"),
    [
        ([], True),
        (["1.x", "22.x", "in-1/y"], True),
        (["lost+found/z", ".nfs00000001", "1.x"], True),
        (["1.x", "1.xy"], False),
        (["in-1/z"], False),
        (["in-1/in-1/y"], False),
        (["other/1.x"], False),
    ],
)
def test_a_folder_without_a_marker_is_ours_if_all_its_names_are(tmp_path, names, ours):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    before = tree(folder)
    if ours:
        owned.claim(folder, LAYOUT, fail=ExportError)
        owned.claim(folder, LAYOUT, fail=ExportError)
        owned.remove(folder, LAYOUT, fail=ExportError)
        left = {name for name in names if "x" not in name and "y" not in name}
        assert set(tree(folder)) - {MARKER} == left
        assert folder.exists() == bool(left)
    else:
        for act in (owned.claim, owned.clear, owned.remove):
            with pytest.raises(ExportError, match="did not make"):
                act(folder, LAYOUT, fail=ExportError)
        assert tree(folder) == before


@pytest.mark.parametrize("act", [owned.check, owned.claim, owned.clear, owned.remove])
def test_a_subfolder_that_vanishes_during_the_check(tmp_path, monkeypatch, act):
    """Another process deletes a subfolder between the listing of the folder and the visit to the subfolder."""
    folder, scandir = tmp_path / "folder", os.scandir

    def scanned(at):
        with scandir(at) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        shutil.rmtree(folder / "in-1", ignore_errors=True)
        return contextlib.nullcontext(found)

    def act_on(name):
        (folder / "in-1").mkdir(parents=True)
        (folder / name).write_text("")
        with monkeypatch.context() as patched:
            patched.setattr(owned.os, "scandir", scanned)
            act(folder, LAYOUT, fail=ExportError)

    with pytest.raises(ExportError, match="did not make"):
        act_on("mine")
    assert set(tree(folder)) == {"mine"}
    (folder / "mine").unlink()
    act_on("1.x")
    assert set(tree(folder)) == {owned.check: {"1.x"}, owned.claim: {"1.x", MARKER}}.get(act, set())


def test_links_and_devices_are_never_ours(tmp_path):
    for make in (lambda path: path.symlink_to(tmp_path), os.mkfifo):
        folder = tmp_path / make.__name__
        folder.mkdir()
        make(folder / "1.x")
        with pytest.raises(ExportError, match="did not make"):
            owned.claim(folder, LAYOUT, fail=ExportError)


def test_nothing_is_deleted_through_a_link(tmp_path):
    folder, target = tmp_path / "folder", tmp_path / "target"
    target.mkdir()
    (target / "y").write_text("mine")
    owned.claim(folder, LAYOUT, fail=ExportError)
    (folder / "in-1").symlink_to(target)
    (folder / "1.x").symlink_to(target / "y")
    owned.clear(folder, LAYOUT, fail=ExportError)
    owned.remove(folder, LAYOUT, fail=ExportError)
    assert (target / "y").read_text() == "mine"


def test_deleting_a_missing_folder_does_nothing(tmp_path):
    owned.remove(tmp_path / "none", LAYOUT, fail=ExportError)
