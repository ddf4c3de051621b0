"""What TAB shows of a class and of its instances, in IPython and in notebooks: the names that are meant for users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

__all__ = ["Completed"]


class _Listed(type):
    """The type of classes that list only public names; IPython asks an object and its class."""

    __hidden__: frozenset[str]

    def __dir__(cls) -> Iterable[str]:
        return _public(super().__dir__(), cls.__hidden__)


class Completed(metaclass=_Listed):
    """A base class that lists only public names, as do its instances.

    `__hidden__` has the public attributes that only other modules of the package need.
    """

    __hidden__: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> Iterable[str]:
        return _public(super().__dir__(), type(self).__hidden__)


def _public(names: Iterable[str], hidden: frozenset[str]) -> list[str]:
    return sorted(name for name in {*names} - hidden if not name.startswith("_") or name.startswith("__"))
