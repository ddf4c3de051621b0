"""Datasets in the folders of known problems → record files → batches for training.

    from ais_tar2tf import datum

    write_configs = datum.configs.TFRWriteConfigs()
    write_configs.splits = {"train": {"num_examples": 1000}, "val": {"num_examples": 100}}
    datum.export.export_to_tfrecord("flowers/", "records/", datum.problem.IMAGE_CLF, write_configs)

    train = datum.load("records/").train_fn("train", shuffle=True)

export     `export_to_tfrecord`: folders, tar shards by URL, or a generator of one's own
problem    IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
configs    TFRWriteConfigs, DatasetConfigs: each setting says what it does
reader     `load`

The layer knows layouts and settings; records, files, schemas and splits are the core's.
"""

from __future__ import annotations

from ais_tar2tf.datum import configs, export, problem, reader
from ais_tar2tf.datum.reader import load

__all__ = ["configs", "export", "load", "problem", "reader"]


def __dir__() -> list[str]:
    return sorted(__all__)
