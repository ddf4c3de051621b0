"""Tar shards in an object store become a tf.data.Dataset, without losing or repeating a record.

    import ais_tar2tf as t2t

    ais = t2t.AisDataset("imagenet", "http://localhost:51080")
    dataset = ais.load_from_tar("train-{000..146}.tar").shuffle().batch(32)

Names are loaded when they are first used: importing this loads neither TensorFlow nor a network library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ais_tar2tf import arrays, cluster, errors, features, ops, options, parsing, schema, tfds, tornet
    from ais_tar2tf.callbacks.resume import Resume
    from ais_tar2tf.callbacks.watch import Watch
    from ais_tar2tf.dataset import AisDataset
    from ais_tar2tf.environment import hosts
    from ais_tar2tf.export.finishing import finish
    from ais_tar2tf.loading.files import load
    from ais_tar2tf.mapping import default_record_parser, default_record_to_example, default_record_to_pair
    from ais_tar2tf.mixing import mix
    from ais_tar2tf.packing.packer import pack
    from ais_tar2tf.server import serve
    from ais_tar2tf.source import index_shards as index
    from ais_tar2tf.source import iter_records
    from ais_tar2tf.source import open_source as open
    from ais_tar2tf.watching import openmetrics
    from ais_tar2tf.writing import write_dataset

__all__ = [
    "AisDataset",
    "Resume",
    "Watch",
    "arrays",
    "cluster",
    "default_record_parser",
    "default_record_to_example",
    "default_record_to_pair",
    "errors",
    "features",
    "finish",
    "hosts",
    "index",
    "iter_records",
    "load",
    "mix",
    "open",
    "openmetrics",
    "ops",
    "options",
    "pack",
    "parsing",
    "schema",
    "serve",
    "tfds",
    "tornet",
    "write_dataset",
]

__version__ = "0.1.0"

_WHERE = {
    "AisDataset": ("dataset", "AisDataset"),
    "Resume": ("callbacks.resume", "Resume"),
    "Watch": ("callbacks.watch", "Watch"),
    "arrays": ("arrays", None),
    "cluster": ("cluster", None),
    "default_record_parser": ("mapping", "default_record_parser"),
    "default_record_to_example": ("mapping", "default_record_to_example"),
    "default_record_to_pair": ("mapping", "default_record_to_pair"),
    "errors": ("errors", None),
    "features": ("features", None),
    "finish": ("export.finishing", "finish"),
    "hosts": ("environment", "hosts"),
    "index": ("source", "index_shards"),
    "iter_records": ("source", "iter_records"),
    "load": ("loading.files", "load"),
    "mix": ("mixing", "mix"),
    "open": ("source", "open_source"),
    "openmetrics": ("watching", "openmetrics"),
    "ops": ("ops", None),
    "options": ("options", None),
    "pack": ("packing.packer", "pack"),
    "parsing": ("parsing", None),
    "schema": ("schema", None),
    "serve": ("server", "serve"),
    "tfds": ("tfds", None),
    "tornet": ("tornet", None),
    "write_dataset": ("writing", "write_dataset"),
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    loaded = importlib.import_module(f"{__name__}.{module}")
    value = loaded if attribute is None else getattr(loaded, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
