"""Past one machine, on engines that exist: each room is loaded when it is first used.

beam      ConvertShards: shards → record files as an Apache Beam pipeline
service   tf.data service over exported files
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ais_tar2tf.cluster import beam, service

__all__ = ["beam", "service"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
