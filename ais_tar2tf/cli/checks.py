"""The checks of this machine for the verb `doctor`: Python, packages, credentials, memory, disk and open files.

Each check returns its results and prints nothing. A result must not contain the value of a credential, only the name
of its variable.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ais_tar2tf.cli.console import quantity

__all__ = [
    "CheckResult",
    "credentials",
    "disk",
    "extras",
    "memory",
    "native",
    "open_files",
    "python",
    "required",
    "tensorflow",
]

OK, REMARK, FAULT = "ok", "remark", "fault"
_OLDEST, _NEWEST = (3, 11), (3, 13)
_LEAST_MEMORY = 1_000_000_000  # bytes: TensorFlow takes half of these bytes, and this package takes 256 MiB
_LEAST_DISK = 1_000_000_000  # bytes: more than a first export and a card need
_LEAST_FILES = 1_024  # files that a process may have open at once
_DEVELOPERS = ("test", "dev", "docs", "bench", "fuzz")  # extras that only developers of this package need
_TENSORFLOW_SECONDS = 120  # a first import reads a gigabyte from disk
_SECRETS = (
    "AIS_AUTHN_TOKEN",
    "AIS_AUTHN_TOKEN_FILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_STORAGE_ACCOUNT_KEY",
)
_USES = {
    "beam": "converting on Apache Beam",
    "card": "small pictures of large images on a card",
    "cloud": "s3://, gs:// and az://",
    "hdf5": "fields that are HDF5 or netCDF-4 files",
    "progress": "progress bars in notebooks",
    "tensorboard": "plots of a training's input in TensorBoard",
    "tfds": "data sets for TFDS, and ArrayRecord files",
    "tornet": "TorNet's data set",
}
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy")


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        what: What was checked.
        state: "ok", "remark" or "fault".
        found: What was found.
        remedy: What the user can do about a remark or a fault.
        code: The exit code of `doctor`, if this result is the first fault.
    """

    what: str
    state: str
    found: str
    remedy: str = ""
    code: int = 1

    def to_json(self) -> dict[str, str | int]:
        return {name: value for name, value in asdict(self).items() if name != "code"}


def native() -> CheckResult:
    from ais_tar2tf.native import engine

    found = engine()
    if found.name == "native":
        return CheckResult("native step", OK, found.why)
    remedy = "tars are read in pure Python, with the same results, and more slowly"
    return CheckResult("native step", REMARK, found.why, remedy)


def python() -> CheckResult:
    version = platform.python_version()
    if not _OLDEST <= sys.version_info[:2] <= _NEWEST:
        wanted = f"{_OLDEST[0]}.{_OLDEST[1]} to {_NEWEST[0]}.{_NEWEST[1]}"
        return CheckResult(
            "Python", FAULT, version, f"TensorFlow has wheels for {wanted}: make a venv with one of them"
        )
    return CheckResult("Python", OK, f"{version} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores")


def required() -> CheckResult:
    """Check that the packages that this package always needs are installed."""
    if _version("ais_tar2tf") is None:
        return CheckResult(
            "packages", REMARK, "run from a checkout that is not installed", "./setup.sh, or pip install -e ."
        )
    missing = [name for name, extra in _requirements() if not extra and _version(name) is None]
    if missing:
        return CheckResult("packages", FAULT, f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    return CheckResult("packages", OK, f"ais_tar2tf {_version('ais_tar2tf')} and all that it needs")


def extras() -> Iterator[CheckResult]:
    """Check the extras. A missing extra is a remark, not a fault."""
    for extra in sorted({extra for _, extra in _requirements() if extra and extra not in _DEVELOPERS}):
        names = [name for name, needed_by in _requirements() if needed_by == extra and name != "ais_tar2tf"]
        missing = [name for name in names if _version(name) is None]
        if missing:
            found = f"not installed: {_USES.get(extra, ', '.join(missing))}"
            yield CheckResult(f"extra {extra}", REMARK, found, f"pip install 'ais_tar2tf[{extra}]'")
        else:
            yield CheckResult(f"extra {extra}", OK, ", ".join(f"{name} {_version(name)}" for name in names))


def _requirements() -> list[tuple[str, str]]:
    """Return (package, extra) for every requirement of this package.

    The extra is empty if the package is always required.
    """
    try:
        lines = importlib.metadata.requires("ais_tar2tf") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    found: list[tuple[str, str]] = []
    for line in lines:
        name = re.match(r"[\w.-]+", line)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if name is not None:
            found.append((name[0], extra[1] if extra is not None else ""))
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def tensorflow() -> CheckResult:
    """Check in another process that TensorFlow can be imported: a broken installation may crash that process."""
    script = (
        "import time; began = time.perf_counter(); import tensorflow as tf;"
        "print(tf.__version__, len(tf.config.list_physical_devices('GPU')), time.perf_counter() - began)"
    )
    remedy = "pip install --force-reinstall tensorflow; ls, inspect, convert, verify and card do without it"
    try:
        done = subprocess.run(  # noqa: S603  # this Python, and a constant script
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=_TENSORFLOW_SECONDS,
            check=False,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    except subprocess.TimeoutExpired:
        return CheckResult("TensorFlow", FAULT, f"its import took over {_TENSORFLOW_SECONDS} s", remedy)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        return CheckResult("TensorFlow", FAULT, f"it does not import: {last[:200]}", remedy)
    version, gpus, seconds = done.stdout.split()[-3:]
    return CheckResult("TensorFlow", OK, f"{version}, {gpus} GPUs seen, imports in {float(seconds):.1f} s")


def credentials(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Report which environment variables with credentials or proxies are set, without their values."""
    present = [name for name in _SECRETS if environment.get(name)]
    found = f"set: {', '.join(present)}" if present else "none set; open buckets need none"
    yield CheckResult("credentials", OK, found)
    proxies = [name for name in _PROXIES if environment.get(name)]
    if proxies:
        yield CheckResult(
            "proxy", REMARK, f"set: {', '.join(proxies)}", "hosts that are to be asked directly belong into NO_PROXY"
        )


def memory() -> CheckResult:
    available = _available_memory()
    if available is None:
        return CheckResult("memory", OK, "not told by this system")
    if available < _LEAST_MEMORY:
        remedy = "end other programs, or lower Limits.read_ahead_bytes and Shuffle.window_bytes"
        return CheckResult("memory", FAULT, f"{quantity(available)} available", remedy)
    return CheckResult("memory", OK, f"{quantity(available)} available")


def _available_memory() -> int | None:
    """Return the bytes of memory that are available to this process; None if the system does not state them.

    In a container, the limit of the control group counts, too.
    """
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    found = re.search(r"MemAvailable:\s+(\d+) kB", text)
    available = int(found[1]) * 1024 if found is not None else None
    try:
        bound = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return available
    if not bound.isdigit() or available is None:
        return available
    return min(available, int(bound) - used)


def disk() -> CheckResult:
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if free < _LEAST_DISK:
        return CheckResult(
            "disk", FAULT, f"{quantity(free)} free in {folder}", "make room, or set TMPDIR to a larger disk"
        )
    return CheckResult("disk", OK, f"{quantity(free)} free in {folder}")


def open_files() -> CheckResult:
    try:
        import resource
    except ImportError:  # Windows
        return CheckResult("open files", OK, "not bounded here")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _LEAST_FILES:
        return CheckResult("open files", REMARK, f"at most {soft}", f"ulimit -n {_LEAST_FILES * 4}, for many workers")
    return CheckResult("open files", OK, "not bounded" if soft < 0 else f"at most {soft:,}")
