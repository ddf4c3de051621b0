"""The modules of the package."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import ais_tar2tf

ROOT = Path(ais_tar2tf.__file__).parent


def modules() -> list[str]:
    """Return the names of all modules and packages below `ais_tar2tf`."""
    return [name for _, name, _ in pkgutil.walk_packages([str(ROOT)], "ais_tar2tf.")]
