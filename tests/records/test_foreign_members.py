"""Members that belong to no record, and records whose members are not next to each other."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import DuplicateKey, MissingField, StrayMember
from ais_tar2tf.records import splitter
from tests.support import archives

OF_DESKTOPS = [
    "./._a.jpg",
    "./.DS_Store",
    "sub/.DS_Store",
    "Thumbs.db",
    "sub/thumbs.db",
    "ehthumbs.db",
    "sub/desktop.ini",
    "Desktop.ini",
    ".localized",
    "sub/Icon\r",
    "__MACOSX/._sub",
    "__MACOSX/sub/._b.jpg",
]


def records_of(count: int) -> list[tuple[str, bytes]]:
    return [(f"sub/{at:03d}.{field}", b"%d" % at) for at in range(count) for field in ("cls", "txt")]


@pytest.mark.parametrize("grouping", ["first-dot", "last-dot"])
@pytest.mark.parametrize("count", [2, 60])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_files_of_desktops_are_skipped_and_counted(tmp_path: Path, kind: str, count: int, grouping: str) -> None:
    """Files of desktops are skipped at the start, between two records, inside a record, and at the end."""
    members = records_of(count)
    for at, name in enumerate(OF_DESKTOPS):
        members.insert(at * 7 % len(members), (name, b"x"))
    made = archives.tar_of(members) if kind == "tar" else archives.zip_of(members)
    (tmp_path / f"s.{kind}").write_bytes(made)
    source = t2t.open(tmp_path / f"s.{kind}", grouping=grouping)
    found = list(source.records())
    assert [record["__key__"] for record in found] == [f"sub/{at:03d}" for at in range(count)]
    assert all(list(record)[2:] in (["cls", "txt"], ["txt", "cls"]) for record in found)
    assert source.stats.ignored == len(OF_DESKTOPS)
    assert not source.stats.skipped


def test_a_tar_that_macos_made_is_trained_on(tmp_path: Path) -> None:
    """Train on a tar of a folder that macOS's Finder has shown."""
    members = [("./.DS_Store", b"x"), *((f"./{name}", body) for name, body in records_of(5)), ("./._sub", b"x")]
    (tmp_path / "s.tar").write_bytes(archives.tar_of(members))
    source = t2t.open(tmp_path / "s.tar")
    assert len(list(source.dataset())) == 5
    assert t2t.index(tmp_path / "s.tar", progress=False).records_of(["s.tar"]) == 5


@pytest.mark.parametrize("name", ["sub/.hidden", ".gitignore", "LICENSE", "sub/Icon"])
def test_other_hidden_files_are_errors(tmp_path: Path, name: str) -> None:
    (tmp_path / "s.tar").write_bytes(archives.tar_of([*records_of(3), (name, b"x")]))
    with pytest.raises(StrayMember, match="has no extension"):
        list(t2t.open(tmp_path / "s.tar").records())


@pytest.mark.parametrize("rule", ["first-dot", "last-dot"])
@pytest.mark.parametrize("field", ["db", "ini"])
def test_fields_of_these_extensions_are_fields(tmp_path: Path, rule: str, field: str) -> None:
    """Only the exact names of desktop files are skipped, also among many similar records."""
    members = [(f"{at:03d}.{field}", b"x") for at in range(40)]
    names = {"db": "Thumbs.db", "ini": "desktop.ini"}
    members.insert(17, (names[field], b"x"))
    members.insert(29, (f"my-{names[field]}", b"x"))
    (tmp_path / "s.tar").write_bytes(archives.tar_of(members))
    source = t2t.open(tmp_path / "s.tar", grouping=rule)
    keys = [record["__key__"] for record in source.records()]
    assert len(keys) == 41
    assert f"my-{names[field].partition('.')[0]}" in keys
    assert source.stats.ignored == 1
    assert splitter(rule)(names[field]) is None


def test_files_that_pack_ignores_are_skipped_in_shards(tmp_path: Path) -> None:
    """A folder that we pack and a tar of the folder have the same records."""
    (tmp_path / "in").mkdir()
    for name, body in [("a.txt", b"1"), ("b.txt", b"2"), (".DS_Store", b"x"), ("Thumbs.db", b"x"), ("._a.txt", b"x")]:
        (tmp_path / "in" / name).write_bytes(body)
    packed = t2t.pack(tmp_path / "in", f"{tmp_path}/ours.tar", progress=False)
    with tarfile.open(tmp_path / "theirs.tar", "w") as tar:
        tar.add(tmp_path / "in", "./")
    with zipfile.ZipFile(tmp_path / "theirs.zip", "w") as file:
        for path in sorted((tmp_path / "in").iterdir()):
            file.write(path, path.name)
    wanted = {(record["__key__"], record["txt"]) for record in t2t.iter_records(list(packed))}
    for name in ("theirs.tar", "theirs.zip"):
        found = {
            (record["__key__"].removeprefix("./"), record["txt"]) for record in t2t.iter_records(tmp_path / name)
        }
        assert found == wanted


# Records that are torn apart


def torn(*fields: str) -> list[tuple[str, bytes]]:
    """Write all files of one field, then all of the next: `a.txt b.txt a.cls b.cls`."""
    return [(f"{key}.{field}", b"1") for field in fields for key in ("a", "b", "c")]


BY_HAND: dict[str, Any] = {
    "select": lambda source: list(source.select("txt", "cls").records()),
    "select in a dataset": lambda source: list(source.select("txt", "cls").dataset()),
    "the fields of a mapping": lambda source: list(source.dataset(lambda r: (r["txt"], r["cls"]))),
    "the records": lambda source: list(source.records()),
    "a dataset": lambda source: list(source.dataset()),
    "an index": lambda source: source.write_index(),
}


@pytest.mark.parametrize("call", BY_HAND.values(), ids=BY_HAND)
def test_members_that_are_not_next_to_each_other_are_an_error(tmp_path: Path, call: Any) -> None:
    """For every call, the error names the reason and the remedy, instead of a missing field."""
    (tmp_path / "s.tar").write_bytes(archives.tar_of(torn("txt", "cls")))
    with pytest.raises(
        (DuplicateKey, MissingField), match="have to lie next to each other: unpack the shard"
    ) as told:
        call(t2t.open(tmp_path / "s.tar"))
    assert "record 'a'" in str(told.value)
    assert "select 'cls?'" not in str(told.value)


def test_the_suggested_remedy_works(tmp_path: Path) -> None:
    (tmp_path / "s.tar").write_bytes(archives.tar_of(torn("txt", "cls")))
    with tarfile.open(tmp_path / "s.tar") as tar:
        tar.extractall(tmp_path / "files", filter="data")
    packed = t2t.pack(tmp_path / "files", f"{tmp_path}/new.tar", progress=False)
    found = list(t2t.iter_records(list(packed), fields=["txt", "cls"]))
    assert [record["__key__"] for record in found] == ["a", "b", "c"]


def test_an_unknown_field_is_reported_as_missing(tmp_path: Path) -> None:
    """An unknown field is reported as missing, even if another record is torn apart."""
    members = [("x.txt", b"1"), *torn("txt", "cls")]
    (tmp_path / "s.tar").write_bytes(archives.tar_of(members))
    with pytest.raises(MissingField, match=r"record 'x': field 'cls' is missing .*select 'cls\?'"):
        list(t2t.open(tmp_path / "s.tar").select("txt", "cls").records())


def test_torn_records_are_skipped_and_counted_as_before(tmp_path: Path) -> None:
    (tmp_path / "s.tar").write_bytes(archives.tar_of(torn("txt", "cls")))
    source = t2t.open(tmp_path / "s.tar", on_error="skip-record").select("txt", "cls")
    assert list(source.records()) == []
    assert source.stats.skipped == {"MissingField": 3, "DuplicateKey": 3}
