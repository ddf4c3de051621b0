"""Files are uploaded to a store in parts, and never held in memory, whatever their size."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import AccessDenied
from ais_tar2tf.options import MIB
from tests.support.kinds_of_stores import new_name
from tests.support.record_folders import ROOT

_SIZE = 200 * MIB
_MAX_GROWTH = 96 * MIB  # two parts, the buffers for reading back, and unused memory of the allocators

# Prints the growth of the peak memory, measured after all imports and a first small export.
_PACK = """
import resource, sys, ais_tar2tf as t2t
def records(number, size):
    body = bytes(1 << 20)
    for at in range(number):
        yield {"__key__": f"{at:05d}", "bin": body}
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
base, size = sys.argv[1], int(sys.argv[2])
t2t.pack(records(3, 1), f"{base}/warm.tar", create=True, shard_size=None)
t2t.open(f"{base}/warm.tar").export(f"{base}/warm", workers=1, shard_size=None)
before = peak()
t2t.pack(records(size >> 20, size), f"{base}/big.tar", shard_size=None)
t2t.open(f"{base}/big.tar").export(f"{base}/out", workers=1, shard_size=None)
print(peak() - before)
"""


@pytest.mark.parametrize("store", [pytest.param("aistore", marks=pytest.mark.servers("aistore")),
                                   pytest.param("minio", marks=pytest.mark.servers("minio"))])  # fmt: skip
def test_pack_and_export_keep_no_file_in_memory(store, request, monkeypatch):
    bucket, scheme = new_name(), "s3" if store == "minio" else "ais"
    if store == "aistore":
        monkeypatch.setenv("AIS_ENDPOINT", request.getfixturevalue("aistore").url)
    else:
        for name, value in request.getfixturevalue("minio").environment.items():
            monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", _PACK, f"{scheme}://{bucket}", str(_SIZE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < _MAX_GROWTH
    loaded = t2t.load(f"{scheme}://{bucket}/out")
    assert [file.bytes > _SIZE for file in loaded.manifest.splits["train"].files] == [True]
    assert loaded.verify().records == _SIZE >> 20


# An export to the store of its shards


@pytest.fixture
def upload_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a bucket `b`, with a shard; the environment names no endpoint."""
    for name in ("AIS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "root" / "b").mkdir(parents=True)
    t2t.pack([{"__key__": "a", "txt": "x"}], f"{tmp_path}/root/b/s.tar", shard_size=None)
    return tmp_path / "root" / "b"


def test_an_export_uses_the_endpoint_and_token_of_its_source(upload_folder: Path, tmp_path: Path) -> None:
    with t2t.serve(upload_folder.parent, token="secret") as server:
        source = t2t.open("ais://b/s.tar", endpoint=server.url, token="secret")
        dataset = t2t.AisDataset("b", server.url, token="secret")
        sources = {"plain": source, "moved": pickle.loads(pickle.dumps(source))}  # noqa: S301  # our own
        for name, each in {**sources, "chosen": source.select("txt"), "whole": dataset.source("s.tar")}.items():
            (file,) = each.export(f"ais://b/{name}")
            assert (upload_folder / name / file.rpartition("/")[2]).stat().st_size
        source.export(tmp_path / "local")


def test_a_sources_token_is_sent_to_no_other_endpoint(upload_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other" / "b").mkdir(parents=True)
    with (
        t2t.serve(upload_folder.parent, token="secret") as server,
        t2t.serve(tmp_path / "other", token="another") as other,
    ):
        source = t2t.open("ais://b/s.tar", endpoint=server.url, token="secret")
        with pytest.raises(AccessDenied, match="401"):
            source.export("ais://b/out", endpoint=other.url)
        source.export("ais://b/out", endpoint=other.url, token="another")
        assert not (upload_folder / "out").exists()


def test_an_export_to_files_needs_no_endpoint(upload_folder: Path, tmp_path: Path) -> None:
    with t2t.serve(upload_folder.parent) as server:
        t2t.index(f"{upload_folder}/s.tar", "ais://b/kept.t2t", endpoint=server.url)
        source = t2t.open(f"{upload_folder}/s.tar", index="ais://b/kept.t2t", endpoint=server.url)
        assert source.export(tmp_path / "out")


@pytest.mark.servers("minio")
def test_an_export_to_s3_uses_the_endpoint_of_its_source(
    upload_folder: Path, minio: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in minio.environment.items():
        if "ENDPOINT" not in name:
            monkeypatch.setenv(name, value)
    base = f"s3://{new_name()}"
    t2t.pack([{"__key__": "a", "txt": "x"}], f"{base}/s.tar", create=True, shard_size=None, endpoint=minio.url)
    t2t.open(f"{base}/s.tar", endpoint=minio.url).export(f"{base}/out")
    assert t2t.load(f"{base}/out", endpoint=minio.url).verify().records == 1
