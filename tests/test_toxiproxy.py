"""A real MinIO and a web server behind toxiproxy: what the line does, a reader gets over or tells in time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ais_tar2tf as t2t
import shards as made
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Limits, Retry, Timeouts
from ais_tar2tf.source import read_options
from ais_tar2tf.stores.cloud import CloudStore
from places import new_name
from tests.servers.toxiproxy import Toxiproxy

SHARDS = 3
RECORDS = 20
EXPECTED = [f"s{shard}/{number:06d}" for shard in range(SHARDS) for number in range(RECORDS)]
BODIES = [random.Random(number).randbytes(20_000) for number in range(RECORDS)]

pytestmark = [pytest.mark.full, pytest.mark.servers("toxiproxy", "minio")]


@pytest.fixture
def line(minio: Any, toxiproxy: Toxiproxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """A bucket of 400 KB shards, and MinIO's endpoint by way of toxiproxy."""
    for name, value in minio.environment.items():
        monkeypatch.setenv(name, value)
    store = CloudStore("s3", bucket := new_name(), read_options())
    store.create()
    for shard in range(SHARDS):
        store.put(f"train-{shard}.tar", made.labelled(f"s{shard}", RECORDS, lambda n: {"bin": BODIES[n]}))
    store.close()
    yield bucket, toxiproxy.in_front_of(minio.url)
    toxiproxy.remove()


def opened(line: tuple[str, str], *, idle: float = 1.0, attempts: int = 8) -> t2t.Source:
    bucket, endpoint = line
    return t2t.open(
        f"s3://{bucket}/train-{{0..{SHARDS - 1}}}.tar",
        endpoint=endpoint,
        retry=Retry(attempts=attempts, first_delay=0.01, max_delay=0.05),
        timeouts=Timeouts(connect=2, idle=idle),
        connections=1,
    )


OVERCOME = {
    "latency": {"latency": 60, "jitter": 40},
    "bandwidth": {"rate": 1_500},  # KB/s
    "slow_close": {"delay": 300},
    "slicer": {"average_size": 700, "size_variation": 300, "delay": 20},
    "limit_data": {"bytes": 150_000},  # then it closes: less than a shard, and the next connection goes on
}


@pytest.mark.parametrize("toxic", OVERCOME)
def test_what_is_overcome(line: tuple[str, str], toxiproxy: Toxiproxy, toxic: str) -> None:
    toxiproxy.poison(toxic, OVERCOME[toxic])
    with opened(line) as src:
        found = [(record["__key__"], record["bin"]) for record in src.records()]
    assert [key for key, _ in found] == EXPECTED
    assert all(data == BODIES[at % RECORDS] for at, (_, data) in enumerate(found))
    if toxic == "limit_data":
        assert src.stats.resumes >= SHARDS * 2


@pytest.mark.parametrize(
    ("toxic", "attributes"),
    [("timeout", {"timeout": 0}), ("timeout", {"timeout": 200}), ("reset_peer", {"timeout": 0})],
)
def test_what_lasts_is_told_in_time(
    line: tuple[str, str], toxiproxy: Toxiproxy, toxic: str, attributes: dict[str, int]
) -> None:
    toxiproxy.poison(toxic, attributes)
    began = time.monotonic()
    with opened(line, idle=0.5, attempts=3) as src, pytest.raises(TransportError, match=r"train-0\.tar.*3 tries"):
        next(src.records())
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("toxic", ["timeout", "reset_peer"])
def test_what_passes_costs_no_record(line: tuple[str, str], toxiproxy: Toxiproxy, toxic: str) -> None:
    """It begins in the middle of a shard that is larger than all buffers, and ends while the reader tries again."""
    bucket, endpoint = line
    body = random.Random(7).randbytes(1_000_000)
    store = CloudStore("s3", bucket, read_options())
    for shard in range(2):
        store.put(f"big-{shard}.tar", made.labelled(f"s{shard}", RECORDS, lambda n: {"bin": body[n:]}))
    store.close()
    failed: list[int] = []

    class Cured(Retry):
        """The delay before a second try is where the line gets well."""

        def delay(self, tried: int, *_: object, **__: object) -> float:
            failed.append(tried)
            if len(failed) == 2:
                poisoning.join(20)
                toxiproxy.cure(toxic)
            return 0.01

    src = t2t.open(
        f"s3://{bucket}/big-{{0..1}}.tar",
        endpoint=endpoint,
        retry=Cured(attempts=30),
        timeouts=Timeouts(connect=2, idle=0.5),
        limits=Limits(read_ahead_bytes=64 * 1024),
        connections=1,
    )
    keys: list[str] = []
    # It waits until what is under way was taken, which only this reader can do.
    poisoning = threading.Thread(target=toxiproxy.poison, args=(toxic, {"timeout": 0}), daemon=True)
    with src:
        for record in src.records():
            assert record["bin"] == body[len(keys) % RECORDS :]
            keys.append(record["__key__"])
            if len(keys) == 3:
                poisoning.start()
    poisoning.join(20)
    assert keys == EXPECTED[: 2 * RECORDS]
    assert len(failed) >= 2


def first_choices(line: tuple[str, str], pause: float = 0.0) -> dict[str, str]:
    """Of a consumer that takes so many seconds for a record."""
    bucket, endpoint = line
    store = CloudStore("s3", bucket, read_options())
    store.put("much.tar", made.labelled("much", 240, lambda n: {"bin": bytes([n]) * 100_000}))
    store.close()
    with t2t.open([f"s3://{bucket}/much.tar"] * 50, endpoint=endpoint, index=False) as src:
        for _ in src.records():
            time.sleep(pause)
            if src.stats.chosen:
                break
        return {name: choice.value for name, choice in src.stats.chosen.items()}


def test_a_slow_link_gets_small_chunks(line: tuple[str, str], toxiproxy: Toxiproxy) -> None:
    """1.5 MB/s on each connection."""
    toxiproxy.poison("bandwidth", {"rate": 1_500})
    assert first_choices(line) == {"connections": "4", "read-ahead": "16 MiB", "chunk": "256 KiB"}


def test_a_far_link_gets_more(line: tuple[str, str], toxiproxy: Toxiproxy) -> None:
    toxiproxy.poison("latency", {"latency": 60})
    chosen = first_choices(line)
    assert chosen["chunk"] not in ("256 KiB", "512 KiB")
    assert chosen["read-ahead"] in ("16 MiB", "32 MiB")


def test_a_slow_consumer_gets_little(line: tuple[str, str]) -> None:
    assert first_choices(line, 0.05) == {"connections": "2", "read-ahead": "8 MiB", "chunk": "256 KiB"}
