"""Modules that are imported when they are first used, because their import takes seconds."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["LazyModule"]


class LazyModule(ModuleType):
    """A substitute for the module of the same name. Reading an attribute imports the module.

    >>> numbers = LazyModule("fractions")
    >>> numbers.Fraction(1, 2)
    Fraction(1, 2)
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # inspect and doctest read these of every object
            raise AttributeError(f"{self.__name__} has not been imported, so it has no {name!r} yet")
        value = getattr(importlib.import_module(self.__name__), name)
        self.__dict__[name] = value
        return value
