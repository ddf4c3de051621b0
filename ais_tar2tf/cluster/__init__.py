"""Past one machine: work that moves to where the data is, and engines that exist. Each part is loaded when used.

etl       shards → TFRecord or other shards, within AIStore
shuffle   shards in another order, by dSort
beam      ConvertShards: shards → record files as an Apache Beam pipeline
service   tf.data service over exported files
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
    if name == "shuffle":
        from ais_tar2tf.cluster.shuffling import shuffle

        return shuffle
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
