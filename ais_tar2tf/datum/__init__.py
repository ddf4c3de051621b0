"""Datum's interface: exports data sets in the folder layouts of known problems to record files, and loads batches.

    from ais_tar2tf import datum

    write_configs = datum.configs.TFRWriteConfigs()
    write_configs.splits = {"train": {"num_examples": 1000}, "val": {"num_examples": 100}}
    datum.export.export_to_tfrecord("flowers/", "records/", datum.problem.IMAGE_CLF, write_configs)

    train = datum.load("records/").train_fn("train", shuffle=True)

    export     `export_to_tfrecord`: exports a folder, tar shards by URL, or the examples of a generator
    problem    IMAGE_CLF, IMAGE_DET, IMAGE_SEG, TEXT_CLF
    configs    TFRWriteConfigs, DatasetConfigs: each setting has a docstring
    reader     `load`

This room holds only the layouts and settings of Datum. Record files, schemas and splits belong to other rooms.
"""

from __future__ import annotations

from ais_tar2tf.datum import configs, export, problem, reader
from ais_tar2tf.datum.reader import load

__all__ = ["configs", "export", "load", "problem", "reader"]


def __dir__() -> list[str]:
    return sorted(__all__)
