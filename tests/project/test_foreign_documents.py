"""Documents in the formats of Datum, TFRecorder, TorNet and DALI, token files, and answers of a cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.documents import folders as owned
from ais_tar2tf.datum.reader.files import open_record_directory
from ais_tar2tf.errors import ExportError, SchemaError, StoreError, Tar2TFError, UnsafeName
from ais_tar2tf.options import KIB, MIB, Read, Retry, Timeouts
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.stores.clusters import bucket_names
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.stores.transport.tokens import Token
from ais_tar2tf.tfrecorder.config import config_text, parse_config
from ais_tar2tf.tfrecorder.helpers.fields import FieldType
from ais_tar2tf.tornet.building import WORK
from ais_tar2tf.tornet.record_file import Task
from tests.support import shards as made
from tests.support.fault_server import Fault, FaultServer, plain

INFO = {"train": {"a.tfrecord": 3}}
MAPPING = {"x": {"type": "int", "shape": [], "dense": True}}


# Datum


def datum(folder: Path, info: bytes, mapping: bytes = json.dumps(MAPPING).encode()) -> Path:
    (folder / "shard_info.json").write_bytes(info)
    (folder / "datum_to_type_and_shape_mapping.json").write_bytes(mapping)
    return folder


def test_datums_documents_are_read(tmp_path: Path) -> None:
    directory = open_record_directory(datum(tmp_path, json.dumps(INFO).encode()))
    assert (directory.counts, directory.schema.names) == (INFO, ["x"])


@pytest.mark.parametrize(
    "info",
    [b"", b"[]", b"[" * 100_000, b'{"train": 3}', b'{"train": {"a": -1}}', b'{"train": {"a": true}}',
     b'{"train": {"a": 1e999}}', b'{"train": {"a": ' + b"9" * 5_000 + b"}}", b"\xff\xfe"],
    ids=range(9),
)  # fmt: skip
def test_invalid_counts_are_refused(tmp_path: Path, info: bytes) -> None:
    with pytest.raises(SchemaError, match=r"shard_info\.json"):
        open_record_directory(datum(tmp_path, info))


@pytest.mark.parametrize("name", ["/etc/passwd", "../a.tfrecord", "a/../../b", "a\0b", ""])
def test_a_record_file_in_another_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnsafeName, match=r"shard_info\.json"):
        open_record_directory(datum(tmp_path, json.dumps({"train": {name: 1}}).encode()))


@pytest.mark.parametrize(
    "feature",
    [3, [], {}, {"type": "pickle", "shape": [], "dense": True}, {"type": "int", "shape": 5, "dense": True},
     {"type": "int", "shape": [-3], "dense": True}, {"type": [], "shape": [], "dense": True},
     {"type": "int", "shape": [], "dense": "yes"}, {"type": "int", "shape": [], "dense": True, "field": {"name": 5}}],
    ids=range(9),
)  # fmt: skip
def test_invalid_features_are_refused(tmp_path: Path, feature: Any) -> None:
    with pytest.raises(SchemaError, match=r"mapping\.json"):
        open_record_directory(datum(tmp_path, json.dumps(INFO).encode(), json.dumps({"x": feature}).encode()))


def test_a_datum_document_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (datum(tmp_path, b"{}") / "shard_info.json").open("wb") as file:
        file.truncate(65 * MIB)
    with pytest.raises(ExportError, match=r"shard_info\.json.*Limits\.document_bytes"):
        open_record_directory(tmp_path)


# TFRecorder

FIELDS = {"a": FieldType.TYPE_ARRAY_INT32, "b": FieldType.TYPE_STRING}
CONFIG = config_text(FIELDS, {"a": (2, 3)}, {"train": {"records": 3, "bytes": 100, "ratio": 0.5}})


def test_a_configuration_survives_writing_and_reading() -> None:
    stated = parse_config(CONFIG, where="x")
    assert (stated.fields, stated.shapes, stated.records, stated.bytes) == (FIELDS, {"a": (2, 3)}, 3, 100)
    assert parse_config(CONFIG.partition(b"\n")[2], where="x") == stated  # of an earlier version


def test_every_flipped_bit_of_a_configuration_is_detected() -> None:
    stated = parse_config(CONFIG, where="x")
    for at in range(len(CONFIG)):
        damaged = bytearray(CONFIG)
        damaged[at] ^= 1 << at % 8
        try:
            assert (
                parse_config(bytes(damaged), where="x") == stated
            )  # a space after the checksum, or a damaged marker
        except SchemaError as error:
            assert "x: " in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    "config",
    [b"", b"\xff", b"[fields]\na = TYPE_NONE\n", b"[fields]\na\n", b"x = 1\n", b"[fields]\n[fields]\n",
     b"[fields]\n[shapes]\na = -1\n", b"[fields]\n[shapes]\na = " + b"9" * 5_000,
     b"[fields]\n[train]\nrecords = -5\n", b"[fields]\n[train]\nbytes = 1e3\n"],
    ids=range(10),
)  # fmt: skip
def test_an_invalid_configuration_is_refused(config: bytes) -> None:
    with pytest.raises(SchemaError, match="x: "):
        parse_config(config, where="x")


# TorNet


def test_a_file_with_a_damaged_summary_is_written_again(tmp_path: Path) -> None:
    task = Task(tmp_path / "tornet-train.tfrecord-00000-of-00001", tmp_path, (), "tfrecord", "zlib")
    assert not task.is_finished
    task.target.write_bytes(b"records")
    task.summary_path.write_bytes(b'{"bytes": 7}')  # of an earlier version
    assert task.is_finished
    assert task.payload_bytes == 7
    for damage in (
        b"",
        b"{",
        b"[]",
        b"[" * 4_000,
        b'{"bytes": "7"}',
        b'{"bytes": -1}',
        b'{"bytes": 1e999}',
        b" " * MIB,
    ):
        task.summary_path.write_bytes(damage)
        assert not task.is_finished
        with pytest.raises(ExportError, match=r"-of-00001\.json"):
            _ = task.payload_bytes
    with pytest.raises(ExportError, match=r"has over 4,096 bytes$"):  # the last damage; no option sets this limit
        _ = task.payload_bytes
    task.summary_path.unlink()
    os.mkfifo(task.summary_path)
    assert not task.is_finished


def test_only_files_of_a_build_are_deleted(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / ".building-1.1.0", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "tornet-train.tfrecord-00000-of-00001").write_text("mine")
    owned.claim(work, WORK, fail=ExportError)
    plan = work / ("a" * 16)
    plan.mkdir()
    (plan / "tornet-train.tfrecord-00000-of-00002").write_text("a record file")
    (plan / "tornet-train.tfrecord-00000-of-00002.json").write_text("its account")
    (plan / ".tornet-train.tfrecord-00001-of-00002.77").write_text("an unfinished one")
    (plan / "notes.txt").write_text("mine")
    (work / ("b" * 16)).symlink_to(elsewhere)
    owned.remove(work, WORK, fail=ExportError)
    assert [path.name for path in plan.iterdir()] == ["notes.txt"]
    assert (elsewhere / "tornet-train.tfrecord-00000-of-00001").read_text() == "mine"


@pytest.mark.parametrize("is_link", [False, True])
def test_a_build_refuses_a_foreign_folder(tmp_path: Path, is_link: bool) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "thesis.tex").write_text("mine")
    work = tmp_path / ".building-1.1.0" if is_link else theirs
    if is_link:
        work.symlink_to(theirs)
    with pytest.raises(ExportError):
        owned.claim(work, WORK, fail=ExportError)
    with pytest.raises(ExportError):
        owned.remove(work, WORK, fail=ExportError)
    assert (theirs / "thesis.tex").read_text() == "mine"


# DALI

RECORDS = 20


@pytest.fixture(scope="module")
def export_with_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dali")
    store = MemoryStore("dali")
    store.put("a.tar", made.tar([(f"{at:03}", {"txt": b"x" * at}) for at in range(RECORDS)]))
    with t2t.open(store.url("a.tar"), index=False) as source:
        source.export(folder, idx=True)
    return folder


def _with_index(folder: Path, to: Path, index: bytes) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(index if path.suffix == ".idx" else path.read_bytes())
    return to


def _changed(lines: list[bytes]) -> dict[str, list[bytes]]:
    begin, size = map(int, lines[5].split())
    return {
        "empty": [],
        "one less": lines[:-1],
        "the first is missing": lines[1:],
        "one in the middle is missing": lines[:5] + lines[6:],
        "one more": [*lines, lines[-1]],
        "twice": [*lines, *lines],
        "in another order": lines[::-1],
        "an offset is wrong": [*lines[:5], b"%d %d\n" % (begin + 1, size), *lines[6:]],
        "a size is wrong": [*lines[:5], b"%d %d\n" % (begin, size + 1), *lines[6:]],
        "the last is longer": [*lines[:-1], lines[-1][:-1] + b"9\n"],
        "negative": [*lines[:5], b"-1 5\n", *lines[6:]],
        "no numbers": [*lines[:5], b"a b\n", *lines[6:]],
        "one number": [*lines[:5], b"5\n", *lines[6:]],
        "a large number": [*lines[:5], b"9" * 5_000 + b" 5\n", *lines[6:]],
        "a line without an end": [*lines[:5], b" " * MIB],
        "two records as one": [*lines[:5], b"%d %d\n" % (begin, size + int(lines[6].split()[1])), *lines[7:]],
    }


def test_a_dali_index_is_used_only_if_it_is_complete(export_with_index: Path, tmp_path: Path) -> None:
    (path,) = export_with_index.glob("*.idx")
    lines = path.read_bytes().splitlines(keepends=True)
    assert t2t.load(export_with_index).split("train")[7]["txt"] == b"x" * 7
    without_end = _with_index(export_with_index, tmp_path / "good", b"".join(lines)[:-1])
    assert t2t.load(without_end).split("train")[-1]["txt"] == b"x" * (RECORDS - 1)
    for number, (what, changed) in enumerate(_changed(lines).items()):
        damaged = _with_index(export_with_index, tmp_path / str(number), b"".join(changed))
        with pytest.raises(ExportError, match=r"\.idx: the index is damaged"):
            _ = t2t.load(damaged).split("train")[7], what


# Tokens


def token_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> str | None:
    monkeypatch.delenv("AIS_AUTHN_TOKEN", raising=False)
    monkeypatch.setenv("AIS_AUTHN_TOKEN_FILE", str(path))
    return Token(None, "ais://b").value()


def test_a_token_file_is_text_or_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("secret\n", '{"token": "secret"}', ' {"token": "secret", "more": [1]}'):
        (tmp_path / "token").write_text(said)
        assert token_of(tmp_path / "token", monkeypatch) == "secret"
    assert token_of(Path("/dev/null"), monkeypatch) is None


@pytest.mark.parametrize(
    "said",
    ['{"token": "secret',
     '{"token": ["secret"]}', '{"secret":' * 5_000, "secret" * 20 * KIB, '{"token": {"secret": 1}}'],
    ids=range(5),
)  # fmt: skip
def test_an_invalid_token_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    (tmp_path / "token").write_text(said)
    with pytest.raises(StoreError, match="AIS_AUTHN_TOKEN_FILE names a file that cannot be read") as caught:
        token_of(tmp_path / "token", monkeypatch)
    assert "secret" not in str(caught.value)


# Answers of a cluster

READ = Read(timeouts=Timeouts(connect=2, idle=5), retry=Retry(attempts=1))
NO_ANSWERS = [
    b"", b"5", b"[" * 100_000, b'{"a": [' + b"{}," * 500_000 + b"{}]}", b"9" * 100_000, b"\xff",
]  # fmt: skip


@pytest.mark.parametrize("body", [*NO_ANSWERS, b'[{"name": 3}]', b'[{"name": 3, "provider": "ais"}]', b'{"a": 1}'])
def test_invalid_buckets_are_refused(fault_server: FaultServer, body: bytes) -> None:
    fault_server.add("v1/buckets", plain(b""), [Fault(status=200, body=body)])
    with pytest.raises(StoreError, match="is the endpoint an AIStore proxy"):
        bucket_names(fault_server.url, read=READ)


@pytest.mark.parametrize("body", [b"null", b"[]"])
def test_an_empty_list_of_buckets(fault_server: FaultServer, body: bytes) -> None:
    fault_server.add("v1/buckets", plain(b""), [Fault(status=200, body=body)])
    assert bucket_names(fault_server.url, read=READ) == []


@pytest.mark.parametrize(
    "entry",
    ['{"name": 5}', '{"name": ["x"]}', '{"name": "x", "size": -1}', '{"name": "x", "size": "-1"}', '"x"', "null",
     '{"name": "x", "size": true}', '{"name": "x", "size": "' + "9" * 5_000 + '"}', '{"name": "x", "version": 3}',
     '{"name": "\\ud800"}', '{"name": "x"}, 3'],
    ids=range(11),
)  # fmt: skip
def test_invalid_entries_are_refused(fault_server: FaultServer, entry: str) -> None:
    body = f'{{"entries": [{entry}]}}'.encode()
    fault_server.add("v1/buckets/bucket?provider=ais", plain(b""), [Fault(status=200, body=body)])
    store = AisStore("bucket", READ, endpoint=fault_server.url)
    with pytest.raises(StoreError, match="is the endpoint an AIStore proxy"):
        list(store.list(""))
    store.close()


@pytest.mark.parametrize("body", NO_ANSWERS, ids=range(len(NO_ANSWERS)))
def test_invalid_jobs_and_etls_are_refused(fault_server: FaultServer, body: bytes) -> None:
    fault_server.add("v1/etl", plain(b""), [Fault(status=200, body=body or b"{")])
    with pytest.raises(Tar2TFError):
        t2t.cluster.etl.running(fault_server.url)
