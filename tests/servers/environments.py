"""Build Python environments for packages that conflict with TensorFlow, or are tested without it. Each is built once.

Each environment has this package's dependencies except TensorFlow, some more requirements, and this checkout on
PYTHONPATH.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import tempfile
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.build import cache, installer, locked, run

__all__ = ["BEAM", "ENVIRONMENTS", "WITHOUT_TENSORFLOW", "Environment"]

_PROJECT: dict[str, Any] = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]


@dataclass(frozen=True)
class Environment:
    name: str
    purpose: str
    more: tuple[str, ...]  # further requirements

    @property
    def folder(self) -> Path:
        digest = zlib.crc32("\n".join(self._requirements).encode())
        return cache() / f"{self.name}-python{platform.python_version()}-{digest:08x}"

    @property
    def path(self) -> Path:
        """A script that runs the environment's Python. It exists only if the environment is complete."""
        return self.folder / "python"

    def build(self) -> None:
        if self.path.exists():
            return
        cache().mkdir(parents=True, exist_ok=True)
        with locked(cache() / "lock"):
            if not self.path.exists():
                self._build()

    def _build(self) -> None:
        made = self.folder / "venv"  # built under its final name, because a venv cannot be moved
        python = str(made / "bin" / "python")
        with tempfile.TemporaryDirectory(dir=cache(), prefix=".building-") as name:
            log, here, environment = Path(name) / "log", Path(name), dict(os.environ)
            begin = [sys.executable, "-m", "venv", "--clear", str(made)]
            run(begin, f"making an environment {self.purpose}", log, cwd=here, env=environment)
            install = [*installer(python), "--quiet", *self._requirements]
            run(install, f"installing an environment {self.purpose}", log, cwd=here, env=environment)
        script = self.folder / "new"
        script.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        script.chmod(0o755)
        script.rename(self.path)

    @property
    def _requirements(self) -> list[str]:
        ours: list[str] = _PROJECT["dependencies"]
        return [*(each for each in ours if not re.match(r"tensorflow\b", each)), *self.more]


BEAM = Environment("apache-beam-2.77.0", "for Apache Beam", ("apache-beam==2.77.0",))  # requires an older protobuf
WITHOUT_TENSORFLOW = Environment("tfds", "without TensorFlow", tuple(_PROJECT["optional-dependencies"]["tfds"]))
ENVIRONMENTS = (BEAM, WITHOUT_TENSORFLOW)
