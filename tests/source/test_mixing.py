"""Mixtures follow their weights, repeat their order, end by their rule, and are resumed in other processes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

import ais_tar2tf as t2t
from ais_tar2tf.errors import CheckpointError, SchemaError
from ais_tar2tf.options import Limits, Shuffle
from ais_tar2tf.source.dataset_options import DatasetOptions
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.kinds_of_stores import new_name
from tests.support.own_errors import raises_ours

ROOT = Path(__file__).parents[2]
WEIGHTS = [5, 2, 1]
SIZES = [23, 40, 9]
SHUFFLE = Shuffle(window=6, shards=2, turn=3, seed=4)
RULES = ("stop", "drop", "repeat")


def write(folder: Path, sizes: list[int]) -> None:
    """Write three sources. Source n has two shards, with records n0/… and n1/…"""
    for number, size in enumerate(sizes):
        for half in range(2):
            count = size // 2 + (size % 2) * half
            shard = made.labelled(f"{number}{half}", count, lambda i, n=number: {"cls": b"%d" % (n * 1000 + i)})
            (folder / f"{number}-{half}.tar").write_bytes(shard)


@pytest.fixture(scope="module")
def mixed_folder(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("mixed")
    write(path, SIZES)
    return str(path)


def sources(folder: str, count: int = 3) -> list[t2t.Source]:
    return [t2t.open(f"{folder}/{number}-{{0,1}}.tar", limits=Limits(chunk_records=5)) for number in range(count)]


def keys(records) -> list[str]:
    return [record["__key__"] for record in records]


def of_source(found: list[str], number: int) -> list[str]:
    return [key for key in found if key.startswith(str(number))]


def whole(folder: str, number: int) -> list[str]:
    return keys(sources(folder)[number].records())


@pytest.mark.parametrize("rule", RULES)
def test_each_source_keeps_its_order_and_ends_by_the_rule(mixed_folder, rule):
    mixture = t2t.mix(sources(mixed_folder), weights=WEIGHTS, seed=3, at_end=rule)
    found = keys(mixture.records())
    assert found == keys(mixture.records())
    assert found != keys(t2t.mix(sources(mixed_folder), weights=WEIGHTS, seed=4, at_end=rule).records())
    counts = []
    for number, size in enumerate(SIZES):
        mine = of_source(found, number)
        assert mine == list(itertools.islice(itertools.cycle(whole(mixed_folder, number)), len(mine)))
        counts.append(len(mine) / size)
    if rule == "drop":
        assert counts == [1, 1, 1]
    elif rule == "stop":
        assert max(counts) == 1
    else:
        assert min(counts) == 1
        assert max(counts) > 1
    assert mixture.stats.records_emitted == 2 * len(found)


def test_records_are_drawn_by_the_weights():
    """Chi-square over 20,000 records, with a fixed seed."""
    store = MemoryStore(new_name())
    for number in range(3):
        store.put(f"{number}.tar", made.labelled(f"{number}", 900, lambda _: {"cls": b"1"}))
    parts = [t2t.open(store.url(f"{number}.tar")) for number in range(3)]
    dataset = t2t.mix(parts, weights=WEIGHTS, seed=8, at_end="repeat").dataset(repeat=None, batch=1000)
    drawn = Counter(key.decode()[0] for batch in dataset.take(20) for key in batch["__key__"].numpy())
    expected = [20_000 * weight / sum(WEIGHTS) for weight in WEIGHTS]
    chi_square = sum((drawn[str(number)] - each) ** 2 / each for number, each in enumerate(expected))
    assert chi_square < 13.8  # two degrees of freedom: only one seed in a thousand exceeds this


SMALL = st.lists(st.tuples(st.integers(0, 9), st.floats(0.5, 3)), min_size=1, max_size=3)


@settings(max_examples=12)
@given(SMALL, st.sampled_from(RULES), st.integers(0, 2**62), st.integers(1, 7))
def test_any_mixture_ends_and_is_resumed_anywhere(parts, rule, seed, chunk):
    """Mixtures with empty sources and chunks of any size are resumed from the text of positions."""
    store = MemoryStore(new_name())
    for number, (size, _) in enumerate(parts):
        store.put(f"{number}.tar", made.labelled(f"{number}", size, lambda _: {"cls": b"1"}))
    opened = [t2t.open(store.url(f"{n}.tar"), limits=Limits(chunk_records=chunk)) for n in range(len(parts))]
    mixture = t2t.mix(opened, weights=[weight for _, weight in parts], seed=seed, at_end=rule)
    reading = mixture._reading([source.opened for source in opened], None, DatasetOptions())
    stream = reading.open(reading.begin(0, 0, 2), mixture._account)
    at, pieces = [stream.position.to_text()], []
    while found := stream.next_chunk():
        pieces.append(keys(found))
        at.append(stream.position.to_text())
    at.append(stream.position.to_text())
    pieces.append([])
    everything = list(itertools.chain.from_iterable(pieces))
    if rule == "drop":
        assert Counter(key[0] for key in everything) == {
            str(n): 2 * size for n, (size, _) in enumerate(parts) if size
        }
    for number, text in [*list(enumerate(at))[:: max(1, len(at) // 6)], (len(at) - 1, at[-1])]:
        rest = reading.open(reading.parse(text), mixture._account)
        again = []
        while found := rest.next_chunk(3):
            again += keys(found)
        assert again == list(itertools.chain.from_iterable(pieces[number:]))


# Other processes


def number_of(record):
    return tf.strings.to_number(record["cls"], tf.int32)


def checkpointed(folder: str, rule: str):
    """Return two shuffled, mapped epochs in batches."""
    mixture = t2t.mix(sources(folder), weights=WEIGHTS, seed=5, at_end=rule)
    return mixture.dataset(number_of, shuffle=SHUFFLE, repeat=2).batch(12).prefetch(2)


def batches(iterator) -> list[list[int]]:
    return [batch.numpy().tolist() for batch in iterator]


RESTORE_ALL = """
import json
import tensorflow as tf
from tests.source.test_mixing import batches, checkpointed
rests, datasets = [], {}
for rule, path in json.loads(sys.argv[2]):
    if rule not in datasets:
        datasets[rule] = checkpointed(sys.argv[1], rule)
    iterator = iter(datasets[rule])
    tf.train.Checkpoint(iterator=iterator).restore(path)
    rests.append(batches(iterator))
print(json.dumps(rests))
"""


def test_every_checkpoint_is_resumed_in_a_new_process(mixed_folder, tmp_path):
    saved, expected = [], []
    for rule in RULES:
        iterator = iter(checkpointed(mixed_folder, rule))
        checkpoint = tf.train.Checkpoint(iterator=iterator)
        paths, seen = [checkpoint.save(str(tmp_path / rule))], []
        for batch in iterator:
            seen.append(batch.numpy().tolist())
            paths.append(checkpoint.save(str(tmp_path / rule)))
        assert len(seen) > 4
        saved += [(rule, path) for path in paths]
        expected += [seen[number:] for number in range(len(paths))]
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r})\n{RESTORE_ALL}"
    command = [sys.executable, "-c", code, mixed_folder, json.dumps(saved)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=200)
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_another_mixture_refuses_a_checkpoint(mixed_folder, tmp_path):
    iterator = iter(checkpointed(mixed_folder, "drop"))
    next(iterator)
    saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "c"))
    for other in (
        checkpointed(mixed_folder, "stop"),
        t2t.mix(sources(mixed_folder), weights=[1, 1, 1], seed=5, at_end="drop")
        .dataset(number_of, shuffle=SHUFFLE, repeat=2)
        .batch(8)
        .prefetch(2),
        t2t.mix(sources(mixed_folder)[::-1], weights=WEIGHTS, seed=5, at_end="drop")
        .dataset(number_of, shuffle=Shuffle(window=7, seed=4), repeat=2)
        .batch(8)
        .prefetch(2),
    ):
        fresh = iter(other)
        tf.train.Checkpoint(iterator=fresh).restore(saved)
        with raises_ours(CheckpointError, "of another dataset"):
            list(fresh)


# Datasets


def test_start_at(mixed_folder):
    mixture = t2t.mix(sources(mixed_folder), weights=WEIGHTS, seed=5, at_end="drop")
    every = [int(each) for each in mixture.dataset(number_of, shuffle=SHUFFLE)]
    assert len(every) == sum(SIZES)
    for start in (1, 17, 71, 72):
        assert [int(each) for each in mixture.dataset(number_of, shuffle=SHUFFLE, start_at=start)] == every[start:]


def test_lengths_epochs_and_shares(mixed_folder, tmp_path):
    write(tmp_path, SIZES)
    for number in range(3):
        t2t.index(f"{tmp_path}/{number}-{{0,1}}.tar", f"{tmp_path}/{number}.t2t")
    parts = [t2t.open(f"{tmp_path}/{n}-{{0,1}}.tar", index=f"{tmp_path}/{n}.t2t") for n in range(3)]
    dropping = t2t.mix(parts, weights=WEIGHTS, at_end="drop")
    assert dropping.dataset(batch=10).cardinality() == 8
    assert dropping.dataset().shuffle().cardinality() == 72
    assert t2t.mix(parts, weights=WEIGHTS).dataset().cardinality() == tf.data.UNKNOWN_CARDINALITY
    both = [int(each) for each in dropping.dataset(number_of, repeat=2)]
    assert len(both) == 144
    assert both[:72] != both[72:]
    assert sorted(both[:72]) == sorted(both[72:])
    shares = [keys_of(dropping.dataset(shard=(host, 2), shuffle=SHUFFLE)) for host in range(2)]
    assert sorted(shares[0] + shares[1]) == sorted(keys(dropping.records()))


def keys_of(dataset) -> list[str]:
    return [each["__key__"].numpy().decode() for each in dataset]


def test_sources_with_different_fields():
    store = MemoryStore(new_name())
    store.put("a.tar", made.labelled("a", 8, lambda i: {"cls": b"%d" % i, "txt": b"x"}))
    store.put("b.tar", made.labelled("b", 8, lambda i: {"cls": b"%d" % i}))
    a, b = (t2t.open(store.url(f"{name}.tar")) for name in "ab")
    with pytest.raises(SchemaError, match=r"lacks txt.*select"):
        t2t.mix([a, b]).dataset()
    with pytest.raises(SchemaError, match=r"has also txt.*select"):
        t2t.mix([b, a]).dataset()
    assert sorted(int(each) for each in t2t.mix([a, b], at_end="drop").dataset(number_of)) == sorted([*range(8)] * 2)
    texts = t2t.mix([a, b], at_end="drop").select("cls", "txt?").dataset().map(lambda record: record["txt"])
    assert Counter(text.numpy() for text in texts) == {b"x": 8, b"": 8}
    texts = t2t.mix([a.select("txt"), b.select("txt?")], at_end="drop").dataset().map(lambda record: record["txt"])
    assert Counter(text.numpy() for text in texts) == {b"x": 8, b"": 8}


def test_an_error_comes_after_the_records_before_it():
    store = MemoryStore(new_name())
    store.put("a.tar", made.labelled("a", 40, lambda _: {"cls": b"1"}))
    broken = made.labelled("b", 40, lambda _: {"cls": b"1"})
    store.put("b.tar", broken[: 20 * 1024])
    options = {"limits": Limits(chunk_records=4)}
    parts = [t2t.open(store.url(f"{name}.tar"), **options) for name in "ab"]
    found: list[str] = []
    with pytest.raises(t2t.errors.TruncatedArchive, match=r"b\.tar"):
        found.extend(record["__key__"] for record in t2t.mix(parts, at_end="drop").records())
    assert len([key for key in found if key.startswith("b")]) >= 15
    skipping = [t2t.open(store.url(f"{name}.tar"), on_error="skip-shard", **options) for name in "ab"]
    mixture = t2t.mix(skipping, at_end="drop")
    assert len(keys(mixture.records())) > 55
    assert mixture.stats.skipped["TruncatedArchive"] == 1


def test_arguments_of_a_mixture(mixed_folder):
    parts = sources(mixed_folder, 2)
    for bad in ([1], [1, 0], [1, -1], [1, float("inf")], [1, float("nan")], ["1", 1]):
        with pytest.raises(ValueError, match="weights are 2 positive numbers"):
            t2t.mix(parts, weights=bad)
    with pytest.raises(ValueError, match="at_end is one of stop, drop, repeat, not 'end'"):
        t2t.mix(parts, at_end="end")
    with pytest.raises(ValueError, match="nothing to mix"):
        t2t.mix([])
    with pytest.raises(ValueError, match="the same on_error"):
        t2t.mix([parts[0], t2t.open(f"{mixed_folder}/1-0.tar", on_error="skip-record")])
    with t2t.mix(parts) as mixture:
        assert "1 × <Source of 2 shards" in repr(mixture)
        next(mixture.records())
