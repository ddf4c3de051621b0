"""Datum's load: every setting, split instructions, directories of earlier versions, and training."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from ais_tar2tf import datum
from ais_tar2tf.datum.configs import BucketConfigs, DatasetConfigs, TFRReadConfigs, TFRWriteConfigs
from ais_tar2tf.errors import ExportError, SchemaError
from tests.support import datum_folders as made

COUNT = 40
ROOT = Path(__file__).parents[2]


def write(out: Path, example: Callable[[int], dict], counts: dict[str, int], shard_size: int | str = "1MB") -> Path:
    configs = TFRWriteConfigs(splits={split: {"count": count} for split, count in counts.items()})
    configs.shard_size = shard_size
    configs.generator = lambda count, **_: (example(number) for number in range(count))
    datum.export.export_to_tfrecord("-", out, "custom", configs)
    return out


@pytest.fixture(scope="module")
def numbers(tmp_path_factory) -> Path:
    """Export x: 0…39 in four files (train), 0…9 (val), 0…4 (test). `row` has min(x, 5) numbers."""
    out = tmp_path_factory.mktemp("numbers")
    counts = {"train": COUNT, "val": 10, "test": 5}
    return write(out, lambda n: {"x": n, "row": list(range(n % 6))}, counts, shard_size=570)


def xs(dataset) -> list[list[int]]:
    return [batch["x"].tolist() for batch in dataset.as_numpy_iterator()]


def flat(dataset) -> list[int]:
    return [x for batch in xs(dataset) for x in batch]


def loaded(path: Path, **settings) -> datum.reader.Dataset:
    return datum.load(path, DatasetConfigs(**settings))


def test_defaults_are_the_documented_ones(numbers):
    configs = DatasetConfigs()
    assert {name: getattr(configs, name) for name in DatasetConfigs.names()} == {
        "buffer_size": 100, "seed": 6052020, "full_dataset": False,
        "drop_remainder": True, "drop_remainder_val": False, "drop_remainder_test": False,
        "deterministic": False, "deterministic_val": False, "deterministic_test": False,
        "num_parallel_calls": 1, "batch_size_train": 32, "batch_size_val": 32, "batch_size_test": 32,
        "echoing": None, "shuffle_files": True, "reshuffle_each_iteration": False, "cache": False,
        "cache_filename": "", "bucket_op": BucketConfigs(), "bucket_fn": None,
        "pre_batching_callback_train": None, "pre_batching_callback_val": None, "pre_batching_callback_test": None,
        "post_batching_callback_train": None, "post_batching_callback_val": None,
        "post_batching_callback_test": None, "read_config": TFRReadConfigs(),
        "use_tf_padding": True, "use_datum_padding": False,
    }  # fmt: skip
    assert (configs.bucket_op.bucket_boundaries, configs.bucket_op.bucket_batch_sizes) == ([0], [32, 32])
    dataset = datum.load(numbers)
    assert list(map(len, xs(dataset.train_fn()))) == [32]
    assert list(map(len, xs(dataset.val_fn()))) == [10]
    assert list(map(len, xs(dataset.test_fn()))) == [5]


def test_setters_check_types_and_names():
    configs = DatasetConfigs()
    for name, value in (("buffer_size", "7"), ("cache", 1), ("batch_size_train", True), ("bucket_fn", 3)):
        with pytest.raises(TypeError, match=f"DatasetConfigs.{name} is"):
            setattr(configs, name, value)
    with pytest.raises(ValueError, match="batch_size_val is 1 or more, not 0"):
        configs.batch_size_val = 0
    with pytest.raises(AttributeError, match="no setting 'batch_size'; there are: buffer_size"):
        configs.batch_size = 32
    with pytest.raises(AttributeError):
        DatasetConfigs(unknown=1)
    with pytest.raises(AttributeError):
        _ = configs.unknown
    assert DatasetConfigs.echoing.__doc__ == "How many times each batch of training is returned."
    configs.echoing = 3
    configs.echoing = None
    assert configs.get("echoing", 1) == 1
    other = configs.merge(DatasetConfigs(seed=3))
    assert (other.seed, other.echoing, configs == other, configs == DatasetConfigs()) == (3, None, False, True)
    assert pickle.loads(pickle.dumps(other)) == other  # noqa: S301  # our own
    with pytest.raises(TypeError, match="dataset_configs is a DatasetConfigs"):
        datum.reader.Dataset.dataset_configs.fset(object(), {})


def test_configs_can_be_changed_between_datasets(numbers):
    dataset = datum.load(numbers)
    dataset.dataset_configs.batch_size_val = 4
    assert list(map(len, xs(dataset.val_fn()))) == [4, 4, 2]
    dataset.dataset_configs = DatasetConfigs(batch_size_val=5)
    assert list(map(len, xs(dataset.val_fn()))) == [5, 5]


def test_batch_sizes_and_remainders(numbers):
    dataset = loaded(numbers, batch_size_train=16, batch_size_val=4, batch_size_test=3)
    assert list(map(len, xs(dataset.train_fn()))) == [16, 16]
    assert list(map(len, xs(dataset.val_fn()))) == [4, 4, 2]
    assert list(map(len, xs(dataset.test_fn()))) == [3, 2]
    configs = dataset.dataset_configs
    configs.drop_remainder, configs.drop_remainder_val, configs.drop_remainder_test = False, True, True
    assert list(map(len, xs(dataset.train_fn()))) == [16, 16, 8]
    assert list(map(len, xs(dataset.val_fn()))) == [4, 4]
    assert list(map(len, xs(dataset.test_fn()))) == [3]
    assert dataset.train_fn().cardinality() == 3


def test_not_repeated_fewer_examples_than_a_batch_are_an_error_not_zero_batches(tmp_path):
    write(tmp_path, lambda n: {"x": n}, {"train": 20, "val": 3})
    with pytest.raises(SchemaError, match=r"'train' has 20 examples, fewer than batch_size_train=32, and drop_rem"):
        datum.load(tmp_path).train_fn("train")
    with pytest.raises(SchemaError, match=r"set drop_remainder_val=False, or a smaller batch_size_val"):
        loaded(tmp_path, drop_remainder_val=True).val_fn()
    assert flat(loaded(tmp_path, drop_remainder=False).train_fn(shuffle=False)) == list(range(20))


def test_repeat(numbers):
    dataset = loaded(numbers, batch_size_val=10)
    assert len(xs(dataset.val_fn("val", 3))) == 3
    assert len(xs(dataset.val_fn("val", -1).take(7))) == 7
    assert len(xs(dataset.test_fn("test", False))) == 1


def test_shuffle_is_seeded_and_bounded_by_its_buffer(numbers):
    settings = {"batch_size_train": 1, "shuffle_files": False, "deterministic": True}
    in_order = flat(loaded(numbers, **settings).train_fn(shuffle=False))
    assert in_order == list(range(COUNT))
    one, same = (flat(loaded(numbers, **settings).train_fn(shuffle=True)) for _ in range(2))
    other = flat(loaded(numbers, seed=7, **settings).train_fn(shuffle=True))
    assert sorted(one) == sorted(other) == in_order
    assert one == same
    assert len({tuple(order) for order in (one, other, in_order)}) == 3
    settings["read_config"] = TFRReadConfigs(interleave_cycle_length=1)
    assert flat(loaded(numbers, buffer_size=1, **settings).train_fn(shuffle=True)) == in_order
    near = flat(loaded(numbers, buffer_size=3, **settings).train_fn(shuffle=True))
    assert near != in_order
    assert all(place >= x - 2 for place, x in enumerate(near))


def test_reshuffle_each_iteration(numbers):
    settings = {"batch_size_train": 40, "shuffle_files": False, "deterministic": True}
    kept = loaded(numbers, **settings).train_fn()
    assert flat(kept) == flat(kept)
    fresh = loaded(numbers, reshuffle_each_iteration=True, **settings).train_fn()
    assert flat(fresh) != flat(fresh)


def test_shuffle_files_and_their_seed(numbers):
    def order(read_config: TFRReadConfigs, epochs: int = 1, **settings) -> list[list[int]]:
        settings |= {"batch_size_train": 40, "buffer_size": 1, "deterministic": True, "read_config": read_config}
        return xs(loaded(numbers, **settings).train_fn("train", epochs))

    one = {"interleave_cycle_length": 1}
    assert order(TFRReadConfigs(**one), shuffle_files=False) == [list(range(COUNT))]
    first, second = order(TFRReadConfigs(**one), 2)
    assert sorted(first) == list(range(COUNT))
    assert first != sorted(first)
    assert order(TFRReadConfigs(**one)) == [first]
    assert any(order(TFRReadConfigs(seed=seed, **one)) != [first] for seed in range(5))
    kept = order(TFRReadConfigs(shuffle_reshuffle_each_iteration=False, **one), 3)
    assert kept[0] == kept[1] == kept[2]
    epochs = order(TFRReadConfigs(**one), 5)
    assert len({tuple(each) for each in epochs}) > 1
    assert second in epochs


def test_interleave_settings(numbers):
    files = json.loads((numbers / "shard_info.json").read_text())["train"]
    assert len(files) == 4
    begins = np.cumsum([0, *files.values()])[:4].tolist()

    def order(**read) -> list[int]:
        configs = {"batch_size_train": 1, "read_config": TFRReadConfigs(**read)}
        return flat(loaded(numbers, **configs).train_fn(shuffle=False))

    assert order(interleave_cycle_length=4)[:4] == begins
    assert order(interleave_cycle_length=2)[:4] == [0, begins[1], 1, begins[1] + 1]
    assert order(interleave_cycle_length=2, interleave_block_length=2)[:4] == [0, 1, begins[1], begins[1] + 1]
    seen = []

    def backwards(spans):
        seen.extend(spans)
        return spans[::-1]

    assert order(experimental_interleave_sort_fn=backwards)[0] == begins[3]
    assert seen[0].keys() == {"filename", "skip", "take"}
    assert sorted(order(interleave_cycle_length=3)) == list(range(COUNT))


def test_tf_data_options_are_applied(numbers):
    options = tf.data.Options()
    options.threading.private_threadpool_size = 2
    dataset = loaded(numbers, read_config=TFRReadConfigs(options=options)).train_fn()
    assert dataset.options().threading.private_threadpool_size == 2


def test_deterministic(numbers):
    for name, suffix in (("train_fn", ""), ("val_fn", "_val"), ("test_fn", "_test")):
        for wanted in (False, True):
            dataset = loaded(numbers, **{f"deterministic{suffix}": wanted})
            shuffled = getattr(dataset, name)("train", shuffle=True)
            assert shuffled.options().deterministic is wanted, name
            in_order = getattr(dataset, name)("train", shuffle=False)
            assert in_order.options().deterministic is True, name


def test_callbacks_before_and_after_batching_apply_to_their_split(numbers):
    def at(name: str):
        return lambda example: {**example, name: tf.shape(example["x"])}

    configs = DatasetConfigs(batch_size_test=5)
    for split in ("train", "val", "test"):
        setattr(configs, f"pre_batching_callback_{split}", at(f"pre {split}"))
        setattr(configs, f"post_batching_callback_{split}", at(f"post {split}"))
    dataset = datum.load(numbers, configs)
    for split, size in (("train", 32), ("val", 10), ("test", 5)):
        (batch,) = getattr(dataset, f"{split}_fn")().as_numpy_iterator()
        assert batch.keys() == {"x", "row", f"pre {split}", f"post {split}"}
        assert batch[f"pre {split}"].shape == (size, 0)
        assert batch[f"post {split}"].tolist() == [size]


def test_the_documents_unsuffixed_callbacks_set_all_three(numbers):
    configs = DatasetConfigs()
    configs.pre_batching_callback = lambda example: {"x": example["x"] * 2}
    configs.post_batching_callback = lambda batch: {"x": batch["x"] + 1}
    dataset = datum.load(numbers, configs)
    for split in ("train", "val", "test"):
        assert sorted(flat(getattr(dataset, f"{split}_fn")()))[0] % 2 == 1
    assert flat(dataset.test_fn()) == [1, 3, 5, 7, 9]
    assert configs.pre_batching_callback is configs.pre_batching_callback_val


def test_the_order_of_the_steps(numbers):
    """The order is cache → pre → shuffle → batch → echo → repeat → post.

    Callbacks run in each epoch, post for each echo.
    """
    pre, post = [], []

    def note(into: list):
        def call(value):
            into.append(1)
            return value

        def apply(example):
            x = tf.numpy_function(call, [example["x"]], tf.int64)
            return {"x": tf.ensure_shape(x, example["x"].shape)}

        return apply

    configs = DatasetConfigs(batch_size_train=10, echoing=3, cache=True)
    configs.pre_batching_callback_train, configs.post_batching_callback_train = note(pre), note(post)
    assert len(xs(datum.load(numbers, configs).train_fn("train", 2))) == 4 * 3 * 2
    assert (len(pre), len(post)) == (2 * COUNT, 4 * 3 * 2)


def test_echoing(numbers):
    dataset = loaded(numbers, batch_size_train=20, echoing=2, batch_size_val=10)
    assert xs(dataset.train_fn(shuffle=False)) == [list(range(20))] * 2 + [list(range(20, 40))] * 2
    assert len(xs(dataset.val_fn())) == 1


def test_num_parallel_calls_runs_callbacks_concurrently(numbers):
    def meet(parallel: int) -> list[int]:
        both = threading.Barrier(2)

        def wait(x):
            both.wait(10 if parallel > 1 else 0.2)
            return x

        configs = DatasetConfigs(batch_size_val=2, num_parallel_calls=parallel)
        configs.pre_batching_callback_val = lambda example: {
            "x": tf.ensure_shape(tf.numpy_function(wait, [example["x"]], tf.int64), ())
        }
        return flat(datum.load(numbers, configs).val_fn())

    assert meet(2) == list(range(10))
    with pytest.raises(tf.errors.OpError, match="BrokenBarrier"):
        meet(1)


def test_cache_in_memory_and_in_a_file(tmp_path):
    for filename in ("", str(tmp_path / "cached")):
        out = write(tmp_path / "out", lambda n: {"x": n}, {"train": 4})
        dataset = loaded(out, batch_size_train=4, cache=True, cache_filename=filename).train_fn(shuffle=False)
        assert flat(dataset) == [0, 1, 2, 3]
        (file,) = out.glob("*.tfrecord")
        file.write_bytes(b"")
        assert flat(dataset) == [0, 1, 2, 3]
    assert list(tmp_path.glob("cached*"))


def test_a_cache_file_is_bound_to_split_part_order_and_host(numbers, tmp_path):
    settings = {"batch_size_val": 100, "cache": True, "cache_filename": str(tmp_path / "cached")}
    dataset = loaded(numbers, **settings)
    for _ in range(2):
        assert flat(dataset.val_fn("train")) == list(range(COUNT))
        assert flat(dataset.val_fn("val")) == list(range(10))
        assert flat(dataset.val_fn("train[:3]")) == [0, 1, 2]
        assert sorted(flat(dataset.val_fn("train", shuffle=True))) == list(range(COUNT))
        assert flat(dataset.val_fn("train")) == list(range(COUNT))
        for host in range(2):
            of_host = loaded(numbers, read_config=TFRReadConfigs(input_context=(host, 2)), **settings)
            assert flat(of_host.val_fn("train")) == list(range(20 * host, 20 * host + 20))
        for step in (1, -1):
            ways = (lambda spans: spans[::1], lambda spans: spans[::-1])
            sort = TFRReadConfigs(experimental_interleave_sort_fn=ways[step < 0])
            found = flat(loaded(numbers, read_config=sort, **settings).val_fn("train"))
            assert (found[0] == 0) == (step == 1)


def test_a_cache_file_is_bound_to_functions_inside_the_sort_function(numbers, tmp_path):
    def up(spans):
        return sorted(spans, key=lambda span: str(span))

    def down(spans):
        return sorted(spans, key=lambda span: [-ord(letter) for letter in str(span)])

    down.__qualname__ = up.__qualname__
    found = []
    for sort in (up, down, up):
        settings = {"cache": True, "cache_filename": str(tmp_path / "cached")}
        read = TFRReadConfigs(experimental_interleave_sort_fn=sort)
        found.append(flat(loaded(numbers, batch_size_val=100, read_config=read, **settings).val_fn("train"))[0])
    assert found[0] == found[2] == 0
    assert found[1] > 0


@pytest.mark.parametrize("sort", ["None", "lambda spans: spans[::-1] if 'a' in {'b', 'c', 'd', 'e', 'f'} else spans"])
def test_a_cache_file_is_found_in_other_processes(numbers, tmp_path, sort):
    script = f"""
from ais_tar2tf import datum
read = datum.configs.TFRReadConfigs(experimental_interleave_sort_fn={sort})
configs = datum.configs.DatasetConfigs(
    batch_size_val=8, cache=True, cache_filename={str(tmp_path / "cached")!r}, read_config=read
)
assert len(list(datum.load({str(numbers)!r}, configs).val_fn())) == 2
"""
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, timeout=200, check=True)
    assert len(list(tmp_path.glob("cached*.index"))) == 1


def test_full_dataset_is_one_batch_of_tensors(numbers):
    everything = loaded(numbers, full_dataset=True, batch_size_train=64).train_fn(shuffle=False)
    assert everything["x"].numpy().tolist() == list(range(COUNT))
    assert everything["row"].shape == (COUNT, 5)
    with pytest.raises(SchemaError, match="full_dataset needs batch_size_train >= 40"):
        loaded(numbers, full_dataset=True).train_fn()
    several = {"echoing": 2, "bucket_fn": lambda example: example["x"]}
    alone = loaded(numbers, full_dataset=True, batch_size_train=64, **several).train_fn(repeat=3, shuffle=False)
    assert alone["x"].numpy().tolist() == list(range(COUNT))  # a single batch is neither repeated nor bucketed


def test_buckets(numbers):
    buckets = BucketConfigs(bucket_boundaries=[2, 4], bucket_batch_sizes=[4, 3, 2])
    dataset = loaded(numbers, bucket_fn=lambda example: tf.size(example["row"]), bucket_op=buckets)
    lengths = set()
    for batch in dataset.train_fn(shuffle=False).as_numpy_iterator():
        found = {x % 6 for x in batch["x"].tolist()}
        bucket = 0 if max(found) < 2 else 1 if max(found) < 4 else 2
        assert min(found) >= (0, 2, 4)[bucket]
        assert len(batch["x"]) == (4, 3, 2)[bucket]
        assert batch["row"].shape[1] == max(found)
        lengths.add(bucket)
    assert lengths == {0, 1, 2}
    dataset.dataset_configs.drop_remainder = False
    assert sorted(flat(dataset.train_fn())) == list(range(COUNT))


def test_a_bucket_may_be_chosen_by_a_number_that_was_exported(numbers):
    buckets = BucketConfigs(bucket_boundaries=[20], bucket_batch_sizes=[20, 20])
    dataset = loaded(numbers, bucket_fn=lambda example: example["x"], bucket_op=buckets).train_fn(shuffle=False)
    assert xs(dataset) == [list(range(20)), list(range(20, 40))]


def test_not_repeated_buckets_that_are_never_full_are_an_error_not_zero_batches(numbers):
    settings = {"bucket_fn": lambda example: tf.size(example["row"])}
    with pytest.raises(SchemaError, match="'val' has 10 examples, fewer than bucket_batch_sizes=32"):
        loaded(numbers, **settings).train_fn("val")
    halves = BucketConfigs(bucket_boundaries=[3], bucket_batch_sizes=[25, 25])
    dataset = loaded(numbers, bucket_op=halves, **settings).train_fn("train", repeat=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no bucket has a full batch; set drop_remainder=False"):
        list(dataset)
    kept = loaded(numbers, bucket_op=halves, drop_remainder=False, **settings).train_fn("train")
    assert sorted(flat(kept)) == list(range(COUNT))


def test_padding(numbers):
    (batch,) = loaded(numbers, batch_size_val=10).val_fn().as_numpy_iterator()
    assert batch["row"].tolist() == [[*range(n % 6), *[0] * (5 - n % 6)] for n in range(10)]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Cannot batch"):
        list(loaded(numbers, use_tf_padding=False).val_fn())

    def forgetful(example):
        x, row = tf.numpy_function(lambda *parts: list(parts), [example["x"], example["row"]], [tf.int64, tf.int64])
        return {"x": x, "row": row}

    settings = {"pre_batching_callback_val": forgetful, "batch_size_val": 10}
    with pytest.raises(ValueError, match=r"[Uu]nknown"):
        loaded(numbers, **settings).val_fn()
    (known,) = loaded(numbers, use_datum_padding=True, **settings).val_fn().as_numpy_iterator()
    assert known["row"].tolist() == batch["row"].tolist()


def test_images_of_several_sizes_are_padded_or_resized(tmp_path):
    sizes = [(12, 16), (20, 8), (6, 6)]
    write(tmp_path, lambda n: {"image": made.encoded(made.pixels(n, *sizes[n % 3]), "PNG")}, {"train": 32})
    batch = next(iter(datum.load(tmp_path).train_fn(shuffle=False)))
    assert batch["image"].shape == (32, 20, 16, 3)
    np.testing.assert_array_equal(batch["image"][1, :20, :8], made.pixels(1, 20, 8))
    configs = DatasetConfigs()
    configs.pre_batching_callback = lambda example: {"image": tf.image.resize(example["image"], (9, 9))}
    assert next(iter(datum.load(tmp_path, configs).train_fn()))["image"].shape == (32, 9, 9, 3)


def test_instructions(numbers):
    dataset = loaded(numbers, batch_size_test=100)
    assert flat(dataset.test_fn("train[:10%]")) == [0, 1, 2, 3]
    assert flat(dataset.test_fn("train[-2:]+val[:3]")) == [38, 39, 0, 1, 2]
    assert flat(dataset.test_fn("test+val")) == [*range(5), *range(10)]
    with pytest.raises(SchemaError, match="there is no split 'dev'; there are: train, val, test"):
        dataset.test_fn("dev")
    with pytest.raises(SchemaError, match="'train\\[5:5\\]' has no examples"):
        dataset.test_fn("train[5:5]")


def test_a_host_reads_its_share(numbers):
    shares = []
    for host in range(3):
        context = tf.distribute.InputContext(3, host)
        read = TFRReadConfigs(input_context=context)
        dataset = loaded(numbers, read_config=read, batch_size_val=9).val_fn("train")
        assert dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF
        assert len(next(iter(dataset))["x"]) == 3  # one of nine hosts
        shares.append(flat(dataset))
    assert sorted(x for share in shares for x in share) == list(range(COUNT))
    assert {len(share) for share in shares} == {13, 14}
    assert (
        flat(loaded(numbers, read_config=TFRReadConfigs(input_context=(2, 3)), batch_size_val=9).val_fn("train"))
        == (shares[2])
    )


def test_a_batch_of_all_hosts_is_full_when_the_share_of_each_is(numbers):
    for host in range(2):
        context = TFRReadConfigs(input_context=(host, 2))
        (batch,) = loaded(numbers, read_config=context).train_fn().as_numpy_iterator()
        assert len(batch["x"]) == 16
        everything = loaded(numbers, read_config=context, full_dataset=True, batch_size_train=COUNT).train_fn()
        assert len(everything["x"]) == 20
    with pytest.raises(SchemaError, match="for host 0 of 2 has 20 examples, fewer than batch_size_train=32 on each"):
        loaded(numbers, read_config=TFRReadConfigs(input_context=(0, 2)), batch_size_train=64).train_fn()
    with pytest.raises(SchemaError, match="full_dataset needs batch_size_train >= 40"):
        loaded(numbers, read_config=TFRReadConfigs(input_context=(0, 2)), full_dataset=True).train_fn()


def test_under_a_strategy(numbers):
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        dataset = loaded(numbers, batch_size_val=8).val_fn("train")
        shared = strategy.experimental_distribute_dataset(dataset)
        seen = [x for batch in shared for x in batch["x"].numpy().tolist()]
    assert seen == list(range(COUNT))


# Old and broken directories


def _old_directory(out: Path) -> None:
    """Write files as Datum did: no `field` in the mapping, shapes of sparse features as `<name>_shape`."""

    def example(number: int) -> bytes:
        def integers(*values: int):
            return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

        rows = number % 3
        features = {
            "image": tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[made.encoded(made.pixels(number), "JPEG")])
            ),
            "label": integers(number),
            "matrix": tf.train.Feature(float_list=tf.train.FloatList(value=[number] * 6)),
            "labels": integers(*range(rows)),
            "boxes": tf.train.Feature(float_list=tf.train.FloatList(value=[number] * (rows * 2))),
            "boxes_shape": integers(rows, 2),
            "note": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"n%d" % number])),
        }
        return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()

    mapping = {
        "image": {"type": "string", "shape": [281, 500, 3], "dense": True},
        "label": {"type": "int", "shape": [], "dense": True},
        "matrix": {"type": "float", "shape": [2, 3], "dense": True},
        "labels": {"type": "int", "shape": [2], "dense": False},
        "boxes": {"type": "float", "shape": [2, 2], "dense": False},
        "boxes_shape": {"type": "int", "shape": [2], "dense": True},
        "note": {"type": "string", "shape": [], "dense": True},
    }
    (out / "datum_to_type_and_shape_mapping.json").write_text(json.dumps(mapping))
    with tf.io.TFRecordWriter(str(out / "train-00000-of-00001.tfrecord")) as writer:
        for number in range(6):
            writer.write(example(number))
    (out / "shard_info.json").write_text(json.dumps({"train": {"train-00000-of-00001.tfrecord": 6}}))


def test_directories_that_an_earlier_datum_wrote(tmp_path):
    _old_directory(tmp_path)
    (batch,) = loaded(tmp_path, batch_size_train=6).train_fn(shuffle=False).as_numpy_iterator()
    assert batch["image"].shape == (6, 12, 16, 3)
    assert batch["label"].tolist() == list(range(6))
    assert batch["matrix"].shape == (6, 2, 3)
    assert batch["labels"].tolist() == [[0, 0], [0, 0], [0, 1]] * 2
    assert batch["boxes"].shape == (6, 2, 2)
    assert batch["boxes"][5].tolist() == [[5, 5], [5, 5]]
    assert batch["boxes"][4].tolist() == [[4, 4], [0, 0]]
    assert batch["note"][3] == b"n3"


def test_directories_without_their_documents_or_files(tmp_path):
    with pytest.raises(ExportError, match=r"shard_info\.json: there is no such file"):
        datum.load(tmp_path)
    write(tmp_path, lambda n: {"x": n}, {"train": 32})
    (tmp_path / "shard_info.json").write_text("[]")
    with pytest.raises(SchemaError, match=r"shard_info\.json: .* it holds no JSON object"):
        datum.load(tmp_path)
    (tmp_path / "shard_info.json").write_text('{"train": {"train-00000-of-00009.tfrecord": 32}}')
    with pytest.raises(ExportError, match=r"train-00000-of-00009\.tfrecord: .*names this file, and it is not there"):
        datum.load(tmp_path).train_fn()
    (tmp_path / "shard_info.json").write_text('{"train": 32}')
    with pytest.raises(SchemaError, match=r"shard_info\.json: .*train: an object is expected, not 32"):
        datum.load(tmp_path)
    (tmp_path / "datum_to_type_and_shape_mapping.json").write_text('{"x": {"type": "complex"}}')
    (tmp_path / "shard_info.json").write_text("{}")
    with pytest.raises(SchemaError, match=r"mapping\.json: .*'shape' is expected"):
        datum.load(tmp_path)


# Training


def _trained(dataset, head: list, loss: str) -> float:
    model = tf.keras.Sequential(head)
    model.compile("sgd", loss)
    return model.fit(dataset, epochs=1, verbose=0).history["loss"][0]


def test_training_on_each_of_the_four_problems(tmp_path):
    keras = tf.keras.layers
    problem = datum.problem

    def dataset(name: str, make, kind: str, to_pair) -> tf.data.Dataset:
        make(tmp_path / name, train=16)
        datum.export.export_to_tfrecord(tmp_path / name, tmp_path / f"{name}-out", kind, made.configs(train=16))
        configs = DatasetConfigs(batch_size_train=8, post_batching_callback_train=to_pair)
        return datum.load(tmp_path / f"{name}-out", configs).train_fn("train")

    def pixels(batch):
        return tf.cast(batch["image"], tf.float32) / 255

    classes = dataset("clf", made.classification, problem.IMAGE_CLF, lambda b: (pixels(b), b["label"]))
    image = keras.Input((12, 16, 3))
    assert (
        _trained(classes, [image, keras.Flatten(), keras.Dense(3, "softmax")], "sparse_categorical_crossentropy") > 0
    )
    counts = dataset(
        "det", made.detection, problem.IMAGE_DET, lambda b: (pixels(b), tf.math.count_nonzero(b["labels"], 1))
    )
    assert _trained(counts, [image, keras.Flatten(), keras.Dense(1)], "mse") > 0
    masks = dataset("seg", made.segmentation, problem.IMAGE_SEG, lambda b: (pixels(b), b["label"]))
    assert _trained(masks, [image, keras.Conv2D(4, 1, activation="softmax")], "sparse_categorical_crossentropy") > 0
    words = dataset(
        "text", made.text, problem.TEXT_CLF, lambda b: (tf.strings.to_hash_bucket_fast(b["text"], 50), b["polarity"])
    )
    text = [keras.Input((), dtype="int64"), keras.Embedding(50, 4), keras.Dense(1, "sigmoid")]
    assert _trained(words, text, "binary_crossentropy") > 0
