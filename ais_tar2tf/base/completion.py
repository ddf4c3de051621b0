"""Tab completion in IPython and notebooks, limited to public names for users."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

__all__ = ["Completed"]


class _PublicNames(type):
    """The metaclass of `Completed`: IPython lists the names of an object's class, too."""

    __hidden__: frozenset[str]

    def __dir__(cls) -> Iterable[str]:
        return _public(super().__dir__(), cls.__hidden__)


class Completed(metaclass=_PublicNames):
    """A base class. For its subclasses and their instances, `dir()` returns only names for users.

    `__hidden__` lists public attributes that only other modules of this package need.
    """

    __hidden__: ClassVar[frozenset[str]] = frozenset()

    def __dir__(self) -> Iterable[str]:
        return _public(super().__dir__(), type(self).__hidden__)


def _public(names: Iterable[str], hidden: frozenset[str]) -> list[str]:
    return sorted(name for name in {*names} - hidden if not name.startswith("_") or name.startswith("__"))
