"""The program of a helper process: reads one file after another until its standard input ends.

The process reads requests from standard input and writes answers to the descriptor `answers`. A request or an answer
is its length (8 bytes, little-endian) and JSON. The file is at the path in the request, or in the descriptor `file`.
The process writes the bytes of the values to the descriptor `values`. Time and memory for a file are limited: a
request that takes too long ends the process, even when the parent process no longer waits for the answer.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import resource
import signal
import sys
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import MIB
from ais_tar2tf.values.hdf5 import read_in_process
from ais_tar2tf.values.hdf5.wire import KEPT_BYTES, LENGTH, ValuePacker

__all__ = ["main"]

_OVERHEAD_BYTES = 512 * MIB  # of address space, in addition to the file and its values


def main(file: int, values: int, answers: int) -> None:
    """Answer requests until standard input ends.

    Args:
        file: The descriptor of the file that is read.
        values: The descriptor for the bytes of values.
        answers: The descriptor for answers.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # only the parent handles it; this process ends with its input
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, arena = sys.stdin.buffer, _Arena(values)
    while head := requests.read(LENGTH.size):
        request = json.loads(requests.read(LENGTH.unpack(head)[0]))
        answer = json.dumps(_answer(request, file, values, arena)).encode()
        with open(answers, "wb", closefd=False) as out:
            out.write(LENGTH.pack(len(answer)) + answer)


def _answer(request: dict[str, Any], file: int, values: int, arena: _Arena) -> dict[str, Any]:
    source = _received_file(file) if request["path"] is None else request["path"]
    _bound_memory(3 * request["limit"] + _OVERHEAD_BYTES)
    signal.setitimer(signal.ITIMER_REAL, request["seconds"])
    arena.begin()
    try:
        content = read_in_process(source, request["names"], limit=request["limit"], new_array=arena.new_array)
        packed = ValuePacker(arena.placed, arena.size)
        variables = {name: packed.add(value) for name, value in content.variables.items()}
        attributes = {name: packed.add(value) for name, value in content.attributes.items()}
        _write(values, packed)
    except SchemaError as error:
        return {"error": str(error)}
    except OSError as error:
        return {"error": str(error), "number": error.errno}
    except MemoryError:
        return {"error": "reading it takes more memory than Limits.member_bytes allows"}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return {"variables": variables, "attributes": attributes}


def _received_file(file: int) -> bytes:
    size = os.fstat(file).st_size
    pieces: list[bytes] = []
    while size and (piece := os.pread(file, size, sum(map(len, pieces)))):
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Arena:
    """Allocates arrays in the memory-mapped file `values`, so that their bytes need not be copied there.

    The memory map is kept for the next request, because new pages of memory cost more than a copy.
    """

    def __init__(self, values: int) -> None:
        self.size: int = 0
        self.placed: dict[int, int] = {}  # offsets of arrays in `values`, by address in memory
        self._values = values
        self._requested = 0
        self._mapped: mmap.mmap | bytes = b""

    def begin(self) -> None:
        """Forget all arrays. Enlarge the memory map to the size of the arrays of the previous request."""
        size = min(self._requested, KEPT_BYTES)
        if size > len(self._mapped):
            os.ftruncate(self._values, max(size, os.fstat(self._values).st_size))
            self._mapped = mmap.mmap(self._values, size)
        self.size = self._requested = 0
        self.placed.clear()

    def new_array(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return a new array, in the memory map if there is room."""
        count = math.prod(shape) * dtype.itemsize
        self._requested += _whole_pages(count)
        if not count or self.size + count > len(self._mapped):
            return np.empty(shape, dtype)
        array = np.frombuffer(self._mapped, np.uint8, count, self.size).view(dtype).reshape(shape)
        self.placed[array.ctypes.data] = self.size
        self.size += _whole_pages(count)
        return array


def _whole_pages(count: int) -> int:
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE


def _write(values: int, packed: ValuePacker) -> None:
    at = packed.begin
    for piece in packed.pieces:
        done = 0
        while done < len(piece):
            done += os.pwrite(values, piece[done:], at + done)
        at += len(piece)


def _bound_memory(size: int) -> None:
    """Limit the address space to its present size plus `size` bytes, if the system supports that."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            used = int(file.read().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = used + size if hard < 0 else min(used + size, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
