"""The public API equals the snapshot in `api.txt`, so names, parameters and defaults change only on purpose."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

import pytest

from tests.support.api_snapshot import SNAPSHOT, functions, lines


def test_nothing_public_changed_by_accident() -> None:
    """After an intended change, run python -m tests.support.api_snapshot."""
    stored = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert len(stored) > 300
    assert list(lines()) == stored


# Methods that other rooms call, of classes that users hold.
INTERNAL = {
    "t2t.errors.Finder.original_of", "t2t.errors.ask_for_originals", "t2t.options.Limits.shared",
    "t2t.options.Read.of_lane", "t2t.options.Read.of_source", "Loaded.request", "PackResult.add_shard",
    "PackResult.add_record",
}  # fmt: skip


@pytest.mark.parametrize(("name", "function"), list(functions()))
def test_public_functions_document_their_parameters(name: str, function: Callable[..., object]) -> None:
    if name in INTERNAL or ".on_" in name:  # Keras documents its hooks
        return
    text = inspect.getdoc(function) or ""
    parameters = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
    entries = {each: re.search(rf"^ +\*{{0,2}}{each}(?: \(.*\))?: ", text, re.MULTILINE) for each in parameters}
    assert text
    assert [each for each, entry in entries.items() if entry is None and not each.startswith("_")] == []
