"""Other programs' import lines, answered by this package: `import ais_tar2tf.compat` first, then they run.

    import ais_tar2tf.compat
    import tornet.data.tfds.tornet.tornet_dataset_builder  # registers `tornet` with TFDS

A package of that name that is installed is imported, not ours.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["ALIASES"]

ALIASES = {"tornet.data.tfds.tornet.tornet_dataset_builder": "ais_tar2tf.tornet.tornet_dataset_builder"}
"""Their module → ours; the packages above theirs are empty."""


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked after all others, so that it hides nothing."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # as importlib calls it
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in ALIASES:
            return importlib.machinery.ModuleSpec(fullname, self)
        if any(alias.startswith(f"{fullname}.") for alias in ALIASES):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: ModuleType) -> None:
        """What is in sys.modules when this is over is what was imported."""
        ours = ALIASES.get(module.__name__)
        if ours is not None:
            sys.modules[module.__name__] = importlib.import_module(ours)


if not any(
    type(finder).__name__ == _Finder.__name__ and type(finder).__module__ == __name__ for finder in sys.meta_path
):
    sys.meta_path.append(_Finder())
