"""Rules for the tests: each fixture is defined once, and helpers come only from `tests/support`."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
GUIDE = {"_bytes_feature", "_float_feature", "_float_feature_array", "_int64_feature"}  # documented under these names


def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(TESTS.rglob("*.py"))}


def imported_names() -> list[tuple[str, str, str]]:
    """Return each name that a test imports, as (folder of the test, module, name)."""
    return [
        (path.parent.name, node.module or "", alias.name)
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]


def test_each_fixture_is_defined_once() -> None:
    fixtures = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("pytest.fixture" in ast.unparse(each) for each in node.decorator_list)
    )
    assert len(fixtures) > 100
    assert [name for name, count in fixtures.items() if count > 1] == []


def test_no_test_imports_another_test() -> None:
    found = [each for each in imported_names() if each[1].startswith("tests.") and ".test_" in each[1]]
    assert found == []


def test_private_names_are_imported_only_by_tests_of_their_room() -> None:
    private = [
        (folder, module, name)
        for folder, module, name in imported_names()
        if module.startswith("ais_tar2tf.") and name.startswith("_") and not name.startswith("__")
    ]
    foreign = [each for each in private if each[1].split(".")[1] != each[0] and each[2] not in GUIDE]
    assert private
    assert foreign == []
