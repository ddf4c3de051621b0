"""The tables of options and extras match the code: every option with its default, every extra, nothing else."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.options import KIB, MIB
from ais_tar2tf.source import Source

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
OPTIONS = (ROOT / "examples" / "options.md").read_text(encoding="utf-8")
HOSTS = (ROOT / "examples" / "several_hosts.md").read_text(encoding="utf-8")
UNITS = {"KiB": KIB, "MiB": MIB, "GiB": 1024 * MIB, "s": 1}


def rows(head: str) -> list[list[str]]:
    """Return the cells of the table whose first heading is `head`."""
    (table,) = re.findall(rf"^\| {re.escape(head)} \|.*\n\|[-|]*\n((?:\|.*\n)+)", README + OPTIONS, re.MULTILINE)
    return [re.split(r" *\| *", line.strip("|").strip()) for line in table.splitlines()]


def value_of(cell: str) -> Any:
    """Return the default that a cell shows.

    >>> value_of("`2,048`"), value_of("`64 MiB`"), value_of("`0.2 s`"), value_of("`None`")
    (2048, 67108864, 0.2, None)
    """
    text = cell.strip("`")
    number = re.fullmatch(r"([\d.,]+)(?: (\w+))?", text)
    if number is None:
        return ast.literal_eval(text)
    return float(number[1].replace(",", "")) * UNITS[number[2] or "s"]


def documented(head: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for names, default, meaning in rows(head):
        assert meaning
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found
            found[name] = value_of(default)
    return found


def defaults_of(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not inspect.Parameter.empty}


@pytest.mark.parametrize(
    ("head", "function"),
    [
        ("`t2t.open`", t2t.open),
        ("`Source.dataset`", Source.dataset),
        ("`Source.export`", Source.export),
        ("`t2t.pack`", t2t.pack),
    ],
)
def test_every_option_of_a_call_is_listed_with_its_default(head: str, function: Any) -> None:
    assert documented(head) == defaults_of(function)


@pytest.mark.parametrize("kind", [t2t.options.Shuffle, t2t.options.Retry, t2t.options.Timeouts])
def test_every_field_of_an_option_is_listed_with_its_default(kind: Any) -> None:
    assert documented(f"`options.{kind.__name__}`") == {each.name: each.default for each in dataclasses.fields(kind)}


def test_further_options_of_the_client() -> None:
    own = {"provider", "conversions", "selections", "proxy_url"}
    assert set(defaults_of(t2t.AisDataset)) - own == set(defaults_of(t2t.open)) - {"fields", "index", "endpoint"}


def test_numbers_in_the_descriptions() -> None:
    """Numbers in the column *meaning* match the code's constants."""
    read = t2t.options.Read()
    (connections,) = [row for row in rows("`t2t.open`") if row[0] == "`connections`"]
    default = f"`None`: 1 if the store answers within 10 ms, otherwise {read.connections}; up to "
    assert default + f"{t2t.options.TUNED_CONNECTIONS} " in connections[2]
    (turn,) = [row for row in rows("`options.Shuffle`") if row[0] == "`turn`"]
    assert f"`None`: {t2t.options.Shuffle().in_turn}, or" in turn[2]
    assert f"`options.SHARED_SEED` ({t2t.options.SHARED_SEED})" in HOSTS


def test_every_extra_is_listed() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = rows("extra")
    assert {name for row in table for name in re.findall(r"`(\w+)`", row[0])} == set(extras)
    for names, brings, _ in table:
        for package in re.findall(r"[a-z0-9-]{4,}", brings.replace("`", "")):
            (extra,) = re.findall(r"`(\w+)`", names)
            assert any(package.replace("-", "_") in each.replace("-", "_") for each in extras[extra]), package


def test_the_command_that_installs_extras_names_them() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    for name in re.findall(r"\./setup\.sh with ([a-z ]+?) *#", README):
        assert set(name.split()) <= set(extras)
