"""A child that is forked at any moment finds every lock free, and reads. Nothing changes the umask of the process."""

from __future__ import annotations

import ast
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base import forking
from ais_tar2tf.recordfiles.export.journal import WorkFolder
from ais_tar2tf.recordfiles.export.writers import Syncer
from tests.support import shards as made
from tests.support.fault_server import PATIENCE, FaultServer, ais

ROOT = Path(t2t.__file__).parent
RECORDS, SHARDS = 20, 2
KEYS = [f"s{shard}/{number:06d}" for shard in range(SHARDS) for number in range(RECORDS)]
_LOCKS = {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier"}
_MADE_IN_FORKING = _LOCKS | {f"threading.{name}" for name in _LOCKS}
_OTHERS = {Path("tornet/small_data.py")}  # its Event is a tornado
_POOLS = {"ThreadPoolExecutor", "threading.Timer"}
pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def _called(node: ast.AST) -> str:
    """Return the source text of the called function."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in ROOT.rglob("*.py"):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_every_lock_is_renewed_by_a_fork() -> None:
    found = [
        f"{path}:{node.lineno}"
        for path, tree in _trees()
        for node in ast.walk(tree)
        if _called(node) in _MADE_IN_FORKING and path.name != "forking.py" and path not in _OTHERS
    ]
    assert not found, "make it by ais_tar2tf.base.forking"


def test_every_class_with_threads_handles_forks() -> None:
    """A pool that a child inherits has no threads, so a call of `submit` would wait forever."""
    found: list[str] = []
    for path, tree in _trees():
        for each in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            kept = any(
                isinstance(node, ast.Assign | ast.AnnAssign)
                and _called(node.value) in _POOLS
                and isinstance(node.targets[0] if isinstance(node, ast.Assign) else node.target, ast.Attribute)
                for node in ast.walk(each)
                if getattr(node, "value", None) is not None
            )
            if kept and "forked" not in {node.name for node in each.body if isinstance(node, ast.FunctionDef)}:
                found.append(f"{path}: {each.name}")
    assert not found


def test_the_umask_is_never_changed() -> None:
    """All threads share the umask. Between two calls of `os.umask`, files of other threads would get a wrong mode."""
    assert not [path for path, tree in _trees() for node in ast.walk(tree) if _called(node).endswith("umask")]


@contextlib.contextmanager
def _held(locks: list[Any]) -> Iterator[None]:
    """Hold all locks in another thread."""
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for each in locks:
                stack.enter_context(each)
            holding.set()
            done.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holding.wait(PATIENCE)
    try:
        yield
    finally:
        done.set()
        thread.join()


class _Child:
    """A forked child that does `work(wait)`; `wait()` returns when the parent says `go_on`."""

    def __init__(self, work: Callable[[Callable[[], None]], Any]) -> None:
        self._said, there = os.pipe()
        waits, self._go_on = os.pipe()

        def wait() -> None:
            os.write(there, b"ready\n")
            os.read(waits, 1)

        self._pid = os.fork()
        if not self._pid:
            os.close(self._go_on)
            signal.alarm(PATIENCE)
            said = ""
            try:
                said = repr(work(wait))
            except BaseException as error:  # noqa: BLE001  # whatever it is, the parent looks at it
                said = f"{type(error).__name__}: {error}"
            finally:
                os.write(there, said.encode())
                os._exit(0)
        os.close(there)
        os.close(waits)

    def until_it_waits(self) -> None:
        assert os.read(self._said, 6) == b"ready\n"

    def result(self) -> str:
        """Return the child's result as text, or "" if it took too long."""
        os.close(self._go_on)
        with os.fdopen(self._said) as pipe:
            said = pipe.read()
        os.waitpid(self._pid, 0)
        return said


def _in_child(work: Callable[[], Any]) -> str:
    return _Child(lambda _wait: work()).result()


@pytest.fixture(scope="module")
def forking_server() -> Iterator[FaultServer]:
    with FaultServer() as found:
        for shard in range(SHARDS):
            found.add(f"bucket/s-{shard}.tar", ais(made.labelled(f"s{shard}", RECORDS)))
        yield found


def _keys(source: t2t.Source) -> list[str]:
    return [record["__key__"] for record in source.records()]


def _open(server: FaultServer, **options: Any) -> t2t.Source:
    return t2t.open(f"ais://bucket/s-{{0..{SHARDS - 1}}}.tar", endpoint=server.url, **options)


@pytest.mark.parametrize("cache", [None, "memory", "disk"])
@pytest.mark.parametrize("read_before", [False, True])
def test_a_child_reads_even_if_all_locks_were_held_at_the_fork(
    forking_server: FaultServer, tmp_path: Path, cache: str | None, *, read_before: bool
) -> None:
    with _open(forking_server, cache=str(tmp_path) if cache == "disk" else cache) as source:
        if read_before:
            assert _keys(source) == KEYS
        locks = [each for each in list(forking._locks) if hasattr(each, "__enter__")]
        assert len(locks) > 3
        with _held(locks):
            assert _in_child(lambda: (_keys(source) == KEYS, _keys(_open(forking_server)) == KEYS)) == "(True, True)"
        assert _keys(source) == KEYS


def test_locks_conditions_events_and_semaphores_are_free_in_a_child() -> None:
    lock, condition, semaphore, event = forking.lock(), forking.condition(), forking.semaphore(1), forking.event()

    def work() -> list[bool]:
        event.set()
        with condition:
            return [lock.acquire(timeout=1), semaphore.acquire(timeout=1), event.is_set(), condition.wait(0.01)]

    with _held([lock, condition, semaphore, event._cond]):  # type: ignore[attr-defined]
        assert _in_child(work) == "[True, True, True, False]"
    assert not event.is_set()


def test_hooks_after_a_fork_find_the_locks_free() -> None:
    class Repaired:
        lock = forking.lock()
        free = False

        def forked(self) -> None:
            self.free = self.lock.acquire(blocking=False)

    one = Repaired()
    forking.at_fork(one)
    with _held([one.lock]):
        assert _in_child(lambda: one.free) == "True"
    assert not one.free


def test_a_child_cannot_continue_its_parents_export(tmp_path: Path) -> None:
    """The child's copy of the folder's lock is closed, and it does not wait for its parent's thread."""
    work = WorkFolder(tmp_path / ".work", {})
    syncer = Syncer(work)

    def write_on(wait: Callable[[], None]) -> None:
        wait()
        syncer.close()
        work.all_finished()

    child = _Child(write_on)
    child.until_it_waits()
    syncer.close()
    work.close()
    WorkFolder(tmp_path / ".work", {}).close()  # this would fail while a process holds the lock
    said = child.result()
    assert said.startswith("ExportError")
    assert "begun by another process" in said


_MANY = """
import os, signal, sys, threading
import ais_tar2tf as t2t

url, endpoint, cache = sys.argv[1:4]
begun, over = threading.Event(), threading.Event()
source = t2t.open(url, endpoint=endpoint, cache=cache or None, connections=3)
expected = [record["__key__"] for record in source.records()]

def read():
    while not over.is_set():
        assert len(list(source.records())) == len(expected)
        begun.set()

threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads:
    thread.start()
begun.wait()
bad = 0
for number in range(int(sys.argv[4])):
    child = os.fork()
    if not child:
        signal.alarm(60)
        code = 1
        try:
            other = t2t.open(url, endpoint=endpoint, cache=cache or None)
            if number == 8:  # TensorFlow does nothing in the parent
                keys = [element["__key__"].numpy().decode() for element in other.dataset()]
            else:
                keys = [record["__key__"] for record in (source if number % 2 else other).records()]
            code = 0 if keys == expected else 2
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    bad += status != 0
    if status:
        print("child", number, "ended with", status)
over.set()
for thread in threads:
    thread.join()
print("bad", bad)
"""


@pytest.mark.parametrize(("cache", "children"), [("", 4), ("disk", 4), ("memory", 9)])
def test_children_that_are_forked_while_threads_read(
    imagenet: t2t.serve, tmp_path: Path, cache: str, children: int
) -> None:
    """Fork children while threads read. The ninth child makes a dataset."""
    where = str(tmp_path / "cache") if cache == "disk" else cache
    done = subprocess.run(
        [sys.executable, "-c", _MANY, "ais://imagenet/train-{0..1}.tar.gz", imagenet.url, where, f"{children}"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "bad 0\n", done.stdout + done.stderr


# File modes


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_record_files_have_the_mode_that_the_umask_gives(tmp_path: Path, umask: int) -> None:
    program = (
        f"import os; os.umask({umask})\n"
        "from ais_tar2tf.recordfiles.export import write_payloads\n"
        f"write_payloads({str(tmp_path / 'o.record')!r}, [b'a'])"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert (tmp_path / "o.record").stat().st_mode & 0o777 == 0o666 & ~umask
