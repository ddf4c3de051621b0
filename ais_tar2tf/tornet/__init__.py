"""TorNet, a data set of radar samples of tornadoes: build record files or tar shards from it, and train on them.

A sample is a netCDF file. TFDS record files allow random access to samples; tar shards can be streamed from a store.

    from ais_tar2tf import tornet

    tornet.build("tornet/", "tfds/", file_format="array_record")  # once; continues if interrupted
    sample = tornet.data_source("train-2015", data_dir="tfds/")[5]  # a dict of numpy arrays, without TensorFlow
    dataset = tornet.stream("ais://tornet/train-2015-{00..09}.tar").map(tornet.pair())  # needs no `build`

This package needs the extra `tornet`. Importing it must not import TFDS or TensorFlow: each function is imported when
it is first used. The module `tornet_dataset_builder` registers the data set `tornet` with TFDS when it is imported.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ais_tar2tf.tornet.access import build, builder, data_source, load
    from ais_tar2tf.tornet.sample import read_sample
    from ais_tar2tf.tornet.shards import pack, stream
    from ais_tar2tf.tornet.tornet_dataset_builder import Builder
    from ais_tar2tf.tornet.training import pair, weighted

__all__ = [
    "Builder",
    "build",
    "builder",
    "data_source",
    "load",
    "pack",
    "pair",
    "read_sample",
    "stream",
    "weighted",
]

_MODULES = {
    "Builder": "tornet_dataset_builder",
    **dict.fromkeys(("build", "builder", "data_source", "load"), "access"),
    "read_sample": "sample",
    **dict.fromkeys(("pack", "stream"), "shards"),
    **dict.fromkeys(("pair", "weighted"), "training"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
