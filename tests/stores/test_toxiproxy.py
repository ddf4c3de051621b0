"""A real MinIO and a web server behind toxiproxy: readers survive faults of the network, or report them in time."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import TransportError
from ais_tar2tf.options import Limits, Retry, Timeouts
from ais_tar2tf.stores.cloud import CloudStore
from ais_tar2tf.streams.arguments import read_options
from tests.servers.toxiproxy import Toxiproxy
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name

SHARDS = 3
RECORDS = 20
EXPECTED = [f"s{shard}/{number:06d}" for shard in range(SHARDS) for number in range(RECORDS)]
BODIES = [random.Random(number).randbytes(20_000) for number in range(RECORDS)]

pytestmark = [pytest.mark.full, pytest.mark.servers("toxiproxy", "minio")]


@pytest.fixture
def line(minio: Any, toxiproxy: Toxiproxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Fill a bucket with shards of 400 KB. Return it and MinIO's endpoint through toxiproxy."""
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
    "limit_data": {"bytes": 150_000},  # less than a shard; then the connection closes, and the next one continues
}


@pytest.mark.parametrize("toxic", OVERCOME)
def test_faults_that_readers_survive(line: tuple[str, str], toxiproxy: Toxiproxy, toxic: str) -> None:
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
def test_lasting_faults_are_reported_in_time(
    line: tuple[str, str], toxiproxy: Toxiproxy, toxic: str, attributes: dict[str, int]
) -> None:
    toxiproxy.poison(toxic, attributes)
    began = time.monotonic()
    with opened(line, idle=0.5, attempts=3) as src, pytest.raises(TransportError, match=r"train-0\.tar.*3 tries"):
        next(src.records())
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("toxic", ["timeout", "reset_peer"])
def test_temporary_faults_lose_no_record(line: tuple[str, str], toxiproxy: Toxiproxy, toxic: str) -> None:
    """A fault begins in the middle of a shard that is larger than all buffers, and ends during a retry."""
    bucket, endpoint = line
    body = random.Random(7).randbytes(1_000_000)
    store = CloudStore("s3", bucket, read_options())
    for shard in range(2):
        store.put(f"big-{shard}.tar", made.labelled(f"s{shard}", RECORDS, lambda n: {"bin": body[n:]}))
    store.close()
    failed: list[int] = []

    class Cured(Retry):
        """A retry policy that removes the fault in the delay before the second try."""

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
    # This call waits until the reader has consumed the bytes in transit, so it needs a thread.
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
    """Return the chosen options for a consumer that needs `pause` seconds for each record."""
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
    """Each connection is limited to 1.5 MB/s."""
    toxiproxy.poison("bandwidth", {"rate": 1_500})
    assert first_choices(line) == {"connections": "4", "read-ahead": "16 MiB", "chunk": "256 KiB"}


def test_a_link_with_high_latency_gets_large_chunks(line: tuple[str, str], toxiproxy: Toxiproxy) -> None:
    toxiproxy.poison("latency", {"latency": 60})
    chosen = first_choices(line)
    assert chosen["chunk"] not in ("256 KiB", "512 KiB")
    assert chosen["read-ahead"] in ("16 MiB", "32 MiB")


def test_a_slow_consumer_gets_small_read_ahead(line: tuple[str, str]) -> None:
    assert first_choices(line, 0.05) == {"connections": "2", "read-ahead": "8 MiB", "chunk": "256 KiB"}
