"""Read tar shards in object stores as tf.data datasets, without losing or repeating a record.

    import ais_tar2tf as t2t

    ais = t2t.AisDataset("imagenet", "http://localhost:51080")
    dataset = ais.load_from_tar("train-{000..146}.tar").shuffle().batch(32)

The public names are imported when they are first used, so that importing the package loads neither TensorFlow nor a
network library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ais_tar2tf import cluster, errors, ops, options, tfds, tornet
    from ais_tar2tf.base.hosts import hosts
    from ais_tar2tf.base.monitoring.metrics import openmetrics
    from ais_tar2tf.cluster.client import AisDataset
    from ais_tar2tf.cluster.server import serve
    from ais_tar2tf.recordfiles.export.finishing import finish
    from ais_tar2tf.recordfiles.packing.packer import pack
    from ais_tar2tf.recordfiles.write_dataset import write_dataset
    from ais_tar2tf.source import index_shards as index
    from ais_tar2tf.source import iter_records
    from ais_tar2tf.source import open_source as open
    from ais_tar2tf.source.loaded import load
    from ais_tar2tf.source.mixture import mix
    from ais_tar2tf.tfdata.callbacks.resume import Resume
    from ais_tar2tf.tfdata.callbacks.watch import Watch
    from ais_tar2tf.values import arrays, features, schema
    from ais_tar2tf.values import parse_specs as parsing
    from ais_tar2tf.values.default_mappings import (
        default_record_parser,
        default_record_to_example,
        default_record_to_pair,
    )

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

# The module of each public name, and the attribute in the module; None if the name is the module itself.
_WHERE = {
    "AisDataset": ("cluster.client", "AisDataset"),
    "Resume": ("tfdata.callbacks.resume", "Resume"),
    "Watch": ("tfdata.callbacks.watch", "Watch"),
    "arrays": ("values.arrays", None),
    "cluster": ("cluster", None),
    "default_record_parser": ("values.default_mappings", "default_record_parser"),
    "default_record_to_example": ("values.default_mappings", "default_record_to_example"),
    "default_record_to_pair": ("values.default_mappings", "default_record_to_pair"),
    "errors": ("errors", None),
    "features": ("values.features", None),
    "finish": ("recordfiles.export.finishing", "finish"),
    "hosts": ("base.hosts", "hosts"),
    "index": ("source", "index_shards"),
    "iter_records": ("source", "iter_records"),
    "load": ("source.loaded", "load"),
    "mix": ("source.mixture", "mix"),
    "open": ("source", "open_source"),
    "openmetrics": ("base.monitoring.metrics", "openmetrics"),
    "ops": ("ops", None),
    "options": ("options", None),
    "pack": ("recordfiles.packing.packer", "pack"),
    "parsing": ("values.parse_specs", None),
    "schema": ("values.schema", None),
    "serve": ("cluster.server", "serve"),
    "tfds": ("tfds", None),
    "tornet": ("tornet", None),
    "write_dataset": ("recordfiles.write_dataset", "write_dataset"),
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
