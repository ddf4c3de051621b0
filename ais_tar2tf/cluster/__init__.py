"""Work that moves to where the data is. Each part is loaded when it is asked for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ais_tar2tf.cluster import etl
    from ais_tar2tf.cluster.shuffling import shuffle

__all__ = ["etl", "shuffle"]


def __getattr__(name: str) -> Any:
    if name == "shuffle":
        from ais_tar2tf.cluster.shuffling import shuffle

        return shuffle
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
