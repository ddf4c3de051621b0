"""A cached range is requested once, however many readers want it at the same time, and whoever leaves early."""

from __future__ import annotations

import functools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import MIB, Cache, Timeouts
from ais_tar2tf.stores import Interrupt, ObjectInfo
from ais_tar2tf.stores.cache import BLOCK, CachedStore, cached
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.fault_server import PATIENCE, Fault, FaultServer, ais
from tests.support.kinds_of_stores import new_name
from tests.support.leftovers import left_open, open_files

OBJECT = random.Random(1).randbytes(5 * BLOCK + 77_777)
PIECE = 300_000


class _Body:
    """The body of a range of an object in memory. A test can hold it back."""

    def __init__(self, store: Counting, info: ObjectInfo, data: memoryview, start: int) -> None:
        self.info = info
        self.start = start
        self.stop = start + len(data)
        self._store = store
        self._data = data
        self._at = start
        self.interrupt: Interrupt | None = None

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), len(self._data), PIECE)
        self._store.before_bytes(self._at, self.interrupt)
        buffer[:count] = self._data[:count]
        self._store.given += [(self._at, self._at + count)]
        self._data, self._at = self._data[count:], self._at + count
        return count

    def hand_over(self, interrupt: Interrupt | None) -> None:
        self.interrupt = interrupt

    def close(self) -> None:
        self._store.open_bodies -= 1


class Counting(MemoryStore):
    """A memory store that records the requested ranges."""

    def __init__(self) -> None:
        super().__init__(new_name())
        self.asked: list[tuple[int, int | None]] = []
        self.given: list[tuple[int, int]] = []
        self.open_bodies = 0
        self.before_answer: Callable[[], None] = lambda: None
        self.before_bytes: Callable[[int, Interrupt | None], None] = lambda _at, _interrupt: None
        self.put("x", OBJECT)

    def open(self, name: str, start: int = 0, stop: int | None = None, *, interrupt: Interrupt | None = None) -> Any:
        self.asked.append((start, stop))
        self.before_answer()
        data, info = self._object(name)
        self.open_bodies += 1
        body = _Body(self, info, memoryview(data)[start:stop], start)
        body.interrupt = interrupt
        return body

    @property
    def most_times(self) -> int:
        """Return how often the most frequently sent byte was sent."""
        changes: Counter[int] = Counter()
        for start, stop in self.given:
            changes[start] += 1
            changes[stop] -= 1
        times = most = 0
        for at in sorted(changes):
            times += changes[at]
            most = max(most, times)
        return most


@pytest.fixture
def counting_store() -> Counting:
    return Counting()


@pytest.fixture(params=["memory", "disk"])
def shelf(request: pytest.FixtureRequest, counting_store: Counting, tmp_path: Path) -> CachedStore:
    return _cached(counting_store, tmp_path if request.param == "disk" else "memory")


def _cached(store: Counting, where: Path | str) -> CachedStore:
    return cached(store, Cache(where, trust=60), Account())


def _read(body: Any, count: int = -1, piece: int = 700_001) -> bytes:
    found, buffer = bytearray(), memoryview(bytearray(piece))
    while (left := count - len(found) if count >= 0 else piece) and (got := body.readinto(buffer[:left])):
        found += buffer[:got]
    return bytes(found)


def _in_thread(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("paused_at", [1, PIECE, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_a_reader_takes_over_the_request_of_one_that_is_paused(
    counting_store: Counting, shelf: CachedStore, paused_at: int
) -> None:
    first = shelf.open("x")
    beginning = _read(first, paused_at)
    second = shelf.open("x")
    assert _read(second) == OBJECT
    second.close()
    assert beginning + _read(first) == OBJECT
    first.close()
    assert counting_store.asked == [(0, None)]
    assert counting_store.most_times == 1
    assert counting_store.open_bodies == 0


def test_readers_that_take_turns_share_one_request(counting_store: Counting, shelf: CachedStore) -> None:
    bodies = [shelf.open("x") for _ in range(3)]
    found = [b""] * 3
    draw = random.Random(3)
    while any(len(each) < len(OBJECT) for each in found):
        which = draw.randrange(3)
        found[which] += _read(bodies[which], min(draw.randrange(1, 900_000), len(OBJECT) - len(found[which])))
    assert found == [OBJECT] * 3
    assert counting_store.asked == [(0, None)]
    assert counting_store.most_times == 1


def test_an_interrupted_reader_leaves_the_rest_to_others(counting_store: Counting, shelf: CachedStore) -> None:
    interrupt = Interrupt()
    first, second = shelf.open("x", interrupt=interrupt), shelf.open("x")
    _read(first, BLOCK + 1000)
    interrupt.fire()
    first.close()
    assert _read(second) == OBJECT
    assert counting_store.asked == [(0, None), (BLOCK, None)]  # half of that block arrived twice


def test_ranges_of_other_sizes_are_requested_once(counting_store: Counting, shelf: CachedStore) -> None:
    """One reader uses a single request, the other ranges, the second of which begins before the first has arrived."""
    whole, ranges = shelf.open("x"), [shelf.open("x", 0, 2 * BLOCK), shelf.open("x", 2 * BLOCK, 4 * BLOCK)]
    assert _read(ranges[1]) == OBJECT[2 * BLOCK : 4 * BLOCK]
    assert _read(whole) == OBJECT
    assert _read(ranges[0]) == OBJECT[: 2 * BLOCK]
    assert counting_store.most_times == 1
    assert len(counting_store.asked) == 1


def test_a_reader_waits_for_the_answer_to_another_that_is_first(counting_store: Counting, shelf: CachedStore) -> None:
    asked, answer = threading.Event(), threading.Event()

    def before_answer() -> None:
        asked.set()
        assert answer.wait(PATIENCE)

    counting_store.before_answer = before_answer
    found: list[bytes] = []
    threads = [_in_thread(lambda: found.append(_read(shelf.open("x"))))]
    assert asked.wait(PATIENCE)
    threads += [_in_thread(lambda: found.append(_read(shelf.open("x")))) for _ in range(3)]
    answer.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert found == [OBJECT] * 4
    assert counting_store.asked == [(0, None)]


def test_a_reader_that_waits_for_another_can_be_closed(counting_store: Counting, shelf: CachedStore) -> None:
    """A reader that waits for another's answer or bytes can be closed. The other one continues."""
    for at_bytes in (False, True):
        waits, goes_on, interrupt = threading.Event(), threading.Event(), Interrupt()

        def hold(*_: object, waits: threading.Event = waits, goes_on: threading.Event = goes_on) -> None:
            waits.set()
            assert goes_on.wait(PATIENCE)

        if at_bytes:
            counting_store.before_bytes = hold
        else:
            counting_store.before_answer = hold
        found: list[bytes] = []
        first = _in_thread(lambda: found.append(_read(shelf.open("x"))))  # noqa: B023
        assert waits.wait(PATIENCE)
        failed: list[type[Exception]] = []

        def second(interrupt: Interrupt = interrupt, failed: list[type[Exception]] = failed) -> None:
            try:
                _read(shelf.open("x", interrupt=interrupt))
            except TransportError as error:
                failed.append(type(error))

        closed = _in_thread(second)
        interrupt.fire()
        closed.join(PATIENCE)
        assert failed == [TransportError]
        goes_on.set()
        first.join(PATIENCE)
        assert found == [OBJECT]
        counting_store.before_answer, counting_store.before_bytes = (lambda: None), (lambda _at, _interrupt: None)
        shelf.forget("x")


def test_an_error_goes_to_the_reader_that_received_it(counting_store: Counting, shelf: CachedStore) -> None:
    """The other reader requests the missing block and the rest."""

    def break_off(at: int, _interrupt: Interrupt | None) -> None:
        if at > BLOCK + 1000:
            counting_store.before_bytes = lambda _at, _interrupt: None
            raise TransportError("broke off", url="memory://")

    counting_store.before_bytes = break_off
    first, second = shelf.open("x"), shelf.open("x")
    with pytest.raises(TransportError):
        _read(first)
    first.close()
    assert _read(second) == OBJECT
    assert counting_store.asked == [(0, None), (BLOCK, None)]


def test_a_full_cache_delays_no_reader(counting_store: Counting) -> None:
    shelf = cached(counting_store, Cache("memory", max_bytes=1000, trust=60), Account())
    bodies = [shelf.open("x") for _ in range(2)]
    assert [_read(body) for body in bodies] == [OBJECT] * 2


@pytest.mark.parametrize("seed", range(8))
def test_threads_with_readers_of_many_kinds(counting_store: Counting, tmp_path: Path, seed: int) -> None:
    """All read one folder, some through their own store. Every byte is requested once, and is right for all."""
    draw = random.Random(seed)
    shelves = (
        [_cached(counting_store, tmp_path) for _ in range(2)] if seed % 2 else [_cached(counting_store, "memory")]
    )
    begin = threading.Barrier(6)
    wrong: list[str] = []

    def read(shelf: CachedStore, piece: int) -> None:
        begin.wait(PATIENCE)
        body = shelf.open("x")
        if _read(body, piece=piece) != OBJECT:
            wrong.append("other bytes")
        body.close()

    kinds = [(draw.choice(shelves), draw.randrange(1_000, 3 * MIB)) for _ in range(6)]
    threads = [_in_thread(functools.partial(read, *kind)) for kind in kinds]
    for thread in threads:
        thread.join(PATIENCE)
    assert wrong == []
    assert counting_store.most_times == 1
    assert len(counting_store.asked) == 1
    assert counting_store.open_bodies == 0


def test_a_damaged_block_is_repaired_by_the_reader_that_finds_it(counting_store: Counting, tmp_path: Path) -> None:
    shelf = _cached(counting_store, tmp_path)
    assert _read(shelf.open("x")) == OBJECT
    victim = next(path for path in tmp_path.rglob("*-2"))
    data = bytearray(victim.read_bytes())
    data[BLOCK // 2] ^= 1
    victim.write_bytes(data)
    counting_store.asked.clear()
    assert _read(shelf.open("x"), piece=10_000) == OBJECT
    assert counting_store.asked == [(2 * BLOCK, 3 * BLOCK)]
    assert _read(shelf.open("x")) == OBJECT
    assert counting_store.asked == [(2 * BLOCK, 3 * BLOCK)]


def test_a_block_that_cannot_be_used_is_read_from_the_store(counting_store: Counting, tmp_path: Path) -> None:
    """The block cannot be used, here because a folder is in its place."""
    shelf = _cached(counting_store, tmp_path)
    assert _read(shelf.open("x")) == OBJECT
    victim = next(path for path in tmp_path.rglob("*-2"))
    victim.unlink()
    victim.mkdir()
    for _ in range(2):
        assert _read(shelf.open("x"), piece=10_000) == OBJECT
        body = shelf.open("x", 2 * BLOCK + 5)
        assert _read(body, piece=10_000) == OBJECT[2 * BLOCK + 5 :]


# A sample and then epochs over HTTP, through all rooms

SHARDS, RECORDS = 6, 10
SIZES = [
    500,
    100_000,
    700_000,
]  # of a record: the sample ends in the first shard, after it, or in its middle


@pytest.fixture(scope="module", params=SIZES)
def served(request: pytest.FixtureRequest) -> Iterator[FaultServer]:
    body = random.Random(2).randbytes(request.param)
    with FaultServer() as found:
        for shard in range(SHARDS):
            found.add(f"bucket/s-{shard}.tar", ais(made.labelled(f"s{shard}", RECORDS, lambda _: {"bin": body})))
        yield found


class _Requests:
    """The requests and the bytes of a server's targets since this instance was created."""

    def __init__(self, server: FaultServer) -> None:
        self._server = server
        self._sent = server.sent
        server.requests.clear()

    def check_each_byte_came_once(self) -> None:
        assert self._server.sent - self._sent == sum(len(each.data) for each in self._server.objects.values())
        asked = [each for each in self._server.requests if each.method == "GET" and "pid=" in each.target]
        names = [each.target.partition("?")[0].rpartition("/")[2] for each in asked]
        in_ranges = any((each.range or "bytes=0-16777215") != "bytes=0-16777215" for each in asked)
        assert in_ranges or sorted(names) == [f"s-{shard}.tar" for shard in range(SHARDS)]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a parked request wait for its reader for as long as a slow machine needs."""
    monkeypatch.setattr("ais_tar2tf.stores.cache.store._PARKED_SECONDS", 600.0)


def _opened(server: FaultServer, where: Path | str, **options: Any) -> t2t.Source:
    url = f"ais://bucket/s-{{0..{SHARDS - 1}}}.tar"
    return t2t.open(url, endpoint=server.url, cache=where, index=False, **options)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("kind", "how"), [("memory", "epochs"), ("memory", "repeat"), ("disk", "shuffle"), ("disk", "records")]
)
def test_two_epochs_request_each_body_once(served: FaultServer, tmp_path: Path, kind: str, how: str) -> None:
    asked, before = _Requests(served), open_files()
    with _opened(served, "memory" if kind == "memory" else tmp_path) as source:
        if how == "epochs":
            dataset = source.dataset()
            assert [sum(1 for _ in dataset) for _ in range(2)] == [SHARDS * RECORDS] * 2
        elif how == "records":
            _ = source.schema
            assert [sum(1 for _ in source.records()) for _ in range(2)] == [SHARDS * RECORDS] * 2
        else:
            dataset = source.dataset(repeat=2, shuffle=how == "shuffle", seed=1 if how == "shuffle" else None)
            assert sum(1 for _ in dataset) == 2 * SHARDS * RECORDS
        assert source.stats.retries == source.stats.cache_faults == 0
    asked.check_each_byte_came_once()
    served.wait_until_no_client()
    assert left_open(before) == []


@pytest.mark.usefixtures("patient")
def test_two_datasets_at_once_over_one_cache(served: FaultServer, tmp_path: Path) -> None:
    import tensorflow as tf

    asked = _Requests(served)
    with _opened(served, tmp_path) as one, _opened(served, tmp_path) as other:
        both = tf.data.Dataset.zip((one.dataset(), other.dataset()))
        assert sum(bool(left["bin"] == right["bin"]) for left, right in both) == SHARDS * RECORDS
        assert one.stats.retries == other.stats.retries == 0
    asked.check_each_byte_came_once()


def test_an_abandoned_sample_leaves_nothing(served: FaultServer) -> None:
    before = open_files()
    with _opened(served, "memory") as source:
        source.dataset()
    served.wait_until_no_client()
    assert left_open(before) == []


def test_a_parked_request_that_the_server_ends_is_not_counted(tmp_path: Path) -> None:
    """The server ends a parked body in the middle. The reader that takes it over sends a new request, not a retry."""
    body = random.Random(2).randbytes(1_000_000)
    with FaultServer() as server:
        server.add("bucket/s-0.tar", ais(made.labelled("s0", 30, lambda _: {"bin": body})))
        server.script["bucket/s-0.tar"].append(Fault(after=14 * MIB, then="reset"))
        options = {"endpoint": server.url, "cache": tmp_path, "index": False, "timeouts": Timeouts(idle=200)}
        with t2t.open("ais://bucket/s-0.tar", **options) as source:
            _ = source.schema
            assert [record["bin"] == body for record in source.records()] == [True] * 30
            assert source.stats.retries <= 1
