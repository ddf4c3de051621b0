"""Read cut and damaged archives from every store, over breaking connections, with and without checksums.

The result must equal that of reading the same bytes from memory, which other tests compare with Go and tarfile. If
the store states the checksum of the undamaged archive, damage must always be an error.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ais_tar2tf.archive import ShardArchive, find_directory
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import ArchiveError, ChecksumMismatch, TruncatedArchive
from ais_tar2tf.fetch import Fetcher, ShardRange
from ais_tar2tf.options import Limits, Read, Retry, Timeouts
from ais_tar2tf.stores import Store, open_store
from tests.matrix.scene import WAYS, credentials
from tests.support import archives
from tests.support import tar_mutations as mutations
from tests.support.fault_server import Fault, FaultServer, ServedObject, ais, random_faults, tagged

_EVERYDAY, _FULL = 150, 4_000
_READ = Read(retry=Retry(attempts=40, first_delay=1e-6, max_delay=1e-6), timeouts=Timeouts(idle=20))
_LIMITS = Limits()
_chance = random.Random(64)
MEMBERS = [(f"{number:04d}.bin", _chance.randbytes(_chance.randrange(3_000))) for number in range(12)]
ARCHIVES = archives.in_every_format(MEMBERS)


@pytest.fixture
def transit_server() -> Iterator[FaultServer]:
    with FaultServer() as found, credentials():
        yield found


@contextlib.contextmanager
def reached(server: FaultServer, way: str) -> Iterator[Store]:
    where = server.url.partition("://")[2] if way == "http" else "bucket"
    store = open_store(way, where, _READ, endpoint=None if way == "http" else server.url)
    yield store
    store.close()


def stated(data: bytes, original: bytes, how: str) -> ServedObject:
    """Return an object with its own checksum, with the checksum of `original`, or without one."""
    if how == "nothing":
        return tagged(data)
    return ServedObject(data, ais(data if how == "its checksum" else original).headers)


def blocks(store: Store, way: str, chance: random.Random) -> Iterator[bytes]:
    """Yield the bytes of the object `bucket/x`, over one or two connections, in ranges of random sizes."""
    read = replace(_READ, connections=chance.choice([1, 2]), range_bytes=chance.randrange(200, 20_000))
    fetch = Fetcher(
        store, iter([ShardRange("bucket/x" if way == "http" else "x")]), read, Account(), draw=lambda: 0.0
    )
    try:
        fetch.next_shard()
        while block := fetch.read():
            yield bytes(block)
    finally:
        fetch.close()


def put(server: FaultServer, thing: ServedObject, chance: random.Random) -> None:
    server.script["bucket/x"].clear()
    server.add("bucket/x", thing, random_faults(chance.randrange(1 << 30), len(thing.data), chance.randrange(3)))


def _tars(server: FaultServer, way: str, how: str, count: int, seed: int) -> None:
    chance, seeds = random.Random(f"{seed} {way} {how}"), mutations.seeds()
    with reached(server, way) as store:
        for _ in range(count):
            original = chance.choice(seeds)
            data = mutations.mutate(original, chance)
            put(server, stated(data, original, how), chance)
            if how == "another checksum" and data != original:
                # The parser may find the damage before the checksum is known.
                with contextlib.suppress(ChecksumMismatch):
                    assert mutations.read_blocks(blocks(store, way, chance)).error, (seed, data)
                continue
            assert mutations.read_blocks(blocks(store, way, chance)) == mutations.read_by_us(data), (seed, data)


STATED = ("its checksum", "another checksum", "nothing")


@pytest.mark.parametrize("how", STATED)
@pytest.mark.parametrize("way", WAYS)
def test_damaged_tars(transit_server: FaultServer, way: str, how: str) -> None:
    _tars(transit_server, way, how, _EVERYDAY, seed=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("how", STATED)
@pytest.mark.parametrize("way", WAYS)
def test_thousands_of_damaged_tars(transit_server: FaultServer, way: str, how: str) -> None:
    _tars(transit_server, way, how, _FULL, seed=2)


def members_over(store: Store, way: str, chance: random.Random, data: bytes) -> list[tuple[str, bytes]]:
    """Return the members of an archive of any format. A zip's directory is fetched as the reader does it."""
    archive, found = ShardArchive(archives.SHARD, _LIMITS), list[tuple[str, bytes]]()

    def keep(coming: Iterator[object]) -> None:
        for members in coming:
            found.extend((each.name, each.body) for each in archives.members_of(members))  # type: ignore[arg-type]

    for block in blocks(store, way, chance):
        keep(iter(archive.feed(block)))
        if archive.needs_directory:
            directory = find_directory(archives.SHARD, _LIMITS, len(data), lambda start, stop: data[start:stop])
            keep(iter(archive.resume(directory)))
    archive.finish()
    return found


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("way", WAYS)
def test_cut_archives_of_every_kind(transit_server: FaultServer, way: str, name: str) -> None:
    data, chance = ARCHIVES[name], random.Random(f"{way} {name}")
    end = len(data.rstrip(b"\0")) // 512 * 512 + 512 if name == "tar" else len(data)
    with reached(transit_server, way) as store:
        for how in STATED:
            put(transit_server, stated(data, data, how), chance)
            assert members_over(store, way, chance, data) == MEMBERS
            cut = data[: chance.randrange(1, end)]
            put(transit_server, stated(cut, data, how), chance)
            expected = (TruncatedArchive, ChecksumMismatch) if how == "another checksum" else TruncatedArchive
            with pytest.raises(expected):
                members_over(store, way, chance, cut)


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "tar" and not name.endswith("zip")])
@pytest.mark.parametrize("way", WAYS)
def test_flipped_bits_in_archives_with_checksums_of_their_own(
    transit_server: FaultServer, way: str, name: str
) -> None:
    """The format's own checksum detects damage, except in header bytes without a meaning."""
    data, chance = ARCHIVES[name], random.Random(f"{way} {name}")
    with reached(transit_server, way) as store:
        for number in range(6):
            how = STATED[number % len(STATED)]
            damaged = bytearray(data)
            damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            put(transit_server, stated(bytes(damaged), data, how), chance)
            try:
                found = members_over(store, way, chance, bytes(damaged))
            except (ArchiveError, ChecksumMismatch):
                continue
            assert how != "another checksum"
            assert found == MEMBERS


def test_a_connection_that_changes_bytes_is_detected(transit_server: FaultServer) -> None:
    """The object is intact, but one of its two answers is damaged."""
    data = ARCHIVES["tar"]
    with reached(transit_server, "ais") as store:
        transit_server.add("bucket/x", ais(data), [Fault(after=9_000, then="short"), Fault(flip=100)])
        with pytest.raises(ChecksumMismatch, match="damaged on the way or at rest"):
            list(blocks(store, "ais", random.Random(1)))
