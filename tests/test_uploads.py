"""What is written to a store goes there piece by piece: no file is held, whatever its size."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.options import MIB
from places import new_name
from record_files import ROOT

_SIZE = 200 * MIB
_MOST_MORE = 96 * MIB  # two parts, what reading back holds, and the allocators' slack

# Peak memory above what it was, once what is needed was imported and has been at work.
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
def test_pack_and_export_hold_no_file(store, request, monkeypatch):
    bucket, scheme = new_name(), "s3" if store == "minio" else "ais"
    if store == "aistore":
        monkeypatch.setenv("AIS_ENDPOINT", request.getfixturevalue("aistore").url)
    else:
        for name, value in request.getfixturevalue("minio").environment.items():
            monkeypatch.setenv(name, value)
    command = [sys.executable, "-c", _PACK, f"{scheme}://{bucket}", str(_SIZE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < _MOST_MORE
    loaded = t2t.load(f"{scheme}://{bucket}/out")
    assert [file.bytes > _SIZE for file in loaded.manifest.splits["train"].files] == [True]
    assert loaded.verify().records == _SIZE >> 20
