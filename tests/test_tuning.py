"""What chooses itself: in bounds, from what is measured, never against a value that was given, never the order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.fetch.tuning import Tuning
from ais_tar2tf.options import MIB, Limits, Read
from ais_tar2tf.source import read_options
from ais_tar2tf.stores.memory import MemoryStore
from places import new_name


def run(tuning: Tuning, rate: Callable[[int], float], *, waiting: float = 0.9, seconds: int = 20) -> list[int]:
    """Ten notes a second of a link that gives so many bytes a second over so many connections."""
    widths: list[int] = []
    for tenth in range(seconds * 10):
        tuning.note(tenth / 10, int(rate(tuning.connections) / 10), waiting / 10)
        widths.append(tuning.connections)
        assert tuning.range_bytes % (2 * MIB) == 0
    return widths


def test_each_connection_brings_its_share():
    """As far as eight; then the bound holds."""
    tuning = Tuning(read_options())
    widths = run(tuning, lambda count: count * 20e6)
    assert widths[0] == 2
    assert widths[-1] == max(widths) == 8
    assert tuning.read_ahead == Limits().read_ahead_bytes
    assert tuning.range_bytes == Limits().read_ahead_bytes // 8


@pytest.mark.parametrize("full_with", [1, 2, 4])
def test_more_than_the_link_carries_is_taken_back(full_with):
    tuning = Tuning(read_options())
    widths = run(tuning, lambda count: min(count, full_with) * 50e6)
    assert widths[-1] == max(2, full_with)
    assert max(widths) <= 2 * max(2, full_with)
    assert len(set(widths[50:])) == 1  # and stays


def test_what_does_not_wait_is_left_alone():
    tuning = Tuning(read_options())
    assert set(run(tuning, lambda _: 500e6, waiting=0.2)) == {2}
    assert tuning.read_ahead == Limits().read_ahead_bytes
    assert tuning.range_bytes == Read().range_bytes


def test_values_that_were_given_win():
    for read in (read_options(connections=3), Read(connections=3)):
        tuning = Tuning(read)
        assert set(run(tuning, lambda count: count * 20e6, seconds=3)) == {3}
        assert tuning.read_ahead == Limits().read_ahead_bytes
        assert tuning.range_bytes == Read().range_bytes
    small = Tuning(read_options(limits=Limits(read_ahead_bytes=4 * MIB)))
    run(small, lambda count: count * 20e6)
    assert small.read_ahead == 4 * MIB


def test_the_order_is_the_same_whatever_was_found():
    """The decision is forced by hand, in the middle of an epoch, up and down."""
    store = MemoryStore(new_name())
    for number in range(3):
        store.put(f"{number}.tar", made.labelled(f"{number}", 40, lambda i: {"bin": bytes([i]) * 300_000}))
    url = store.url("{0..2}.tar")
    expected = [(r["__key__"], r["bin"][:1]) for r in t2t.open(url, connections=1).records()]
    source = t2t.open(url)
    tuning = source._shards.tuning
    found = []
    for number, record in enumerate(source.records()):
        found.append((record["__key__"], record["bin"][:1]))
        assert record["bin"] == record["bin"][:1] * 300_000
        tuning.connections = (2, 8, 1, 5)[number // 7 % 4]
        tuning.read_ahead = (16 * MIB, 32 * MIB, 4 * MIB)[number // 11 % 3]  # within the bound of the streams
    assert found == expected
