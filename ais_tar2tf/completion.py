"""What TAB shows of a class and of its instances, in IPython and in notebooks: the names that are meant for users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

__all__ = ["Completed"]


class _Listed(type):
    """The type of classes that list only public names; IPython asks an object and its class."""

    _for_the_package: frozenset[str]

    def __dir__(cls) -> Iterable[str]:
        return _public(super().__dir__(), cls._for_the_package)


class Completed(metaclass=_Listed):
    """A base class that lists only public names, as do its instances.

    `_for_the_package` has the public attributes that only other modules of the package need.
    """

    _for_the_package: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> Iterable[str]:
        return _public(super().__dir__(), self._for_the_package)


def _public(names: Iterable[str], hidden: frozenset[str]) -> list[str]:
    return sorted(name for name in {*names} - hidden if not name.startswith("_") or name.startswith("__"))
