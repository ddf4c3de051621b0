"""A cache never loses or changes a record: full, damaged, stale, shared, after kills, or on a removed disk."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import MIB, Cache, Retry, Timeouts
from ais_tar2tf.stores import opener_of
from ais_tar2tf.stores.cache import BLOCK, cached
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.cache_folders import blocks, requested_shards, size_of
from tests.support.fault_server import Fault, FaultServer, tagged
from tests.support.kinds_of_stores import new_name
from tests.support.leftovers import our_threads

ROOT = Path(__file__).parents[2]
SHARDS = 3
RETRY = Retry(attempts=3, first_delay=0.001, max_delay=0.002)
RECORDS = 12
BODIES = [random.Random(number).randbytes(450_000) for number in range(RECORDS)]  # 5.4 MB a shard: three blocks
EXPECTED = [(f"s{shard}/{number:06d}", BODIES[number]) for shard in range(SHARDS) for number in range(RECORDS)]
SIZE = SHARDS * RECORDS * 450_000


def shard(number: int, *, turned: int = 0) -> bytes:
    return made.labelled(f"s{number}", RECORDS, lambda n: {"bin": BODIES[(n + turned) % RECORDS]})


@pytest.fixture
def cache_server(tmp_path):
    bucket = tmp_path / "served" / "b"
    bucket.mkdir(parents=True)
    for number in range(SHARDS):
        (bucket / f"{number}.tar").write_bytes(shard(number))
    with t2t.serve(tmp_path / "served") as running:
        yield running


def opened(server, cache, **options) -> t2t.Source:
    return t2t.open(f"ais://b/{{0..{SHARDS - 1}}}.tar", endpoint=server.url, index=False, cache=cache, **options)


def records(source) -> list[tuple[str, bytes]]:
    return [(record["__key__"], record["bin"]) for record in source.records()]


@pytest.mark.parametrize("connections", [1, 2, 5])
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_warm_epoch_requests_no_bodies(cache_server, tmp_path, kind, connections):
    cache = str(tmp_path / "cache") if kind == "disk" else "memory"
    with opened(cache_server, cache, connections=connections) as source:
        assert records(source) == EXPECTED
        assert requested_shards(cache_server)
        assert source.stats.cached == 0
        assert records(source) == EXPECTED
        assert requested_shards(cache_server) == []
        assert source.stats.cached == source.stats.bytes // 2
        assert source.stats.cache_faults == 0
    if kind == "disk":
        with opened(cache_server, cache, connections=connections) as again:
            assert records(again) == EXPECTED
            assert requested_shards(cache_server) == []


def test_a_recent_confirmation_is_not_repeated(cache_server, tmp_path):
    """An object confirmed a moment ago needs no request at all, also in another process."""
    with opened(cache_server, Cache(tmp_path / "cache", trust=3600)) as source:
        assert records(source) == EXPECTED
    with opened(cache_server, Cache(tmp_path / "cache", trust=3600)) as source:
        cache_server.requests.clear()
        assert records(source) == EXPECTED
        assert not cache_server.requests


def test_a_confirming_request_counts_as_a_try(tmp_path):
    """A retry of the confirming request counts as a retry of the download."""
    with FaultServer() as server:
        server.add("x.tar", tagged(shard(0)))
        source = t2t.open(f"{server.url}/x.tar", cache=tmp_path / "cache", index=False, retry=RETRY, connections=1)
        with source:
            assert len(records(source)) == RECORDS
            server.requests.clear()
            server.script["x.tar"].extend([Fault(status=503)] * 99)
            with pytest.raises(TransportError):
                records(source)
            assert [each.method for each in server.requests] == ["HEAD"] * RETRY.attempts
            assert source.stats.retries == RETRY.attempts - 1


def test_a_confirming_request_ends_with_its_reader(tmp_path):
    before = our_threads()
    with FaultServer() as server:
        server.add("x.tar", tagged(shard(0)))
        options = {"cache": tmp_path / "cache", "index": False, "timeouts": Timeouts(idle=200)}
        with t2t.open(f"{server.url}/x.tar", **options) as source:
            assert len(records(source)) == RECORDS
            asked = len(server.requests)
            server.script["x.tar"].append(Fault(silent=True))
            closing = threading.Thread(target=lambda: (server.wait_until_requests(asked + 1), source.close()))
            closing.start()
            with pytest.raises(StoreError, match="closed"):
                records(source)
            closing.join()
        assert our_threads() <= before


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_changed_object_is_never_served_stale(cache_server, tmp_path, kind):
    cache = str(tmp_path / "cache") if kind == "disk" else "memory"
    with opened(cache_server, cache) as source:
        assert records(source) == EXPECTED
        (tmp_path / "served" / "b" / "1.tar").write_bytes(shard(1, turned=5))
        changed = [
            (key, BODIES[(int(key[-2:]) + 5) % RECORDS] if key.startswith("s1") else data) for key, data in EXPECTED
        ]
        requested_shards(cache_server)
        assert records(source) == changed
        assert all(path.endswith("/1.tar") for path in requested_shards(cache_server))
        assert records(source) == changed
        assert requested_shards(cache_server) == []


def test_a_deleted_object_is_an_error(cache_server, tmp_path):
    with opened(cache_server, str(tmp_path / "cache")) as source:
        assert records(source) == EXPECTED
        (tmp_path / "served" / "b" / "1.tar").unlink()
        with pytest.raises(ShardNotFound, match=r"1\.tar"):
            records(source)


@pytest.mark.parametrize("where", ["data", "sums", "seal", "cut", "empty", "another's"])
def test_a_damaged_block_is_detected_and_downloaded_again(cache_server, tmp_path, where):
    cache = tmp_path / "cache"
    with opened(cache_server, str(cache)) as source:
        assert records(source) == EXPECTED
        victim = max(blocks(cache), key=lambda path: (path.stat().st_size, path.name))
        data = bytearray(victim.read_bytes())
        if where == "another's":
            others = [path for path in blocks(cache) if path.parent != victim.parent]
            data = bytearray(next(p.read_bytes() for p in others if p.stat().st_size == len(data)))
        elif where in ("cut", "empty"):
            data = data[: BLOCK // 2 if where == "cut" else 0]
        else:
            data[{"data": 1_000_000, "sums": BLOCK + 3, "seal": -1}[where]] ^= 0x10
        victim.write_bytes(data)
        requested_shards(cache_server)
        assert records(source) == EXPECTED
        assert source.stats.cache_faults == 1
        assert len(requested_shards(cache_server)) == 2  # the proxy's redirect and the target's answer
        assert records(source) == EXPECTED
        assert requested_shards(cache_server) == []
        assert source.stats.cache_faults == 1


def test_the_bound_holds_and_the_oldest_blocks_are_evicted(cache_server, tmp_path):
    cache, bound = tmp_path / "cache", 8 * MIB
    with opened(cache_server, Cache(cache, max_bytes=bound), connections=1) as source:
        for record in source.records():
            assert record["bin"]
            assert size_of(cache) <= bound
        assert records(source) == EXPECTED
        assert size_of(cache) <= bound
        kept = {path.parent for path in blocks(cache)}
        assert 1 <= len(kept) < SHARDS
    last = t2t.open("ais://b/2.tar", endpoint=cache_server.url, cache=Cache(cache, max_bytes=bound))
    with last:
        requested_shards(cache_server)
        assert records(last) == EXPECTED[-RECORDS:]
        assert requested_shards(cache_server) == []


def test_a_memory_cache_keeps_its_bound():
    store = MemoryStore(new_name())
    for number in range(4):
        store.put(f"{number}", bytes([number]) * 3 * MIB)
    caching = cached(store, Cache("memory", max_bytes=5 * MIB), account := Account())
    for number in (0, 1, 2, 3, 3):
        assert drain(caching, f"{number}") == bytes([number]) * 3 * MIB
    assert account.stats.cached == 3 * MIB


def test_a_read_only_cache_is_read(cache_server, tmp_path):
    """Blocks cannot be written, here because files are in the places of folders."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for first in "0123456789abcdef":
        for second in "0123456789abcdef":
            (cache / f"{first}{second}").write_text("in the way")
    with opened(cache_server, str(cache)) as source:
        assert records(source) == EXPECTED
        assert records(source) == EXPECTED
        assert source.stats.cached == 0
        assert source.stats.cache_faults


def vanish(cache: Path) -> None:
    """Replace the folder by a file. A writer may create the folder again in between, so this is repeated."""
    for attempt in range(100):
        cache.rename(cache.with_name(f"gone-{attempt}"))
        try:
            with cache.open("x"):
                return
        except FileExistsError:
            pass
    raise AssertionError("it always comes back")


def test_a_disk_that_is_removed(cache_server, tmp_path):
    cache = tmp_path / "cache"
    with opened(cache_server, str(cache)) as source:
        assert records(source) == EXPECTED
        found = []
        for number, record in enumerate(source.records()):
            found.append((record["__key__"], record["bin"]))
            if number == 5:
                vanish(cache)
        assert found == EXPECTED
        assert records(source) == EXPECTED


FULL = """
import resource, signal, ais_tar2tf as t2t
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
with t2t.open(sys.argv[1], endpoint=sys.argv[2], cache=sys.argv[3]) as source:
    for _ in range(2):
        print(sum(len(record["bin"]) for record in source.records()))
    print(source.stats.cached < source.stats.bytes // 2, source.stats.cache_faults > 0)
"""


def test_a_full_disk(cache_server, tmp_path):
    """Blocks that the kernel refuses to write, here by a limit on the size of files, are just not cached."""
    done = python(FULL, f"ais://b/{{0..{SHARDS - 1}}}.tar", cache_server.url, str(tmp_path / "cache"))
    out, _ = done.communicate(timeout=120)
    assert out.split() == [str(SIZE), str(SIZE), "True", "True"]
    assert not list((tmp_path / "cache").rglob("*.part"))


def python(script: str, *arguments: str, **how) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{script}", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        **how,
    )


READER = """
import ais_tar2tf as t2t, zlib
with t2t.open(sys.argv[1], endpoint=sys.argv[2], cache=sys.argv[3]) as source:
    crc = 0
    for epoch in range(int(sys.argv[4])):
        for number, record in enumerate(source.records()):
            crc = zlib.crc32(record["bin"], crc)
            if number == 7 and epoch == 0:
                print("reading", flush=True)
                if sys.argv[5] == "wait":
                    sys.stdin.read()
    print(crc)
"""


def test_killing_a_process_does_not_affect_another(cache_server, tmp_path):
    import zlib

    cache, url = tmp_path / "cache", f"ais://b/{{0..{SHARDS - 1}}}.tar"
    expected = 0
    for _ in range(2):
        for _, data in EXPECTED:
            expected = zlib.crc32(data, expected)
    with python(READER, url, cache_server.url, str(cache), "1", "wait", stdin=subprocess.PIPE) as killed:
        assert killed.stdout.readline() == "reading\n"
        with python(READER, url, cache_server.url, str(cache), "2", "go") as other:
            assert other.stdout.readline() == "reading\n"
            killed.kill()
            out, _ = other.communicate(timeout=120)
            assert int(out) == expected
    assert killed.returncode == -9
    with opened(cache_server, str(cache)) as source:
        requested_shards(cache_server)
        assert records(source) == EXPECTED
        assert requested_shards(cache_server) == []
        assert source.stats.cache_faults == 0


HALF_WRITTEN = """
from ais_tar2tf.stores.cache.disk import DiskBlockCache
from ais_tar2tf.stores.cache.block_cache import BlockId, Content
from ais_tar2tf.stores import Identity
writer = DiskBlockCache(sys.argv[1], 10**9).writer(BlockId(Content("key", Identity(version="1", size=10**7)), 0))
writer.add(memoryview(bytes(1000)))
print("written", flush=True)
sys.stdin.read()
"""


def test_parts_of_killed_writers_are_deleted_and_others_kept(cache_server, tmp_path):
    cache = tmp_path / "cache"

    def parts() -> int:
        return len(list(cache.rglob("*.part")))

    with python(HALF_WRITTEN, str(cache), stdin=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == "written\n"
        with opened(cache_server, str(cache)) as source:
            assert records(source) == EXPECTED
        assert parts() == 1
        writer.kill()
        writer.wait()
    assert parts() == 1
    (tmp_path / "served" / "b" / "1.tar").write_bytes(shard(1, turned=1))
    with opened(cache_server, str(cache)) as source:
        assert len(records(source)) == len(EXPECTED)
    assert parts() == 0


def test_many_processes_and_epochs_at_once(cache_server, tmp_path):
    """Four processes read two epochs each, with a bound at which they evict each other's blocks."""
    cache, url = tmp_path / "cache", f"ais://b/{{0..{SHARDS - 1}}}.tar"
    script = READER.replace("cache=sys.argv[3]", f"cache=t2t.options.Cache(sys.argv[3], max_bytes={10 * MIB})")
    children = [python(script, url, cache_server.url, str(cache), "2", "go") for _ in range(4)]
    outs = {child.communicate(timeout=200)[0] for child in children}
    assert len(outs) == 1
    assert {child.returncode for child in children} == {0}
    assert size_of(cache) <= 10 * MIB + 3 * (BLOCK + 4096)  # each other process may exceed the bound by one block


def test_damage_in_transit_is_not_cached(tmp_path):
    """The store's checksum detects the damage, and the next read downloads the object again."""

    class Flipping(MemoryStore):
        flips = 1

        def open(self, name, start=0, stop=None, *, interrupt=None):
            body = super().open(name, start, stop, interrupt=interrupt)
            if self.flips and not start:
                self.flips -= 1
                damaged = bytearray(body._data)
                damaged[700_000] ^= 1
                body._data = memoryview(damaged)
            return body

    from ais_tar2tf.errors import ChecksumMismatch
    from ais_tar2tf.source import Source
    from ais_tar2tf.source.index_lookup import IndexLookup
    from ais_tar2tf.source.opened import OpenedShards
    from ais_tar2tf.streams.reader import ReadSession, Shards

    store = Flipping(new_name())
    store.put("0.tar", shard(0))
    shards = Shards(cached(store, tmp_path / "cache", account := Account()), ["0.tar"])
    source = Source(OpenedShards(session=ReadSession(shards), index=IndexLookup(shards, at=False), account=account))
    with pytest.raises(ChecksumMismatch):
        records(source)
    assert records(source) == EXPECTED[:RECORDS]
    assert records(source) == EXPECTED[:RECORDS]
    assert account.stats.cached


def drain(store, name: str, start: int = 0, stop: int | None = None, piece: int = 700_001) -> bytes:
    body, found, buffer = store.open(name, start, stop), bytearray(), memoryview(bytearray(piece))
    try:
        left = start - body.start
        while count := body.readinto(buffer):
            found += buffer[:count]
    finally:
        body.close()
    return bytes(found[left:])


OBJECT = random.Random(1).randbytes(2 * BLOCK + 77_777)
OFFSETS = st.one_of(
    st.integers(0, len(OBJECT) - 1),
    st.sampled_from([0, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 65_536, 65_535, BLOCK + 65_536]),
)
STEPS = st.lists(
    st.tuples(OFFSETS, OFFSETS, st.sampled_from([1 << 21, 65_536, 70_001, 4_099]), st.sampled_from(range(6))),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25)
@given(STEPS, st.booleans())
def test_any_ranges_after_any_damage(tmp_path_factory, steps, in_memory):
    """Any range, read in any way after any damage to the files, has the object's own bytes."""
    folder = tmp_path_factory.mktemp("cache")
    store = MemoryStore(new_name())
    store.put("x", OBJECT)
    caching = cached(store, "memory" if in_memory else folder, Account())
    for one, other, piece, damage in steps:
        start, stop = min(one, other), max(one, other) + 1
        found = blocks(folder)
        if found and damage == 1 and found[0].stat().st_size:
            data = bytearray(found[0].read_bytes())
            data[one % len(data)] ^= 1 << other % 8
            found[0].write_bytes(data)
        elif found and damage == 2:
            os.truncate(found[-1], one % max(1, found[-1].stat().st_size))
        elif found and damage == 3:
            found[0].unlink()
        elif found and damage == 4:
            (found[0].parent / "object.json").write_bytes(b'{"identity": [1]}')
        data = drain(caching, "x", start, stop, piece)
        assert data[: stop - start] == OBJECT[start:stop]
        assert OBJECT.startswith(data, start)
    shutil.rmtree(folder, ignore_errors=True)


def test_objects_without_an_identity_are_not_cached(tmp_path):
    """A web server states neither ETag nor Last-Modified, so nothing is cached."""
    from tests.support.fault_server import FaultServer, ServedObject

    with FaultServer() as web:
        web.add("0.tar", ServedObject(shard(0), {}))
        with t2t.open(f"{web.url}/0.tar", index=False, cache=str(tmp_path / "cache")) as source:
            assert records(source) == EXPECTED[:RECORDS] == records(source)
            assert source.stats.cached == 0


@pytest.mark.parametrize("ranges", [True, False])
def test_plain_http(tmp_path, ranges):
    from tests.support.web_server import WebServer

    with (
        WebServer(ranges=ranges) as web,
        t2t.open(f"{web.url}/0.tar", index=False, cache=str(tmp_path / "cache")) as source,
    ):
        web.objects["0.tar"] = shard(0)
        assert [records(source) == EXPECTED[:RECORDS] for _ in range(2)] == [True, True]
        assert source.stats.cached == source.stats.bytes // 2
        (block, *_) = blocks(tmp_path / "cache")
        block.unlink()
        assert [records(source) == EXPECTED[:RECORDS] for _ in range(2)] == [True, True]


def test_a_dataset_through_the_cache_and_the_workers_of_an_export(cache_server, tmp_path):
    import tensorflow as tf

    ais = t2t.AisDataset("b", cache_server.url, cache=str(tmp_path / "cache"))
    template = f"{{0..{SHARDS - 1}}}.tar"

    def pair(record):
        return record["__key__"], tf.strings.length(record["bin"])

    with ais:
        keys = [key.numpy().decode() for key, _ in ais.load_from_tar(template, record_to_pair=pair)]
        assert keys == [key for key, _ in EXPECTED]
        requested_shards(cache_server)
        assert len(list(ais.load_from_tar(template, record_to_pair=pair))) == len(EXPECTED)
        assert requested_shards(cache_server) == []
        reopen = pickle.loads(pickle.dumps(opener_of(ais.source(template).opened.shards.store)))  # noqa: S301  # ours
        store = reopen()  # as in a worker of an export
        assert drain(store, "0.tar") == shard(0)
        store.close()
        assert requested_shards(cache_server) == []


def test_arguments_of_the_cache():
    with pytest.raises(ValueError, match=r"Cache\.max_bytes must be more than zero"):
        Cache("folder", max_bytes=0)
    with pytest.raises(ValueError, match=r"Cache\.trust must be zero or more"):
        Cache("folder", trust=-1.0)
    assert Cache("memory").in_memory
    assert Cache("memory").bound < Cache("folder").bound


@pytest.mark.servers("minio")
def test_minio_states_one_identity_of_an_object(minio, tmp_path, monkeypatch):
    """Answers to HEAD and GET state the same identity; otherwise the cache would never be used."""
    from ais_tar2tf.stores.cloud import CloudStore
    from ais_tar2tf.streams.arguments import read_options

    for name, value in minio.environment.items():
        monkeypatch.setenv(name, value)
    store = CloudStore("s3", bucket := new_name(), read_options())
    store.create()
    store.put("0.tar", shard(0))
    store.close()
    with t2t.open(f"s3://{bucket}/0.tar", index=False, cache=str(tmp_path / "cache")) as source:
        assert records(source) == EXPECTED[:RECORDS] == records(source)
        assert source.stats.cached == source.stats.bytes // 2


@pytest.mark.servers("aistore")
def test_aistore_states_one_identity_of_an_object(aistore, tmp_path):
    from ais_tar2tf.stores.ais import AisStore
    from ais_tar2tf.streams.arguments import read_options

    store = AisStore(bucket := new_name(), read_options(), endpoint=aistore.url)
    store.create()
    store.put("0.tar", shard(0))
    url = f"ais://{bucket}/0.tar"
    with t2t.open(url, endpoint=aistore.url, index=False, cache=str(tmp_path / "cache")) as source:
        assert records(source) == EXPECTED[:RECORDS] == records(source)
        assert source.stats.cached == source.stats.bytes // 2
        store.put("0.tar", shard(0, turned=3))
        assert records(source) == [(key, BODIES[(int(key[-2:]) + 3) % RECORDS]) for key, _ in EXPECTED[:RECORDS]]
    store.close()
