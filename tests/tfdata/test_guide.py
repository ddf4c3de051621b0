"""The code of the guide "Load Data in TF.Data" runs unchanged, with the parts that the guide omits."""

from __future__ import annotations

import enum

import numpy as np
import pytest
import tensorflow as tf

from ais_tar2tf.values import features
from ais_tar2tf.values.features import _bytes_feature, _float_feature, _float_feature_array, _int64_feature
from tests.support import shards as made

COUNT = 8


@pytest.fixture
def image_path(tmp_path):
    paths = []
    for number in range(COUNT):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(made.image(number))
        paths.append(str(path))
    return paths


label = list(range(COUNT))


def load_image(path, label):
    return tf.io.read_file(path), label


def normalization(image, label):
    return image, label


# The guide's own code, with our helpers under the guide's names


def serialize_example(image_binary, label):
    feature = {"image_binary": _bytes_feature(image_binary), "label": _int64_feature(label)}

    proto = tf.train.Example(features=tf.train.Features(feature=feature))
    return proto.SerializeToString()


def tf_serialize_example(image_binary, label):
    tf_string = tf.py_function(serialize_example, (image_binary, label), tf.string)
    return tf.reshape(tf_string, ())


def _parse_serialize_function(proto):
    feature = {
        "image_binary": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }
    return tf.io.parse_single_example(proto, feature)


@pytest.mark.parametrize("serialize", [tf_serialize_example, features.tf_serialize_example])
def test_the_guides_blocks_run(image_path, tmp_path, serialize, monkeypatch):
    monkeypatch.setitem(globals(), "tf_serialize_example", serialize)
    monkeypatch.chdir(tmp_path)
    dataset = (
        tf.data.Dataset.from_tensor_slices((image_path, label))
        .map(load_image, num_parallel_calls=tf.data.AUTOTUNE)
        .map(normalization, num_parallel_calls=tf.data.AUTOTUNE)
        .map(tf_serialize_example, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
    )
    assert dataset.element_spec == tf.TensorSpec((), tf.string)

    writer = tf.data.experimental.TFRecordWriter("file.tfrecords")
    writer.write(dataset)

    back = tf.data.TFRecordDataset("file.tfrecords").map(_parse_serialize_function)
    found = [(each["image_binary"].numpy(), int(each["label"])) for each in back]
    assert found == [(made.image(number), number) for number in range(COUNT)]


def test_ours_and_the_guides_serialize_the_same():
    ours = features.serialize_example(made.image(1), 7)
    assert tf.train.Example.FromString(ours) == tf.train.Example.FromString(serialize_example(made.image(1), 7))
    assert features.decode(ours) == {"image_binary": [made.image(1)], "label": np.array([7])}


def test_other_names_and_more_values():
    names = ("image", "box", "name")
    data = features.serialize_example(b"x", [0.5, 1.5], "é", names=names)
    found = tf.io.parse_single_example(
        data, {"image": tf.io.FixedLenFeature((), tf.string), "box": tf.io.FixedLenFeature((2,), tf.float32)}
    )
    assert found["box"].numpy().tolist() == [0.5, 1.5]
    dataset = tf.data.Dataset.from_tensors((tf.constant(b"x"), tf.constant([0.5, 1.5]), tf.constant("é")))
    (one,) = dataset.map(lambda *values: features.tf_serialize_example(*values, names=names))
    assert one.numpy() == data


class Colour(enum.Enum):
    RED = 3


@pytest.mark.parametrize("value", [True, Colour.RED, 3, np.uint8(3), tf.constant(3), np.bool_(1)])
def test_int64_feature_takes_bool_enum_int_and_unsigned(value):
    wanted = 1 if isinstance(value, bool | np.bool_) else 3
    assert _int64_feature(value).int64_list.value == [wanted]


def test_the_other_helpers():
    assert _bytes_feature(tf.constant(b"a")).bytes_list.value == [b"a"]
    assert _bytes_feature("é").bytes_list.value == ["é".encode()]
    assert _float_feature(0.5).float_list.value == [0.5]
    assert _float_feature_array(np.array([0.5, 1])).float_list.value == [0.5, 1]
    assert _float_feature_array(tf.constant([0.5])).float_list.value == [0.5]
    for name in ("bytes_feature", "float_feature", "float_feature_array", "int64_feature"):
        assert getattr(features, f"_{name}") is getattr(features, name)


@pytest.mark.parametrize(("helper", "value"), [(_int64_feature, 1.5), (_int64_feature, "3"), (_bytes_feature, 3)])
def test_values_that_a_list_would_change_are_refused(helper, value):
    with pytest.raises(TypeError):
        helper(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1])
def test_values_beyond_int64_are_refused(value):
    with pytest.raises(OverflowError, match="int64"):
        _int64_feature(value)
