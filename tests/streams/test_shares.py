"""The share and the order of each host's records. Every position resumes exactly."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.errors import IndexMissing, OptionError
from ais_tar2tf.options import Limits, Read, Shuffle
from ais_tar2tf.records import Selection
from ais_tar2tf.source import Source
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.streams.datasets.shares import open_stream
from ais_tar2tf.streams.index.entry import ShardIndex
from ais_tar2tf.streams.index.shards import INDEX_NAME, Index
from ais_tar2tf.streams.order import Plan, Position, seek
from ais_tar2tf.streams.reader import ReadSession, Shards
from tests.support import shards as made

SHARDS = 10
WINDOWS = Shuffle(window=16, window_bytes=24_000, shards=3, turn=3)
READ = Read(limits=Limits(chunk_records=7, read_ahead_bytes=1 << 20), connections=1)


def records_of(shard: int) -> int:
    return (7, 0, 12, 3, 9, 9, 1, 20, 5, 8)[shard]


@pytest.fixture(scope="module")
def share_shards() -> dict[bool, Shards]:
    """Ten shards with 74 records together, one empty, three compressed, without and with an index."""
    store = MemoryStore("shares")
    for number in range(SHARDS):
        shard = made.labelled(
            f"s{number}", records_of(number), lambda i: {"jpg": bytes(300 * (i % 9) + i), "cls": b"1"}
        )
        store.put(f"{number}.tar", made.gzipped(shard) if number % 4 == 2 else shard)
    plain = Shards(store, [f"{number}.tar" for number in range(SHARDS)], READ)
    return {False: plain, True: replace(plain, index=t2t.index("memory://shares/{0..9}.tar"))}


def plan_of(shards: Shards, host: int, n: int, shuffle: Shuffle | None, even: str | None) -> Plan:
    counts = None if shards.index is None else [records_of(number) for number in range(SHARDS)]
    return Plan(SHARDS, shuffle, host, n, even, counts)


def read(shards: Shards, plan: Plan, position: Position | None = None, *, epochs: int = 1) -> list[str]:
    stream = open_stream(ReadSession(shards), plan, position or plan.begin(0, 3, epochs), Account())
    try:
        found: list[str] = []
        while chunk := stream.next_chunk():
            found += [record["__key__"] for record in chunk]
        return found
    finally:
        stream.close()


@pytest.mark.parametrize("shuffle", [None, WINDOWS])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 64])
def test_hosts_get_disjoint_and_complete_shares(share_shards, n, shuffle):
    """The shares of ten shards are disjoint and complete, and have equal lengths with `even`."""
    everything = Counter(read(share_shards[False], Plan(SHARDS)))
    assert sum(everything.values()) == 74
    for known in (False, True):
        parts = [read(share_shards[known], plan_of(share_shards[known], host, n, shuffle, None)) for host in range(n)]
        assert Counter(key for part in parts for key in part) == everything
    for known in (False, True):
        for even, each in (("pad", -(-74 // n)), ("drop", 74 // n)):
            parts = [
                read(share_shards[known], plan_of(share_shards[known], host, n, shuffle, even)) for host in range(n)
            ]
            assert {len(part) for part in parts} == {each}
            found = Counter(key for part in parts for key in part)
            assert set(found) <= set(everything)
            assert sum((found - everything).values()) == max(0, each * n - 74)
            assert even == "drop" or set(found) == set(everything)
        plans = [plan_of(share_shards[known], host, n, shuffle, "stop") for host in range(n)]
        assert len({len(read(share_shards[known], plan)) for plan in plans}) == 1


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("shuffle", [None, WINDOWS])
@pytest.mark.parametrize(
    ("host", "n", "even"),
    [(0, 1, None), *((host, n, even) for host, n in ((1, 3), (14, 23)) for even in (None, "pad", "drop", "stop"))],
)
def test_every_position_is_resumed_exactly(share_shards, host, n, shuffle, even, known):
    """Every position over two epochs resumes exactly, and `seek` finds an equal position without reading."""
    plan = plan_of(share_shards[known], host, n, shuffle, even)
    whole = read(share_shards[known], plan, epochs=2)
    stream = open_stream(ReadSession(share_shards[known]), plan, plan.begin(0, 3, 2), Account())
    done = 0
    while True:
        position = Position.from_text(stream.position.to_text())
        assert position.count == done
        assert read(share_shards[known], plan, position) == whole[done:]
        if known:
            sought = seek(plan, plan.begin(0, 3, 2), done, share_shards[True].entry)
            assert read(share_shards[known], plan, sought) == whole[done:]
        chunk = stream.next_chunk(3)
        if not chunk:
            break
        done += len(chunk)
    stream.close()
    assert done == len(whole)


@pytest.mark.parametrize("shuffle", [None, WINDOWS])
def test_seeking_finds_the_end_and_nothing_after_it(share_shards, shuffle):
    plan = plan_of(share_shards[True], 0, 1, shuffle, None)
    for records in (75, 148):
        sought = seek(plan, plan.begin(0, 3, 2), records, share_shards[True].entry)
        assert read(share_shards[True], plan, sought) == read(share_shards[True], plan, epochs=2)[records:]
    for records in (149, 10_000):
        with pytest.raises(OptionError, match=f"start_at={records:,} is behind the end: there are 148 records"):
            seek(plan, plan.begin(0, 3, 2), records, share_shards[True].entry)


def two_shards(*counts: int) -> tuple[Shards, Plan]:
    """Return shards with an index, and the endless plan of host 0 of 2, which reads one shard in each epoch."""
    bucket = "shares-" + "-".join(map(str, counts))
    store = MemoryStore(bucket)
    for number, count in enumerate(counts):
        store.put(f"{number}.tar", made.labelled(f"s{number}", count))
    shards = Shards(store, [f"{number}.tar" for number in range(2)], READ)
    index = t2t.index(f"memory://{bucket}/{{0..1}}.tar")
    return replace(shards, index=index), Plan(2, Shuffle(window=4), 0, 2, None, counts)


@pytest.mark.parametrize("skipped", [0, 3, 9, 10, 13, 25, 47])
def test_seeking_goes_on_after_an_epoch_without_records(skipped):
    shards, plan = two_shards(0, 10)
    with_records = [epoch for epoch in range(20) if plan.order(epoch, 1).shards == [1]]
    assert with_records[:2] == [1, 2]
    begin = plan.begin(0, 1, -1)

    def next_keys(position: Position, count: int) -> list[str]:
        stream = open_stream(ReadSession(shards), plan, position, Account())
        found: list[str] = []
        while len(found) < count:
            found += [record["__key__"] for record in stream.next_chunk(count - len(found))]
        stream.close()
        return found

    sought = seek(plan, begin, skipped, shards.entry)
    assert sought.epoch == with_records[skipped // 10]
    assert next_keys(sought, 25) == next_keys(begin, skipped + 25)[skipped:]


def test_seeking_in_epochs_without_records_ends():
    shards, plan = two_shards(0, 0)
    with pytest.raises(OptionError, match=r"start_at=1 is behind the end: there are 0 records"):
        seek(plan, plan.begin(0, 1, -1), 1, shards.entry)
    sought = seek(plan, plan.begin(0, 1, -1), 0, shards.entry)
    assert read(shards, plan, sought) == []


def test_the_order_does_not_depend_on_the_selection(share_shards):
    """A selection does not change windows, because bytes of the archive bound them."""
    plan = Plan(SHARDS, WINDOWS)
    expected = read(share_shards[False], plan)
    for selection in (Selection(["cls"]), Selection([])):
        assert read(replace(share_shards[False], selection=selection), plan) == expected
    limits = Limits(chunk_records=2, read_ahead_bytes=1 << 22)
    for connections in (1, 3):
        how = Read(limits=limits, connections=connections, range_bytes=3_000)
        assert read(replace(share_shards[False], read=how), plan) == expected


def test_a_window_stays_within_its_bytes(share_shards):
    stream = open_stream(
        ReadSession(share_shards[False]), Plan(SHARDS, WINDOWS), Plan(SHARDS, WINDOWS).begin(0, 3, 1), Account()
    )
    sizes: dict[int, list[int]] = {}
    while chunk := stream.next_chunk(1):
        (record,) = chunk
        sizes.setdefault(stream.position.window, []).append(len(record["jpg"]))
    stream.close()
    assert len(sizes) > 74 // WINDOWS.window
    assert all(sum(window) - max(window) < WINDOWS.window_bytes for window in sizes.values())
    assert all(len(window) <= WINDOWS.window for window in sizes.values())


@pytest.mark.parametrize("window_bytes", [100_000, 1_000_000])
def test_a_window_does_not_change_records(window_bytes):
    """Fields that are large, small or empty leave a window unchanged, inside and outside of its buffer."""
    store = MemoryStore("large")
    sizes = np.random.RandomState(4).choice([0, 10, 9_000, 40_000, 120_000], (4, 40, 2))
    for number, shard in enumerate(sizes):
        store.put(
            f"{number}.tar",
            made.labelled(
                f"s{number}", 40, lambda i, shard=shard: {"a": bytes([i]) * shard[i][0], "b": b"b" * shard[i][1]}
            ),
        )
    shards = Shards(store, [f"{number}.tar" for number in range(4)], Read(limits=Limits(chunk_bytes=200_000)))
    plan = Plan(4, Shuffle(window=30, window_bytes=window_bytes, shards=2, turn=3))
    expected = {record["__key__"]: record for record in t2t.iter_records("memory://large/{0..3}.tar")}
    stream = open_stream(ReadSession(shards), plan, plan.begin(0, 3, 2), Account())
    found: list[dict] = []
    chunks = 0
    while chunk := stream.next_chunk():
        chunks += 1
        assert sum(len(record["a"]) + len(record["b"]) for record in chunk[:-3]) < 2 * 200_000
        found += chunk
    stream.close()
    assert Counter(record["__key__"] for record in found) == Counter(2 * list(expected))
    assert all(record == expected[record["__key__"]] for record in found)
    assert chunks > 2 * sizes.sum() / 400_000


def test_a_record_may_be_anywhere_in_its_window():
    """Test positions before and after with chi-square, in tenths of a window, for 60 windows of 100 records."""
    store = MemoryStore("uniform")
    per_shard, window = 300, 100
    for number in range(20):
        store.put(f"{number}.tar", made.labelled(f"s{number:02d}", per_shard, lambda _: {"x": b""}))
    shards = Shards(store, [f"{number}.tar" for number in range(20)], READ)
    shuffle = Shuffle(window=window, shards=4, turn=5)
    unshuffled = _turns(Plan(20, shuffle).order(0, 7).shards, shuffle, per_shard)
    found = read(shards, Plan(20, shuffle), replace(Plan(20, shuffle).begin(0, 7, 1), seed=7))
    table = np.zeros((10, 10))
    for begin in range(0, len(found), window):
        before = {key: place for place, key in enumerate(unshuffled[begin : begin + window])}
        assert set(before) == set(found[begin : begin + window])  # nothing leaves its window
        for place, key in enumerate(found[begin : begin + window]):
            table[before[key] // 10, place // 10] += 1
    expected = len(found) / 100
    chi_square = ((table - expected) ** 2 / expected).sum()
    assert 40 < chi_square < 125  # 81 degrees of freedom: both bounds lie at about 1 in 1,000


def _turns(order, shuffle: Shuffle, per_shard: int) -> list[str]:
    """Return the records of an epoch as lanes take turns, in an independent implementation."""
    lanes = [
        [f"s{shard:02d}/{record:06d}" for shard in order[lane :: shuffle.shards] for record in range(per_shard)]
        for lane in range(shuffle.shards)
    ]
    taken: list[str] = []
    while any(lanes):
        for lane in lanes:
            taken += lane[: shuffle.turn]
            del lane[: shuffle.turn]
    return taken


# Random access


def test_records_by_number(share_shards):
    source = t2t.open("memory://shares/{0..9}.tar")
    everything = list(source.records())
    assert len(source) == 74
    assert [source[number] for number in range(74)] == everything
    assert source[-1] == everything[-1]
    for cut in (slice(3, 40), slice(None, None, 7), slice(60, 5, -9), slice(80, 90), slice(-5, None)):
        assert source[cut] == everything[cut]
    assert source.select("cls")[12] == {key: everything[12][key] for key in ("__key__", "__shard__", "cls")}
    assert bool(source)
    for number in (74, -75):
        with pytest.raises(IndexError, match="there are 74"):
            source[number]


def test_operations_that_need_an_index_say_so():
    source = t2t.open("memory://shares/{0..9}.tar", index=False)
    assert bool(source)
    with pytest.raises(IndexMissing, match=r"t2t\.index"):
        len(source)
    with pytest.raises(IndexMissing, match=r"needs an index, and no index is used"):
        source[0]


def shared(source: Source, host: int, even: str) -> str:
    """Return the message by which one of two hosts reports its share."""
    for _ in source.records(shard=(host, 2), even=even):
        pass
    return ": ".join(source.stats.chosen["share"])


@pytest.mark.parametrize(
    ("even", "by_index"),
    [("pad", "equal ranges of records"), ("drop", "equal ranges of records"), ("stop", "whole shards")],
)
def test_each_host_reports_how_it_shares(
    share_folder: Path, even: str, by_index: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Hosts with different indexes lose records without noticing, so each reports what it uses."""
    caplog.set_level(logging.INFO, "ais_tar2tf")
    url, index = f"{share_folder}/{{0..9}}.tar", f"{share_folder}/{INDEX_NAME}"
    assert shared(t2t.open(url), 1, even) == f"1 of 2: {by_index}: the index at {index} counts 74 records"
    assert shared(t2t.open(url, index=False), 1, even) == "1 of 2: turns at all records: no index is used"
    Path(index).unlink()
    assert shared(t2t.open(url), 0, even) == f"0 of 2: turns at all records: there is no index at {index}"
    assert [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records] == [
        ("INFO", "share 1 of 2"),
        ("INFO", "share 1 of 2"),
        ("INFO", "share 0 of 2"),
    ]


def test_an_ignored_index_is_reported_once(share_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (share_folder / "3.tar").write_bytes(made.labelled("other", 5))
    source = t2t.open(f"{share_folder}/{{0..9}}.tar")
    for _ in range(3):
        assert len(list(source.records(shard=(1, 2), even="pad"))) == 38
    (told,) = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert told.startswith(
        f"index ignored: the index at {share_folder}/{INDEX_NAME} is older than shard '{share_folder}/3.tar'"
    )
    assert source.stats.chosen["index"] == ("ignored", told.partition(": ")[2])
    assert source.stats.chosen["share"].value == "1 of 2: turns at all records"


def test_an_index_without_offsets_is_reported_if_offsets_are_needed(
    share_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Indexes of other programs, for example, have only counts."""
    index = share_folder / INDEX_NAME
    known = Index.from_bytes(index.read_bytes())
    assert known is not None
    entries = [ShardIndex(shard.name, shard.records, shard.identity) for shard in known]
    index.write_bytes(Index("first-dot", entries).to_bytes())
    source = t2t.open(f"{share_folder}/{{0..9}}.tar")
    assert shared(source, 0, "stop").startswith("0 of 2: whole shards")
    assert not caplog.records
    assert shared(source, 0, "pad").startswith("0 of 2: turns at all records")
    assert "holds counts alone, and even='pad' needs offsets" in caplog.text


@pytest.fixture
def share_folder(tmp_path: Path) -> Path:
    """Write the ten shards as files, with an index."""
    for number in range(SHARDS):
        (tmp_path / f"{number}.tar").write_bytes(made.labelled(f"s{number}", records_of(number)))
    t2t.index(f"{tmp_path}/{{0..9}}.tar")
    return tmp_path
