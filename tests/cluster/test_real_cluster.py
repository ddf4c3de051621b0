"""Targets of a real AIStore die in the middle of a shard: no record is lost or repeated, or an error is raised."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
import requests

import ais_tar2tf as t2t
from ais_tar2tf.errors import ShardNotFound, StoreError, TransportError
from ais_tar2tf.options import Limits, Retry, Timeouts
from ais_tar2tf.source import Source
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.streams.arguments import read_options
from tests.servers.aistore import AIStore
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name

SHARDS = 4
RECORDS = 48
BEGUN = 4  # number of records read before the target dies
BODY = 250_000  # the remaining 11 MB are more than sockets and read-ahead hold
EXPECTED = [f"s{shard}/{number:06d}" for shard in range(SHARDS) for number in range(RECORDS)]
NARROW = Limits(read_ahead_bytes=64 * 1024)

pytestmark = [pytest.mark.servers("own-aistore"), pytest.mark.usefixtures("narrow_sockets")]


def body(shard: int, number: int) -> bytes:
    seed = hashlib.sha256(f"{shard}/{number}".encode()).digest()
    return seed * (BODY // len(seed))


@pytest.fixture
def cluster_bucket(own_aistore: AIStore) -> str:
    name = new_name()
    store = AisStore(name, read_options(), endpoint=own_aistore.url)
    store.create()
    for shard in range(SHARDS):
        store.put(f"train-{shard}.tar", made.labelled(f"s{shard}", RECORDS, lambda n, s=shard: {"bin": body(s, n)}))
    store.close()
    return name


def target_of(cluster: AIStore, bucket: str, name: str) -> int:
    url = f"{cluster.url}/v1/objects/{bucket}/{name}"
    return cluster.target_of(requests.get(url, allow_redirects=False, timeout=10).headers["Location"])


def opened(cluster: AIStore, bucket: str, retry: Retry) -> Source:
    return t2t.open(
        f"ais://{bucket}/train-{{0..{SHARDS - 1}}}.tar",
        endpoint=cluster.url,
        limits=NARROW,
        retry=retry,
        timeouts=Timeouts(connect=2, idle=10),
        connections=1,
    )


def read_until(records: Iterator[dict[str, object]], keys: list[str], count: int) -> None:
    for record in records:
        keys.append(str(record["__key__"]))
        if len(keys) == count:
            return


def test_a_target_that_is_killed_and_restarted_loses_no_record(own_aistore: AIStore, cluster_bucket: str) -> None:
    src = opened(own_aistore, cluster_bucket, Retry(attempts=30, first_delay=0.1, max_delay=0.5))
    keys: list[str] = []
    records = src.records()
    read_until(records, keys, BEGUN)
    killed = target_of(own_aistore, cluster_bucket, "train-0.tar")
    own_aistore.kill_target(killed)
    own_aistore.restart_target(killed)
    for record in records:
        shard, number = divmod(len(keys), RECORDS)
        keys.append(record["__key__"])
        assert record["bin"] == body(shard, number)
    assert keys == EXPECTED
    assert src.stats.resumes >= 1
    assert src.stats.records_read == src.stats.records_emitted == len(EXPECTED)
    src.close()


def test_a_target_that_is_killed_is_an_error_and_no_shorter_epoch(own_aistore: AIStore, cluster_bucket: str) -> None:
    """First the target refuses connections, then the cluster answers 404. Both are errors that name the shard."""
    src = opened(own_aistore, cluster_bucket, Retry(attempts=6, first_delay=0.05, max_delay=0.2))
    keys: list[str] = []
    records = src.records()
    read_until(records, keys, BEGUN)
    own_aistore.kill_target(target_of(own_aistore, cluster_bucket, "train-0.tar"))
    with pytest.raises(TransportError, match=r"train-0\.tar.*given up after 6 tries"):
        read_until(records, keys, -1)
    assert keys == EXPECTED[: len(keys)]
    assert len(keys) < RECORDS
    src.close()


def test_a_target_that_stays_dead_is_an_error_about_a_missing_shard(
    own_aistore: AIStore, cluster_bucket: str
) -> None:
    """The default retries last longer than the 20 s after which the cluster removes the target."""
    src = opened(own_aistore, cluster_bucket, Retry(attempts=200, first_delay=0.2, max_delay=0.5))
    keys: list[str] = []
    records = src.records()
    read_until(records, keys, BEGUN)
    own_aistore.kill_target(target_of(own_aistore, cluster_bucket, "train-0.tar"))
    with pytest.raises(ShardNotFound, match=r"train-0\.tar.*was begun and can no longer be found"):
        read_until(records, keys, -1)
    assert keys == EXPECTED[: len(keys)]
    listed = t2t.open(f"ais://{cluster_bucket}/train-{{0..{SHARDS - 1}}}.tar", endpoint=own_aistore.url)
    with pytest.raises(StoreError, match="train-"):  # a template names the shard, so it is never skipped
        list(listed.records())
    listed.close()
    src.close()


def test_a_big_put_survives_the_proxy(own_aistore: AIStore) -> None:
    store = AisStore(new_name(), read_options(), endpoint=own_aistore.url)
    store.create()
    data = bytes(range(256)) * (40 << 12)
    store.put("big.tar", data)
    assert store.head("big.tar").size == len(data)
    store.close()
