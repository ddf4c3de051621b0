"""A global shuffle is an evenly distributed permutation that can be resumed anywhere, on files and on AIStore."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.errors import IndexMissing, ObjectChanged
from ais_tar2tf.options import Read, Shuffle, Timeouts
from ais_tar2tf.stores import Interrupt
from ais_tar2tf.stores.ais import AisStore
from ais_tar2tf.streams.arguments import read_options
from ais_tar2tf.streams.order import LargePermutation
from tests.support import shards as made
from tests.support.fault_server import PATIENCE, Fault, FaultServer
from tests.support.kinds_of_stores import new_name

ROOT = Path(__file__).parents[2]
COUNTS = (30, 1, 47, 22)
RECORDS = sum(COUNTS)


@given(st.integers(0, 5_000), st.integers(0, 2**62), st.integers(0, 9))
def test_an_order_of_any_length_is_a_permutation(count, seed, epoch):
    permutation = LargePermutation(count, seed, epoch)
    assert sorted(permutation.at(place) for place in range(count)) == list(range(count))


def test_a_large_permutation_needs_little_memory_and_time():
    permutation = LargePermutation(10**15, 1)
    places = [0, 1, 10**15 - 1, 7 * 10**14]
    found = [permutation.at(place) for place in places]
    assert len(set(found)) == 4
    assert all(0 <= number < 10**15 for number in found)
    assert found == [LargePermutation(10**15, 1).at(place) for place in places]


def test_positions_are_evenly_distributed():
    """Test the positions of 64 numbers over 6,400 epochs with chi-square, and those of pairs of neighbours."""
    counts = np.zeros((64, 64))
    steps = np.zeros(64)
    for epoch in range(6_400):
        permutation = LargePermutation(64, 5, epoch)
        found = [permutation.at(place) for place in range(64)]
        counts[range(64), found] += 1
        steps[(found[1] - found[0]) % 64] += 1
    chi_square = ((counts - 100) ** 2 / 100).sum()
    freedom = 63 * 63
    assert abs(chi_square - freedom) < 4 * (2 * freedom) ** 0.5
    assert steps[0] == 0
    expected = 6_400 / 63
    assert ((steps[1:] - expected) ** 2 / expected).sum() < 62 + 4 * (2 * 62) ** 0.5


def shard(number: int, count: int) -> bytes:
    return made.labelled(
        f"{number}", count, lambda i: {"cls": b"%d" % (number * 100 + i), "jpg": b"x" * (700 + 13 * i)}
    )


@pytest.fixture(scope="module")
def shuffled_url(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("shards")
    for number, count in enumerate(COUNTS):
        (folder / f"{number}.tar").write_bytes(shard(number, count))
    t2t.index(f"{folder}/{{0..3}}.tar")
    return f"{folder}/{{0..3}}.tar"


EVERY = sorted(number * 100 + i for number, count in enumerate(COUNTS) for i in range(count))


def number_of(record):
    return tf.strings.to_number(record["cls"], tf.int32)


def numbers(source, **how) -> list[int]:
    return [int(each) for each in source.dataset(number_of, **{"shuffle": "global", "seed": 3, **how})]


def test_on_plain_files(shuffled_url):
    source = t2t.open(shuffled_url)
    found = numbers(source)
    assert sorted(found) == EVERY
    assert found == numbers(source)
    assert found != numbers(source, seed=4)
    assert found == numbers(source, shuffle=Shuffle(whole=True, seed=3))
    raw = list(source.dataset(shuffle="global", seed=3))
    assert [int(each["cls"].numpy()) for each in raw] == found
    assert all(each["jpg"].numpy() == b"x" * (700 + 13 * (int(each["cls"].numpy()) % 100)) for each in raw)
    assert source.stats.records_emitted == 5 * RECORDS
    dataset = source.dataset(number_of, shuffle="global", seed=3, batch=8)
    assert dataset.cardinality() == 13
    two = numbers(source, repeat=2)
    assert two[:RECORDS] == found
    assert two[RECORDS:] != found
    assert sorted(two[RECORDS:]) == EVERY
    shards_mixed = Counter(number // 100 for number in found[:30])
    assert len(shards_mixed) >= 3


def test_start_at(shuffled_url):
    source = t2t.open(shuffled_url)
    whole = numbers(source, repeat=2)
    assert len(whole) == 2 * RECORDS
    for start in (1, 50, RECORDS - 1, RECORDS, RECORDS + 20, 2 * RECORDS):
        assert numbers(source, repeat=2, start_at=start) == whole[start:]


def test_shares_of_hosts(shuffled_url):
    source = t2t.open(shuffled_url)
    whole = numbers(source)
    assert [numbers(source, shard=(host, 3)) for host in range(3)] == [whole[host::3] for host in range(3)]
    padded = [numbers(source, shard=(host, 3), even="pad") for host in range(3)]
    assert set(map(len, padded)) == {34}
    assert set(chain(*padded)) == set(EVERY)
    dropped = [numbers(source, shard=(host, 3), even="drop") for host in range(3)]
    assert set(map(len, dropped)) == {33}
    assert len(set(chain(*dropped))) == 99


def checkpointed(url: str):
    return t2t.open(url).dataset(number_of, shuffle="global", seed=3, repeat=2).batch(9).prefetch(2)


def batches(iterator) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in iterator]


RESTORE_ALL = """
import json
import tensorflow as tf
from tests.streams.test_global_shuffle import batches, checkpointed
dataset, rests = checkpointed(sys.argv[1]), []
for path in json.loads(sys.argv[2]):
    iterator = iter(dataset)
    tf.train.Checkpoint(iterator=iterator).restore(path)
    rests.append(batches(iterator))
print(json.dumps(rests))
"""


def test_every_checkpoint_is_resumed_in_a_new_process(shuffled_url, tmp_path):
    iterator = iter(checkpointed(shuffled_url))
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    paths, seen = [checkpoint.save(str(tmp_path / "c"))], []
    for batch in iterator:
        seen.append(batch.numpy().tolist())
        paths.append(checkpoint.save(str(tmp_path / "c")))
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n{RESTORE_ALL}"
    command = [sys.executable, "-c", code, shuffled_url, json.dumps(paths)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=200)
    assert json.loads(done.stdout.splitlines()[-1]) == [seen[number:] for number in range(len(paths))]


def test_requirements_of_a_global_shuffle(shuffled_url, tmp_path):
    with pytest.raises(IndexMissing, match=r"needs an index.*t2t\.index"):
        t2t.open(shuffled_url, index=False).dataset(shuffle="global")
    with pytest.raises(ValueError, match="needs on_error='raise'"):
        t2t.open(shuffled_url, on_error="skip-record").dataset(shuffle="global")
    with pytest.raises(ValueError, match="or 'global', not 'all'"):
        t2t.open(shuffled_url).dataset(shuffle="all")
    (tmp_path / "a.tar").write_bytes(made.gzipped(shard(0, 5)))
    t2t.index(f"{tmp_path}/a.tar")
    with pytest.raises(IndexMissing, match=r"a\.tar.*is compressed.*shuffle=True"):
        t2t.open(f"{tmp_path}/a.tar").dataset(shuffle="global")


def test_a_changed_object_is_an_error(tmp_path):
    for number, count in enumerate(COUNTS):
        (tmp_path / f"{number}.tar").write_bytes(shard(number, count))
    t2t.index(url := f"{tmp_path}/{{0..3}}.tar")
    dataset = t2t.open(url).dataset(shuffle="global", seed=1)
    (tmp_path / "2.tar").write_bytes(shard(2, COUNTS[2]))
    with pytest.raises(ObjectChanged, match=r"2\.tar"):
        list(dataset)


def mixed(url: str):
    return t2t.mix([t2t.open(url), t2t.open(url)], at_end="drop").dataset(number_of, shuffle="global", seed=1)


def test_in_a_mixture(shuffled_url):
    assert Counter(int(each) for each in mixed(shuffled_url)) == Counter(EVERY * 2)


def in_bucket(endpoint: str) -> t2t.Source:
    store = AisStore(bucket := new_name(), read_options(), endpoint=endpoint)
    store.create()
    for number, count in enumerate(COUNTS):
        store.put(f"{number}.tar", shard(number, count))
    store.close()
    t2t.index(url := f"ais://{bucket}/{{0..3}}.tar", endpoint=endpoint)
    return t2t.open(url, endpoint=endpoint)


def test_on_the_embedded_server(tmp_path, shuffled_url):
    """Records are read by GetBatch, which the embedded server implements as AIStore does."""
    with t2t.serve(tmp_path) as server, in_bucket(server.url) as source:
        assert numbers(source) == numbers(t2t.open(shuffled_url))
        before = source.stats.bytes
        assert len(list(source.dataset(number_of, shuffle="global", seed=3, start_at=RECORDS - 5))) == 5
        assert source.stats.bytes - before < 20_000  # of 250,000


def test_a_server_without_batches_is_asked_once():
    """After 501, or 404 from an older cluster, GetBatch is not retried; single ranges are read instead."""
    for status in (501, 404):
        with FaultServer() as server:
            server.script["v1/ml/moss/b?provider=ais"].append(Fault(status=status))
            store = AisStore("b", read_options(), endpoint=server.url)
            assert store.ranges_at_once > 1
            assert store.read_many([("a", 0, 1)]) is None
            assert len(server.requests) == 1
            assert store.ranges_at_once == 1
            store.close()


@pytest.mark.parametrize("status", [429, 503])
def test_a_batch_that_fails_is_left_to_single_requests(status):
    """A failed batch is not retried, because its thread would outlive the reader. The single requests are."""
    with FaultServer() as server:
        server.script["v1/ml/moss/b?provider=ais"].append(Fault(status=status, headers={"Retry-After": "60"}))
        store = AisStore("b", read_options(), endpoint=server.url)
        assert store.read_many([("a", 0, 1)]) is None
        assert len(server.requests) == 1
        assert store.ranges_at_once > 1
        store.close()


def test_waiting_for_a_batch_can_be_ended():
    with FaultServer() as server:
        server.script["v1/ml/moss/b?provider=ais"].append(Fault(silent=True))
        store = AisStore("b", Read(timeouts=Timeouts(idle=200)), endpoint=server.url)
        interrupt = Interrupt()
        waiting = threading.Thread(target=store.read_many, args=[[("a", 0, 1)]], kwargs={"interrupt": interrupt})
        waiting.start()
        server.wait_until_requests(1)
        interrupt.fire()
        waiting.join(PATIENCE)
        assert not waiting.is_alive()
        store.close()


@pytest.mark.servers("aistore")
def test_on_a_real_aistore(aistore, shuffled_url):
    """GetBatch returns many ranges in one answer, and a replaced object is detected."""
    asked: list[int] = []
    with in_bucket(aistore.url) as source:
        store = source.opened.shards.store
        assert isinstance(store, AisStore)
        plain = store.read_many

        def counted(wanted, **how):
            found = plain(wanted, **how)
            assert found is not None
            if len(found.pieces) > 1:
                asked.append(len(found.pieces))
            return found

        store.read_many = counted
        assert numbers(source) == numbers(t2t.open(shuffled_url))
        assert (
            RECORDS // 2 < sum(asked) <= RECORDS - len(COUNTS)
        )  # the first range of each shard is read alone, for the shard's identity
        assert all(1 < count <= 128 for count in asked)
        store.put("0.tar", shard(0, COUNTS[0]) + bytes(1024))
        with pytest.raises(ObjectChanged):
            numbers(source)
