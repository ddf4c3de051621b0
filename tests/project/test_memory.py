"""Huge and hostile shards need bounded memory, measured in new processes. `--full` tests the largest sizes."""

from __future__ import annotations

import io
import itertools
import json
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ais_tar2tf.recordfiles.formats.framing import frame
from ais_tar2tf.values.features import encode
from tests.support import shards as made
from tests.support.fault_server import FaultServer, tagged
from tests.support.record_folders import ROOT

MIB = 1 << 20
MOST = 256 * MIB
_READER = """
import json, sys
import ais_tar2tf as t2t
from ais_tar2tf.options import Limits

def memory(what):
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith(what)).split()[1]) << 10

warm, url, limits, how = sys.argv[1:]
read = {
    "records": lambda source: source.records(),
    "in order": lambda source: source.dataset(),
    "shuffled": lambda source: source.dataset(shuffle=True, seed=1),
}[how]
for _ in read(t2t.open(warm)):
    pass
source = t2t.open(url, limits=Limits(**json.loads(limits)))
open("/proc/self/clear_refs", "w").write("5")  # the peak begins again
before, records, total, error = memory("VmRSS"), 0, 0, ""
try:
    for record in read(source):
        records += 1
        total += sum(len(value) for value in record.values() if isinstance(value, bytes))
        del record  # what a consumer keeps is its own cost
except t2t.errors.Tar2TFError as raised:
    error = type(raised).__name__
stats = source.stats
assert stats.records_read == stats.records_emitted + stats.skipped.total() == records, stats
print(json.dumps([records, total, error, memory("VmHWM") - before]))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured by /proc")


@dataclass(frozen=True)
class Cost:
    records: int
    bytes: int  # of all fields
    error: str
    growth: int


@pytest.fixture
def tagged_server() -> Iterator[FaultServer]:
    with FaultServer() as found:
        found.add("warm.tar", tagged(made.labelled("w", 20)))
        yield found


def read(server: FaultServer, url: str, how: str = "records", **limits: int) -> Cost:
    command = [sys.executable, "-c", _READER, f"{server.url}/warm.tar", url, json.dumps(limits), how]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT, timeout=1_200)
    return Cost(*json.loads(done.stdout))


def header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


FULL = pytest.mark.full
_LONG = (FULL, pytest.mark.timeout(1_800))


@pytest.mark.parametrize("size", [512 * MIB, pytest.param(10 << 30, marks=_LONG)])
def test_a_shard_of_any_size_needs_bounded_memory(tagged_server: FaultServer, size: int, tmp_path: Path) -> None:
    """Read a shard that is generated during the download."""
    from tests.benchmarks.endless import records_in

    command = [sys.executable, "-m", "tests.benchmarks.endless", str(size), str(tmp_path / "counter")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as endless:
        try:
            assert endless.stdout is not None
            cost = read(tagged_server, f"http://127.0.0.1:{int(endless.stdout.readline())}/x.tar")
        finally:
            endless.terminate()
    assert (cost.records, cost.error) == (records_in(size), "")
    assert cost.bytes > size * 0.95
    assert cost.growth < MOST


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=_LONG)])
def test_many_members_need_bounded_memory(tagged_server: FaultServer, count: int) -> None:
    members = (header(f"{number:09d}.cls", 1) + b"7".ljust(512, b"\0") for number in range(count))
    tagged_server.add("x.tar", tagged(b"".join(members) + bytes(1024)))
    cost = read(tagged_server, f"{tagged_server.url}/x.tar")
    assert (cost.records, cost.bytes, cost.error) == (count, count, "")
    assert cost.growth < MOST


@pytest.mark.parametrize("count", [20_000, pytest.param(200_000, marks=_LONG)])
def test_many_members_of_one_record_need_bounded_memory(tagged_server: FaultServer, count: int) -> None:
    members = (header(f"one.{number}", 0) for number in range(count))
    tagged_server.add("x.tar", tagged(b"".join(members) + bytes(1024)))
    cost = read(tagged_server, f"{tagged_server.url}/x.tar")
    assert (cost.records, cost.error) == (0, "LimitExceeded")
    assert cost.growth < MOST


def gzipped(pieces: Iterator[bytes]) -> bytes:
    compressor, out = zlib.compressobj(1, zlib.DEFLATED, 31), io.BytesIO()
    for piece in pieces:
        out.write(compressor.compress(piece))
    out.write(compressor.flush())
    return out.getvalue()


SIZES = [192 * MIB, pytest.param(1 << 30, marks=_LONG)]


@pytest.mark.parametrize("size", SIZES)
def test_a_bomb_of_zeros(tagged_server: FaultServer, size: int) -> None:
    """Zeros are a very long end mark."""
    tagged_server.add("x.tar.gz", tagged(gzipped(bytes(MIB) for _ in range(size // MIB))))
    cost = read(tagged_server, f"{tagged_server.url}/x.tar.gz")
    assert (cost.records, cost.error) == (0, "")
    assert cost.growth < min(MOST, size // 2)


@pytest.mark.parametrize("size", SIZES)
def test_a_bomb_of_members(tagged_server: FaultServer, size: int) -> None:
    count = size // MIB
    pieces = (piece for number in range(count) for piece in (header(f"{number:06d}.bin", MIB), bytes(MIB)))
    tagged_server.add("x.tar.gz", tagged(gzipped(itertools.chain(pieces, [bytes(1024)]))))
    cost = read(tagged_server, f"{tagged_server.url}/x.tar.gz", ratio=2_000)
    assert (cost.records, cost.bytes, cost.error) == (count, size, "")
    assert cost.growth < min(MOST, size // 2)


@pytest.mark.parametrize("size", SIZES)
def test_a_bomb_that_is_one_member(tagged_server: FaultServer, size: int) -> None:
    """A member needs at most its limit of memory, however far it expands."""
    pieces = [header("one.bin", size), *[bytes(MIB)] * (size // MIB), bytes(1024)]
    tagged_server.add("x.tar.gz", tagged(gzipped(iter(pieces))))
    cost = read(tagged_server, f"{tagged_server.url}/x.tar.gz", member_bytes=32 * MIB)
    assert (cost.records, cost.error) == (0, "LimitExceeded")
    assert cost.growth < 64 * MIB


def tarred(body: bytes) -> bytes:
    return b"".join([header("a.cls", 1), b"7".ljust(512, b"\0"), header("a.bin", len(body)), body, bytes(1024)])


def zipped(body: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("a.cls", b"7")
        file.writestr("a.bin", body)
    return out.getvalue()


def one_hole(body: bytes) -> bytes:
    raw = bytearray(header("a.bin", 0))
    raw[156:157], raw[257:265] = b"S", b"ustar  \0"
    raw[483:495] = b"%011o\0" % len(body)
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw)
    return bytes(raw) + bytes(1024)


LARGE = {
    "tar": (tarred, 1),
    "tar.gz": (lambda body: gzipped(iter([tarred(body)])), 1),
    "sparse tar": (one_hole, 1),
    "zip": (zipped, 1),
    "tfrecord": (lambda body: frame(encode({"bin": body})), 2),  # the payload, and the feature inside it
}


@pytest.mark.parametrize("kind", LARGE)
def test_a_large_member_needs_its_own_size(tagged_server: FaultServer, kind: str) -> None:
    write, times = LARGE[kind]
    size = 192 * MIB
    tagged_server.add("x", tagged(write(bytes(size))))
    cost = read(tagged_server, f"{tagged_server.url}/x")
    assert (cost.records, cost.error) == (1, "")
    assert size <= cost.bytes <= size + 1
    assert cost.growth < times * size + 96 * MIB


@pytest.mark.parametrize("how", ["in order", "shuffled"])
def test_members_of_32_mib_into_tensorflow(tagged_server: FaultServer, how: str) -> None:
    """32 MiB is the largest member for which the bound is documented."""
    body = bytes(32 * MIB)
    for shard in range(4):
        members = (part for number in range(3) for part in (header(f"{shard}{number}.bin", len(body)), body))
        tagged_server.add(f"x-{shard}.tar", tagged(b"".join([*members, bytes(1024)])))
    cost = read(tagged_server, f"{tagged_server.url}/x-{{0..3}}.tar", how)
    assert (cost.records, cost.error) == (12, "")
    assert cost.growth < MOST


def test_a_header_with_a_false_size(tagged_server: FaultServer) -> None:
    """A header states a size that the archive does not have. No memory is allocated for it."""
    tagged_server.add("x.tar", tagged(header("one.bin", 900 * MIB) + bytes(4096)))
    cost = read(tagged_server, f"{tagged_server.url}/x.tar")
    assert (cost.records, cost.error) == (0, "TruncatedArchive")
    assert cost.growth < 64 * MIB
