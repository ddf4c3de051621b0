"""The helper process: reads files one after another, each in bounded time and memory, until its input ends.

Requests come on its standard input, and answers go to the descriptor `answers`: a length (8 bytes, little-endian) and
as much JSON. The bytes of a file come in the descriptor `file`, those of its values go out in `values`. A request
that takes too long ends the process, whether or not somebody still waits for the answer.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import signal
import struct
import sys
from typing import Any

import numpy as np

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.netcdf import read_here, size_of
from ais_tar2tf.netcdf._wire import Packed
from ais_tar2tf.options import MIB

__all__ = ["KEPT", "LENGTH", "main"]

LENGTH = struct.Struct("<Q")
KEPT = 64 * MIB  # of the memory that values go through, from one file to the next
_BESIDE = 512 * MIB  # of address space, for what is neither the file nor its values


def main(file: int, values: int, answers: int) -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the parent's; this process ends when its input does
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, arena = sys.stdin.buffer, _Arena(values)
    while head := requests.read(LENGTH.size):
        asked = json.loads(requests.read(LENGTH.unpack(head)[0]))
        answer = json.dumps(_answered(asked, file, values, arena)).encode()
        with open(answers, "wb", closefd=False) as out:
            out.write(LENGTH.pack(len(answer)) + answer)


def _answered(asked: dict[str, Any], file: int, values: int, arena: _Arena) -> dict[str, Any]:
    source = _content(file) if asked["path"] is None else asked["path"]
    _bound_memory(3 * asked["limit"] + _BESIDE)
    signal.setitimer(signal.ITIMER_REAL, asked["seconds"])
    arena.begin()
    try:
        found = read_here(source, asked["names"], limit=asked["limit"], empty=arena.empty)
        packed = Packed(arena.placed, arena.size)
        variables = {name: packed.add(value) for name, value in found.variables.items()}
        attributes = {name: packed.add(value) for name, value in found.attributes.items()}
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


def _content(file: int) -> bytes:
    size = os.fstat(file).st_size
    pieces: list[bytes] = []
    while size and (piece := os.pread(file, size, sum(map(len, pieces)))):
        pieces.append(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class _Arena:
    """Makes arrays whose bytes lie in `values`, so that they are handed over without a copy.

    The mapping stays from one file to the next, for faulting in new pages takes longer than copying would.
    """

    def __init__(self, values: int) -> None:
        self.size: int = 0
        self.placed: dict[int, int] = {}  # offsets in `values` by the addresses of arrays
        self._values = values
        self._wanted = 0
        self._mapped: mmap.mmap | bytes = b""

    def begin(self) -> None:
        """Forget all arrays, and make room for as many as were wanted last."""
        wanted = min(self._wanted, KEPT)
        if wanted > len(self._mapped):
            os.ftruncate(self._values, max(wanted, os.fstat(self._values).st_size))
            self._mapped = mmap.mmap(self._values, wanted)
        self.size = self._wanted = 0
        self.placed.clear()

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        count = size_of(shape, dtype)
        self._wanted += _in_pages(count)
        if not count or self.size + count > len(self._mapped):
            return np.empty(shape, dtype)
        array = np.frombuffer(self._mapped, np.uint8, count, self.size).view(dtype).reshape(shape)
        self.placed[array.ctypes.data] = self.size
        self.size += _in_pages(count)
        return array


def _in_pages(count: int) -> int:
    return -(-count // mmap.PAGESIZE) * mmap.PAGESIZE


def _write(values: int, packed: Packed) -> None:
    at = packed.begin
    for piece in packed.pieces:
        done = 0
        while done < len(piece):
            done += os.pwrite(values, piece[done:], at + done)
        at += len(piece)


def _bound_memory(size: int) -> None:
    """Bound the address space; nothing where the system cannot."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            used = int(file.read().split()[0]) * resource.getpagesize()
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        bound = used + size
        resource.setrlimit(resource.RLIMIT_AS, (bound if most < 0 else min(bound, most), most))
