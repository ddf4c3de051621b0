"""Builds the libraries of the native step: hatchling calls it when the package is installed or a wheel is built.

    python -m ais_tar2tf.native.build     # builds them in this folder, as an editable installation does

Without a C compiler, or where the build fails, the installation goes on with pure Python. `AIS_TAR2TF_NATIVE=0`
builds nothing. This module imports nothing of the package, which is not installed yet when it runs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    BuildHookInterface: Any = object
else:
    try:
        from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    except ImportError:  # outside of a build
        BuildHookInterface = object

__all__ = ["LIBRARIES", "NativeBuildHook", "build", "try_to_build"]

_HERE = Path(__file__).resolve().parent
LIBRARIES = {"tar.so": ("tar.c", "group.c"), "cut.so": ("cut.c",)}
_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden", "-Wall", "-Wextra")
_TENSORFLOW = "libtensorflow_framework.so.2"  # the loader finds it by this name, in which a process has TensorFlow
_SECONDS = 120


class _NotBuiltError(Exception):
    """The libraries cannot be built here. The text says why."""


def build(folder: Path) -> list[Path]:
    """Compile the libraries into a folder, and return their paths.

    Raises:
        OSError: The folder cannot be written.
        _NotBuiltError: There is no C compiler, or it failed.
    """
    if sys.platform != "linux":
        raise _NotBuiltError(f"it is built on Linux only, and this is {sys.platform}")
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    if not compiler[0]:
        raise _NotBuiltError("there is no C compiler (on Debian and Ubuntu: apt install gcc libc6-dev)")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        stub = Path(temporary, _TENSORFLOW)
        _run([*compiler, "-shared", "-x", "c", os.devnull, f"-Wl,-soname,{_TENSORFLOW}", "-o", str(stub)])
        for name, sources in LIBRARIES.items():
            libraries = ["-Wl,--no-as-needed", str(stub)] if name == "cut.so" else []
            target = Path(temporary, name)
            _run([*compiler, *_FLAGS, *(str(_HERE / source) for source in sources), *libraries, "-o", str(target)])
        for name in reversed(LIBRARIES):  # tar.so states the version of both, so it comes last
            Path(temporary, name).replace(folder / name)
    return [folder / name for name in LIBRARIES]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NotBuiltError(f"{command[0]} cannot be run ({error})") from error
    if done.returncode:
        raise _NotBuiltError(f"{shlex.join(command)} failed: {done.stderr.strip()[-2000:]}")


def try_to_build(folder: Path) -> list[Path]:
    """Build the libraries; if that fails, write the reason to stderr and return nothing."""
    if os.environ.get("AIS_TAR2TF_NATIVE", "") == "0":
        return []
    try:
        return build(folder)
    except (_NotBuiltError, OSError) as error:
        print(f"warning: ais_tar2tf runs in pure Python, as its native step was not built: {error}", file=sys.stderr)
        return []


class NativeBuildHook(BuildHookInterface):
    """Adds the libraries to a wheel, which is then for this platform, but for every Python."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version
        built = try_to_build(_HERE / "lib")
        if built:
            from packaging.tags import platform_tags  # hatchling depends on it

            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{next(platform_tags())}"
            build_data["artifacts"] += [f"ais_tar2tf/native/lib/{path.name}" for path in built]


if __name__ == "__main__":
    sys.exit(0 if try_to_build(_HERE / "lib") else 1)
