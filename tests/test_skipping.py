"""Large bodies are not fetched where only keys are asked for: the same keys, positions and errors."""

from __future__ import annotations

import tarfile
from typing import Any

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.account import Account
from ais_tar2tf.errors import TruncatedArchive
from ais_tar2tf.options import MIB, Limits, Read, Shuffle
from ais_tar2tf.plan import Plan
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Selection
from ais_tar2tf.shares import open_stream
from ais_tar2tf.stores.memory import MemoryStore
from archives import tar_of

LARGE, RECORDS, SHARDS = 14 * MIB + 77, 4, 3
LIMITS = Limits(read_ahead_bytes=4 * MIB)
NAMES = [f"{number}.tar" for number in range(SHARDS)]


class CountingStore(MemoryStore):
    """Notes how many bytes were taken."""

    def __init__(self, bucket: str) -> None:
        super().__init__(bucket)
        self.taken = 0

    def open(self, name: str, start: int = 0, stop: int | None = None, **options: Any) -> Any:
        body = super().open(name, start, stop, **options)
        read = body.readinto

        def readinto(buffer: memoryview) -> int:
            count = read(buffer)
            self.taken += count
            return count

        body.readinto = readinto  # type: ignore[method-assign]
        return body


@pytest.fixture(scope="module", autouse=True)
def large() -> int:
    """Their size; the first field of each record is small."""
    store = MemoryStore("large")
    for number, name in enumerate(NAMES):
        store.put(name, made.labelled(f"s{number}", RECORDS, lambda i: {"cls": b"%d" % i, "bin": bytes(LARGE)}))
    return sum(store.head(name).size or 0 for name in NAMES)


def keys(store: MemoryStore, plan: Plan, read: Read, selection: Selection | None) -> list[str]:
    stream = open_stream(Shards(store, NAMES, read, "first-dot", selection), plan, plan.begin(0, 3, 1), Account())
    try:
        found: list[str] = []
        while chunk := stream.next_chunk():
            found += [record["__key__"] for record in chunk]
        return found
    finally:
        stream.close()


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("shuffle", [None, Shuffle(shards=2, window=3)])
def test_keys_alone_cost_less_than_all(large, shuffle, connections):
    plan, read = Plan(SHARDS, shuffle), Read(limits=LIMITS, connections=connections)
    store = CountingStore("large")
    found = keys(store, plan, read, Selection(()))
    assert store.taken < large * 3 // 4
    assert found == keys(MemoryStore("large"), plan, read, None)
    assert len(found) == RECORDS * SHARDS


def test_records_may_begin_behind_large_ones():
    source = t2t.open("memory://large/{0..2}.tar", limits=LIMITS, index=False).select("cls")
    everything = [record["__key__"] for record in source.records()]
    for start in (3, 6, 11):
        found = [element["__key__"].numpy().decode() for element in source.dataset(start_at=start)]
        assert found == everything[start:]


@pytest.mark.parametrize("left", [LARGE // 2, 4 * MIB, 513, 1])
def test_what_breaks_off_in_a_large_one_is_told(left):
    store = MemoryStore("cut")
    data = tar_of([("a.cls", b"1"), ("a.bin", bytes(LARGE))], tarfile.USTAR_FORMAT)
    end = 3 * 512 + LARGE
    store.put("0.tar", data[: end - left])
    shards = Shards(store, ["0.tar"], Read(limits=LIMITS), "first-dot", Selection(()))
    stream = open_stream(shards, Plan(1), Plan(1).begin(0, 0, 1), Account())
    with pytest.raises(TruncatedArchive):
        stream.next_chunk()
    stream.close()
