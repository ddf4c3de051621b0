"""Aliases for programs written for other packages: their import lines get this package's modules.

Importing this module installs a finder at the front of `sys.meta_path`:

    import ais_tar2tf.compat
    import datum                                          # ais_tar2tf.datum
    from tfrecorder.helpers.marshaller import Example     # ais_tar2tf.tfrecorder.helpers.marshaller

If a package or a module of such a name is installed or on the path, it is imported instead.
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
"""This package's module for each alias. The parents of an alias that has dots are empty packages."""


def _module_for(name: str) -> str | None:
    """Return this package's module for an alias or a module in it, "" for a parent of an alias, None for others."""
    for alias, module in ALIASES.items():
        if name == alias or name.startswith(f"{alias}."):
            return module + name.removeprefix(alias)
        if alias.startswith(f"{name}."):
            return ""
    return None


class _AliasLoader(Loader):
    """Registers a module of this package under another name as well, without loading it a second time."""

    def __init__(self, module: str) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self._module:
            sys.modules[module.__name__] = importlib.import_module(self._module)


class _AliasFinder(MetaPathFinder):
    """Finds this package's modules by their aliases."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        module = _module_for(fullname)
        if module is None or not self._is_free(fullname.partition(".")[0]):
            return None
        if module and not _exists(module):
            return None
        return ModuleSpec(fullname, _AliasLoader(module), is_package=True)

    def _is_free(self, top: str) -> bool:
        """Return whether no other package of this name can be imported."""
        if top in sys.modules:
            found = sys.modules[top]
            return found.__name__ == ALIASES.get(top) or isinstance(
                found.__spec__ and found.__spec__.loader, _AliasLoader
            )
        return not any(_finds(finder, top) for finder in sys.meta_path if finder is not self)


def _finds(finder: Any, name: str) -> bool:
    find: Callable[..., ModuleSpec | None] | None = getattr(finder, "find_spec", None)
    return find is not None and find(name, None) is not None


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
    # At the front, because the finder of paths would load a second copy of the modules in an aliased package.
    sys.meta_path.insert(0, _AliasFinder())
