"""A cache under a global shuffle: reading single records caches whole blocks, within the bound."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.options import MIB, Cache
from ais_tar2tf.stores import Identity, Interrupt, MultiRangeAnswer
from ais_tar2tf.stores.cache import BLOCK, cached, in_whole_blocks
from ais_tar2tf.stores.cache.store import CachedRanges
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.cache_folders import blocks, requested_shards, size_of
from tests.support.kinds_of_stores import new_name

SHARDS = 3
RECORDS = 60
BODIES = [random.Random(number).randbytes(90_000) for number in range(RECORDS)]  # 5.5 MB a shard: three blocks
EVERY = {f"s{shard}/{number:06d}": BODIES[number] for shard in range(SHARDS) for number in range(RECORDS)}


def shard(number: int) -> bytes:
    return made.labelled(f"s{number}", RECORDS, lambda n: {"bin": BODIES[n]})


@pytest.fixture
def indexed_server(tmp_path):
    bucket = tmp_path / "served" / "b"
    bucket.mkdir(parents=True)
    for number in range(SHARDS):
        (bucket / f"{number}.tar").write_bytes(shard(number))
    with t2t.serve(tmp_path / "served") as running:
        t2t.index("ais://b/{0..2}.tar", endpoint=running.url)
        running.requests.clear()
        yield running


def opened(server, cache) -> t2t.Source:
    return t2t.open("ais://b/{0..2}.tar", endpoint=server.url, cache=cache)


def epoch(source: t2t.Source, seed: int) -> list[str]:
    """Read one epoch, check every record, and return their order."""
    found = [
        (each["__key__"].numpy().decode(), each["bin"].numpy())
        for each in source.dataset(shuffle="global", seed=seed)
    ]
    assert all(EVERY[key] == body for key, body in found)
    assert {key for key, _ in found} == set(EVERY)
    assert len(found) == len(EVERY)
    return [key for key, _ in found]


@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_the_second_epoch_requests_no_bodies(indexed_server, tmp_path, kind):
    with opened(indexed_server, None) as plain:
        orders = [epoch(plain, seed) for seed in (1, 2)]
    requested_shards(indexed_server)
    cache = str(tmp_path / "cache") if kind == "disk" else "memory"
    with opened(indexed_server, cache) as source:
        assert epoch(source, 1) == orders[0]
        assert requested_shards(indexed_server)
        assert epoch(source, 2) == orders[1]
        assert requested_shards(indexed_server) == []
    if kind == "disk":
        assert len(blocks(tmp_path / "cache")) == 3 * SHARDS + 1  # and one block of the index
        with opened(indexed_server, cache) as again:
            assert epoch(again, 1) == orders[0]
            assert requested_shards(indexed_server) == []
            assert [record["bin"] for record in again.records()] == BODIES * SHARDS
            assert requested_shards(indexed_server) == []


def test_no_whole_blocks_are_read_if_the_disk_is_full(indexed_server, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    for number in range(256):
        (cache / f"{number:02x}").write_text("in the way")
    with opened(indexed_server, str(cache)) as source:
        epoch(source, 1)
        assert source.stats.cache_faults
        assert len(requested_shards(indexed_server)) < 3 * len(
            EVERY
        )  # two for each record because of the redirect; four if a block were tried first


def test_a_cache_that_is_too_small_keeps_a_fixed_share(tmp_path):
    """There is room for 20 of 64 blocks. The same blocks are read from the cache in each epoch."""
    store = MemoryStore("a-share-that-stays")  # the name decides which blocks are kept, so it is fixed
    store.put("a", body := random.Random(1).randbytes(64 * BLOCK))
    bound = 20 * (BLOCK + MIB // 64)
    shelf = cached(store, Cache(tmp_path, max_bytes=bound), account := Account())
    singles = in_whole_blocks(shelf, len(body))
    assert in_whole_blocks(store, len(body)) is store
    kept: list[set[str]] = []
    for seed in range(3):
        before = account.stats.cached
        for number in random.Random(seed).sample(range(64 * 4), 64 * 4):
            start = number * BLOCK // 4 + 1_000
            assert drained(singles, "a", start, start + 50_000) == body[start : start + 50_000]
        kept.append({path.name for path in blocks(tmp_path)})
        from_shelf = account.stats.cached - before
        assert size_of(tmp_path) <= bound
    assert from_shelf == 50_000 * 4 * len(kept[-1])
    assert kept[0] == kept[1] == kept[2]
    assert 5 <= len(kept[0]) <= 20


def drained(store, name: str, start: int, stop: int) -> bytes:
    body, buffer, found = store.open(name, start, stop), memoryview(bytearray(100_000)), b""
    assert body.start == start
    while len(found) < stop - start and (count := body.readinto(buffer)):
        found += bytes(buffer[:count])
    body.close()
    return found[: stop - start]


class Batches(MemoryStore):
    """A memory store that answers many ranges at once, and records the requests."""

    across_objects: bool = True

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket)
        self.batches: list[list[tuple[str, int, int]]] = []

    @property
    def ranges_at_once(self) -> int:
        return 128

    def read_many(
        self, wanted: Sequence[tuple[str, int, int]], *, interrupt: Interrupt | None = None
    ) -> MultiRangeAnswer:
        del interrupt
        self.batches.append(list(wanted))
        return MultiRangeAnswer([memoryview(drained(self, *each)) for each in wanted], Identity())


def test_ranges_that_will_not_be_cached_are_read_from_the_store():
    store = Batches(new_name())
    store.put("a", body := random.Random(1).randbytes(16 * BLOCK))
    shelf = cached(store, Cache("memory", max_bytes=8 * BLOCK), Account())
    assert isinstance(shelf, CachedRanges)
    wanted = [("a", at, at + 10_000) for at in range(5_000, 16 * BLOCK, BLOCK // 2)]
    assert shelf.read_many(wanted) is None  # the shard's identity is not known yet
    assert drained(shelf, "a", 0, 10) == body[:10]
    all_of_them = shelf.read_many(wanted)
    assert all_of_them is not None
    assert list(all_of_them.pieces) == [body[start:stop] for _, start, stop in wanted]
    singles = in_whole_blocks(shelf, len(body))
    assert isinstance(singles, CachedRanges)
    found = singles.read_many(wanted)
    assert found is not None
    assert all(data in (None, body[start:stop]) for data, (_, start, stop) in zip(found.pieces, wanted, strict=True))
    alone = [each for each, data in zip(wanted, found.pieces, strict=True) if data is None]
    assert store.batches[-1] == [each for each in wanted if each not in alone]
    for each in alone:
        assert drained(singles, *each) == body[each[1] : each[2]]
    whole = in_whole_blocks(shelf, 7 * BLOCK)
    assert isinstance(whole, CachedRanges)
    asked = len(store.batches)
    assert whole.read_many(wanted) is None
    assert len(store.batches) == asked
