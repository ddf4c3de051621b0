"""A Python with Apache Beam, which wants older versions of what TensorFlow brings: an environment of its own.

It has what this package needs beside TensorFlow, and this checkout by PYTHONPATH. It is made once, like the servers.
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

from tests.servers.build import cache, installer, locked, run

__all__ = ["BEAM", "BeamEnvironment"]

_BEAM = "apache-beam==2.77.0"
_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@dataclass(frozen=True)
class BeamEnvironment:
    name: str = "beam"

    @property
    def folder(self) -> Path:
        digest = zlib.crc32("\n".join(_requirements()).encode())
        return cache() / f"{_BEAM.replace('==', '-')}-python{platform.python_version()}-{digest:08x}"

    @property
    def path(self) -> Path:
        """What runs its Python; there when the environment is whole."""
        return self.folder / "python"

    def build(self) -> None:
        if self.path.exists():
            return
        cache().mkdir(parents=True, exist_ok=True)
        with locked(cache() / "lock"):
            if not self.path.exists():
                self._build()

    def _build(self) -> None:
        made = self.folder / "venv"  # under its final name: a venv is not to be moved
        python = str(made / "bin" / "python")
        with tempfile.TemporaryDirectory(dir=cache(), prefix=".building-") as name:
            log, here, environment = Path(name) / "log", Path(name), dict(os.environ)
            what = "an environment for Apache Beam"
            begin = [sys.executable, "-m", "venv", "--clear", str(made)]
            run(begin, f"making {what}", log, cwd=here, env=environment)
            install = [*installer(python), "--quiet", *_requirements()]
            run(install, f"installing {what}", log, cwd=here, env=environment)
        script = self.folder / "new"
        script.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        script.chmod(0o755)
        script.rename(self.path)


def _requirements() -> list[str]:
    """Ours without TensorFlow, and Beam."""
    wanted: list[str] = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    return [*(each for each in wanted if not re.match(r"tensorflow\b", each)), _BEAM]


BEAM = BeamEnvironment()
