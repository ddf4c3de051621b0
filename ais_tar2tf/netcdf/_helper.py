"""Helper processes that read HDF5 files for this one: a file that crashes or holds up HDF5's library ends a helper.

Helpers are started when they are needed, kept, and end with this process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from typing import Any

from ais_tar2tf import forking
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.netcdf._wire import unpacked
from ais_tar2tf.options import MIB, Hdf5

__all__ = ["Helpers"]

_START = 60.0  # seconds that a helper may take for its imports, on a machine under load
_SPARE = 5.0  # seconds that it gets to end itself, before it is ended
_MOST_DOCUMENT = 256 * MIB  # of an answer without its values
_KEPT = 64 * MIB  # of the memory that files and values went through; as much of it the helper has mapped
_MOST_HELPERS = 4
_LENGTH = 8
_CODE = (
    "import sys; sys.path[:] = {path!r}; from ais_tar2tf.netcdf._worker import main; main({file}, {values}, {out})"
)


class _Ended(Exception):
    """The helper ended, or was ended, in place of an answer."""


class _Helper:
    """One process."""

    def __init__(self) -> None:
        if not sys.executable:
            raise SchemaError(
                "HDF5 is read by a helper process, and this program has no Python to start one with; "
                "set AIS_TAR2TF_HDF5=in-process to read files that you trust without"
            )
        self._file, self._values = _memory("file"), _memory("values")
        out, self._answers_end = os.pipe()
        self._answers = out
        code = _CODE.format(path=sys.path, file=self._file, values=self._values, out=self._answers_end)
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this Python, and a module of this package
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._file, self._values, self._answers_end),
                env={**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"},
            )
        finally:
            os.close(self._answers_end)
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        self._begun = self._closed = False

    def read(self, source: bytes | str, names: Collection[str] | None, limit: int, how: Hdf5) -> dict[str, Any]:
        """Return the helper's answer; the values are there until the next call."""
        path = None if isinstance(source, bytes) else source
        if isinstance(source, bytes):
            _write_all(self._file, source)
        asked = {
            "path": path,
            "names": None if names is None else list(names),
            "limit": limit,
            "seconds": how.seconds,
        }
        deadline = time.monotonic() + how.seconds + (_SPARE if self._begun else _START)
        self._send(json.dumps(asked).encode(), how)
        answer = self._receive(deadline, how)
        self._begun = True
        return answer

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fill(self, at: int, array: Any) -> None:
        """Fill an array of bytes with those of the values from `at` on."""
        view, done = memoryview(array), 0
        while done < len(view):
            count = os.preadv(self._values, [view[done:]], at + done)
            if not count:
                raise ValueError("its values are cut")
            done += count

    def rest(self) -> None:
        """Give back the memory of large files."""
        for descriptor in (self._file, self._values):
            if os.fstat(descriptor).st_size > _KEPT:
                os.ftruncate(descriptor, _KEPT)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.close()

    def close(self) -> None:
        """Close all descriptors. The process ends by itself when its input does."""
        if self._closed:
            return
        self._closed = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for descriptor in (self._file, self._values, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: the process is the parent's."""
        self._process.returncode = 0  # or the child would warn that it still runs
        self.close()

    def _send(self, data: bytes, how: Hdf5) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(len(data).to_bytes(_LENGTH, "little") + data)
            self._process.stdin.flush()
        except OSError as error:
            raise _Ended(self._why_ended(how)) from error

    def _receive(self, deadline: float, how: Hdf5) -> dict[str, Any]:
        size = int.from_bytes(self._bytes(_LENGTH, deadline, how), "little")
        if size > _MOST_DOCUMENT:
            raise _Ended("its helper process answered nonsense")
        try:
            return json.loads(self._bytes(size, deadline, how))
        except (ValueError, RecursionError) as error:
            raise _Ended("its helper process answered nonsense") from error

    def _bytes(self, size: int, deadline: float, how: Hdf5) -> bytearray:
        data = bytearray()
        while len(data) < size:
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise _Ended(f"reading it took over {how.seconds:g} s (Hdf5.seconds)")
            piece = os.read(self._answers, size - len(data))
            if not piece:
                raise _Ended(self._why_ended(how))
            data += piece
        return data

    def _why_ended(self, how: Hdf5) -> str:
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"reading it took over {how.seconds:g} s (Hdf5.seconds)"
        if code == -signal.SIGKILL:
            return "the helper process that read it was killed, as the system does when memory runs out"
        if code >= 0:
            return f"the helper process that read it ended with status {code}"
        return f"HDF5's library crashed on it (signal {-code})"


class Helpers:
    """As many helpers as threads read at once, up to a few."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._places = forking.semaphore(min(_MOST_HELPERS, os.cpu_count() or 1))
        self._idle: list[_Helper] = []
        self._all: list[_Helper] = []
        forking.at_fork(self)
        atexit.register(self.close)

    def read(
        self, source: bytes | str, names: Collection[str] | None, limit: int, how: Hdf5
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the variables and the attributes of a file."""
        with self._places:
            helper = self._taken_or_started()
            try:
                answer = helper.read(source, names, limit, how)
                found = _taken(answer, helper)
            except BaseException as error:
                with self._lock:
                    if helper in self._all:
                        self._all.remove(helper)
                helper.end()
                if not isinstance(error, _Ended):
                    raise
                raise SchemaError(f"no netCDF-4 or HDF5 file that can be read here: {error}") from error
            helper.rest()
            with self._lock:
                self._idle.append(helper)
        if isinstance(found, Exception):
            raise found
        return found

    def _taken_or_started(self) -> _Helper:
        with self._lock:
            while self._idle:
                helper = self._idle.pop()
                if helper.is_alive:
                    return helper
                self._all.remove(helper)
                helper.end()
        helper = _Helper()
        with self._lock:
            self._all.append(helper)
        return helper

    def close(self) -> None:
        with self._lock:
            helpers, self._all, self._idle = self._all, [], []
        for helper in helpers:
            helper.end()

    def forked(self) -> None:
        for helper in self._all:
            helper.forget()
        self._all, self._idle = [], []


def _taken(answer: dict[str, Any], helper: _Helper) -> tuple[dict[str, Any], dict[str, Any]] | Exception:
    if "error" in answer:
        number = answer.get("number")
        return OSError(number, str(answer["error"])) if number else SchemaError(str(answer["error"]))
    try:
        variables, attributes = (
            {str(name): unpacked(each, helper.fill) for name, each in answer[kind].items()}
            for kind in ("variables", "attributes")
        )
    except (ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
        raise _Ended(f"its helper process answered nonsense ({error})") from error
    return variables, attributes


def _memory(name: str) -> int:
    """Return a descriptor of a file without a name, in memory where the system has that."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"ais_tar2tf-{name}")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _write_all(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, len(data))
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], done)
