"""The sizes of checkpoints of iterators. A small checkpoint resumes exactly where a large one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import xxhash

import ais_tar2tf as t2t
from ais_tar2tf.errors import MappingError, OptionError
from ais_tar2tf.options import Shuffle
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import shards as made
from tests.support.own_errors import raises_ours

RECORDS = 24
SMALL = 16_000  # bytes, for the positions of a few stages and the names of files
SHUFFLE = Shuffle(window=16, shards=2, turn=4, seed=5)


@pytest.fixture(autouse=True)
def _shards(request: pytest.FixtureRequest) -> None:
    store = MemoryStore("sizes")
    noise = np.random.RandomState(0).bytes(200_000)
    for number in range(2):
        shard = made.labelled(
            f"n{number}",
            RECORDS // 2,
            lambda at: {"jpg": made.image(at % 7), "bin": noise[at * 10 : at * 10 + 20_000], "cls": b"%d" % at},
        )
        store.put(f"s-{number}.tar", shard)
    broken = made.labelled("b", 9, lambda at: {"jpg": b"no image" if at == 4 else made.image(at), "cls": b"1"})
    store.put("broken.tar", broken)


def pair(record: Any) -> tuple[Any, Any]:
    image = tf.image.resize(tf.io.decode_jpeg(record["jpg"], channels=3), (32, 32))
    return image, tf.strings.to_number(record["cls"], tf.int32)


def as_python(record: Any) -> tuple[Any, Any]:
    return np.frombuffer(record["bin"], np.uint8), int(record["cls"])


def key(record: Any) -> Any:
    return record["__key__"]


def source(name: str = "s-{0..1}.tar", **options: Any) -> t2t.Source:
    return t2t.open(f"memory://sizes/{name}", **options)


PYTHON = {"output_types": (tf.uint8, tf.int32), "output_shapes": ((20_000,), ())}
DATASETS: dict[str, Callable[[], Any]] = {
    "raw": lambda: source().dataset(),
    "raw, shuffled": lambda: source().dataset(shuffle=SHUFFLE, repeat=2),
    "raw, in batches": lambda: source().select("cls").dataset(shuffle=SHUFFLE, batch=6),
    "selected": lambda: source().dataset(lambda record: (record["bin"], record["cls"]), start_at=5),
    "a key": lambda: source().dataset(key, shuffle=SHUFFLE),
    "pairs": lambda: source().dataset(pair, shuffle=SHUFFLE, batch=4),
    "pairs of a host": lambda: source().dataset(pair, shuffle=SHUFFLE, shard=(1, 2), even="pad"),
    "by Python": lambda: source().dataset(as_python, **PYTHON),
    "mixed": lambda: t2t.mix([source("s-0.tar"), source("s-1.tar")], seed=3, at_end="drop").dataset(pair),
}
BEHIND: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda dataset: dataset,
    "batch and prefetch": lambda dataset: dataset.batch(4).prefetch(2),
}


def saved_size(iterator: Any, folder: Path) -> tuple[str, int]:
    path = tf.train.Checkpoint(iterator=iterator).write(str(folder / "checkpoint"))
    return path, sum(each.stat().st_size for each in folder.glob("checkpoint*"))


def values(elements: Iterator[Any]) -> list[list[str]]:
    return [[digest(part) for part in tf.nest.flatten(element)] for element in elements]


def digest(tensor: Any) -> str:
    return xxhash.xxh3_64_hexdigest(repr(np.asarray(tensor).tolist()).encode())


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("kind", DATASETS)
def test_a_small_checkpoint_is_resumed_exactly(kind: str, behind: str, tmp_path: Path) -> None:
    def again() -> Any:
        return BEHIND[behind](DATASETS[kind]().small_checkpoints())

    whole = values(iter(BEHIND[behind](DATASETS[kind]())))
    for begun in (0, len(whole) // 2, len(whole)):
        iterator = iter(again())
        for _ in range(begun):
            next(iterator)
        path, size = saved_size(iterator, tmp_path)
        assert size < SMALL
        assert values(iterator) == whole[begun:]
        other = iter(again())
        tf.train.Checkpoint(iterator=other).restore(path)
        assert values(other) == whole[begun:]


def test_a_default_checkpoint_contains_elements_in_flight(tmp_path: Path) -> None:
    """Show that the measurement is valid: all other records, of 20 KB of noise, are in flight."""
    iterator = iter(source().dataset().batch(4).prefetch(2))
    next(iterator)
    assert saved_size(iterator, tmp_path)[1] > (RECORDS - 4) * 20_000  # all records but the first batch


def test_mapped_images_in_flight_are_bounded_in_bytes(tmp_path: Path) -> None:
    """Only a few mapped images of 600 KB wait, because the limit is in bytes, not in elements."""
    dataset = source().dataset(t2t.default_record_to_pair)
    iterator = iter(dataset)
    for _ in range(10):
        next(iterator)
    assert saved_size(iterator, tmp_path)[1] < 64e6


def test_a_record_that_fails_is_named(tmp_path: Path) -> None:
    dataset = source("broken.tar").dataset(pair).small_checkpoints()
    with raises_ours(MappingError, r"broken\.tar.*b/000004"):
        list(dataset)
    skipping = source("broken.tar", on_error="skip-record")
    assert len(list(skipping.dataset(pair).small_checkpoints().batch(3))) == 3
    assert skipping.stats.skipped == {"MappingError": 1}


def test_small_checkpoints_survive_shuffle_and_repeat(tmp_path: Path) -> None:
    dataset = source().dataset(pair).small_checkpoints().shuffle(16, seed=1).repeat(2)
    iterator = iter(dataset.batch(8).prefetch(2))
    next(iterator)
    assert saved_size(iterator, tmp_path)[1] < SMALL


def test_a_mapping_to_ragged_tensors_is_refused() -> None:
    dataset = source().dataset(lambda record: tf.strings.split([record["cls"], record["bin"]]))
    with pytest.raises(OptionError, match="dense tensors"):
        dataset.small_checkpoints()
