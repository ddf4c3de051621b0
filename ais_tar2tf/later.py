"""A module that is imported when it is first used, so that naming it costs nothing."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["Later"]


class Later(ModuleType):
    """Stands for the module of this name; imports it when the first attribute is read.

    >>> numbers = Later("fractions")
    >>> numbers.Fraction(1, 2)
    Fraction(1, 2)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspect and doctest look for these in whatever they meet
            raise AttributeError(f"{self.__name__} has not been imported, so it has no {name!r} yet")
        value = getattr(importlib.import_module(self.__name__), name)
        self.__dict__[name] = value
        return value
