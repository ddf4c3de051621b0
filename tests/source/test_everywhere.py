"""The requirements of the TAR2TF document, and resuming after breaks, on every kind of store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.options import Retry, Shuffle
from ais_tar2tf.streams.arguments import read_options
from tests.support import shards as made
from tests.support.kinds_of_stores import KINDS, OVER_THE_NETWORK, THROUGH_AIS, StorePlace, new_place
from tests.support.relays import Relay

SHARDS = 4
RECORDS = 16
LABELS = [number % 10 for _ in range(SHARDS) for number in range(RECORDS)]


@pytest.fixture
def any_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    with new_place(request.param, read_options(), request, tmp_path) as found:
        yield found


def fill(place: StorePlace) -> None:
    for number in range(SHARDS):
        shard = made.labelled(f"n{number}", RECORDS)
        place.put(f"train-{number}.tar", shard)
        place.put(f"zipped-{number}.tar.gz", made.gzipped(shard))


@pytest.mark.parametrize("any_place", KINDS, indirect=True)
@pytest.mark.parametrize("template", ["train-{0..3}.tar", "zipped-{0..3}.tar.gz"])
def test_pairs_of_images_and_labels(any_place: StorePlace, template: str) -> None:
    fill(any_place)
    with t2t.open(any_place.base + template, **any_place.options) as src:
        dataset = src.dataset(t2t.default_record_to_pair).batch(8)
        batches = list(dataset)
        shuffled = src.dataset(t2t.default_record_to_pair, shuffle=Shuffle(window=32, seed=3)).batch(8)
        assert sorted(label for _, labels in shuffled for label in labels.numpy()) == sorted(LABELS)
    assert [label for _, labels in batches for label in labels.numpy()] == LABELS
    images = batches[0][0].numpy()
    expected = tf.image.resize(tf.io.decode_jpeg(made.image(0)) / 255, (224, 224))
    np.testing.assert_allclose(images[0], expected, atol=1e-5)


@pytest.mark.parametrize("any_place", THROUGH_AIS, indirect=True)
def test_the_documents_client(any_place: StorePlace, tmp_path: Path) -> None:
    """Use AisDataset, in memory and through a TFRecord file."""
    fill(any_place)
    bucket = any_place.base.removeprefix("ais://").rstrip("/")
    with t2t.AisDataset(bucket, any_place.options["endpoint"]) as ais:
        pairs = list(ais.load_from_tar("train-{0..3}.tar"))
        path = str(tmp_path / "train.record")
        assert ais.load_from_tar("train-{0..3}.tar", path=path) == [path]
    parsed = tf.data.TFRecordDataset([path]).map(t2t.default_record_parser)
    assert len(pairs) == SHARDS * RECORDS
    for (pixels, label), (others, other) in zip(parsed, pairs, strict=True):
        np.testing.assert_array_equal(pixels, others)
        assert label == other


@pytest.mark.parametrize("any_place", KINDS, indirect=True)
def test_an_iterator_is_resumed_from_its_checkpoint(any_place: StorePlace, tmp_path: Path) -> None:
    fill(any_place)
    shuffle = Shuffle(window=16, shards=2, turn=4, seed=5, reshuffle_each_epoch=False)

    def open_again() -> tuple[t2t.Source, tf.data.Dataset]:
        src = t2t.open(f"{any_place.base}train-{{0..3}}.tar", **any_place.options).select("cls")
        return src, src.dataset(shuffle=shuffle)

    def key(element: dict[str, tf.Tensor]) -> str:
        return element["__key__"].numpy().decode()

    src, dataset = open_again()
    with src:
        whole = [key(element) for element in dataset]
        iterator = iter(dataset)
        begun = [key(next(iterator)) for _ in range(27)]
        saved = tf.train.Checkpoint(iterator=iterator).save(str(tmp_path / "checkpoint"))
    src, dataset = open_again()
    with src:
        iterator = iter(dataset)
        tf.train.Checkpoint(iterator=iterator).restore(saved)
        rest = [key(element) for element in iterator]
    assert begun + rest == whole
    assert len(set(whole)) == SHARDS * RECORDS


@pytest.mark.parametrize("connections", [1, 2])
@pytest.mark.parametrize("any_place", OVER_THE_NETWORK, indirect=True)
def test_a_broken_body_is_resumed(any_place: StorePlace, connections: int) -> None:
    body = np.random.RandomState(0).bytes(100_000)
    expected = [f"s{shard}/{number:06d}" for shard in range(3) for number in range(20)]
    for shard in range(3):
        any_place.put(f"big-{shard}.tar", made.labelled(f"s{shard}", 20, lambda n: {"bin": body[n:]}))
    with Relay(any_place.nodes, cuts=[1_500_000, 300_001, 700_000, 1_999_999]) as relay:
        base, options = any_place.through_relay(relay)
        retry = Retry(attempts=8, first_delay=0.01)
        src = t2t.open(f"{base}big-{{0..2}}.tar", retry=retry, connections=connections, **options)
        with src:
            found = [(record["__key__"], record["bin"]) for record in src.records()]
        assert relay.cut >= 2
    assert [key for key, _ in found] == expected
    assert all(data == body[at % 20 :] for at, (_, data) in enumerate(found))
    assert src.stats.resumes >= 1
