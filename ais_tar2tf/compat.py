"""Opt-in: `import ais_tar2tf.compat` lets the documents' own import lines run where their packages are not installed.

    import ais_tar2tf.compat
    import datum                                          # ais_tar2tf.datum
    from tfrecorder.helpers.marshaller import Example     # ais_tar2tf.tfrecorder.helpers.marshaller

A package of that name that is installed, or a file of it on the path, always comes first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

__all__ = ["ALIASES"]

ALIASES = {
    "datum": "ais_tar2tf.datum",
    "tfrecorder": "ais_tar2tf.tfrecorder",
    "tornet.data.tfds.tornet.tornet_dataset_builder": "ais_tar2tf.tornet.tornet_dataset_builder",
}
"""The documents' names → ours. What stands between dots before a name is an empty package."""


def _ours(name: str) -> str | None:
    """Our module for an alias or for what is below one; "" for an empty package above one; None for neither."""
    for alias, module in ALIASES.items():
        if name == alias or name.startswith(f"{alias}."):
            return module + name.removeprefix(alias)
        if alias.startswith(f"{name}."):
            return ""
    return None


class _AliasLoader(Loader):
    """Puts our module under the other name, too: it is the same module, not a second one."""

    def __init__(self, module: str) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self._module:
            sys.modules[module.__name__] = importlib.import_module(self._module)


class _AliasFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        module = _ours(fullname)
        if module is None or not self._is_free(fullname.partition(".")[0]):
            return None
        if module and not _is_there(module):
            return None
        return ModuleSpec(fullname, _AliasLoader(module), is_package=True)

    def _is_free(self, top: str) -> bool:
        """Nothing else that can be imported has this name."""
        if top in sys.modules:
            found = sys.modules[top]
            return found.__name__ == ALIASES.get(top) or isinstance(
                found.__spec__ and found.__spec__.loader, _AliasLoader
            )
        return not any(_finds(finder, top) for finder in sys.meta_path if finder is not self)


def _finds(finder: Any, name: str) -> bool:
    find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
    return find is not None and find(name, None) is not None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
    # In front: below an alias, the path of our package would make second copies of its modules.
    sys.meta_path.insert(0, _AliasFinder())
