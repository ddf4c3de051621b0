"""Automatic tuning stays within bounds, keeps values that the user sets, and never changes the order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.fetch.tuning import INTERVAL, Climb, ReadingRate, Tuning, calls_at_once, chunk_for, read_ahead_for
from ais_tar2tf.options import KIB, MIB, MIN_READ_AHEAD, Limits, Read
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.tfdata.mappings.concurrency import ConcurrencyLimit
from tests.support import shards as made
from tests.support.fault_server import Fault, FaultServer, tagged
from tests.support.kinds_of_stores import new_name

SLOW_LINK = ReadingRate(rate=2e6, waiting=0.95, first_byte=0.01)
FAR_LINK = ReadingRate(rate=60e6, waiting=0.9, first_byte=0.08)
SLOW_CONSUMER = ReadingRate(rate=12e6, waiting=0.01, first_byte=0.001)
FAST = ReadingRate(rate=900e6, waiting=0.3, first_byte=0.0005)


@pytest.mark.parametrize(
    ("measured", "read_ahead", "chunk"),
    [
        (SLOW_LINK, 8 * MIB, 256 * KIB),
        (FAR_LINK, 32 * MIB, 2 * MIB),
        (SLOW_CONSUMER, 8 * MIB, 1 * MIB),
        (FAST, 32 * MIB, 2 * MIB),
    ],
)
def test_which_values_are_chosen(measured, read_ahead, chunk):
    assert read_ahead_for(measured, 2, 32 * MIB) == read_ahead
    assert chunk_for(measured, 2 * MIB) == chunk


shares = st.floats(0, 1)
rates = st.floats(0, 1e11)
delays = st.floats(0, 100)


@given(rates, shares, delays, st.integers(1, 64), st.integers(1, 1 << 33))
def test_the_bound_holds_and_a_faster_link_never_gets_less(rate, waiting, first_byte, connections, bound):
    measured = ReadingRate(rate=rate, waiting=waiting, first_byte=first_byte)
    faster = replace(measured, rate=2 * rate)
    assert 0 < read_ahead_for(measured, connections, bound) <= read_ahead_for(faster, connections, bound) <= bound
    assert 0 < chunk_for(measured, bound) <= chunk_for(faster, bound) <= bound
    assert read_ahead_for(measured, connections, bound) >= min(bound, connections * MIN_READ_AHEAD)


@given(st.integers(0, 1 << 33), st.integers(1, 256))
def test_calls_hold_at_most_the_allowed_memory(record_bytes, cores):
    calls = calls_at_once(record_bytes, cores)
    assert min(cores, 16) <= calls <= 16
    assert calls * record_bytes <= 64 * MIB or calls == min(cores, 16)


def run(
    tuning: Tuning, rate: Callable[[int], float], *, waiting: float = 0.9, seconds: int = 20, first_byte: float = 0.02
) -> list[int]:
    """Simulate measurements, ten per second, of a link with this rate over these connections."""
    tuning.note_answer(first_byte)
    widths: list[int] = []
    for tenth in range(seconds * 10):
        tuning.note(tenth / 10, int(rate(tuning.connections) / 10), waiting / 10)
        widths.append(tuning.connections)
        assert tuning.range_bytes % (2 * MIB) == 0
    return widths


def test_connections_are_added_while_they_help():
    """More connections are opened, up to the limit of eight."""
    tuning = Tuning(read_options())
    widths = run(tuning, lambda count: count * 20e6)
    assert widths[0] == 2
    assert widths[-1] == max(widths) == 8
    assert tuning.read_ahead == Limits().read_ahead_bytes
    assert tuning.range_bytes == Limits().read_ahead_bytes // 8


def test_a_near_link_begins_with_one_connection():
    assert Tuning(read_options()).connections == 1  # until the first answer
    assert set(run(Tuning(read_options()), lambda _: 900e6, waiting=0.2, first_byte=0.001)) == {1}
    slow = run(Tuning(read_options()), lambda count: count * 20e6, first_byte=0.001)
    assert (slow[0], slow[-1], max(slow)) == (1, 8, 8)
    full = run(Tuning(read_options()), lambda _: 50e6, first_byte=0.001)
    assert (full[0], full[-1], max(full)) == (1, 1, 2)


def test_only_the_first_answer_tells_a_near_link_from_a_far_one():
    tuning = Tuning(read_options())
    tuning.note_answer(0.001)
    tuning.note_answer(3.0)
    assert tuning.connections == 1


@pytest.mark.parametrize("full_with", [1, 2, 4])
def test_connections_that_do_not_help_are_removed(full_with):
    tuning = Tuning(read_options())
    widths = run(tuning, lambda count: min(count, full_with) * 50e6)
    assert widths[-1] == max(2, full_with)
    assert max(widths) <= 2 * max(2, full_with)
    assert len(set(widths[50:])) == 1  # the number does not change any more


def test_a_reader_that_does_not_wait_is_not_tuned():
    tuning = Tuning(read_options())
    assert set(run(tuning, lambda _: 500e6, waiting=0.2)) == {2}
    assert tuning.read_ahead == Limits().read_ahead_bytes
    assert tuning.range_bytes == Read().range_bytes


def test_values_of_the_user_are_kept():
    for read in (read_options(connections=3), Read(connections=3)):
        tuning = Tuning(read)
        assert set(run(tuning, lambda count: count * 20e6, seconds=3)) == {3}
        assert tuning.range_bytes == Read().range_bytes
    for rate in (1e5, 1e10):
        own = Tuning(read_options(connections=1, limits=Limits(read_ahead_bytes=4 * MIB, chunk_bytes=3 * MIB)))
        run(own, lambda _, rate=rate: rate)
        assert (own.connections, own.read_ahead, own.chunk_bytes) == (1, 4 * MIB, 3 * MIB)
        assert own.note(1e6, 0, 0.0) == {}


def test_choices_are_reported_with_their_measurements():
    tuning = Tuning(read_options())
    tuning.note_answer(0.02)
    assert tuning.note(0.0, 0, 0.0) == {}
    said = tuning.note(INTERVAL, 1_000_000, 0.9 * INTERVAL)
    assert {name: choice.value for name, choice in said.items()} == {
        "connections": "4",
        "read-ahead": "16 MiB",
        "chunk": "256 KiB",
    }
    assert {choice.why for choice in said.values()} == {
        "2.0 MB/s, waited for bytes 90% of the time, answers after 20 ms"
    }
    again = tuning.note(
        2 * INTERVAL, 1_000_000, 0.9 * INTERVAL
    )  # not faster: an unchanged choice is not reported again
    assert {name: choice.value for name, choice in again.items()} == {"connections": "2", "read-ahead": "8 MiB"}


def test_several_readers_share_the_choices():
    """Four lanes share the bound. Values that the user set do not change."""
    read = read_options()
    for rate, each in ((1e6, 4 * MIB), (1e9, 8 * MIB)):
        source = Tuning(read)
        lanes = source.among(read.of_lane(4), 4)
        assert source.among(read.of_lane(4), 4) is lanes
        run(lanes, lambda _, rate=rate: rate)
        assert lanes.read_ahead == each
        assert lanes.connections == 1
    own = read_options(limits=Limits(read_ahead_bytes=24 * MIB))
    kept = Tuning(own).among(own.of_lane(4), 4)
    run(kept, lambda _: 1e5)
    assert kept.read_ahead == 6 * MIB


def test_the_order_does_not_depend_on_tuning():
    """The choices are changed by hand in the middle of an epoch, up and down."""
    store = MemoryStore(new_name())
    for number in range(3):
        store.put(f"{number}.tar", made.labelled(f"{number}", 40, lambda i: {"bin": bytes([i]) * 300_000}))
    url = store.url("{0..2}.tar")
    expected = [(r["__key__"], r["bin"][:1]) for r in t2t.open(url, connections=1).records()]
    source = t2t.open(url)
    tuning = source.opened.session.tuning
    found = []
    for number, record in enumerate(source.records()):
        found.append((record["__key__"], record["bin"][:1]))
        assert record["bin"] == record["bin"][:1] * 300_000
        tuning._climb.value = (2, 8, 1, 5)[number // 7 % 4]
        tuning.read_ahead = (16 * MIB, 32 * MIB, 4 * MIB)[number // 11 % 3]  # within the bound of all streams
        tuning.chunk_bytes = (2 * MIB, 256 * KIB, 900_000)[number // 13 % 3]
    assert found == expected


def test_the_order_of_a_shuffle_does_not_depend_on_tuning():
    store = MemoryStore(new_name())
    for number in range(5):
        store.put(f"{number}.tar", made.labelled(f"{number}", 30, lambda i: {"bin": bytes([i]) * 50_000}))
    how = t2t.options.Shuffle(window=40, seed=3, shards=3)

    def order(chunk_bytes: int, read_ahead: int) -> list[bytes]:
        source = t2t.open(store.url("{0..4}.tar"))
        tuning = source.opened.session.tuning.among(source.opened.shards.read.of_lane(3), 3)
        tuning.chunk_bytes, tuning.read_ahead = chunk_bytes, read_ahead
        return [bytes(each["__key__"].numpy()) for each in source.dataset(shuffle=how)]

    found = order(2 * MIB, 10 * MIB)
    assert sorted(found) == sorted(b"%d/%06d" % (shard, i) for shard in range(5) for i in range(30))
    assert order(60_000, 4 * MIB) == found
    assert order(1, 8 * MIB) == found


MUCH = made.labelled("a", 240, lambda i: {"bin": bytes([i % 256]) * 100_000})  # 24 MB


def chosen_on(fault: Fault, *, pause: float = 0.0) -> dict[str, str]:
    """Return the first choices over such a link, for a consumer that pauses after each record."""
    with FaultServer() as server:
        server.add("a.tar", tagged(MUCH), [fault] * 1_000)
        with t2t.open([f"{server.url}/a.tar"] * 100, index=False) as source:
            for _ in source.records():
                time.sleep(pause)
                if source.stats.chosen:
                    break
            found = {name: choice.value for name, choice in source.stats.chosen.items()}
            listed = ", ".join(f"{name} {value}" for name, value in found.items())
            assert source.bottleneck.endswith(f"; chosen by itself: {listed}")
            return found


def test_links_and_consumers_get_suitable_values():
    """The rates differ so much that other load changes nothing: hundreds of KB per second, and no limit.

    No server answers at once, so none is near, however busy the machine is.
    """
    slow_link = chosen_on(Fault(piece=8_192, pause=0.02, before=lambda: time.sleep(0.05)))
    far_link = chosen_on(Fault(before=lambda: time.sleep(0.2)))
    slow_consumer = chosen_on(Fault(before=lambda: time.sleep(0.05)), pause=0.05)
    assert slow_link == {"connections": "4", "read-ahead": "16 MiB", "chunk": "256 KiB"}
    assert slow_consumer == {"connections": "2", "read-ahead": "8 MiB", "chunk": "256 KiB"}
    assert far_link["chunk"] != "256 KiB"
    assert far_link["read-ahead"] != "8 MiB"


# Calls of a mapping


def test_a_number_grows_while_it_helps():
    climb = Climb(2, 16)
    for rate in (100, 190, 350, 360, 900):
        climb.note(rate, 0.9)
    assert climb.value == 8  # sixteen calls gave 360 instead of 350
    busy = Climb(2, 16)
    for _ in range(9):
        busy.note(100, 0.4)
    assert busy.value == 2


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("computes", "full_with", "expected"), [(0.0, 99, 16), (0.0, 4, 4), (0.0, 1, 2), (1.0, 99, 2)]
)
def test_calls_that_wait_get_more_concurrency(computes, full_with, expected):
    """With a fake clock, a call takes 0.1 s, of which it computes a part; the rest overlaps with other calls."""
    clock, computed, said = Clock(), Clock(), {}
    climb = Climb(2, 16)
    gate = ConcurrencyLimit(climb, said.update, clock=clock, cpu_clock=computed)

    def call() -> None:
        clock.now += 0.1
        computed.now += 0.1 * computes

    for _ in range(1_000):
        gate.call(call)
        clock.now -= 0.1 - 0.1 / min(climb.value, full_with)  # concurrent calls began earlier by this time
    assert climb.value == expected
    assert ("parallel" in said) == (not computes)
    if said:
        assert said["parallel"].value == str(expected)


def test_a_gate_lets_at_most_its_number_through():
    gate, inside, most = ConcurrencyLimit(Climb(3, 3), lambda _: None), 0, 0
    lock, full = threading.Lock(), threading.Barrier(3)

    def call() -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        full.wait(60)
        with lock:
            inside -= 1

    threads = [threading.Thread(target=gate.call, args=[call]) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert most == 3
    assert inside == 0


def test_the_requested_number_of_calls_runs_concurrently():
    """More calls than cores may run: the test ends only if eight run concurrently."""
    store = MemoryStore(new_name())
    store.put("a.tar", made.labelled("a", 32, lambda i: {"cls": b"%d" % i}))
    source = t2t.open(store.url("a.tar"))
    meeting = threading.Barrier(8)

    def meet(record):
        number = int(record["cls"].decode())  # a tensor has no `decode`, so this runs as Python
        meeting.wait(60)
        return number

    found = source.dataset(meet, output_types=tf.int32, output_shapes=(), parallel=8)
    assert [int(each) for each in found] == list(range(32))
    assert "parallel" not in source.stats.chosen
