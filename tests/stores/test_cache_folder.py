"""A cache folder is refused if it is foreign, is private, holds no secrets, and is repaired when damage is read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import random
import stat
from pathlib import Path

import psutil
import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.folders import MARKER
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import StoreError, Tar2TFError
from ais_tar2tf.options import Cache, Retry
from ais_tar2tf.stores.cache import BLOCK, cached, in_whole_blocks
from ais_tar2tf.stores.cache.block_file import BlockFileReader, BlockFileWriter, delete_abandoned
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.fault_server import Fault, FaultServer, tagged
from tests.support.record_folders import tree

SECRET = "0123456789abcdefSECRET"
BODY = random.Random(7).randbytes(2 * BLOCK + 300_000)


def shards(name: str, records: int = 5) -> str:
    store = MemoryStore(name)
    for number in range(2):
        store.put(f"{number}.tar", made.labelled(f"s{number}", records, lambda n: {"x": b"%d" % n * 50}))
    return f"memory://{name}/{{0..1}}.tar"


def keys(url: str, cache: object) -> list[str]:
    with t2t.open(url, cache=cache, index=False) as source:
        return [record["__key__"] for record in source.records()]


EXPECTED = [f"s{shard}/{number:06d}" for shard in range(2) for number in range(5)]


# Ownership


@pytest.mark.parametrize("name", ["00/train/shard.tar", "notes.txt", "00/object.json", "00/0123456789abcdef-0"])
def test_a_folder_with_other_files_is_refused(tmp_path, name):
    """A folder with foreign files is refused, even if its folders look like a cache."""
    mine = tmp_path / "data" / name
    mine.parent.mkdir(parents=True)
    mine.write_bytes(bytes(5_000_000))
    with pytest.raises(StoreError, match="did not make"):
        t2t.open(shards("refused"), cache=Cache(tmp_path / "data", max_bytes=3_000_000))
    assert [path for path in (tmp_path / "data").rglob("*") if path.is_file()] == [mine]


def test_foreign_files_in_a_cache_are_kept(tmp_path):
    """Foreign files that are added to a cache later are not deleted."""
    url, cache = shards("mixed"), tmp_path / "cache"
    assert keys(url, cache) == EXPECTED
    mine = [cache / "00" / "train" / "shard.tar", cache / "notes.txt"]
    mine.append(next(cache.glob("??/*")) / "notes.txt")
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    for number in range(4):
        assert keys(shards(f"mixed-{number}"), Cache(cache, max_bytes=12_000)) == EXPECTED
    assert [path.read_text() for path in mine] == ["mine"] * 3


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_link_in_a_cache_is_not_followed(tmp_path, depth):
    """A link in place of a folder or of a block is not followed."""
    url, cache, target = shards("links"), tmp_path / "cache", tmp_path / "precious"
    assert keys(url, cache) == EXPECTED
    below = sorted(cache.glob("/".join(["[0-9a-f]*"] * (depth + 1))))[0]
    moved = target if depth < 2 else target / "block"
    moved.parent.mkdir(exist_ok=True)
    below.rename(moved)
    below.symlink_to(moved)
    before = tree(target)
    for number in range(4):
        assert keys(url, Cache(cache, max_bytes=12_000)) == EXPECTED
        assert keys(shards(f"links-{number}"), Cache(cache, max_bytes=12_000)) == EXPECTED
    store = cached(MemoryStore("links"), cache, Account())
    for name in ("0.tar", "1.tar"):
        store.forget(name)
    assert tree(target) == before


def test_the_folder_itself_may_be_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "disk")
    assert keys(shards("linked"), tmp_path / "cache") == EXPECTED
    assert (tmp_path / "disk" / MARKER).exists()


def test_all_files_are_private(tmp_path):
    before = os.umask(0)
    try:
        assert keys(shards("private"), tmp_path / "deep" / "cache") == EXPECTED
    finally:
        os.umask(before)
    found = list((tmp_path / "deep" / "cache").rglob("*"))
    modes = {path.is_dir(): stat.S_IMODE(path.stat().st_mode) for path in found if path.name != MARKER}
    assert modes == {True: 0o700, False: 0o600}
    assert stat.S_IMODE((tmp_path / "deep" / "cache").stat().st_mode) == 0o700


def test_a_deleted_cache_is_created_again(tmp_path):
    url = shards("again")
    with t2t.open(url, cache=tmp_path / "cache", index=False) as source:
        for _ in range(2):
            assert [record["__key__"] for record in source.records()] == EXPECTED
            (tmp_path / "cache").rename(tmp_path / f"gone-{random.random()}")
        assert [record["__key__"] for record in source.records()] == EXPECTED
        assert source.stats.cached == 0


# Secrets


def test_the_query_of_a_signed_url_is_stored_and_shown_nowhere(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    with FaultServer() as server:
        server.add("x.tar", tagged(made.labelled("s", 4, lambda n: {"x": b"%d" % n})))
        url = f"{server.url}/x.tar?X-Amz-Signature={SECRET}"
        server.script["x.tar"].append(Fault(status=503))
        with t2t.open(url, cache=tmp_path / "cache", index=False, retry=Retry(first_delay=0.001)) as source:
            seen = [repr(source), source._repr_html_()]
            seen += [str(record) for record in source.records()]
            source.export(tmp_path / "out", progress=False)
            source.export(tmp_path / "out", progress=False)  # the export opens its shards again
            assert list(source.shards) == [url]  # the name opens the shard again
        t2t.index(url, tmp_path / "kept.t2t")
        assert len(t2t.open(url, index=tmp_path / "kept.t2t")) == 4
        t2t.index(url, tmp_path / "kept.json")
        server.script["x.tar"].extend([Fault(status=403)] * 50)
        with pytest.raises(Tar2TFError) as refused:
            list(t2t.open(url, index=False).records())
        seen += [str(refused.value), refused.value.url, caplog.text]
    assert not [text for text in seen if SECRET in text]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert (tmp_path / "out" / "manifest.json").exists()


def test_two_signed_urls_of_one_path_are_two_objects(tmp_path):
    with FaultServer() as server:
        for number in (1, 2):
            data = made.labelled(f"s{number}", 3, lambda n: {"x": b"%d" % n})
            server.add(f"get?file={number}&token={SECRET}", tagged(data, f"{number}"))
        urls = [f"{server.url}/get?file={number}&token={SECRET}" for number in (1, 2)]
        for _ in range(2):
            with t2t.open(urls, cache=tmp_path / "cache", index=False) as source:
                assert [record["__key__"][:2] for record in source.records()] == ["s1"] * 3 + ["s2"] * 3
        with pytest.raises(Tar2TFError, match="differ only in a query"):
            t2t.index(urls, tmp_path / "index.t2t")


# Damage


class Counted(MemoryStore):
    """A memory store that counts the requested bytes."""

    opened: int = 0

    def open(self, name, start=0, stop=None, *, interrupt=None):
        self.opened += 1
        return super().open(name, start, stop, interrupt=interrupt)


def read(store, start: int, stop: int | None) -> bytes:
    body = store.open("x", start, stop)
    found, buffer = bytearray(), memoryview(bytearray(100_000))
    while count := body.readinto(buffer):
        found += buffer[:count]
    body.close()
    return bytes(found)[start - body.start :][: None if stop is None else stop - start]


@pytest.mark.parametrize("place", [0, BLOCK // 2, BLOCK - 1, BLOCK + 5, BLOCK + 100, -1])
@pytest.mark.parametrize("part", ["all", "within", "one record"])
def test_damage_is_repaired_by_the_read_that_finds_it(tmp_path, place, part):
    """Damage a page at the start, middle or end, the table of checksums, or the checksum of the table."""
    store = Counted("damage")
    store.put("x", BODY)
    start, stop = {"all": (0, None), "within": (BLOCK + 70_000, None), "one record": (BLOCK + 10, BLOCK + 50)}[part]
    assert read(cached(store, tmp_path, Account()), 0, None) == BODY
    block = next(path for path in tmp_path.rglob("*-1"))
    good = block.read_bytes()
    damaged = bytearray(good)
    damaged[place] ^= 1
    block.write_bytes(damaged)
    shelf = cached(store, tmp_path, account := Account())
    if part == "one record":
        shelf = in_whole_blocks(shelf, 10**12)
    assert read(shelf, start, stop) == BODY[start:stop]
    if account.stats.cache_faults:  # the damaged page was read
        assert block.read_bytes() == good
        before = store.opened
        assert read(cached(store, tmp_path, Account()), 0, None) == BODY
        assert store.opened == before
    else:
        assert part == "one record" or place < BLOCK // 2


@pytest.mark.parametrize("length", [0, 1, 70_000, BLOCK, BLOCK + 200])
def test_a_cut_block_is_repaired_by_the_read_that_finds_it(tmp_path, length):
    store = Counted("cut")
    store.put("x", BODY)
    assert read(cached(store, tmp_path, Account()), 0, None) == BODY
    block = next(path for path in tmp_path.rglob("*-0"))
    good = block.read_bytes()
    block.write_bytes(good[:length])
    assert read(cached(store, tmp_path, account := Account()), 100_000, None) == BODY[100_000:]
    assert account.stats.cache_faults == 1
    assert block.read_bytes() == good


def test_every_flipped_bit_of_an_objects_description(tmp_path):
    """Whatever bit of `object.json` flips, records are those of the store, and are cached again."""
    url = shards("bits", records=1)
    expected = keys(url, tmp_path)
    document = next(tmp_path.rglob("object.json"))
    good = document.read_bytes()
    for at in range(len(good)):
        damaged = bytearray(good)
        damaged[at] ^= 1 << at % 8
        document.write_bytes(damaged)
        assert keys(url, tmp_path) == expected
        assert json.loads(document.read_bytes()) == json.loads(good)


@pytest.mark.parametrize("data", [b"", b"[" * 100_000, b'{"identity": 5}', b"\xff", b'{"key": "x", "identity": [1]}'])
def test_an_invalid_description_of_an_object_is_ignored(tmp_path, data):
    url = shards("none")
    assert keys(url, tmp_path) == EXPECTED
    for document in tmp_path.rglob("object.json"):
        document.write_bytes(data)
    assert keys(url, tmp_path) == EXPECTED


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    url = shards("pipe")
    assert keys(url, tmp_path) == EXPECTED
    for path in [path for path in tmp_path.rglob("*") if path.is_file() and path.name != MARKER]:
        path.unlink()
        os.mkfifo(path)
    assert keys(url, tmp_path) == EXPECTED


def test_a_cache_of_an_earlier_version_is_used(tmp_path):
    import shutil

    golden = Path(__file__).parents[1] / "golden" / "cache"
    shutil.copytree(golden, tmp_path / "cache")
    store = MemoryStore("golden")
    for number in range(3):
        data = made.labelled(f"s{number}", 4, lambda n: {"x": b"%d" % n})
        store.delete(f"{number}.tar")
        store.put(f"{number}.tar", data)
    with t2t.open("memory://golden/{0..2}.tar", cache=tmp_path / "cache", index=False) as source:
        assert len(list(source.records())) == 12
        assert source.stats.cached == source.stats.bytes
        assert source.stats.cache_faults == 0


# Temporary files


@pytest.mark.parametrize("held", [False, True])
def test_a_sweep_between_creating_and_locking_a_file_loses_no_block(tmp_path, monkeypatch, held):
    """A sweep of another process deletes the file before it is locked, or holds its lock at this moment."""
    lock, swept = fcntl.flock, []

    def sweep_first(file, how):
        if not swept:
            (path,) = tmp_path.iterdir()
            swept.append(path.open("rb"))
            lock(swept[0], fcntl.LOCK_EX)
            path.unlink()
            if not held:
                swept[0].close()
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    folder = os.open(tmp_path, os.O_RDONLY)
    writer = BlockFileWriter(folder, "block", "label")
    writer.add(memoryview(b"data"))
    writer.commit()
    os.close(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["block"]
    reader = BlockFileReader(tmp_path / "block", 4, "label")
    found = bytearray(4)
    assert (reader.read(0, memoryview(found)), bytes(found)) == (4, b"data")
    reader.close()
    swept[0].close()


def test_a_sweep_deletes_a_file_while_it_is_locked(tmp_path, monkeypatch):
    """A writer that locks the file afterwards sees that it was deleted."""
    unlink, locked = os.unlink, []

    def observed(name, *, dir_fd):
        with (tmp_path / name).open("rb") as file, contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked.append(name)
        unlink(name, dir_fd=dir_fd)

    folder = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "x.part").write_bytes(b"1")
    monkeypatch.setattr(os, "unlink", observed)
    assert delete_abandoned("x.part", folder)
    os.close(folder)
    assert (list(tmp_path.iterdir()), locked) == ([], [])


@pytest.mark.parametrize(("module", "name"), [(fcntl, "flock"), (os, "dup")])
def test_a_file_that_cannot_be_locked_is_deleted(tmp_path, monkeypatch, module, name):
    def fails(*_):
        raise OSError(errno.ENOLCK, "no locks available")

    folder = os.open(tmp_path, os.O_RDONLY)
    before = psutil.Process().num_fds()
    monkeypatch.setattr(module, name, fails)
    with pytest.raises(OSError, match="no locks"):
        BlockFileWriter(folder, "block", "label")
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().num_fds() == before
    os.close(folder)
