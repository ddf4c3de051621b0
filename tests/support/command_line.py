"""Run the command line in this process or in a new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner, Result

import ais_tar2tf as t2t
from ais_tar2tf.cli.app import app

ROOT = Path(t2t.__file__).parents[1]


def run(*arguments: object, columns: int = 100, **environment: str) -> Result:
    """Run a verb in this process, with a terminal that is `columns` wide."""
    return CliRunner(env={"COLUMNS": str(columns), **environment}).invoke(app, [str(each) for each in arguments])


def process(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a verb in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "ais_tar2tf", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, timeout=200, check=False, cwd=cwd,
    )  # fmt: skip
