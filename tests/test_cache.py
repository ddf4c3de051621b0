"""The cache may cost speed, never a record: full, damaged, stale, shared, killed, on a disk that is gone."""

from __future__ import annotations

import contextlib
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
import shards as made
from ais_tar2tf.account import Account
from ais_tar2tf.cache import BLOCK, cached
from ais_tar2tf.errors import ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import MIB, Cache, Retry, Timeouts
from ais_tar2tf.stores import reopener
from ais_tar2tf.stores.memory import MemoryStore
from faults import Fault, FaultServer, tagged
from leftovers import our_threads
from places import new_name

ROOT = Path(__file__).parents[1]
SHARDS = 3
RETRY = Retry(attempts=3, first_delay=0.001, max_delay=0.002)
RECORDS = 12
BODIES = [random.Random(number).randbytes(450_000) for number in range(RECORDS)]  # 5.4 MB a shard: three blocks
EXPECTED = [(f"s{shard}/{number:06d}", BODIES[number]) for shard in range(SHARDS) for number in range(RECORDS)]
SIZE = SHARDS * RECORDS * 450_000


def shard(number: int, *, turned: int = 0) -> bytes:
    return made.labelled(f"s{number}", RECORDS, lambda n: {"bin": BODIES[(n + turned) % RECORDS]})


@pytest.fixture
def server(tmp_path):
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


def bodies_asked(server) -> list[str]:
    """GETs of objects since the last call; the proxy's redirects are not counted."""
    seen = [seen for seen in list(server.requests) if seen.method == "GET" and seen.path.endswith(".tar")]
    server.requests.clear()
    return [each.path for each in seen]


def blocks(cache: Path) -> list[Path]:
    return sorted(path for path in cache.rglob("*-*") if path.is_file())


def size_of(cache: Path) -> int:
    """Of what is there at one moment: a fetching thread may be writing and removing meanwhile."""
    seen = None
    for _ in range(1_000):
        with contextlib.suppress(FileNotFoundError):
            before, seen = seen, {path: path.stat().st_size for path in cache.rglob("*") if path.is_file()}
            if seen == before:
                break
    assert seen is not None
    return sum(seen.values())


@pytest.mark.parametrize("connections", [1, 2, 5])
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_warm_epoch_asks_for_no_bodies(server, tmp_path, kind, connections):
    cache = str(tmp_path / "cache") if kind == "disk" else "memory"
    with opened(server, cache, connections=connections) as source:
        assert records(source) == EXPECTED
        assert bodies_asked(server)
        assert source.stats.cached == 0
        assert records(source) == EXPECTED
        assert bodies_asked(server) == []
        assert source.stats.cached == source.stats.bytes // 2
        assert source.stats.cache_faults == 0
    if kind == "disk":
        with opened(server, cache, connections=connections) as again:
            assert records(again) == EXPECTED
            assert bodies_asked(server) == []


def test_what_was_said_a_moment_ago_is_believed(server, tmp_path):
    """Then nothing at all goes over the network, in another process, too."""
    with opened(server, Cache(tmp_path / "cache", trust=3600)) as source:
        assert records(source) == EXPECTED
    with opened(server, Cache(tmp_path / "cache", trust=3600)) as source:
        server.requests.clear()
        assert records(source) == EXPECTED
        assert not server.requests


def test_asking_what_is_there_is_a_try_like_any_other(tmp_path):
    """Not one with tries of its own, of which the account would not know."""
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


def test_asking_what_is_there_ends_with_its_reader(tmp_path):
    before = our_threads()
    with FaultServer() as server:
        server.add("x.tar", tagged(shard(0)))
        options = {"cache": tmp_path / "cache", "index": False, "timeouts": Timeouts(idle=200)}
        with t2t.open(f"{server.url}/x.tar", **options) as source:
            assert len(records(source)) == RECORDS
            asked = len(server.requests)
            server.script["x.tar"].append(Fault(silent=True))
            closing = threading.Thread(target=lambda: (server.wait_until_asked(asked + 1), source.close()))
            closing.start()
            with pytest.raises(StoreError, match="closed"):
                records(source)
            closing.join()
        assert our_threads() <= before


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_a_changed_object_is_never_served_stale(server, tmp_path, kind):
    cache = str(tmp_path / "cache") if kind == "disk" else "memory"
    with opened(server, cache) as source:
        assert records(source) == EXPECTED
        (tmp_path / "served" / "b" / "1.tar").write_bytes(shard(1, turned=5))
        changed = [
            (key, BODIES[(int(key[-2:]) + 5) % RECORDS] if key.startswith("s1") else data) for key, data in EXPECTED
        ]
        bodies_asked(server)
        assert records(source) == changed
        assert all(path.endswith("/1.tar") for path in bodies_asked(server))
        assert records(source) == changed
        assert bodies_asked(server) == []


def test_a_deleted_object_is_missed(server, tmp_path):
    with opened(server, str(tmp_path / "cache")) as source:
        assert records(source) == EXPECTED
        (tmp_path / "served" / "b" / "1.tar").unlink()
        with pytest.raises(ShardNotFound, match=r"1\.tar"):
            records(source)


@pytest.mark.parametrize("where", ["data", "sums", "seal", "cut", "empty", "another's"])
def test_damage_is_found_and_fetched_again(server, tmp_path, where):
    cache = tmp_path / "cache"
    with opened(server, str(cache)) as source:
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
        bodies_asked(server)
        assert records(source) == EXPECTED
        assert source.stats.cache_faults == 1
        assert len(bodies_asked(server)) == 2  # the proxy's redirect, and the target's answer
        assert records(source) == EXPECTED
        assert bodies_asked(server) == []
        assert source.stats.cache_faults == 1


def test_the_bound_holds_and_the_oldest_go_first(server, tmp_path):
    cache, bound = tmp_path / "cache", 8 * MIB
    with opened(server, Cache(cache, max_bytes=bound), connections=1) as source:
        for record in source.records():
            assert record["bin"]
            assert size_of(cache) <= bound
        assert records(source) == EXPECTED
        assert size_of(cache) <= bound
        kept = {path.parent for path in blocks(cache)}
        assert 1 <= len(kept) < SHARDS
    last = t2t.open("ais://b/2.tar", endpoint=server.url, cache=Cache(cache, max_bytes=bound))
    with last:
        bodies_asked(server)
        assert records(last) == EXPECTED[-RECORDS:]
        assert bodies_asked(server) == []


def test_a_memory_cache_keeps_its_bound():
    store = MemoryStore(new_name())
    for number in range(4):
        store.put(f"{number}", bytes([number]) * 3 * MIB)
    shelf = cached(store, Cache("memory", max_bytes=5 * MIB), account := Account())
    for number in (0, 1, 2, 3, 3):
        assert drain(shelf, f"{number}") == bytes([number]) * 3 * MIB
    assert account.stats.cached == 3 * MIB


def test_without_write_permission_it_is_read_and_nothing_more(server, tmp_path):
    """A folder whose blocks cannot be written: here because files stand where folders belong."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for first in "0123456789abcdef":
        for second in "0123456789abcdef":
            (cache / f"{first}{second}").write_text("in the way")
    with opened(server, str(cache)) as source:
        assert records(source) == EXPECTED
        assert records(source) == EXPECTED
        assert source.stats.cached == 0
        assert source.stats.cache_faults


def vanish(cache: Path) -> None:
    """Where the folder was, a file is; somebody who is writing may make the folder anew in between."""
    for attempt in range(100):
        cache.rename(cache.with_name(f"gone-{attempt}"))
        try:
            with cache.open("x"):
                return
        except FileExistsError:
            pass
    raise AssertionError("it always comes back")


def test_a_disk_that_is_gone(server, tmp_path):
    cache = tmp_path / "cache"
    with opened(server, str(cache)) as source:
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


def test_a_full_disk(server, tmp_path):
    """What the kernel refuses to write (here: by a limit on the size of files) is not kept, and that is all."""
    done = python(FULL, f"ais://b/{{0..{SHARDS - 1}}}.tar", server.url, str(tmp_path / "cache"))
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


def test_killing_one_of_two_processes_harms_neither(server, tmp_path):
    import zlib

    cache, url = tmp_path / "cache", f"ais://b/{{0..{SHARDS - 1}}}.tar"
    expected = 0
    for _ in range(2):
        for _, data in EXPECTED:
            expected = zlib.crc32(data, expected)
    with python(READER, url, server.url, str(cache), "1", "wait", stdin=subprocess.PIPE) as killed:
        assert killed.stdout.readline() == "reading\n"
        with python(READER, url, server.url, str(cache), "2", "go") as other:
            assert other.stdout.readline() == "reading\n"
            killed.kill()
            out, _ = other.communicate(timeout=120)
            assert int(out) == expected
    assert killed.returncode == -9
    with opened(server, str(cache)) as source:
        bodies_asked(server)
        assert records(source) == EXPECTED
        assert bodies_asked(server) == []
        assert source.stats.cache_faults == 0


HALF_WRITTEN = """
from ais_tar2tf.cache._disk import DiskShelf
from ais_tar2tf.cache._shelf import Place
from ais_tar2tf.stores import Identity
writer = DiskShelf(sys.argv[1], 10**9).writer(Place("key", Identity(version="1", size=10**7), 0))
writer.add(memoryview(bytes(1000)))
print("written", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_writer_left_is_swept_and_a_living_one_is_not(server, tmp_path):
    cache = tmp_path / "cache"

    def parts() -> int:
        return len(list(cache.rglob("*.part")))

    with python(HALF_WRITTEN, str(cache), stdin=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == "written\n"
        with opened(server, str(cache)) as source:
            assert records(source) == EXPECTED
        assert parts() == 1
        writer.kill()
        writer.wait()
    assert parts() == 1
    (tmp_path / "served" / "b" / "1.tar").write_bytes(shard(1, turned=1))
    with opened(server, str(cache)) as source:
        assert len(records(source)) == len(EXPECTED)
    assert parts() == 0


def test_many_processes_and_epochs_at_once(server, tmp_path):
    """Four processes, a bound that lets them drive each other's blocks out, two epochs each."""
    cache, url = tmp_path / "cache", f"ais://b/{{0..{SHARDS - 1}}}.tar"
    script = READER.replace("cache=sys.argv[3]", f"cache=t2t.options.Cache(sys.argv[3], max_bytes={10 * MIB})")
    children = [python(script, url, server.url, str(cache), "2", "go") for _ in range(4)]
    outs = {child.communicate(timeout=200)[0] for child in children}
    assert len(outs) == 1
    assert {child.returncode for child in children} == {0}
    assert size_of(cache) <= 10 * MIB + 3 * (BLOCK + 4096)  # one block more than agreed, for each other process


def test_damage_on_the_way_is_not_kept(tmp_path):
    """The store's own checksum tells it: the next reading asks the store again."""

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
    from ais_tar2tf.reader import Shards
    from ais_tar2tf.source import Source

    store = Flipping(new_name())
    store.put("0.tar", shard(0))
    source = Source(Shards(cached(store, tmp_path / "cache", account := Account()), ["0.tar"]), account, index=False)
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
    """Whatever is asked for, however it is read, and whatever became of the files: the object's own bytes."""
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


def test_what_cannot_be_told_apart_is_not_kept(tmp_path):
    """A web server that says neither ETag nor Last-Modified."""
    from faults import FaultServer, Thing

    with FaultServer() as web:
        web.add("0.tar", Thing(shard(0), {}))
        with t2t.open(f"{web.url}/0.tar", index=False, cache=str(tmp_path / "cache")) as source:
            assert records(source) == EXPECTED[:RECORDS] == records(source)
            assert source.stats.cached == 0


@pytest.mark.parametrize("ranges", [True, False])
def test_plain_http(tmp_path, ranges):
    from web import WebServer

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


def test_a_dataset_through_the_cache_and_the_workers_of_an_export(server, tmp_path):
    import tensorflow as tf

    ais = t2t.AisDataset("b", server.url, cache=str(tmp_path / "cache"))
    template = f"{{0..{SHARDS - 1}}}.tar"

    def pair(record):
        return record["__key__"], tf.strings.length(record["bin"])

    with ais:
        keys = [key.numpy().decode() for key, _ in ais.load_from_tar(template, record_to_pair=pair)]
        assert keys == [key for key, _ in EXPECTED]
        bodies_asked(server)
        assert len(list(ais.load_from_tar(template, record_to_pair=pair))) == len(EXPECTED)
        assert bodies_asked(server) == []
        reopen = pickle.loads(pickle.dumps(reopener(ais.source(template)._shards.store)))  # noqa: S301  # ours
        store = reopen()  # as a worker of an export does
        assert drain(store, "0.tar") == shard(0)
        store.close()
        assert bodies_asked(server) == []


def test_what_it_takes():
    with pytest.raises(ValueError, match=r"Cache\.max_bytes must be more than zero"):
        Cache("folder", max_bytes=0)
    with pytest.raises(ValueError, match=r"Cache\.trust must be zero or more"):
        Cache("folder", trust=-1.0)
    assert Cache("memory").in_memory
    assert Cache("memory").bound < Cache("folder").bound


@pytest.mark.servers("minio")
def test_minio_says_the_same_of_an_object_twice(minio, tmp_path, monkeypatch):
    """Its answers to HEAD and GET name one content, else nothing would ever come from the cache."""
    from ais_tar2tf.source import read_options
    from ais_tar2tf.stores.cloud import CloudStore

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
def test_aistore_says_the_same_of_an_object_twice(aistore, tmp_path):
    from ais_tar2tf.source import read_options
    from ais_tar2tf.stores.ais import AisStore

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
