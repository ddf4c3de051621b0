"""Fixtures of the tests of the native step."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that selects the engine."""
    return lambda name: monkeypatch.setenv("AIS_TAR2TF_NATIVE", "0" if name == "python" else "1")
