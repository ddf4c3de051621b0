"""Work that runs outside this process: in the AIStore cluster, or on other machines.

etl       an AIStore ETL that converts whole shards into TFRecord or other shards
shuffle   dSort: write the records of shards into new shards, in another order
beam      ConvertShards: convert shards into record files with an Apache Beam pipeline
service   a tf.data service over exported record files

Each part is imported when it is first used, because Apache Beam and TensorFlow take seconds to import.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ais_tar2tf.cluster import beam, etl, service
    from ais_tar2tf.cluster.shuffling import shuffle

__all__ = ["beam", "etl", "service", "shuffle"]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "shuffle":
        return importlib.import_module(f"{__name__}.shuffling").shuffle
    return importlib.import_module(f"{__name__}.{name}")
