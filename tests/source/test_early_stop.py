"""Reading is stopped early in many ways, and moved to other processes. Nothing is left open, and nothing hangs."""

from __future__ import annotations

import gc
import gzip
import multiprocessing
import os
import pickle
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest

import ais_tar2tf as t2t
from ais_tar2tf.errors import MappingError, StoreError
from tests.support import other_processes as children
from tests.support import shards as made
from tests.support.best_time import best_seconds
from tests.support.fault_server import GOOD, PATIENCE, Fault, FaultServer, ais
from tests.support.leftovers import left_open, left_running, open_files, our_threads

RECORDS, SHARDS = 30, 3
KEYS = [f"s{shard}/{number:06d}" for shard in range(SHARDS) for number in range(RECORDS)]
_REFUSED_WITHIN = 1.0


@pytest.fixture(scope="module")
def source_server() -> Iterator[FaultServer]:
    with FaultServer() as found:
        for shard in range(SHARDS):
            found.add(f"bucket/s-{shard}.tar", ais(made.labelled(f"s{shard}", RECORDS)))
        yield found


def opened(server: FaultServer, **options: Any) -> t2t.Source:
    return t2t.open(f"ais://bucket/s-{{0..{SHARDS - 1}}}.tar", endpoint=server.url, **options)


@pytest.fixture
def nothing_left_running(source_server: FaultServer) -> Iterator[None]:
    """Check after the test that no thread, file, socket or client of the server is left."""
    gc.collect()
    before, threads = open_files(), our_threads()
    yield
    gc.collect()
    assert left_running(threads) == []
    source_server.wait_until_no_client()
    assert left_open(before) == []


def _break_after_one(source: t2t.Source, seen: list[str]) -> None:
    for record in source.records():
        seen.append(record["__key__"])
        break


@pytest.mark.usefixtures("nothing_left_running")
@pytest.mark.parametrize("times", [100, pytest.param(1_000, marks=pytest.mark.full)])
def test_a_break_after_one_record(source_server: FaultServer, times: int) -> None:
    seen: list[str] = []
    with opened(source_server) as source:
        for _ in range(times):
            _break_after_one(source, seen)
    assert seen == [KEYS[0]] * times
    assert source.stats.records_read == source.stats.records_emitted == times


@pytest.mark.usefixtures("nothing_left_running")
@pytest.mark.parametrize("times", [20, pytest.param(1_000, marks=pytest.mark.full)])
def test_a_break_after_one_element(source_server: FaultServer, times: int) -> None:
    with opened(source_server) as source:
        dataset = source.dataset()
        for _ in range(times):
            assert [element["__key__"].numpy().decode() for element in dataset.take(1)] == KEYS[:1]
            for _ in dataset:
                break


class _Mine(Exception):
    """Of whoever reads."""


def _raises(_: Any) -> Any:
    raise _Mine


def _in_the_loop(source: t2t.Source) -> None:
    for _ in source.records():
        raise _Mine


def _in_the_mapping(source: t2t.Source) -> None:
    for _ in source.dataset(map=_raises, output_types=("string",), output_shapes=((),)):
        pass


def _in_the_grouping(source: t2t.Source) -> None:
    for _ in t2t.iter_records([*source.shards], grouping=_raises, endpoint=source.opened.shards.store._endpoint):  # type: ignore[attr-defined]
        pass


@pytest.mark.usefixtures("nothing_left_running")
@pytest.mark.parametrize("where", [_in_the_loop, _in_the_grouping, _in_the_mapping])
def test_an_exception_of_the_user(source_server: FaultServer, where: Callable[[t2t.Source], None]) -> None:
    in_tensorflow = where is _in_the_mapping  # TensorFlow wraps the exception
    with opened(source_server) as source:
        for _ in range(5):
            with pytest.raises(MappingError if in_tensorflow else _Mine) as caught:
                where(source)
            assert not in_tensorflow or f"ais://bucket/s-0.tar, record '{KEYS[0]}'" in str(caught.value)
            del caught
    stats = source.stats
    assert stats.records_read == stats.records_emitted + stats.skipped.total()


@pytest.mark.usefixtures("nothing_left_running")
def test_control_c_in_the_loop(source_server: FaultServer) -> None:
    with opened(source_server) as source:
        for _ in range(20):
            read = 0
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it comes between two records
                for _ in source.records():
                    read += 1
                    if read == 5:
                        signal.raise_signal(signal.SIGINT)
            assert read == 5
    assert source.stats.records_read == source.stats.records_emitted == 100


_PROGRAM = """
import sys
import ais_tar2tf as t2t
with t2t.open(sys.argv[1], endpoint=sys.argv[2], timeouts=t2t.options.Timeouts(idle=200)) as source:
    for record in source.records():
        print("read", flush=True)
"""


def test_control_c_while_it_waits() -> None:
    """Control-C ends a wait for bytes at once, not after the idle time-out."""
    with FaultServer() as server:
        whole = made.labelled("n", RECORDS)
        server.add("bucket/s-0.tar", ais(whole), [Fault(after=len(whole) // 2, then="stall")] * 9)
        command = [sys.executable, "-X", "dev", "-c", _PROGRAM, "ais://bucket/s-0.tar", server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
            server.wait_until_requests(2)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=100)  # idle is 200
        assert process.returncode == -signal.SIGINT, said
        assert said.rstrip().endswith("KeyboardInterrupt")
        assert "Exception ignored" not in said
        server.wait_until_no_client()


_ENDS = """
import sys
import ais_tar2tf as t2t
from ais_tar2tf.options import Limits, Timeouts
source = t2t.open(sys.argv[1], endpoint=sys.argv[2], limits=Limits(chunk_records=3), timeouts=Timeouts(idle=200))
how = {"map": lambda record: len(record["jpg"]), "output_types": "int32", "output_shapes": ()}
iterator = iter(source.dataset(**(how if sys.argv[3] == "mapped" else {})).prefetch(1))
next(iterator)
print("read", flush=True)
sys.stdin.readline()
raise SystemExit(3)
"""


@pytest.mark.parametrize("mapped", ["mapped", "plain"])
def test_the_interpreter_exits_while_a_dataset_waits(mapped: str) -> None:
    """TensorFlow waits for bytes, and its iterator lives until the interpreter exits."""
    with FaultServer() as server:
        whole = made.labelled("n", RECORDS)
        server.add("bucket/s-0.tar", ais(whole), [GOOD, *[Fault(after=len(whole) // 2, then="stall")] * 50])
        command = [sys.executable, "-c", _ENDS, "ais://bucket/s-0.tar", server.url, mapped]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "read\n"
            server.wait_until_requests(2)
            try:
                process.communicate("end\n", timeout=100)
            finally:
                process.kill()
        assert process.returncode == 3


# Other processes

METHODS = [each for each in ("fork", "spawn", "forkserver") if each in multiprocessing.get_all_start_methods()]
_ignored = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def _result_of(context: BaseContext, target: Callable[..., None], what: Any) -> Any:
    """Run `target` with `what` in a new process, and return its result."""
    said: Any = context.Queue()
    child = context.Process(target=target, args=(said, what))  # type: ignore[attr-defined]
    child.start()
    try:
        return said.get(timeout=PATIENCE)
    except queue.Empty:
        return "nothing: it hangs"
    finally:
        child.join(PATIENCE)
        if child.is_alive():
            child.kill()
            child.join()
        said.close()
        said.join_thread()


@_ignored
@pytest.mark.parametrize("method", METHODS)
def test_a_child_reads_a_given_source(source_server: FaultServer, method: str) -> None:
    with opened(source_server) as source:
        coming = source.records()
        assert next(coming)["__key__"] == KEYS[0]
        assert _result_of(multiprocessing.get_context(method), children.read_all, source) == KEYS
        assert [record["__key__"] for record in coming] == KEYS[1:]


@_ignored
@pytest.mark.skipif("fork" not in METHODS, reason="there is no fork")
@pytest.mark.parametrize("connections", [1, 3])
def test_a_forked_child_cannot_continue_its_parents_reading(connections: int) -> None:
    """The child has no reading threads, so it raises a typed error. The parent continues."""
    with FaultServer() as server:
        for shard in range(SHARDS):
            server.add(f"bucket/s-{shard}.tar", ais(made.labelled(f"s{shard}", RECORDS)), [Fault(piece=5_000)])
        for on_error in ("raise", "skip-shard"):
            with opened(server, connections=connections, on_error=on_error) as source:
                coming = source.records()
                assert next(coming)["__key__"] == KEYS[0]
                began = time.monotonic()
                said = _result_of(multiprocessing.get_context("fork"), children.read_rest, coming)
                assert "StoreError" in said
                assert "begun before the process was forked" in said
                assert (
                    time.monotonic() - began < PATIENCE
                )  # the child does not hang; the time of a fork depends on the machine
                assert [record["__key__"] for record in coming] == KEYS[1:]
                assert not source.stats.skipped


@_ignored
@pytest.mark.skipif("fork" not in METHODS, reason="there is no fork")
def test_a_forked_child_continues_with_files(tmp_path: Path) -> None:
    """Local files need no threads. Parent and child both read the rest."""
    for shard in range(SHARDS):
        (tmp_path / f"s-{shard}.tar").write_bytes(made.labelled(f"s{shard}", RECORDS))
    with t2t.open(f"{tmp_path}/s-{{0..{SHARDS - 1}}}.tar") as source:
        coming = source.records()
        assert next(coming)["__key__"] == KEYS[0]
        assert _result_of(multiprocessing.get_context("fork"), children.read_rest, coming) == KEYS[1:]
        assert [record["__key__"] for record in coming] == KEYS[1:]


@_ignored
@pytest.mark.skipif("fork" not in METHODS, reason="there is no fork")
@pytest.mark.parametrize("on_error", ["raise", "skip-shard"])
def test_a_forked_child_cannot_continue_if_a_thread_decompresses(tmp_path: Path, on_error: Any) -> None:
    body = os.urandom(50_000)  # deflate does not look back as far as to the last one
    shard = made.labelled("s", 100, lambda _: {"bin": body})
    (tmp_path / "s.tar.gz").write_bytes(
        gzip.compress(shard, 1)
    )  # deflate does not look back as far as to the last one
    with t2t.open(str(tmp_path / "s.tar.gz"), on_error=on_error) as source:
        coming = source.records()
        seen = [next(coming) for _ in range(50)]
        said = _result_of(multiprocessing.get_context("fork"), children.read_rest, coming)
        assert "StoreError" in said
        assert "begun before the process was forked" in said
        assert len(seen) + sum(1 for _ in coming) == 100
        assert not source.stats.skipped


@_ignored
@pytest.mark.skipif("fork" not in METHODS, reason="there is no fork")
def test_a_forked_child_that_closes_does_not_affect_its_parent(source_server: FaultServer) -> None:
    with opened(source_server) as source:
        coming = source.records()
        assert next(coming)["__key__"] == KEYS[0]
        said = _result_of(multiprocessing.get_context("fork"), children.close_and_read, source)
        assert said == KEYS
        assert [record["__key__"] for record in coming] == KEYS[1:]
        assert source.stats.retries == 0


@_ignored
@pytest.mark.skipif("fork" not in METHODS, reason="there is no fork")
def test_locks_that_threads_hold_at_the_fork_are_not_inherited(source_server: FaultServer) -> None:
    with opened(source_server) as source:
        held = [
            source.opened.account._lock,
            source.opened.shards.store._pool._lock,
            source.opened.shards.store._pool._token._lock,
        ]  # type: ignore[attr-defined]
        for lock in held:
            lock.acquire()
        try:
            assert _result_of(multiprocessing.get_context("fork"), children.read_all, source) == KEYS
        finally:
            for lock in held:
                lock.release()
        assert len(list(source.records())) == len(KEYS)


@_ignored
@pytest.mark.skipif("fork" not in METHODS, reason="there is no fork")
def test_a_dataset_is_refused_in_another_process(source_server: FaultServer) -> None:
    with opened(source_server) as source:
        dataset = source.dataset()
        said = _result_of(multiprocessing.get_context("fork"), children.iterate, dataset)
        assert "StoreError" in said
        assert "TensorFlow's threads do not survive a fork" in said

        def refused() -> None:
            with pytest.raises(StoreError, match="send the source"):
                pickle.dumps(dataset)

        assert best_seconds(refused, below=_REFUSED_WITHIN) < _REFUSED_WITHIN
        assert len(list(dataset)) == len(KEYS)


def test_a_source_is_pickled_with_all_its_options(source_server: FaultServer) -> None:
    with opened(source_server, on_error="skip-shard", grouping="last-dot", connections=3) as source:
        moved = pickle.loads(pickle.dumps(source.select("cls")))  # noqa: S301  # our own
        assert moved.opened.shards.read == source.opened.shards.read
        assert (moved.opened.shards.grouping, moved.on_error) == ("last-dot", "skip-shard")
        assert list(moved.shards) == list(source.shards)
        assert [set(record) for record in moved.records()] == [{"__key__", "__shard__", "cls"}] * len(KEYS)
        assert source.stats.records_read == 0  # each source has its own statistics
        moved.close()


def test_objects_of_this_process_cannot_be_pickled() -> None:
    def refused() -> None:
        with pytest.raises(StoreError, match="memory://here/: this store lives in this process"):
            pickle.dumps(t2t.open("memory://here/x.tar"))

    assert best_seconds(refused, below=_REFUSED_WITHIN) < _REFUSED_WITHIN


def test_a_pickled_source_of_the_documents_client(source_server: FaultServer) -> None:
    with t2t.AisDataset("bucket", source_server.url, token="a-token") as client:
        moved = pickle.loads(pickle.dumps(client.source("s-{0..2}.tar")))  # noqa: S301  # our own
        assert [record["__key__"] for record in moved.records()] == KEYS
        moved.close()
    assert os.getpid() == multiprocessing.current_process().pid
