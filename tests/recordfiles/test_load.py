"""t2t.load and t2t.write_dataset: written records are read by number, in order, and as a dataset."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf.errors import AccessDenied, ExportError, SchemaError
from ais_tar2tf.recordfiles.export.splits import split_ranges
from ais_tar2tf.values import features
from tests.support.record_folders import source

COUNTS = [40, 25]
TOTAL = sum(COUNTS)


@pytest.fixture(scope="module")
def source_records(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("source")
    return list(t2t.open(source(folder, COUNTS)).records())


@pytest.fixture(scope="module", params=["tfrecord", "array_record", "tar"])
def loaded_export(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loaded")
    src = t2t.open(source(folder / "in", COUNTS))
    src.export(folder / "out", format=request.param, shard_records=20)
    return t2t.load(folder / "out")


def plain(record):
    return {name: value for name, value in record.items() if name != "__shard__"}


def test_by_number(loaded_export, source_records):
    assert len(loaded_export) == TOTAL
    assert list(loaded_export) == [plain(record) for record in source_records]
    assert list(loaded_export.split("train[18:23]+train[:1]")) == [
        plain(record) for record in [*source_records[18:23], source_records[0]]
    ]
    if loaded_export.manifest.format == "tar":
        with pytest.raises(ExportError, match="single records of tar"):
            loaded_export[0]
        return
    for at in (0, 19, 20, TOTAL - 1, -1, -TOTAL):
        assert loaded_export[at] == plain(source_records[at])
    assert loaded_export[18:23] == [plain(record) for record in source_records[18:23]]
    assert loaded_export[::-20] == [plain(record) for record in source_records[::-20]]
    for wrong in (TOTAL, -TOTAL - 1):
        with pytest.raises(IndexError):
            loaded_export[wrong]


def test_as_a_dataset(loaded_export, source_records):
    dataset = loaded_export.dataset("train")
    assert dataset.cardinality().numpy() == TOTAL
    elements = [
        {name: value for name, value in element.items() if name != "__shard__"}
        for element in dataset.as_numpy_iterator()
    ]
    assert elements == [{**plain(record), "__key__": record["__key__"].encode()} for record in source_records]


@pytest.mark.parametrize(
    "expression", ["train[:30%]", "train[35:]", "train[-5:]+train[:1]", "train[10:10]+train[19:41]"]
)
def test_parts(loaded_export, source_records, expression):
    want = [
        source_records[at]["__key__"].encode()
        for part in split_ranges(expression, {"train": TOTAL})
        for at in range(part.start, part.stop)
    ]
    dataset = loaded_export.dataset(expression)
    assert [element["__key__"] for element in dataset.as_numpy_iterator()] == want
    assert dataset.cardinality().numpy() == len(want)


@pytest.mark.parametrize("batch", [None, 4])
def test_a_part_without_records(loaded_export, batch):
    dataset = loaded_export.dataset("train[10:10]", batch=batch)
    assert dataset.cardinality().numpy() == 0
    assert list(dataset) == []
    assert set(dataset.element_spec) >= {"__key__", "jpg", "cls"}


@pytest.mark.parametrize("kind", ["tfrecord", "array_record", "tar"])
def test_a_split_without_records(tmp_path, kind):
    assert t2t.open(source(tmp_path / "in", [0])).export(tmp_path / "out", format=kind) == []
    loaded = t2t.load(tmp_path / "out")
    assert (len(loaded), loaded.verify().files, list(loaded.records())) == (0, 0, [])
    assert list(loaded.dataset("train", shuffle=True)) == []


@pytest.mark.parametrize("kind", ["tfrecord", "array_record", "tar"])
def test_a_folder_whose_name_would_be_a_template(tmp_path, kind):
    out = tmp_path / "a{1,2}[3]*\\b"
    t2t.open(source(tmp_path / "in", [5])).export(out, format=kind)
    loaded = t2t.load(out)
    assert loaded.verify().records == len(list(loaded.dataset("train"))) == len(list(loaded)) == 5


def test_batches_and_shuffle(loaded_export, source_records):
    batches = list(loaded_export.dataset(batch=32).as_numpy_iterator())
    assert [len(batch["jpg"]) for batch in batches] == [32, 32, 1]
    assert loaded_export.dataset(batch=32, drop_remainder=True).reduce(0, lambda count, _: count + 1).numpy() == 2
    orders = [
        [e["__key__"] for e in loaded_export.dataset(shuffle=True, seed=seed).as_numpy_iterator()]
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(record["__key__"].encode() for record in source_records)


def test_files_in_turns(tmp_path):
    t2t.open(source(tmp_path / "in", COUNTS)).export(tmp_path / "out", shard_records=20)
    loaded = t2t.load(tmp_path / "out")
    in_turns = [element["__key__"] for element in loaded.dataset(interleave=4).as_numpy_iterator()]
    assert in_turns == [element["__key__"] for element in loaded.dataset(interleave=4).as_numpy_iterator()]
    assert in_turns[16] == b"n0/000020"
    assert len(set(in_turns)) == TOTAL


def test_a_missing_export(tmp_path):
    with pytest.raises(ExportError, match="no manifest"):
        t2t.load(tmp_path)
    with pytest.raises(ExportError, match="no manifest"):
        t2t.load("memory://nothing/there")
    (tmp_path / "manifest.json").write_text('{"manifest": 1}')
    with pytest.raises(ExportError, match=r"manifest\.json: the document is damaged: 'format' is expected"):
        t2t.load(tmp_path)


def test_a_folder_that_may_not_be_read(tmp_path, monkeypatch):
    """A folder that may not be read is our error. Root may read everything, so the refusal is simulated."""
    (out,) = t2t.open(source(tmp_path / "in", [5])).export(tmp_path / "out")
    loaded = t2t.load(tmp_path / "out")
    with pytest.raises(ExportError, match="no manifest"):
        t2t.load(out)  # a file, not a folder

    def denied(*_: object, **__: object):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("ais_tar2tf.recordfiles.loading.stored_files._WatchedFile", denied)
    for reading in (loaded.verify, lambda: loaded[0], lambda: list(loaded.records())):
        with pytest.raises(AccessDenied, match="00000-of-00001"):
            reading()
    monkeypatch.setattr("os.open", denied)
    with pytest.raises(AccessDenied, match=r"manifest\.json"):
        t2t.load(tmp_path / "out")


@pytest.mark.parametrize("text", ["", "no", "train[", "train[1:2:3]", "train[:200%]", "train+"])
def test_invalid_expressions(text):
    with pytest.raises(ValueError, match="split"):
        split_ranges(text, {"train": 10})


def test_expressions_are_tfds():
    import tensorflow_datasets as tfds

    counts = {"train": 997, "val-2013": 31}
    infos = {
        name: tfds.core.SplitInfo(name=name, shard_lengths=[count], num_bytes=0) for name, count in counts.items()
    }
    for text in ("train", "train[:33%]", "train[33%:67%]", "train[-7%:]", "train[5:-5]", "val-2013[:50%]"):
        (part,) = split_ranges(text, counts)
        (theirs,) = tfds.core.ReadInstruction.from_spec(text).to_absolute(infos)
        assert (part.split, part.start, part.stop) == (
            theirs.splitname,
            theirs.from_ or 0,
            theirs.to or counts[part.split],
        )


@pytest.mark.parametrize(
    ("text", "ours", "theirs"),
    [
        ("train[:100]", (0, 20), None),
        ("train[:]", (0, 20), None),
        ("train[-0:]", (20, 20), (0, 20)),
        ("train[-1%:]", (20, 20), (0, 20)),
        ("train[10%:12]", (2, 12), (2, 2)),
    ],
)
def test_slices_that_tfds_reads_otherwise(text, ours, theirs):
    import tensorflow_datasets as tfds

    (part,) = split_ranges(text, {"train": 20})
    assert (part.start, part.stop) == ours
    infos = {"train": tfds.core.SplitInfo(name="train", shard_lengths=[20], num_bytes=0)}
    if theirs is None:
        with pytest.raises(ValueError, match=r"incompatible|Unrecognized"):
            tfds.core.ReadInstruction.from_spec(text).to_absolute(infos)
    else:
        (read,) = tfds.core.ReadInstruction.from_spec(text).to_absolute(infos)
        assert (read.from_ or 0, 20 if read.to is None else read.to) == theirs


# write_dataset


def _elements(count=50):
    def element(i):
        return {
            "id": i,
            "image": tf.cast(tf.reshape(tf.range(12), (2, 2, 3)), tf.uint8),
            "nested": {"half": tf.cast(i, tf.float64) / 2, "words": tf.strings.as_string(tf.range(3))},
            "flag": i % 2 == 0,
        }

    return tf.data.Dataset.range(count).map(element)


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_a_dataset_comes_back_with_types_and_shapes(tmp_path, kind):
    files = t2t.write_dataset(_elements(), tmp_path / "out", format=kind, shard_records=20)
    assert len(files) == 3
    back = t2t.load(tmp_path / "out").dataset("train")
    for ours, theirs in zip(back.as_numpy_iterator(), _elements().as_numpy_iterator(), strict=True):
        flat = {"id": theirs["id"], "image": theirs["image"], "flag": theirs["flag"]}
        flat |= {f"nested/{name}": value for name, value in theirs["nested"].items()}
        assert ours.keys() == flat.keys()
        for name, value in flat.items():
            np.testing.assert_array_equal(ours[name], value)
            assert np.asarray(ours[name]).dtype == np.asarray(value).dtype, name
    record = t2t.load(tmp_path / "out")[7]
    assert (record["id"], record["nested/half"], bool(record["flag"])) == (7, 3.5, False)


def test_arrays_without_values_come_back(tmp_path):
    """Arrays without values have a fixed shape. TensorFlow's `unbatch` would crash on them."""
    rows = tf.data.Dataset.range(5).map(lambda i: {"id": i, "none": tf.zeros((0, 3), tf.float64)})
    t2t.write_dataset(rows, tmp_path / "out")
    for number, record in enumerate(t2t.load(tmp_path / "out").dataset("train")):
        assert (int(record["id"]), tuple(record["none"].shape)) == (number, (0, 3))


def _sparse(i):
    words = tf.SparseTensor([[0], [2]], tf.strings.as_string(tf.stack([i, i + 1])), [4])
    zero = tf.SparseTensor([[0, 1], [1, 0]], tf.stack([i, 0]), [2, 3])  # an explicit zero is kept
    return ({"words": words, "ragged": tf.ragged.range(tf.stack([i, 2]))}, zero)


@pytest.mark.parametrize("kind", ["tfrecord", "array_record"])
def test_sparse_and_ragged_elements_come_back(tmp_path, kind):
    dataset = tf.data.Dataset.range(1, 5).map(_sparse)
    t2t.write_dataset(dataset, tmp_path / "out", format=kind)
    back = t2t.load(tmp_path / "out").dataset("train")
    for ours, (parts, zero) in zip(back, dataset, strict=True):
        assert ours["0/ragged"].to_list() == parts["ragged"].to_list()
        for found, wanted in ((ours["0/words"], parts["words"]), (ours["1"], zero)):
            for name in ("indices", "values", "dense_shape"):
                np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))


class _Pair(NamedTuple):
    table: Any
    label: Any


def test_namedtuples_with_a_sparse_tensor_come_back(tmp_path):
    t2t.write_dataset(tf.data.Dataset.from_tensors(_Pair(tf.sparse.eye(2, dtype=tf.int64), 3)), tmp_path / "out")
    (record,) = t2t.load(tmp_path / "out").dataset("train")
    np.testing.assert_array_equal(tf.sparse.to_dense(record["0"]), np.eye(2))
    assert int(record["1"]) == 3


def test_elements_that_would_be_rounded_are_refused(tmp_path):
    for rounded in (tf.ragged.constant([[0.1], [0.2, 0.3]], tf.float64), tf.sparse.eye(3, dtype=tf.float64)):
        with pytest.raises(SchemaError, match="would not be exact"):
            t2t.write_dataset(tf.data.Dataset.from_tensors(rounded), tmp_path / "out")


def test_the_first_element_decides_the_number_of_dimensions(tmp_path):
    def image(i):
        return {"id": i, "in": {"image": tf.io.decode_image(tf.io.encode_png(tf.ones((2, i, 3), tf.uint8)))}}

    dataset = tf.data.Dataset.range(1, 5, output_type=tf.int32).map(image)
    assert dataset.element_spec["in"]["image"].shape.rank is None
    t2t.write_dataset(dataset, tmp_path / "out")
    shapes = [tuple(element["in/image"].shape) for element in t2t.load(tmp_path / "out").dataset("train")]
    assert shapes == [(2, width, 3) for width in range(1, 5)]
    with pytest.raises(SchemaError, match="'in/image' has no known number of dimensions"):
        t2t.write_dataset(dataset.take(0), tmp_path / "nothing")


def test_serialized_examples_are_written_as_they_are(tmp_path):
    payloads = [features.encode({"a": i}) for i in range(5)]
    (file,) = t2t.write_dataset(tf.data.Dataset.from_tensor_slices(payloads), tmp_path / "out")
    assert [each.numpy() for each in tf.data.TFRecordDataset(file)] == payloads
    assert [record["a"] for record in t2t.load(tmp_path / "out")] == list(range(5))


def test_tuples_and_single_tensors(tmp_path):
    t2t.write_dataset(tf.data.Dataset.from_tensor_slices((["x", "y"], [1, 2])), tmp_path / "pair")
    assert t2t.load(tmp_path / "pair")[1] == {"0": b"y", "1": 2}
    t2t.write_dataset(tf.data.Dataset.range(3), tmp_path / "one")
    assert [record["value"] for record in t2t.load(tmp_path / "one")] == [0, 1, 2]


def test_a_dataset_is_replaced_only_on_request(tmp_path):
    t2t.write_dataset(tf.data.Dataset.range(30), tmp_path, shard_records=10)
    with pytest.raises(ExportError, match="exists='replace'"):
        t2t.write_dataset(tf.data.Dataset.range(5), tmp_path)
    t2t.write_dataset(tf.data.Dataset.range(5), tmp_path, exists="replace")
    assert len(list(tmp_path.glob("dataset-*"))) == 1
    assert len(t2t.load(tmp_path)) == 5
