"""The three samples of the TAR2TF document run unchanged, with the parts that the document omits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from ais_tar2tf import AisDataset, default_record_parser

BUCKET_NAME = "imagenet"
BATCH_SIZE = 8
EPOCHS = 1
RECORDS = 64


@pytest.fixture(scope="module")
def model() -> tf.keras.Model:
    made = tf.keras.Sequential(
        [
            tf.keras.layers.Input((224, 224, 3)),
            tf.keras.layers.AveragePooling2D(56),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ]
    )
    made.compile("sgd", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return made


def test_sample_1_in_memory(imagenet, model):
    PROXY_URL = imagenet.url  # noqa: N806  # the document's name

    # Create in-memory tensorflow dataset
    ais = AisDataset(BUCKET_NAME, PROXY_URL)
    train_dataset = ais.load_from_tar("train-{0..3}.tar.gz").shuffle().batch(BATCH_SIZE)
    test_dataset = ais.load_from_tar("train-{4..7}.tar.gz").batch(BATCH_SIZE)
    # ...
    model.fit(train_dataset, epochs=EPOCHS)

    assert train_dataset.element_spec == (
        tf.TensorSpec((None, 224, 224, 3), tf.float32),
        tf.TensorSpec((None,), tf.int32),
    )
    assert sum(len(labels) for _, labels in train_dataset) == RECORDS
    images, labels = next(iter(test_dataset))
    assert labels.numpy().tolist() == [(64 + n) % 10 for n in range(BATCH_SIZE)]
    assert 0 <= float(tf.reduce_min(images)) < float(tf.reduce_max(images)) <= 1


def test_sample_2_through_a_tfrecord_file(imagenet, model, tmp_path, monkeypatch):
    PROXY_URL = imagenet.url  # noqa: N806
    monkeypatch.chdir(tmp_path)

    ais = AisDataset(BUCKET_NAME, PROXY_URL)

    written = ais.load_from_tar("train-{0..3}.tar.gz", path="train.record")
    # The document omits the parentheses around its method chain, which Python requires.
    train_dataset = (
        tf.data.TFRecordDataset(filenames=["train.record"])
        .map(default_record_parser)
        .shuffle(buffer_size=1024)
        .batch(BATCH_SIZE)
    )
    # ...
    model.fit(train_dataset, epochs=EPOCHS)

    assert written == ["train.record"]
    assert [path.name for path in Path().iterdir()] == ["train.record"]
    parsed = tf.data.TFRecordDataset(["train.record"]).map(default_record_parser)
    for (pixels, label), (others, other) in zip(parsed, ais.load_from_tar("train-{0..3}.tar.gz"), strict=True):
        np.testing.assert_array_equal(pixels, others)
        assert label == other
    scaled, _ = default_record_parser(next(iter(tf.data.TFRecordDataset(["train.record"]))), scale=255)
    np.testing.assert_allclose(scaled, next(iter(parsed))[0] * 255)


def test_sample_3_with_a_users_mapping(imagenet, model):
    PROXY_URL = imagenet.url  # noqa: N806
    # Python cannot run the document's `from tf.image import …`, because tf is a name and not a package.
    convert = tf.image.convert_image_dtype
    resize = tf.image.resize
    decode = tf.io.decode_jpeg

    # fmt: off
    # Create in-memory tensorflow dataset
    ais = AisDataset(BUCKET_NAME, PROXY_URL)
    train_dataset = ais.load_from_tar(
        "train-{0..3}.tar.gz",
        record_to_pair=lambda r: (resize(convert(decode(r['jpg']), tf.float32), (224, 224)), r['cls'])
    ).shuffle().batch(BATCH_SIZE)
    # fmt: on
    test_dataset = ais.load_from_tar("train-{4..7}.tar.gz").batch(BATCH_SIZE)
    test_dataset = ais.load_from_tar("train-{4..7}.tar.gz").batch(BATCH_SIZE)
    # ...
    model.fit(train_dataset, epochs=EPOCHS)

    assert sum(len(labels) for _, labels in train_dataset) == RECORDS
    assert next(iter(test_dataset))[0].shape == (BATCH_SIZE, 224, 224, 3)


def test_text_labels_are_kept_if_output_types_say_so(imagenet):
    ais = AisDataset(BUCKET_NAME, imagenet.url)
    pairs = ais.load_from_tar(
        "train-0.tar.gz", record_to_pair=lambda r: (r["jpg"], r["cls"]), output_types=(tf.string, tf.string)
    )
    assert next(iter(pairs))[1] == b"0"
