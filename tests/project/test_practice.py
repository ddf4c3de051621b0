"""The project's workflows, hooks, lock file and reference refer to files and packages that exist."""

from __future__ import annotations

import re
import stat
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.pages import ROOT
from tests.support.reference import modules

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / ".ci" / "requirements.txt").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def locked() -> dict[str, set[str]]:
    """Return the versions of each package in the lock file."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", LOCK, re.MULTILINE):
        found.setdefault(canonicalize_name(name), set()).add(version)
    return found


def test_workflows_exist() -> None:
    assert [each.name for each in WORKFLOWS] == ["ci.yml", "release.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_parses_and_names_files_that_exist(path) -> None:
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert job["runs-on"]
        for step in job["steps"]:
            assert ("run" in step) != ("uses" in step)
            for name in re.findall(r"(?:^|\s)((?:\.ci|tests|examples)/[\w./-]+)", step.get("run", "")):
                assert (ROOT / name).is_file(), name


def test_ci_runs_every_python_that_the_project_supports() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    tried = jobs["checks"]["strategy"]["matrix"]["python"]
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", each)]
    assert tried == named == ["3.11", "3.12", "3.13"]
    assert {"run": ".ci/run", "env": {"PYTHON": "python"}} in jobs["checks"]["steps"]


def test_a_release_is_published_without_a_stored_token() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "wheel"
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["run", "lock", "check-wheel"])
def test_programs_are_executable(name) -> None:
    assert (ROOT / ".ci" / name).stat().st_mode & stat.S_IXUSR


def test_hooks_run_the_locked_linter() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (ruff,) = [each for each in repositories if each["repo"].endswith("/ruff-pre-commit")]
    assert {ruff["rev"].removeprefix("v")} == locked()["ruff"]
    (shell,) = [hook for each in repositories for hook in each["hooks"] if hook["id"] == "shell"]
    for name in ("setup.sh", ".ci/run", ".ci/lock", ".ci/check-wheel"):
        assert re.search(shell["files"], name)


def needed(extra: str | None) -> set[Requirement]:
    """Return the requirements of the package with an extra, including nested extras."""
    texts = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    found: set[Requirement] = set()
    for each in map(Requirement, texts):
        found |= {each} if each.name != "ais_tar2tf" else set().union(*map(needed, each.extras))
    return found


def test_the_lock_contains_the_tests_requirements() -> None:
    versions = locked()
    for each in needed(None) | needed("dev"):
        found = versions.get(canonicalize_name(each.name), set())
        assert found, f"{each.name}: run .ci/lock"
        assert all(each.specifier.contains(version, prereleases=True) for version in found), each


def test_the_lock_has_hashes_and_no_urls() -> None:
    assert "://" not in LOCK
    assert "--index" not in LOCK
    for entry in re.split(r"\n(?=[a-z0-9])", LOCK):
        assert "--hash=sha256:" in entry, entry[:80]


def test_the_reference_describes_every_public_name() -> None:
    for module in modules():
        assert module.__doc__, module
        for name in getattr(module, "__all__", ()):
            assert name in vars(module)
