"""The pool of helper processes that read HDF5 files for this process.

If a file makes the HDF5 library crash or hang, only a helper ends. Helpers are started on demand, are reused, and end
with this process. This module must not call the HDF5 library itself.
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

from ais_tar2tf.base import forking
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import MIB, Hdf5
from ais_tar2tf.values.hdf5.wire import KEPT_BYTES, LENGTH, unpack

__all__ = ["HelperPool"]

# How much longer than the time limit of a request the pool waits for the answer. A new helper gets _START_SECONDS to
# import its modules on a busy machine. Any other helper gets _GRACE_SECONDS to end itself after the limit.
_START_SECONDS = 60.0
_GRACE_SECONDS = 5.0
_MAX_ANSWER_BYTES = 256 * MIB  # the largest answer: JSON, without the bytes of values, which are in `_Helper._values`
_MAX_HELPERS = 4
_CODE = (
    "import sys; sys.path[:] = {path!r}; "
    "from ais_tar2tf.values.hdf5.helper_main import main; main({file}, {values}, {out})"
)


class _HelperFailed(Exception):
    """Raised when a helper died, was killed, or sent a malformed answer."""


class _Helper:
    """One helper process, and the descriptors that the helper shares with this process.

    If an HDF5 file has no path, this process writes the bytes of the HDF5 file to `_file`, and the helper reads them
    there. The helper writes the bytes of values to `_values`, and its answers to the pipe whose reading end is
    `_answers`.
    """

    def __init__(self) -> None:
        if not sys.executable:
            raise SchemaError(
                "HDF5 is read by a helper process, and this program has no Python to start one with; "
                "set AIS_TAR2TF_HDF5=in-process to read files that you trust without"
            )
        with contextlib.ExitStack() as on_error:
            self._file, self._values = (_shared_file(name, on_error) for name in ("file", "values"))
            self._answers, answers_end = os.pipe()
            on_error.callback(os.close, self._answers)
            self._process = self._start(answers_end)
            on_error.pop_all()
        self._poll = select.poll()
        self._poll.register(self._answers, select.POLLIN)
        self._is_started = self._is_closed = False
        self._seconds = 0.0  # the time limit of the current request, for errors

    def _start(self, answers_end: int) -> subprocess.Popen[bytes]:
        """Start the helper process, and close `answers_end`, the end of the pipe that only the helper writes to."""
        code = _CODE.format(path=sys.path, file=self._file, values=self._values, out=answers_end)
        try:
            return subprocess.Popen(  # noqa: S603  # this Python runs a module of this package
                [sys.executable, "-c", code],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._file, self._values, answers_end),
                env={**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"},
            )
        finally:
            os.close(answers_end)

    def read(self, source: bytes | str, names: Collection[str] | None, limit: int, options: Hdf5) -> dict[str, Any]:
        """Send a request and return the helper's answer. Until the next request, `fill` can copy values.

        Args:
            source: The bytes of a file, or its path.
            names: The variables to read. None: all variables.
            limit: The maximum number of bytes of the values.
            options: The time limit of the request.
        """
        self._seconds = options.seconds
        request: dict[str, Any] = {"path": source, "limit": limit, "seconds": options.seconds}
        request["names"] = None if names is None else list(names)
        if isinstance(source, bytes):
            _replace_content(self._file, source)
            request["path"] = None
        deadline = time.monotonic() + options.seconds + (_GRACE_SECONDS if self._is_started else _START_SECONDS)
        self._send(json.dumps(request).encode())
        answer = self._receive(deadline)
        self._is_started = True
        return answer

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def fill(self, at: int, array: Any) -> None:
        """Fill an array with bytes from `_values`, from the offset `at` on."""
        view, done = memoryview(array), 0
        while done < len(view):
            count = os.preadv(self._values, [view[done:]], at + done)
            if not count:
                raise ValueError("its values are cut")
            done += count

    def trim(self) -> None:
        """Shrink `_file` and `_values` if they are large, to free their memory."""
        for descriptor in (self._file, self._values):
            if os.fstat(descriptor).st_size > KEPT_BYTES:
                os.ftruncate(descriptor, KEPT_BYTES)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.close()

    def close(self) -> None:
        """Close all descriptors. The helper process ends when its standard input ends."""
        if self._is_closed:
            return
        self._is_closed = True
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for descriptor in (self._file, self._values, self._answers):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def abandon(self) -> None:
        """Close all descriptors, in a forked child. The helper process stays: it belongs to the child's parent."""
        self._process.returncode = 0  # otherwise, Popen would warn in the child that the helper still runs
        self.close()

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(LENGTH.pack(len(data)) + data)
            self._process.stdin.flush()
        except OSError as error:
            raise _HelperFailed(self._cause_of_death()) from error

    def _receive(self, deadline: float) -> dict[str, Any]:
        (size,) = LENGTH.unpack(self._receive_bytes(LENGTH.size, deadline))
        if size > _MAX_ANSWER_BYTES:
            raise _HelperFailed("its helper process answered nonsense")
        try:
            return json.loads(self._receive_bytes(size, deadline))
        except (ValueError, RecursionError) as error:
            raise _HelperFailed("its helper process answered nonsense") from error

    def _receive_bytes(self, size: int, deadline: float) -> bytearray:
        data = bytearray()
        while len(data) < size:
            if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise _HelperFailed(f"reading it took over {self._seconds:g} s (Hdf5.seconds)")
            piece = os.read(self._answers, size - len(data))
            if not piece:
                raise _HelperFailed(self._cause_of_death())
            data += piece
        return data

    def _cause_of_death(self) -> str:
        code = self._process.wait()
        if code == -signal.SIGALRM:
            return f"reading it took over {self._seconds:g} s (Hdf5.seconds)"
        if code == -signal.SIGKILL:
            return "the helper process that read it was killed, as the system does when memory runs out"
        if code >= 0:
            return f"the helper process that read it ended with status {code}"
        return f"HDF5's library crashed on it (signal {-code})"


class HelperPool:
    """A pool of at most `_MAX_HELPERS` helpers. Each serves one thread at a time; if all are busy, threads wait."""

    def __init__(self) -> None:
        self._lock = forking.lock()
        self._slots = forking.semaphore(min(_MAX_HELPERS, os.cpu_count() or 1))
        self._idle: list[_Helper] = []
        self._processes: list[_Helper] = []  # all helpers, idle or not
        forking.at_fork(self)
        atexit.register(self.close)

    def read(
        self, source: bytes | str, names: Collection[str] | None, limit: int, options: Hdf5
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the variables and the attributes of a file."""
        with self._slots:
            helper = self._idle_or_new()
            try:
                answer = helper.read(source, names, limit, options)
                outcome = _unpacked(answer, helper)
            except BaseException as error:
                with self._lock:
                    if helper in self._processes:
                        self._processes.remove(helper)
                helper.kill()
                if not isinstance(error, _HelperFailed):
                    raise
                raise SchemaError(f"no netCDF-4 or HDF5 file that can be read here: {error}") from error
            helper.trim()
            with self._lock:
                self._idle.append(helper)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _idle_or_new(self) -> _Helper:
        with self._lock:
            while self._idle:
                helper = self._idle.pop()
                if helper.is_alive:
                    return helper
                self._processes.remove(helper)
                helper.kill()
        helper = _Helper()
        with self._lock:
            self._processes.append(helper)
        return helper

    def close(self) -> None:
        with self._lock:
            helpers, self._processes, self._idle = self._processes, [], []
        for helper in helpers:
            helper.kill()

    def forked(self) -> None:
        for helper in self._processes:
            helper.abandon()
        self._processes, self._idle = [], []


def _unpacked(answer: dict[str, Any], helper: _Helper) -> tuple[dict[str, Any], dict[str, Any]] | Exception:
    """Return the variables and attributes in an answer, or the exception for the error that the answer reports."""
    if "error" in answer:
        number = answer.get("number")
        return OSError(number, str(answer["error"])) if number else SchemaError(str(answer["error"]))
    try:
        variables, attributes = (
            {str(name): unpack(each, helper.fill) for name, each in answer[kind].items()}
            for kind in ("variables", "attributes")
        )
    except (ValueError, TypeError, LookupError, AttributeError, MemoryError) as error:
        raise _HelperFailed(f"its helper process answered nonsense ({error})") from error
    return variables, attributes


def _shared_file(name: str, on_error: contextlib.ExitStack) -> int:
    """Return the descriptor of a new file without a path. The file is in memory if the system supports that.

    `on_error` closes the descriptor if the helper cannot be started.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create(f"ais_tar2tf-{name}")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    on_error.callback(os.close, descriptor)
    return descriptor


def _replace_content(descriptor: int, data: bytes) -> None:
    os.ftruncate(descriptor, len(data))
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], done)
