"""Datum's export: the four layouts, shards in a store, users' generators and serializers, and written documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import ais_tar2tf as t2t
from ais_tar2tf import datum
from ais_tar2tf.datum.annotations import parse_objects
from ais_tar2tf.errors import ExportError, MissingField, SchemaError
from ais_tar2tf.recordfiles.export.destinations import FolderDestination
from ais_tar2tf.stores.memory import MemoryStore
from tests.support import datum_folders as made
from tests.support import shards as tars


def export(source, out, problem=datum.problem.IMAGE_CLF, write_configs=None, **counts):
    return datum.export.export_to_tfrecord(source, out, problem, write_configs or made.configs(**counts))


def mapping(out: Path) -> dict:
    return json.loads((out / "datum_to_type_and_shape_mapping.json").read_text())


def shard_info(out: Path) -> dict:
    return json.loads((out / "shard_info.json").read_text())


def plainly(out: Path, split: str = "train") -> list:
    """Return the examples, parsed by TensorFlow's protobuf."""
    files = sorted(str(path) for path in out.glob(f"{split}-*.tfrecord"))
    return [tf.train.Example.FromString(each.numpy()).features.feature for each in tf.data.TFRecordDataset(files)]


def in_order(out: Path, split: str = "train") -> list[dict]:
    """Return every example, unbatched, in order."""
    configs = datum.configs.DatasetConfigs(batch_size_test=1)
    return [
        {name: value[0] for name, value in batch.items()}
        for batch in datum.load(out, configs).test_fn(split).as_numpy_iterator()
    ]


def test_classification_gives_the_images_and_every_label_in_its_type(tmp_path):
    made.classification(tmp_path / "in", train=7, val=3)
    files = export(tmp_path / "in", tmp_path / "out", train=7, val=3)

    assert [Path(file).name for file in files] == ["train-00000-of-00001.tfrecord", "val-00000-of-00001.tfrecord"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "datum_to_type_and_shape_mapping.json",
        "shard_info.json",
        "train-00000-of-00001.tfrecord",
        "val-00000-of-00001.tfrecord",
    ]
    said = {name: (each["type"], each["shape"], each["dense"]) for name, each in mapping(tmp_path / "out").items()}
    assert said == {
        "image": ("string", [12, 16, 3], True),
        "label": ("int", [], True),
        "name": ("string", [], True),
        "score": ("float", [], True),
    }
    for number, (feature, example) in enumerate(
        zip(plainly(tmp_path / "out"), in_order(tmp_path / "out"), strict=True)
    ):
        file = tmp_path / "in" / "train" / f"im{number}.jpg"
        assert feature["image"].bytes_list.value[0] == file.read_bytes()
        np.testing.assert_array_equal(example["image"], tf.io.decode_jpeg(file.read_bytes()))
        assert (example["label"], example["name"], example["score"]) == (
            number % 3,
            f"kind {number % 3}".encode(),
            number / 4,
        )


def test_detection_gives_normalised_boxes_and_ids_from_one(tmp_path):
    made.detection(tmp_path / "in", train=6)
    export(tmp_path / "in", tmp_path / "out", datum.problem.IMAGE_DET, train=6)

    said = mapping(tmp_path / "out")
    assert list(said) == [
        "image", "xmin", "xmax", "ymin", "ymax", "area", "pose", "labels", "is_truncated", "labels_difficult",
    ]  # fmt: skip
    assert {name: each["dense"] for name, each in said.items()} == {name: name == "image" for name in said}
    examples = in_order(tmp_path / "out")
    assert [len(each["labels"]) for each in examples] == [0, 1, 2, 3, 4, 0]
    for number, example in enumerate(examples):
        wanted = made.boxes(number)
        np.testing.assert_allclose(example["xmin"], [each["box"][0] / 16 for each in wanted])
        np.testing.assert_allclose(example["ymax"], [each["box"][3] / 12 for each in wanted])
        np.testing.assert_allclose(example["area"], [4 / 16 * 3 / 12] * len(wanted), rtol=1e-6)
        assert example["labels"].tolist() == [made.CLASSES.index(each["name"]) + 1 for each in wanted]
        assert example["is_truncated"].tolist() == [each["truncated"] for each in wanted]
        assert example["pose"].tolist() == [b"rear"] * len(wanted)


def test_not_repeated_detection_sets_with_varying_object_counts_are_readable(tmp_path):
    made.detection(tmp_path / "in", most=20, train=42)
    export(tmp_path / "in", tmp_path / "out", datum.problem.IMAGE_DET, train=42)
    (batch,) = datum.load(tmp_path / "out").train_fn("train", shuffle=False).take(1)
    assert batch["labels"].shape == (32, 20)
    assert tf.math.count_nonzero(batch["labels"], 1).numpy().tolist() == [n % 21 for n in range(32)]


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_not_repeated_palette_masks_are_class_ids(tmp_path, bits):
    made.segmentation(tmp_path / "in", train=3)
    ids = made.mask_ids(0) % (2 if bits == 1 else 4)
    mask = made.palette_mask(ids, bits)
    assert mask[24] == bits
    (tmp_path / "in" / "SegmentationClass" / "train0.png").write_bytes(mask)
    export(tmp_path / "in", tmp_path / "out", datum.problem.IMAGE_SEG, train=3)
    first, second, _ = in_order(tmp_path / "out")
    assert first["label"].shape == (12, 16, 1)
    np.testing.assert_array_equal(first["label"][..., 0], ids)
    np.testing.assert_array_equal(second["label"][..., 0], made.mask_ids(1))


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_palette_masks_that_are_cut_off(tmp_path, bits):
    made.segmentation(tmp_path / "in", train=1)
    mask = made.palette_mask(made.mask_ids(0) % 2, bits)
    (tmp_path / "in" / "SegmentationClass" / "train0.png").write_bytes(mask[:-20])
    with pytest.raises(SchemaError, match=r"train0\.png"):
        export(tmp_path / "in", tmp_path / "out", datum.problem.IMAGE_SEG, train=1)


def test_texts_and_their_labels(tmp_path):
    made.text(tmp_path / "in", train=5)
    export(tmp_path / "in", tmp_path / "out", datum.problem.TEXT_CLF, train=5)
    examples = in_order(tmp_path / "out")
    assert [each["text"].decode() for each in examples] == [f"text {n} ü" for n in range(5)]
    assert [int(each["polarity"]) for each in examples] == [0, 1, 0, 1, 0]
    assert [each["topic"] for each in examples] == [b"t0", b"t1", b"t2", b"t0", b"t1"]


@pytest.mark.parametrize(
    ("problem", "make", "features"),
    [
        (datum.problem.IMAGE_CLF, made.classification, {"image", "label", "name", "score"}),
        (datum.problem.IMAGE_SEG, made.segmentation, {"image", "label"}),
        (datum.problem.TEXT_CLF, made.text, {"text", "polarity", "topic"}),
    ],
)
def test_split_names_may_have_years(tmp_path, problem, make, features):
    """A fixed defect of Datum: `train-2013` was not accepted as a split's name."""
    make(tmp_path / "in", **{"train-2013": 4, "train-2014": 3})
    export(tmp_path / "in", tmp_path / "out", problem, **{"train-2013": 4, "train-2014": 3})
    loaded = datum.load(tmp_path / "out")
    (batch,) = loaded.test_fn("train-2013[1:]+train-2014[:1]")
    assert set(batch) == features
    assert {len(value) for value in batch.values()} == {4}


def test_attributes_of_a_split_name_other_folders_and_extensions(tmp_path):
    made.classification(tmp_path / "clf", extension=".png", train=3)
    (tmp_path / "clf" / "train").rename(tmp_path / "clf" / "pictures")
    (tmp_path / "clf" / "train.csv").rename(tmp_path / "clf" / "truth.csv")
    configs = made.configs(train=3)
    configs.splits["train"] |= {"extension": ".png", "image_dir": "pictures", "csv_path": "truth.csv"}
    export(tmp_path / "clf", tmp_path / "1", write_configs=configs)
    assert len(in_order(tmp_path / "1")) == 3

    made.detection(tmp_path / "det", train=3)
    for name, other in (("JPEGImages", "j"), ("Annotations", "a"), ("ImageSets", "s")):
        (tmp_path / "det" / name).rename(tmp_path / "det" / other)
    configs = made.configs(train=3)
    configs.splits["train"] |= {"image_dir": "j", "annotation_dir": "a", "set_dir": "s", "extension": ".jpg"}
    export(tmp_path / "det", tmp_path / "2", datum.problem.IMAGE_DET, configs)
    assert len(in_order(tmp_path / "2")) == 3

    made.segmentation(tmp_path / "seg", train=2)
    (tmp_path / "seg" / "SegmentationClass").rename(tmp_path / "seg" / "masks")
    (tmp_path / "seg" / "sets").mkdir()
    (tmp_path / "seg" / "train.txt").rename(tmp_path / "seg" / "sets" / "train.txt")
    for number in range(2):
        (tmp_path / "seg" / "masks" / f"train{number}.png").rename(tmp_path / "seg" / "masks" / f"train{number}.PNG")
        path = tmp_path / "seg" / "JPEGImages" / f"train{number}.jpg"
        path.rename(path.with_suffix(".jpeg"))
    configs = made.configs(train=2)
    configs.splits["train"] |= {
        "label_dir": "masks", "set_dir": "sets", "image_extension": ".jpeg", "label_extension": ".PNG",
    }  # fmt: skip
    export(tmp_path / "seg", tmp_path / "3", datum.problem.IMAGE_SEG, configs)
    assert len(in_order(tmp_path / "3")) == 2


def test_not_repeated_jpeg_files_of_another_extension_are_found(tmp_path):
    made.classification(tmp_path / "in", extension=".jpeg", train=3)
    export(tmp_path / "in", tmp_path / "out", train=3)
    assert len(in_order(tmp_path / "out")) == 3


def test_a_cut_image_with_a_thumbnail_is_refused(tmp_path):
    """The end mark of the thumbnail, which is in the metadata, is not the end of the image."""
    folder = made.classification(tmp_path / "in", train=1)
    path, thumbnail = folder / "train" / "im0.jpg", tars.image(4, size=(8, 8))
    whole = path.read_bytes()
    whole = whole[:2] + b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail + whole[2:]
    path.write_bytes(whole)
    export(folder, tmp_path / "out", train=1)
    path.write_bytes(whole[:-100])
    with pytest.raises(SchemaError, match=r"im0\.jpg: the jpeg image is cut off"):
        export(folder, tmp_path / "cut", train=1)


def test_a_folder_with_the_name_of_an_image_is_no_image(tmp_path):
    folder = made.classification(tmp_path / "in", extension=".png", train=2)
    (folder / "train" / "im0.jpg").mkdir()
    export(folder, tmp_path / "out", train=2)
    assert len(in_order(tmp_path / "out")) == 2


def test_not_repeated_text_labels_in_a_csv(tmp_path):
    made.classification(tmp_path / "in", train=3, val=2)
    (tmp_path / "in" / "train.csv").write_text("filename,label\nim0,1\nim1,2\nim2,3\n")
    (tmp_path / "in" / "val.csv").write_text("filename,label\nim0,cat\nim1,7\n")
    export(tmp_path / "in", tmp_path / "out", train=3, val=2)
    assert [each["label"] for each in in_order(tmp_path / "out", "val")] == [b"cat", b"7"]
    assert [each["label"] for each in in_order(tmp_path / "out")] == [
        b"1",
        b"2",
        b"3",
    ]  # the label has one type in all splits


def test_files_are_bounded_and_counted(tmp_path):
    made.classification(tmp_path / "in", train=40)
    configs = made.configs(train=40)
    configs.shard_size = 8_000
    files = export(tmp_path / "in", tmp_path / "out", write_configs=configs)
    assert len(files) > 2
    assert max(Path(file).stat().st_size for file in files) <= 8_000
    info = shard_info(tmp_path / "out")["train"]
    assert list(info) == [f"train-{n:05d}-of-{len(files):05d}.tfrecord" for n in range(len(files))]
    for name, count in info.items():
        assert sum(1 for _ in tf.data.TFRecordDataset(str(tmp_path / "out" / name))) == count
    assert [int(each["label"]) for each in in_order(tmp_path / "out")] == [n % 3 for n in range(40)]


def test_not_repeated_no_stale_counts_or_files_after_a_second_export(tmp_path):
    made.classification(tmp_path / "in", train=40, val=4)
    configs = made.configs(train=40, val=4)
    configs.shard_size = 8_000
    export(tmp_path / "in", tmp_path / "out", write_configs=configs)
    kept = (tmp_path / "out" / "val-00000-of-00001.tfrecord").read_bytes()
    (tmp_path / "in" / "train.csv").write_text("filename,label,name,score\nim5,2,n,1\n")
    with pytest.raises(SchemaError, match=r"'score' is float32 in val, int64 in what is exported now"):
        export(tmp_path / "in", tmp_path / "out", train=1)
    (tmp_path / "in" / "train.csv").write_text("filename,label,name,score\nim5,2,n,1.5\n")
    export(tmp_path / "in", tmp_path / "out", train=1)
    assert shard_info(tmp_path / "out") == {
        "val": {"val-00000-of-00001.tfrecord": 4},
        "train": {"train-00000-of-00001.tfrecord": 1},
    }
    assert sorted(path.name for path in (tmp_path / "out").glob("*.tfrecord")) == [
        "train-00000-of-00001.tfrecord",
        "val-00000-of-00001.tfrecord",
    ]
    assert (tmp_path / "out" / "val-00000-of-00001.tfrecord").read_bytes() == kept
    assert len(in_order(tmp_path / "out")) == 1
    assert len(in_order(tmp_path / "out", "val")) == 4


def test_an_export_that_fails_leaves_the_old_one(tmp_path):
    made.classification(tmp_path / "in", train=3)
    export(tmp_path / "in", tmp_path / "out", train=3)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "in" / "train" / "im2.jpg").write_bytes(b"no image")
    with pytest.raises(SchemaError, match=r"im2\.jpg: this is no image"):
        export(tmp_path / "in", tmp_path / "out", train=3)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


# Generators, serializers, detection


class Sequences:
    """A generator as in the document: created with the path, called with the split."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, **kwargs):
        assert self.path.endswith("anywhere")
        for number in range(kwargs["many"]):
            yield (
                number,
                {
                    "ids": list(range(number)),
                    "vector": np.full(3, number, np.float64),
                    "table": np.full((2, number + 1), number, np.int32),
                    "split": kwargs["split"],
                    "flag": bool(number % 2),
                    "note": "here" if number == 2 else None,
                },
            )


def test_type_shape_and_sparseness_are_inferred_from_all_examples(tmp_path):
    configs = made.configs(train=4, val=1)
    configs.splits["train"]["many"], configs.splits["val"]["many"] = 4, 1
    configs.generator = Sequences
    export("anywhere", tmp_path / "out", "any problem", configs)
    said = {name: (each["type"], each["shape"], each["dense"]) for name, each in mapping(tmp_path / "out").items()}
    assert said == {
        "ids": ("int", [None], False),
        "vector": ("float", [3], True),
        "table": ("int", [2, None], False),
        "split": ("string", [], True),
        "flag": ("int", [], True),
        "note": ("string", [], False),
    }
    examples = in_order(tmp_path / "out")
    for number, example in enumerate(examples):
        assert example["ids"].tolist() == list(range(number))
        assert example["vector"].tolist() == [number] * 3
        np.testing.assert_array_equal(example["table"], np.full((2, number + 1), number))
        assert bool(example["flag"]) == bool(number % 2)
    assert [example["note"] for example in examples] == [b"", b"", b"here", b""]


def test_a_feature_with_integers_and_floats_is_a_float_in_all(tmp_path):
    configs = made.configs(train=3)
    configs.generator = lambda **_: iter([{"x": 1, "v": [1, 2]}, {"x": 0.5, "v": [3]}, {"x": 2, "v": [0.5, 4]}])
    export("-", tmp_path / "out", "custom", configs)
    examples = in_order(tmp_path / "out")
    assert [float(each["x"]) for each in examples] == [1, 0.5, 2]
    assert [each["v"].tolist() for each in examples] == [[1, 2], [3], [0.5, 4]]


def test_ragged_tensors_stay_ragged(tmp_path):
    rows = [[[1, 2], [3]], [[4, 5], [6, 7]], [[], []]]
    texts = [[[b"a"], []], [[b"b"], [b"c"]], [[], [b"d"]]]
    values = [[[1, 2], [3]], [[4.5], [6.0]], [[], []]]

    def generator(**_):
        for number in range(3):
            integral = number == 0  # a float in the next example
            yield {
                "row": tf.ragged.constant(rows[number], tf.int64, ragged_rank=1),
                "text": tf.ragged.constant(texts[number], tf.string, ragged_rank=1),
                "value": tf.ragged.constant(values[number], tf.int64 if integral else tf.float64, ragged_rank=1),
            }

    configs = made.configs(train=3)
    configs.generator = generator
    export("-", tmp_path / "out", "custom", configs)
    for stated in mapping(tmp_path / "out").values():
        assert (stated["shape"], stated["dense"], stated["field"]["ragged"]) == ([2, None], False, True)
    batches = datum.load(tmp_path / "out", datum.configs.DatasetConfigs(batch_size_test=1)).test_fn("train")
    found = [{name: value[0].to_list() for name, value in batch.items()} for batch in batches]
    assert found == [
        {"row": row, "text": text, "value": value} for row, text, value in zip(rows, texts, values, strict=True)
    ]


ALIKE = [[1, 2], [3, 4]]  # rows of one length


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[[1, 2], [3]], ALIKE, [[], []], []], None),
        ([[["a"], ["b", "c"]], [["d", "e"], ["f", "g"]]], [[[b"a"], [b"b", b"c"]], [[b"d", b"e"], [b"f", b"g"]]]),
        ([[[[1], [2]], [[3], [4, 5]]], [ALIKE, ALIKE]], None),
        ([[[1, 2], [3]], [[1.5], [3, 4]], ALIKE], None),  # integers and floats
        ([[[1, 2], [3]], np.array(ALIKE)], [[[1, 2], [3]], ALIKE]),
        ([tf.ragged.constant([[1, 2], [3]]), ALIKE], [[[1, 2], [3]], ALIKE]),
        ([tf.sparse.from_dense([[1, 0], [0, 2]]), np.array(ALIKE)], [[[1, 0], [0, 2]], ALIKE]),
        ([[[1, 2]], [[1], [2], [3]]], None),  # two sizes vary, but no rows of one value
        ([[[1, 2]], [[1.5], [2], [3]]], None),
    ],
)
def test_a_feature_is_stored_alike_in_all_examples(tmp_path, values, expected):
    configs = made.configs(train=len(values))
    configs.generator = lambda **_: ({"x": value} for value in values)
    export("-", tmp_path / "out", "custom", configs)
    batches = datum.load(tmp_path / "out", datum.configs.DatasetConfigs(batch_size_test=1)).test_fn("train")
    found = [tf.sparse.to_dense(x) if isinstance(x, tf.SparseTensor) else x for x in (each["x"] for each in batches)]
    lists = [x[0].to_list() if isinstance(x, tf.RaggedTensor) else x[0].numpy().tolist() for x in found]
    assert lists == (values if expected is None else expected)


def test_a_serializer_that_flattens_ragged_values(tmp_path):
    configs = made.configs(train=2)
    configs.generator = lambda **_: iter([{"x": [[1, 2], [3]]}, {"x": [[4], [5, 6]]}])
    configs.serializer = lambda example: t2t.features.encode(
        {"x": [number for row in example["x"] for number in row]}
    )
    export("-", tmp_path / "out", "custom", configs)
    assert [each["x"].tolist() for each in in_order(tmp_path / "out")] == [[1, 2, 3], [4, 5, 6]]


def test_examples_that_differ_each_time_they_are_read_are_refused(tmp_path):
    passes = iter([[[1, 2], [3]], [[1, 2]]])
    configs = made.configs(train=2)
    configs.generator = lambda **_: iter([{"x": next(passes)}, {"x": ALIKE}])
    with pytest.raises(SchemaError, match="the examples differ each time they are read"):
        export("-", tmp_path / "out", "custom", configs)


def test_splits_that_are_stored_otherwise_are_exported_together(tmp_path):
    def configs(split: str, value: list) -> Any:
        made_configs = made.configs(**{split: 1})
        made_configs.generator = lambda **_: iter([{"x": value}])
        return made_configs

    export("-", tmp_path / "out", "custom", configs("train", [[1, 2], [3]]))
    with pytest.raises(SchemaError, match=r"ragged int64 \(2, \?\) in train, int64 \(2, 2\) in .*export all splits"):
        export("-", tmp_path / "out", "custom", configs("val", ALIKE))
    export("-", tmp_path / "out", "custom", configs("val", [[1], [2, 3]]))


def test_declared_sparse_features_are_always_sparse(tmp_path):
    def generator(split: str, **_):
        return ({"a": [1, 2], "b": [1, 2], "m": np.eye(2, dtype=np.float32)} for _ in range(3))

    for sparse, dense in (([], True), (["a", "m"], False)):
        configs = made.configs(train=3)
        configs.generator, configs.sparse_features = generator, sparse
        export("-", tmp_path / "out", "custom", configs)
        said = mapping(tmp_path / "out")
        assert (said["a"]["dense"], said["m"]["dense"], said["b"]["dense"]) == (dense, dense, True)
        assert np.array_equal(in_order(tmp_path / "out")[0]["m"], np.eye(2))


def test_a_users_serializer(tmp_path):
    def generator(split: str, **_):
        return (("key", {"x": float(n)}) for n in range(3))

    def serializer(example):
        value = tf.train.Feature(float_list=tf.train.FloatList(value=[example["x"] * 2]))
        also = tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2]))
        features = tf.train.Features(feature={"x": value, "also": also})
        return tf.train.Example(features=features).SerializeToString()

    configs = made.configs(train=3)
    configs.generator, configs.serializer = generator, serializer
    export("-", tmp_path / "out", "custom", configs)
    assert [(float(each["x"]), each["also"].tolist()) for each in in_order(tmp_path / "out")] == [
        (0, [1, 2]),
        (2, [1, 2]),
        (4, [1, 2]),
    ]


def test_a_generator_may_yield_paths_of_images(tmp_path):
    made.classification(tmp_path / "in", train=2)
    configs = made.configs(train=2)
    configs.generator = lambda split, **_: (
        {"image": str(tmp_path / "in" / split / f"im{n}.jpg"), "label": n} for n in range(2)
    )
    export("-", tmp_path / "out", datum.problem.IMAGE_CLF, configs)
    assert in_order(tmp_path / "out")[1]["image"].shape == (12, 16, 3)


def test_counts_are_checked(tmp_path):
    made.classification(tmp_path / "in", train=3, val=2)
    with pytest.raises(SchemaError, match=r"split 'train' has 3 examples, num_examples says 4"):
        export(tmp_path / "in", tmp_path / "out", train=4)
    assert not (tmp_path / "out" / "shard_info.json").exists()
    configs = datum.configs.TFRWriteConfigs(num_train_examples=3, num_val_examples=2)
    export(tmp_path / "in", tmp_path / "out", write_configs=configs)
    assert {split: sum(files.values()) for split, files in shard_info(tmp_path / "out").items()} == {
        "train": 3,
        "val": 2,
    }
    configs = datum.configs.TFRWriteConfigs(num_test_examples=5, splits={"test": {"num_examples": 6}})
    with pytest.raises(SchemaError, match=r"num_examples is 6, num_test_examples 5"):
        export(tmp_path / "in", tmp_path / "out", write_configs=configs)


# Bad input


def test_bad_input_names_file_row_or_key(tmp_path):
    folder = made.classification(tmp_path / "clf", train=2)
    (folder / "train.csv").write_text("filename,label,name\nim0,1,a\nim1,2\n")
    with pytest.raises(SchemaError, match=r"train\.csv, row 3: it has 2 columns, the header 3"):
        export(folder, tmp_path / "out", train=2)
    (folder / "train.csv").write_text("file,label\nim0,1\n")
    with pytest.raises(SchemaError, match=r"train\.csv: the first row names the columns, `filename`"):
        export(folder, tmp_path / "out", train=2)
    (folder / "train.csv").write_text("filename,label\nim7,1\n")
    with pytest.raises(SchemaError, match=r"im7\.jpg: this image of .*train\.csv, row 2, can't be read"):
        export(folder, tmp_path / "out", train=1)
    whole = (folder / "train" / "im0.jpg").read_bytes()
    (folder / "train.csv").write_text("filename,label\nim0,1\n")
    (folder / "train" / "im0.jpg").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(SchemaError, match=r"im0\.jpg: the jpeg image is cut off"):
        export(folder, tmp_path / "out", train=1)

    for text in (b"filename,label\nim0,\xe9\n", b'filename,label\nim0,"a\nim1,b\n'):
        (folder / "train.csv").write_bytes(text)
        with pytest.raises(SchemaError, match=r"train\.csv, line \d: this is no CSV"):
            export(folder, tmp_path / "out", train=None)

    folder = made.detection(tmp_path / "det", train=2)
    for box in ((5, 0, 1, 1), ("nan", 0, 1, 1), (0, 0, "inf", 1)):
        annotation = made.annotation([{"name": "bird", "box": box}])
        (folder / "Annotations" / "train_000001.xml").write_text(annotation)
        with pytest.raises(SchemaError, match=r"train_000001\.xml: .*a box from .* is none"):
            export(folder, tmp_path / "out", datum.problem.IMAGE_DET, train=2)
    (folder / "Annotations" / "train_000001.xml").write_text(made.annotation([{"name": "dog", "box": (0, 0, 1, 1)}]))
    with pytest.raises(SchemaError, match=r"train_000001\.xml: .*class 'dog' is not in classes\.names"):
        export(folder, tmp_path / "out", datum.problem.IMAGE_DET, train=2)
    (folder / "Annotations" / "train_000001.xml").write_text("<annotation><size/></annotation>")
    with pytest.raises(SchemaError, match=r"train_000001\.xml: .*<size> has no <width>"):
        export(folder, tmp_path / "out", datum.problem.IMAGE_DET, train=2)

    folder = made.segmentation(tmp_path / "seg", train=2)
    (folder / "SegmentationClass" / "train1.png").write_bytes(made.palette_mask(np.zeros((5, 7), int)))
    with pytest.raises(SchemaError, match=r"train1\.png: the mask is 5×7, its image 12×16"):
        export(folder, tmp_path / "out", datum.problem.IMAGE_SEG, train=2)

    folder = made.text(tmp_path / "text", train=2)
    (folder / "train.json").write_text(json.dumps({"7": {"label": {"a": 1}}}))
    with pytest.raises(SchemaError, match=r"train\.json, '7': an entry has `text` and `label`"):
        export(folder, tmp_path / "out", datum.problem.TEXT_CLF, train=2)

    with pytest.raises(SchemaError, match="there is no such folder"):
        export(tmp_path / "nowhere", tmp_path / "out", train=1)
    with pytest.raises(ValueError, match="problem_type is one of image_clf"):
        export(folder, tmp_path / "out", "image_what", train=1)
    with pytest.raises(SchemaError, match="no split is named"):
        export(folder, tmp_path / "out", write_configs=datum.configs.TFRWriteConfigs())
    with pytest.raises(SchemaError, match="split 'train': its attributes are a dict"):
        export(folder, tmp_path / "out", write_configs=datum.configs.TFRWriteConfigs(splits={"train": 3}))
    with pytest.raises(ValueError, match="is no name for a split"):
        export(folder, tmp_path / "out", **{"a/b": 1})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_an_annotation_that_defines_entities_is_refused(encoding):
    """The entities of a few bytes may expand to any size, in every encoding of XML."""
    declared = "utf-16" if encoding.startswith("utf-16") else encoding
    mark = b"" if encoding in ("utf-8", "utf-16", "latin-1") else "\ufeff".encode(encoding)
    plain = made.annotation([{"name": "bird", "box": (0, 0, 1, 1), "pose": "Left"}])

    def parse(doctype: str, pose: str) -> Any:
        text = f'<?xml version="1.0" encoding="{declared}"?>{doctype}{plain.replace("Left", pose)}'
        return parse_objects(mark + text.encode(encoding), {"bird": 1}, "a.xml")

    assert parse("", "L\xe9ft")["pose"] == ["l\xe9ft"]
    assert parse("<!DOCTYPE annotation>", "&lt;")["pose"] == ["<"]
    laughs = "".join(f'<!ENTITY l{at} "{f"&l{at - 1};" * 10 if at else "ha"}">' for at in range(3))
    for doctype in (
        f"<!DOCTYPE a [{laughs}]>",
        '<!DOCTYPE a [<!ENTITY % p "x">]>',
        '<!DOCTYPE a [<!ENTITY e SYSTEM "b">]>',
    ):
        with pytest.raises(SchemaError, match=r"^a\.xml: .* \(an annotation that defines entities is not read\)$"):
            parse(doctype, "&l2;" if laughs in doctype else "Left")
    with pytest.raises(SchemaError, match=r"a\.xml: this is no annotation that can be used \(undefined entity"):
        parse("", "&l2;")


def test_a_detection_set_without_any_object_is_readable(tmp_path):
    folder = made.detection(tmp_path / "det", most=0, train=4)
    export(folder, tmp_path / "out", datum.problem.IMAGE_DET, train=4)
    (batch,) = datum.load(tmp_path / "out", datum.configs.DatasetConfigs(batch_size_train=4)).train_fn()
    assert {name: value.shape for name, value in batch.items() if name != "image"} == dict.fromkeys(
        set(batch) - {"image"}, (4, 0)
    )


def test_a_label_of_null_is_absent(tmp_path):
    made.text(tmp_path / "text", train=2)
    entries = {"1": {"text": "a", "label": {"x": 1}}, "2": {"text": "b", "label": {"x": None}}}
    (tmp_path / "text" / "train.json").write_text(json.dumps(entries))
    export(tmp_path / "text", tmp_path / "out", datum.problem.TEXT_CLF, train=2)
    found = datum.load(tmp_path / "out").val_fn("train").as_numpy_iterator()
    assert [batch["x"].tolist() for batch in found] == [[[1], [0]]]


def test_numbers_beyond_float32_are_named(tmp_path):
    configs = made.configs(train=1)
    configs.generator = lambda **_: iter([("first", {"x": np.array([1e300])})])
    with pytest.raises(SchemaError, match=r"example 'first': feature 'x': 1e\+300 does not fit into a float32"):
        export("-", tmp_path / "out", "custom", configs)


def test_examples_that_do_not_fit_each_other_name_the_key(tmp_path):
    configs = made.configs(train=2)
    configs.generator = lambda **_: iter([("first", {"x": 1}), ("second", {"x": "one"})])
    with pytest.raises(SchemaError, match=r"split 'train', example 'second': field 'x'"):
        export("-", tmp_path / "out", "custom", configs)


# Shards and stores


def _shard(number: int) -> bytes:
    return tars.labelled(f"s{number}", 4, lambda n: {"jpg": made.encoded(made.pixels(n)), "cls": b"%d" % (n % 2)})


def test_shards_of_a_bucket_are_a_source_and_a_store_a_destination(tmp_path, monkeypatch):
    (tmp_path / "bucket").mkdir()
    for number in range(2):
        (tmp_path / "bucket" / f"train-{number}.tar").write_bytes(_shard(number))
    (tmp_path / "bucket" / "val-0.tar").write_bytes(_shard(7))
    with t2t.serve(tmp_path) as server:
        monkeypatch.setenv("AIS_ENDPOINT", server.url)
        files = export("ais://bucket/", "ais://bucket/records", train=8, val=4)
        assert files[0] == "ais://bucket/records/train-00000-of-00001.tfrecord"
        loaded = datum.load("ais://bucket/records", datum.configs.DatasetConfigs(batch_size_train=4))
        batches = list(loaded.train_fn("train", shuffle=False))
        assert [batch["label"].numpy().tolist() for batch in batches] == [[0, 1, 0, 1]] * 2
        assert batches[0]["image"].shape == (4, 12, 16, 3)
        export("ais://bucket/train-{0..1}.tar", tmp_path / "local", train=8)
        configs = made.configs(train=4)
        configs.splits["train"]["shards"] = "val-*.tar"
        export("ais://bucket", tmp_path / "other", write_configs=configs)
    assert len(in_order(tmp_path / "local")) == 8
    assert len(in_order(tmp_path / "other")) == 4


def test_shards_of_the_other_problems(tmp_path):
    xml = made.annotation(made.boxes(2))
    photo, mask = made.encoded(made.pixels(0)), made.palette_mask(made.mask_ids(3))
    store = MemoryStore("datum-shards")
    store.put("det/train-0.tar", tars.labelled("a", 2, lambda _: {"jpg": photo, "xml": xml.encode()}))
    store.put("det/classes.names", "\n".join(made.CLASSES).encode())
    store.put("seg/train-0.tar", tars.labelled("a", 2, lambda _: {"jpg": photo, "seg.png": mask}))
    store.put("text/train-0.tar", tars.labelled("a", 2, lambda n: {"txt": b"words", "json": b'{"topic": %d}' % n}))

    export("memory://datum-shards/det", tmp_path / "det", datum.problem.IMAGE_DET, train=2)
    assert in_order(tmp_path / "det")[1]["labels"].tolist() == [3, 1]
    export("memory://datum-shards/seg", tmp_path / "seg", datum.problem.IMAGE_SEG, train=2)
    np.testing.assert_array_equal(in_order(tmp_path / "seg")[0]["label"][..., 0], made.mask_ids(3))
    export("memory://datum-shards/text", tmp_path / "text", datum.problem.TEXT_CLF, train=2)
    assert [int(each["topic"]) for each in in_order(tmp_path / "text")] == [0, 1]

    store.put("clf/train-0.tar", tars.labelled("a", 2, lambda _: {"txt": b"no image", "cls": b"1"}))
    with pytest.raises(MissingField, match=r"clf/train-0\.tar, record '.*': one of jpg, jpeg, png"):
        export("memory://datum-shards/clf", tmp_path / "clf", train=2)
    with pytest.raises(SchemaError, match=r"the splits train, val need `\{split\}`"):
        export("memory://datum-shards/clf/train-0.tar", tmp_path / "clf", train=2, val=2)


def test_exports_of_ten_thousand_images_load_back_equal(tmp_path):
    folder, total = tmp_path / "in", 10_000
    (folder / "train").mkdir(parents=True)
    kinds = [made.encoded(made.pixels(n, 8, 8), "PNG") for n in range(50)]
    for number in range(total):
        (folder / "train" / f"{number}.png").write_bytes(kinds[number % 50])
    rows = "".join(f"{number},{number}\n" for number in range(total))
    (folder / "train.csv").write_text(f"filename,label\n{rows}")
    configs = made.configs(train=total)
    configs.splits["train"]["extension"] = ".png"
    configs.shard_size = "500KB"
    assert len(export(folder, tmp_path / "out", write_configs=configs)) > 3
    dataset = datum.load(tmp_path / "out", datum.configs.DatasetConfigs(batch_size_train=1000)).train_fn("train")
    seen = 0
    wanted = np.stack([made.pixels(n, 8, 8) for n in range(50)])
    numbers = []
    for batch in dataset.as_numpy_iterator():
        np.testing.assert_array_equal(batch["image"], wanted[batch["label"] % 50])
        numbers += batch["label"].tolist()
        seen += len(batch["label"])
    assert sorted(numbers) == list(range(total))
    assert numbers != sorted(numbers)  # shuffled
    assert dataset.cardinality() == 10


def test_importing_and_exporting_do_not_need_tensorflow(tmp_path):
    made.classification(tmp_path / "in", train=3)
    script = (
        "import sys; from ais_tar2tf import datum; c = datum.configs.TFRWriteConfigs(splits={'train': {}});"
        f"datum.export.export_to_tfrecord({str(tmp_path / 'in')!r}, {str(tmp_path / 'out')!r}, 'image_clf', c);"
        "print('tensorflow' in sys.modules)"
    )
    root = Path(t2t.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=root)
    assert done.stdout.strip() == "False"


def test_a_destination_that_cannot_be_written(tmp_path):
    made.classification(tmp_path / "in", train=1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportError, match="file"):
        export(tmp_path / "in", tmp_path / "file", train=1)


def test_a_split_that_another_process_publishes_meanwhile_is_kept(tmp_path, monkeypatch):
    made.classification(tmp_path / "in", train=3, val=2)
    out, take, begun = tmp_path / "out", FolderDestination.move_in, []

    def taking(folder, part, name):
        if not begun:
            begun.append(name)
            export(tmp_path / "in", out, val=2)
        take(folder, part, name)

    monkeypatch.setattr(FolderDestination, "move_in", taking)
    export(tmp_path / "in", out, train=3)
    assert begun == ["train-00000-of-00001.tfrecord"]
    assert sorted(shard_info(out)) == ["train", "val"]
    assert (len(in_order(out, "train")), len(in_order(out, "val"))) == (3, 2)
