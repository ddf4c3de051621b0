"""The two samples of the Datum document run unchanged, with the parts that the document omits."""

from __future__ import annotations

import tensorflow as tf

from ais_tar2tf import datum
from tests.support import datum_folders as made

IMG_SIZE = (8, 10)


def test_both_samples(tmp_path):
    input_path, output_path = made.classification(tmp_path / "in", train=40, val=12), tmp_path / "out"
    # fmt: off

    # Initialize a config object to define dataset properties

    write_configs = datum.configs.TFRWriteConfigs()
    write_configs.splits = {
        "train": {
            "num_examples": 40
        },
        "val": {
            "num_examples": 12
        },
    }

    # Convert the dataset to TFRecord format
    datum.export.export_to_tfrecord(input_path, output_path, datum.problem.IMAGE_CLF, write_configs)

    # Load the dataset as `tf.data.Dataset`
    dataset = datum.load(output_path)

    # Get dataset for training the model
    train_dataset = dataset.train_fn('train', shuffle=True)

    # Get dataset for validating the model
    val_dataset = dataset.val_fn('val', shuffle=False)

    assert {name: value.shape for name, value in next(iter(train_dataset)).items()} == {
        "image": (32, 12, 16, 3), "label": (32,), "name": (32,), "score": (32,),
    }
    assert [batch["label"].numpy().tolist() for batch in val_dataset] == [[n % 3 for n in range(12)]]

    # Augment the dataset samples

    # Define a augmentation function, for example
    def augment_image(example):
      image = tf.image.resize(example["image"], IMG_SIZE)
      image = tf.image.random_flip_left_right(image)
      image = tf.image.random_flip_up_down(image)
      example.update({"image": image})
      return example

    # Get the dataset configs
    dataset_configs = dataset.dataset_configs

    # Set pre batching callback for samplewise augmentation
    # The document misspells this one as `datset_configs`.
    dataset_configs.pre_batching_callback = lambda example: augment_image(example)

    # Reload the training dataset
    train_dataset = dataset.train_fn('train', shuffle=True)
    # fmt: on

    assert next(iter(train_dataset))["image"].shape == (32, *IMG_SIZE, 3)
