"""`export(shard=(i, n))` on several hosts and one `finish` write the same bytes as one host."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.cli import exits
from ais_tar2tf.errors import ExportError, PartMissing
from ais_tar2tf.recordfiles.export.destinations import FolderDestination
from ais_tar2tf.values.schema import Field, Schema
from tests.support import shards as made
from tests.support.command_line import process, run
from tests.support.interrupted import Killed, until
from tests.support.kinds_of_stores import new_name
from tests.support.record_folders import fields, source, tree

COUNTS = [30, 0, 13, 40, 1, 25, 7]
_REAL = ("aistore", "minio")
OPTIONS = {"align": "shard", "shard_records": 12}


@pytest.fixture(scope="module")
def job_template(tmp_path_factory) -> str:
    return source(tmp_path_factory.mktemp("source"), COUNTS)


def whole(template: str, out: Path, **options) -> dict[str, str]:
    t2t.open(template).export(out, **{**OPTIONS, "workers": 1, **options})
    return tree(out)


def parts(template: str, out, hosts: int, of: list[int] | None = None, **options) -> None:
    for host in range(hosts) if of is None else of:
        t2t.open(template).export(out, shard=(host, hosts), **{**OPTIONS, "workers": 1, **options})


MANY = [
    {},
    {"format": "array_record"},
    {"format": "tar", "name": "mine"},
    {"idx": True, "shard_size": 4_000, "shard_records": None},
    {"splits": {"train": 0.8, "val": 0.2}},
    {"schema": Schema((Field("jpg", "bytes"), Field("cls", "int64", encoding="text")))},
    {"workers": 2},
]


@pytest.mark.parametrize("hosts", [1, 3, 9])
def test_any_number_of_hosts(job_template, tmp_path, hosts):
    parts(job_template, tmp_path / "out", hosts, of=list(reversed(range(hosts))))
    files = t2t.finish(tmp_path / "out")
    assert tree(tmp_path / "out") == whole(job_template, tmp_path / "one")
    assert files == t2t.load(tmp_path / "out").files("train")
    assert t2t.load(tmp_path / "out").verify().records == sum(COUNTS)


@pytest.mark.parametrize("options", MANY[1:], ids=lambda each: next(iter(each)))
def test_any_format_and_options(job_template, tmp_path, options):
    parts(job_template, tmp_path / "out", 2, **options)
    t2t.finish(tmp_path / "out")
    assert tree(tmp_path / "out") == whole(job_template, tmp_path / "one", **options)


def test_missing_hosts_are_named(job_template, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ExportError, match="nothing to finish"):
        t2t.finish(out)
    parts(job_template, out, 5, of=[0, 4, 2])
    with pytest.raises(PartMissing, match=r"2 of 5 hosts.*shard=\(1, 5\), shard=\(3, 5\)") as caught:
        t2t.finish(out)
    assert (caught.value.hosts, caught.value.of) == ((1, 3), 5)
    assert not list(out.glob("[!.]*"))
    parts(job_template, out, 5, of=[1, 3])
    (lost,) = out.glob(".parts-train/00003*.train-00000.part")
    lost.unlink()
    with pytest.raises(PartMissing) as caught:
        t2t.finish(out)
    assert caught.value.hosts == (3,)
    assert not list(out.glob("[!.]*"))
    parts(job_template, out, 5, of=[3])
    t2t.finish(out)
    assert tree(out) == whole(job_template, tmp_path / "one")


def test_a_second_finish_changes_nothing(job_template, tmp_path):
    out = tmp_path / "out"
    parts(job_template, out, 2)
    before = {path: path.stat().st_mtime_ns for path in (out / ".parts-train").iterdir()}
    again = t2t.open(job_template)
    assert again.export(out, shard=(1, 2), **OPTIONS) == sorted(map(str, out.glob(".parts-train/00001*.part")))
    assert again.stats.records_read == 0
    assert {path: path.stat().st_mtime_ns for path in (out / ".parts-train").iterdir()} == before
    files = t2t.finish(out)
    finished = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    assert t2t.finish(out) == files
    parts(job_template, out, 2)
    assert t2t.open(job_template).export(out, **OPTIONS) == files
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == finished


def test_parts_of_different_exports_are_refused_or_replaced(job_template, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="align='shard'"):
        t2t.open(job_template).export(out, shard=(0, 2))
    with pytest.raises(ValueError, match="from 0 to n - 1"):
        t2t.open(job_template).export(out, shard=(2, 2), align="shard")
    parts(job_template, out, 2, of=[0])
    for options in ({"shard_records": 5}, {"format": "tar"}):
        with pytest.raises(ExportError, match=r"another plan.*exists='replace'"):
            parts(job_template, out, 2, of=[1], **options)
    with pytest.raises(ExportError, match="another number of hosts"):
        parts(job_template, out, 3, of=[1])
    with pytest.raises(ExportError, match="is there already"):
        parts(job_template, out, 2, of=[0], exists="error")
    parts(job_template, out, 3, shard_records=5, exists="replace")
    t2t.finish(out)
    assert tree(out) == whole(job_template, tmp_path / "one", shard_records=5)
    with pytest.raises(ExportError, match=r"another export's train.*exists='replace'"):
        parts(job_template, out, 2)
    parts(job_template, out, 2, exists="replace")
    t2t.finish(out)
    assert tree(out) == whole(job_template, tmp_path / "two")


def test_a_changed_source_is_an_error(tmp_path):
    template = source(tmp_path / "in", [3, 4])
    parts(template, tmp_path / "out", 2)
    source(tmp_path / "in", [3, 5])
    with pytest.raises(ExportError, match="changed since"):
        parts(template, tmp_path / "out", 2, of=[1])
    parts(template, tmp_path / "out", 2, of=[1], exists="replace")
    t2t.finish(tmp_path / "out")
    assert len(t2t.load(tmp_path / "out")) == 8


def test_splits_of_several_job_arrays_are_published_one_by_one(job_template, tmp_path):
    out = tmp_path / "out"
    parts(job_template, out, 2, split="train")
    parts(job_template, out, 2, of=[0], split="val")
    assert len(t2t.finish(out, split="train")) == 14
    with pytest.raises(PartMissing):
        t2t.finish(out)
    parts(job_template, out, 2, of=[1], split="val")
    assert len(t2t.finish(out)) == 28
    assert t2t.load(out).splits == {"train": sum(COUNTS), "val": sum(COUNTS)}


def test_killed_between_any_two_steps(job_template, tmp_path, monkeypatch):
    """A host's export or `finish` is killed after each change, in turn."""
    options = {"shard_records": 40, "idx": True}
    job_template = source(tmp_path / "in", [50, 20])
    expected = whole(job_template, tmp_path / "one", **options)
    out = tmp_path / "out"

    def everything():
        for host in range(2):
            t2t.open(job_template).export(out, shard=(host, 2), **OPTIONS | options, workers=1)
        t2t.finish(out)

    for last in range(200):
        shutil.rmtree(out, ignore_errors=True)
        left = iter(range(last))
        with monkeypatch.context() as patched:
            for step in ("write", "move_in", "move", "delete", "delete_folder", "sync"):
                patched.setattr(FolderDestination, step, until(getattr(FolderDestination, step), left))
            try:
                everything()
                break
            except Killed:
                pass
        for path in out.glob("dataset-*-of-*[0-9]"):
            assert expected[path.name]
        if last % 2:
            everything()
        else:  # either all hosts had finished, or they run again
            try:
                t2t.finish(out)
            except ExportError:
                everything()
        assert tree(out) == expected, last
    assert 20 < last < 200


def test_to_a_store(job_template, tmp_path):
    base = f"memory://{new_name()}/out"
    parts(job_template, base, 3)
    files = t2t.finish(base)
    assert _objects(base) == whole(job_template, tmp_path / "one")
    assert t2t.finish(base) == files


@pytest.mark.parametrize(
    "store", [pytest.param(name, marks=pytest.mark.servers(name)) for name in _REAL] + ["embedded"]
)
def test_to_servers(job_template, tmp_path, store, request, monkeypatch):
    """AIStore renames, MinIO copies, and the embedded server does neither, so files are downloaded and uploaded."""
    bucket, scheme = new_name(), "s3" if store == "minio" else "ais"
    if store == "embedded":
        (tmp_path / "buckets" / bucket).mkdir(parents=True)
        monkeypatch.setenv("AIS_ENDPOINT", request.getfixturevalue("job_server").url)
    elif store == "aistore":
        monkeypatch.setenv("AIS_ENDPOINT", request.getfixturevalue("aistore").url)
    else:
        for name, value in request.getfixturevalue("minio").environment.items():
            monkeypatch.setenv(name, value)
    base = f"{scheme}://{bucket}/deep/out"
    if store != "embedded":
        t2t.pack([{"__key__": "a", "txt": "a"}], f"{scheme}://{bucket}/any.tar", create=True)
    t2t.open(job_template).export(f"{scheme}://{bucket}/one", workers=1, **OPTIONS)
    parts(job_template, base, 2)
    parts(job_template, base, 2, of=[0], split="val")
    with pytest.raises(PartMissing):
        t2t.finish(base, split="val")
    assert t2t.finish(base, split="train") == t2t.load(base).files("train")
    assert t2t.load(base).verify().records == sum(COUNTS)
    expected = whole(job_template, tmp_path / "one")
    assert {name: each for name, each in _objects(base).items() if ".parts-val" not in name} == expected
    assert _objects(f"{scheme}://{bucket}/one") == expected


@pytest.fixture
def job_server(tmp_path):
    (tmp_path / "buckets").mkdir(exist_ok=True)
    with t2t.serve(tmp_path / "buckets") as server:
        yield server


def _objects(base: str) -> dict[str, str]:
    """Return the digests of all objects, as `tree` does for a folder."""
    import hashlib

    from ais_tar2tf.fetch.whole import fetch_whole
    from ais_tar2tf.stores import open_store, split_url

    scheme, bucket, name = split_url(base)
    read = t2t.options.Read()
    store = open_store(scheme, bucket, read)
    found = [info.name for info in store.list(f"{name}/")]
    whole = {each.removeprefix(f"{name}/"): fetch_whole(store, each, read, limit="document_bytes") for each in found}
    digests = {each: hashlib.sha256(data).hexdigest() for each, data in whole.items()}
    store.close()
    return digests


def test_on_the_command_line(job_template, tmp_path):
    out = tmp_path / "out"
    done = run("convert", job_template, str(out), "--shard", "1/2", "--shard-records", "12", "--json")
    assert json.loads(done.stdout)["host"] == 1
    early = run("finish", str(out))
    assert early.exit_code == exits.PART
    assert "--shard 0/2" in early.stderr
    assert run("convert", job_template, str(out), "--shard", "0/2", "--shard-records", "12").exit_code == 0
    table = run("finish", str(out))
    assert (table.exit_code, str(sum(COUNTS)) in table.stdout) == (0, True)
    assert json.loads(run("finish", str(out), "--json").stdout)["splits"]["train"]["records"] == sum(COUNTS)
    assert tree(out) == whole(job_template, tmp_path / "one")
    for wrong in ("2", "2/2", "a/b"):
        assert run("convert", job_template, str(out), "--shard", wrong).exit_code == exits.USAGE
    assert run("convert", job_template, str(out), "--shard", "0/2", "--align", "stream").exit_code == exits.USAGE
    assert run("finish", str(tmp_path / "nowhere")).exit_code == exits.FAILED


def test_hosts_at_the_same_time(job_template, tmp_path):
    """Each host is a process."""
    from concurrent.futures import ThreadPoolExecutor

    def host(number: int) -> int:
        return process("convert", job_template, str(tmp_path / "out"), "--shard", f"{number}/3",
                       "--shard-records", "12", "--workers", "1").returncode  # fmt: skip

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(host, range(3))) == [0, 0, 0]
    t2t.finish(tmp_path / "out")
    assert tree(tmp_path / "out") == whole(job_template, tmp_path / "one")


@pytest.mark.full
@pytest.mark.timeout(900)
def test_ten_thousand_tiny_shards(tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(10_000):
        (tmp_path / "in" / f"s-{number}.tar").write_bytes(made.labelled(f"n{number}", 1 + number % 2, fields))
    template = f"{tmp_path}/in/s-{{0..9999}}.tar"
    parts(template, tmp_path / "out", 8, shard_records=None)
    t2t.finish(tmp_path / "out")
    assert tree(tmp_path / "out") == whole(template, tmp_path / "one", shard_records=None)
    assert len(t2t.load(tmp_path / "out")) == 15_000
