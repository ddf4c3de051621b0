"""Plain loops: `records` has the options of `dataset`, and gives the same records in order, without TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import MappingError, OptionError, OptionTypeError, SchemaError, StoreError
from ais_tar2tf.options import Shuffle
from ais_tar2tf.recordfiles.loading.orders import interleaved, shuffle_numbers, shuffled
from ais_tar2tf.source.read_plan import plan_reading
from tests.support import shards as made

SHARDS, RECORDS = 5, 17


@pytest.fixture(autouse=True)
def no_seed_of_tensorflow_s() -> None:
    """Reset TensorFlow's global seed, which other tests set. The tests compare with TensorFlow's shuffles."""
    tf.random.set_seed(None)


@pytest.fixture(scope="module")
def loops_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write shards of different lengths and an index."""
    folder = tmp_path_factory.mktemp("loops")
    for number in range(SHARDS):
        count = RECORDS + number
        rows = ((f"{number}-{at:03d}", {"txt": b"%d" % at, "cls": b"%d" % (at % 3)}) for at in range(count))
        (folder / f"s-{number}.tar").write_bytes(made.tar(rows))
    t2t.index(f"{folder}/s-*.tar", progress=False)
    return folder


@pytest.fixture(scope="module")
def bare(loops_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the shards without their index."""
    bare = tmp_path_factory.mktemp("bare")
    for shard in loops_folder.glob("*.tar"):
        (bare / shard.name).write_bytes(shard.read_bytes())
    return bare


def keys(records: Any) -> list[str]:
    return [record["__key__"] for record in records]


def keys_of(dataset: Any, most: int | None = None) -> list[str]:
    elements = dataset if most is None else dataset.take(most)
    return [element["__key__"].decode() for element in elements.as_numpy_iterator()]


ORDERS: list[dict[str, Any]] = [
    {},
    {"shuffle": True, "seed": 1},
    {"shuffle": 7, "seed": 2},
    {"shuffle": Shuffle(window=10, shards=2, turn=3, seed=5)},
    {"shuffle": Shuffle(window=1, shards=1), "seed": 5},
    {"shuffle": "global", "seed": 3},
    {"shuffle": True, "seed": 1, "repeat": 3},
    {"shuffle": Shuffle(seed=4, reshuffle_each_epoch=False), "repeat": 2},
    {"repeat": 2, "start_at": 100},
    {"start_at": 30},
    {"shuffle": True, "seed": 1, "start_at": 30},
    {"shuffle": "global", "seed": 3, "start_at": 50, "repeat": 2},
    {"shard": (1, 3)},
    {"shard": (0, 2), "shuffle": True},
    {"shard": (2, 3), "shuffle": "global", "seed": 1, "repeat": 2},
    {"shard": (1, 3), "even": "pad", "shuffle": True, "seed": 1},
    {"shard": (1, 3), "even": "drop"},
    {"shard": (0, 3), "even": "stop", "shuffle": True, "seed": 9},
]


_BARE = [options for options in ORDERS if options.get("shuffle") != "global"]  # a global shuffle needs an index


@pytest.mark.parametrize(
    ("where", "options"), [*(("loops_folder", each) for each in ORDERS), *(("bare", each) for each in _BARE)], ids=str
)
def test_a_loop_has_the_order_of_the_dataset(where: str, options: dict[str, Any], request: Any) -> None:
    with t2t.open(request.getfixturevalue(where)) as src:
        found = keys(src.records(**options))
        assert found == keys_of(src.dataset(**options))
        assert found
        assert found == keys(src.records(**options)), "every call begins with the first epoch"


def test_without_end_epochs_differ_as_in_the_dataset(loops_folder: Path) -> None:
    with t2t.open(loops_folder) as src:
        options: dict[str, Any] = {"shuffle": True, "seed": 1, "repeat": None}
        found = keys(islice(src.records(**options), 250))
        assert found == keys_of(src.dataset(**options), 250)
        each = SHARDS * RECORDS + sum(range(SHARDS))
        assert set(found[:each]) == set(found[each : 2 * each])
        assert found[:each] != found[each : 2 * each]


def test_repeating_forever_without_records_ends(tmp_path: Path) -> None:
    (tmp_path / "s-0.tar").write_bytes(made.tar([]))
    assert list(t2t.open(tmp_path).records(repeat=None)) == []
    assert list(t2t.open(tmp_path).records(repeat=None, shuffle=True, batch=3)) == []
    assert list(t2t.open(tmp_path).select("txt").dataset(repeat=None)) == []


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("options", [{}, {"shuffle": True, "seed": 1}, {"shard": (0, 2), "repeat": 2}], ids=str)
def test_batches_have_the_records_of_the_datasets_batches(
    loops_folder: Path, options: dict[str, Any], drop: bool
) -> None:
    with t2t.open(loops_folder) as src:
        ours = list(src.records(batch=8, drop_remainder=drop, **options))
        theirs = list(src.dataset(batch=8, drop_remainder=drop, **options).as_numpy_iterator())
        assert [batch["__key__"] for batch in ours] == [[k.decode() for k in b["__key__"]] for b in theirs]
        assert [batch["txt"] for batch in ours] == [batch["txt"].tolist() for batch in theirs]


def test_batches_of_decoded_values_and_of_absent_ones(loops_folder: Path, tmp_path: Path) -> None:
    batch: Any = next(t2t.open(loops_folder).records(decode={"cls": "int64"}, batch=4))
    assert batch["cls"] == [0, 1, 2, 0]
    (tmp_path / "s.tar").write_bytes(made.tar([("a", {"txt": b"x"}), ("b", {"cls": b"1"})]))
    batch = next(t2t.open(tmp_path).records(batch=2))
    assert (batch["txt"], batch["cls"]) == ([b"x", None], [None, b"1"])


def test_decoding_skips_in_any_order(tmp_path: Path) -> None:
    rows = [(f"{at}", {"id": b"x" if at == 3 else b"%d" % at}) for at in range(8)]
    (tmp_path / "s.tar").write_bytes(made.tar(rows))
    src = t2t.open(tmp_path, on_error="skip-record")
    found = [record["id"] for record in src.records(decode={"id": "int64"}, shuffle=True, seed=1)]
    assert sorted(found) == [0, 1, 2, 4, 5, 6, 7]
    assert found != sorted(found)
    assert src.stats.records_read == src.stats.records_emitted + 1 == 8


def test_a_drawn_seed_is_reported_and_hosts_share_one(loops_folder: Path) -> None:
    with t2t.open(loops_folder) as src:
        first = keys(src.records(shuffle=True))
        seed = src.stats.seed
        assert keys(src.records(shuffle=True, seed=seed)) == first
        shares = [keys(src.records(shuffle=True, shard=(host, 3))) for host in range(3)]
        assert sorted(chain(*shares)) == sorted(first)
        assert src.stats.seed == t2t.options.SHARED_SEED


# Mixtures


@pytest.mark.parametrize("at_end", ["stop", "drop", "repeat"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "seed": 1},
        {"shuffle": 5, "seed": 1, "repeat": 2},
        {"shard": (1, 2), "shuffle": True},
        {"start_at": 20},
        {"shuffle": "global", "seed": 2},
        {"batch": 8, "drop_remainder": True, "shuffle": True, "seed": 4},
    ],
    ids=str,
)
def test_a_loop_over_a_mixture_has_the_order_of_its_dataset(
    loops_folder: Path, options: dict[str, Any], at_end: str
) -> None:
    sources = [t2t.open(loops_folder / "s-{0..1}.tar"), t2t.open(loops_folder / "s-{2..4}.tar")]
    mixture = t2t.mix(sources, [2, 1], seed=3, at_end=at_end)
    found: list[Any] = keys(mixture.records(**options))
    dataset: Any = mixture.dataset(**options)
    elements = [element["__key__"] for element in dataset.as_numpy_iterator()]
    if "batch" in options:
        assert found == [[key.decode() for key in batch] for batch in elements]
    else:
        assert found == [key.decode() for key in elements]
    assert len(found) > 2


def test_a_mixture_decodes(loops_folder: Path) -> None:
    mixture = t2t.mix([t2t.open(loops_folder / "s-0.tar"), t2t.open(loops_folder / "s-1.tar")], at_end="drop")
    found = list(mixture.records(decode={"cls": "int64"}, shuffle=True, seed=1))
    assert {record["cls"] for record in found} == {0, 1, 2}
    assert len(found) == 2 * RECORDS + 1


# Record files


@pytest.fixture(scope="module", params=["tfrecord", "tfrecord in a store", "array_record", "tar"])
def loaded_loops(request: pytest.FixtureRequest, loops_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    kind, _, store = request.param.partition(" ")
    out = f"memory://loops-{kind}/out" if store else tmp_path_factory.mktemp("out")
    splits = {"train": 0.8, "val": 0.2}
    t2t.open(loops_folder).export(out, format=kind, shard_records=9, splits=splits, progress=False)
    return t2t.load(out)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "seed": 1},
        {"shuffle": 7, "seed": 2},
        {"shuffle": 30, "seed": 1 << 40, "shard": (1, 3)},
        {"shard": (0, 2)},
        {"interleave": 3},
        {"interleave": 2, "shuffle": 5, "seed": 0},
        {"start_at": 2},
        {"repeat": 3, "start_at": 2},
        {"repeat": 3, "start_at": 2, "shuffle": True, "seed": 3},
        {"start_at": 1, "interleave": 3},
        {"shard": (1, 3), "even": "pad"},
        {"shard": (4, 5), "even": "drop", "shuffle": 4, "seed": 1},
        {"shard": (0, 4), "even": "stop"},
    ],
    ids=str,
)
@pytest.mark.parametrize("split", ["train", "train[3:40]+val", "val[:0]"])
def test_a_loop_over_record_files_has_the_order_of_the_dataset(
    loaded_loops: t2t.loading.files.Loaded, split: str, options: dict[str, Any]
) -> None:
    if "interleave" in options and not (loaded_loops.local and loaded_loops.manifest.format == "tfrecord"):
        with pytest.raises(OptionError, match="interleave= has no effect"):
            loaded_loops.records(split, **options)
        return
    if "start_at" in options and not len(loaded_loops.split(split)):
        with pytest.raises(OptionError, match="behind the end: there are 0 records"):
            loaded_loops.records(split, **options)
        return
    found = keys(loaded_loops.records(split, **options))
    dataset = loaded_loops.dataset(split, **options)
    assert found == keys_of(dataset)
    assert len(found) == dataset.cardinality()
    if "start_at" not in options:
        again = {**options, "repeat": 3}
        assert keys(loaded_loops.records(split, **again)) == found + keys_of(dataset) + keys_of(dataset)
        assert keys_of(loaded_loops.dataset(split, **again)) == keys(loaded_loops.records(split, **again))


def test_record_files_in_batches_of_all_splits(loaded_loops: t2t.loading.files.Loaded) -> None:
    assert sorted(keys(loaded_loops.records())) == sorted(keys(loaded_loops))
    assert [key for batch in loaded_loops.records(batch=7) for key in batch["__key__"]] == keys(
        loaded_loops.records()
    )
    assert {len(batch["txt"]) for batch in loaded_loops.records("train", batch=7, drop_remainder=True)} == {7}
    assert len(list(islice(loaded_loops.records("val", repeat=None), 100))) == 100


@pytest.mark.parametrize("options", [{}, {"shuffle": 6, "seed": 2}, {"shuffle": True, "seed": 2}], ids=str)
def test_record_files_begin_at_a_record_of_any_epoch(
    loaded_loops: t2t.loading.files.Loaded, options: dict[str, Any]
) -> None:
    whole = keys(loaded_loops.records(None, **options, repeat=2))
    for at in (0, 1, 9, len(loaded_loops) - 1, len(loaded_loops), len(loaded_loops) + 3, 2 * len(loaded_loops)):
        assert keys(loaded_loops.records(None, **options, repeat=2, start_at=at)) == whole[at:]
    endless = keys(islice(loaded_loops.records(None, **options, repeat=None, start_at=5), len(whole) - 5))
    assert endless == whole[5:]
    batches = loaded_loops.dataset("train", **options, repeat=2, start_at=3, batch=4)
    flat = [key.decode() for batch in batches.as_numpy_iterator() for key in batch["__key__"]]
    assert flat == keys(loaded_loops.records("train", **options, repeat=2, start_at=3))


def test_records_before_start_at_are_not_read(loops_folder: Path, tmp_path: Path) -> None:
    """Unshuffled records are found by their numbers, so a damaged first file does not matter."""
    first, *_ = t2t.open(loops_folder).export(tmp_path, shard_records=20, progress=False)
    Path(first).write_bytes(b"\0" * Path(first).stat().st_size)
    loaded = t2t.load(tmp_path)
    assert len(keys(loaded.records(start_at=20))) == len(loaded) - 20
    assert len(keys_of(loaded.dataset(start_at=20))) == len(loaded) - 20


@pytest.mark.parametrize("hosts", [2, 5, 200])
@pytest.mark.parametrize("even", ["pad", "drop", "stop"])
def test_hosts_get_equally_many_of_record_files(
    loaded_loops: t2t.loading.files.Loaded, even: str, hosts: int
) -> None:
    """Hosts get as many records as of shards with an index, and only the rule leaves records out."""
    shares = [keys(loaded_loops.records(shard=(host, hosts), even=even)) for host in range(hosts)]
    total = len(loaded_loops)
    assert {len(share) for share in shares} == {-(-total // hosts) if even == "pad" else total // hosts}
    found = list(chain(*shares))
    if even == "pad":
        assert set(found) == set(keys(loaded_loops))
    else:
        assert len(set(found)) == len(found) > total - hosts


def test_record_files_are_decoded(loops_folder: Path, tmp_path: Path) -> None:
    src = t2t.open(loops_folder)
    src.export(tmp_path / "raw", progress=False)
    src.export(tmp_path / "typed", types={"cls": "int32"}, progress=False)
    wanted = [(record["cls"], record["txt"]) for record in src.records(decode=True)]
    for out in ("raw", "typed"):
        loaded = t2t.load(tmp_path / out)
        assert [(record["cls"], record["txt"]) for record in loaded.records(decode=True)] == wanted
    words = next(t2t.load(tmp_path / "raw").records(decode={"cls": ["2", "1", "0"]}, batch=4))
    assert words["cls"] == [2, 1, 0, 2]


def test_a_value_of_a_record_file_that_does_not_decode_is_named(loops_folder: Path, tmp_path: Path) -> None:
    t2t.open(loops_folder).export(tmp_path, progress=False)
    with pytest.raises(MappingError, match=rf"{tmp_path}, record '0-001': field 'cls' did not decode as label"):
        list(t2t.load(tmp_path).records(decode={"cls": ["0"]}))
    with pytest.raises(SchemaError, match=r"decode= names field 'csl', and none of the records .* mean 'cls'"):
        list(t2t.load(tmp_path).records(decode={"csl": "int64"}))


def test_shuffles_and_turns_are_tf_data_s() -> None:
    """Compare shuffles and turns with TensorFlow's, for several epochs of one dataset."""
    for count, window, seed in [
        (10, 3, 1),
        (100, 7, 42),
        (5_000, 2048, 1 << 40),
        (50, 200, 5),
        (0, 4, 3),
        (9, 1, -1),
    ]:
        dataset, seeds = tf.data.Dataset.range(count).shuffle(window, seed), shuffle_numbers(seed)
        for _ in range(3):
            ours = list(shuffled(iter(range(count)), window, next(seeds)))
            assert ours == list(dataset.as_numpy_iterator()), (count, window, seed)
    lengths = [5, 0, 16, 17, 33, 1, 0, 40, 15, 2]
    for cycle, block in [(1, 16), (3, 16), (10, 16), (4, 1), (2, 3)]:
        starts = tf.data.Dataset.from_tensor_slices((range(0, 1000, 100), lengths))
        turns = starts.interleave(
            lambda begin, count: tf.data.Dataset.range(tf.cast(begin, tf.int64), tf.cast(begin + count, tf.int64)),
            cycle_length=cycle,
            block_length=block,
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        inputs = [lambda b=b, n=n: iter(range(b, b + n)) for b, n in zip(range(0, 1000, 100), lengths, strict=True)]
        assert list(interleaved(inputs, cycle, block)) == list(turns.as_numpy_iterator()), (cycle, block)


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 1},
        {"drop_remainder": True},
        {"even": "pad"},
        {"shuffle": 1},
        {"shuffle": "all"},
        {"repeat": 0},
        {"batch": 0},
        {"start_at": -1},
        {"shard": (3, 3)},
        {"shard": 1},
        {"start_at": 1_000},
        {"repeat": 1.5},
    ],
    ids=str,
)
def test_options_are_refused_as_by_the_dataset(loops_folder: Path, options: dict[str, Any]) -> None:
    src = t2t.open(loops_folder)
    with pytest.raises(OptionError) as theirs:
        src.dataset(**options)
    with pytest.raises(OptionError) as ours:
        src.records(**options)
    assert str(ours.value) == str(theirs.value)
    if "even" not in options and "start_at" not in options:
        with pytest.raises(OptionError):
            t2t.mix([src, src]).records(**options)


@pytest.mark.parametrize("options", [{"even": "pad"}, {"start_at": -1}, {"start_at": 1_000}, {"repeat": 0}], ids=str)
def test_record_files_refuse_options_as_shards_do(
    loops_folder: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    src = t2t.open(loops_folder)
    src.export(tmp_path, progress=False)
    with pytest.raises(OptionError) as theirs:
        src.records(**options)
    for call in (t2t.load(tmp_path).records, t2t.load(tmp_path).dataset):
        with pytest.raises(OptionError) as ours:
            call("train", **options)
        assert str(ours.value) == str(theirs.value)


def test_functions_are_refused_with_a_remedy(loops_folder: Path, tmp_path: Path) -> None:
    t2t.open(loops_folder).export(tmp_path, progress=False)
    loaded = t2t.load(tmp_path)

    def number(record: Any) -> Any:
        return tf.strings.to_number(record["cls"])

    behind = r"split is text, not .*number.*: a function .* \.dataset\('train'\)\.map\(function\)"
    with pytest.raises(OptionTypeError, match=behind):
        loaded.dataset(number)  # pyright: ignore[reportArgumentType]
    with pytest.raises(OptionTypeError, match=r"no option 'map': .* \.dataset\('train'\)\.map\(function\)"):
        loaded.dataset(map=number)  # pyright: ignore[reportCallIssue]
    with pytest.raises(OptionTypeError, match=r"split is text or None, .* map\(function, loaded\.records"):
        loaded.records(number)  # pyright: ignore[reportArgumentType]
    assert len(list(loaded.dataset("train").map(number).batch(32))) == 3


def test_a_missing_split(loops_folder: Path, tmp_path: Path) -> None:
    t2t.open(loops_folder).export(tmp_path, progress=False)
    for call in (t2t.load(tmp_path).files, t2t.load(tmp_path).split, t2t.load(tmp_path).dataset):
        with pytest.raises(OptionError, match="no split 'trian'; there are: train; did you mean 'train'"):
            call("trian")


def test_an_unknown_option_is_refused(loops_folder: Path) -> None:
    with pytest.raises(OptionTypeError, match="did you mean 'shuffle'"):
        t2t.open(loops_folder).records(shufle=True)  # pyright: ignore[reportCallIssue]


def test_an_index_of_fewer_records_is_an_error(
    loops_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with t2t.open(loops_folder) as src:
        reading = plan_reading(src.opened, None)
        monkeypatch.setattr(type(reading), "length", lambda *_: 3)
        with pytest.raises(StoreError, match=r"index says 3 records, and there are more"):
            list(src.records(shuffle=True))


@pytest.mark.parametrize(("stated", "what"), [(3, "more"), (1_000, "fewer")])
def test_the_error_of_an_index_states_its_number_of_records(
    loops_folder: Path, monkeypatch: pytest.MonkeyPatch, stated: int, what: str
) -> None:
    """The number is that of the index, not the number that the loop reads in its epochs after its start."""
    with t2t.open(loops_folder) as src:
        reading = plan_reading(src.opened, None)
        monkeypatch.setattr(type(reading), "length", lambda *_: stated)
        text = f"index says {stated:,} records, and there are {what}"
        cases: tuple[dict[str, Any], ...] = ({"repeat": 2}, {"start_at": 2})
        for options in cases:
            with pytest.raises(StoreError, match=text):
                list(src.records(**options))
            with pytest.raises(StoreError, match=text):
                list(src.dataset(**options))


def test_an_abandoned_loop_closes_its_streams(loops_folder: Path) -> None:
    import threading

    before = set(threading.enumerate())
    records: Iterator[Any] = t2t.open(loops_folder).records(shuffle=True, repeat=None, batch=4)
    for _ in repeat(None, 3):
        next(records)
    del records
    assert {thread for thread in threading.enumerate() if thread.is_alive()} <= before


def test_plain_loops_do_not_import_tensorflow(loops_folder: Path, tmp_path: Path) -> None:
    code = f"""
import sys
import ais_tar2tf as t2t
src = t2t.open({str(loops_folder)!r})
options = dict(shuffle=True, seed=1, shard=(0, 2), repeat=2, batch=4)
assert sum(len(batch["txt"]) for batch in src.records(**options))
assert sum(1 for _ in src.records(shuffle="global", decode={{"txt": "text"}}))
assert sum(1 for _ in t2t.mix([src, src]).records(**options))
src.export({str(tmp_path / "out")!r}, shard_records=9, progress=False)
assert sum(1 for _ in t2t.load({str(tmp_path / "out")!r}).records("train", **options))
assert "tensorflow" not in sys.modules
"""
    subprocess.run([sys.executable, "-Werror", "-c", code], check=True, timeout=100)
