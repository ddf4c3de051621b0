"""Serve one shard of any size. No file exists: its bytes are computed when they are requested."""

from __future__ import annotations

import mmap
import re
import struct
import sys
import tarfile
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["END_MARK", "RECORD", "records_in"]

_BODY = b"\xff\xd8\xff\xe0" + bytes(range(250)) * 400
_BLOCK = 512
RECORD = 2 * _BLOCK + -(-len(_BODY) // _BLOCK) * _BLOCK + _BLOCK
"""The size of each record in the shard: two headers, the image and the label, in whole blocks."""

END_MARK = 2 * _BLOCK
_PIECE = 64 * 1024  # bytes in each send; the count of sent bytes is exact to this size
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def records_in(size: int) -> int:
    """Return the number of records in the largest such shard of at most `size` bytes."""
    return (size - END_MARK) // RECORD


def _record(number: int) -> bytes:
    parts: list[bytes] = []
    for field, body in (("jpg", _BODY), ("cls", b"%d" % (number % 10))):
        member = tarfile.TarInfo(f"{number:08d}.{field}")
        member.size = len(body)
        parts += [member.tobuf(tarfile.USTAR_FORMAT), body, bytes(-len(body) % _BLOCK)]
    return b"".join(parts)


def _bytes_of(records: int, start: int, stop: int) -> Iterator[memoryview]:
    """Yield the bytes from `start` to `stop` of a shard with this many records, one record at a time."""
    while start < stop:
        number, begin = divmod(start, RECORD)
        whole = _record(number) if number < records else bytes(RECORD)
        piece = memoryview(whole)[begin : begin + stop - start]
        yield piece
        start += len(piece)


class _Counter:
    """Counts sent bytes in a file of eight bytes, which other processes can map."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self._map[:] = struct.pack("<q", struct.unpack("<q", self._map)[0] + count)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    records: int
    counter: _Counter

    def parse_request(self) -> bool:
        """Answer 404 for everything but the shard, for example for an index."""
        parsed = super().parse_request()
        if parsed and not self.path.endswith(".tar"):
            self.send_error(HTTPStatus.NOT_FOUND)
            return False
        return parsed

    def do_HEAD(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(self.records * RECORD + END_MARK))
        self.send_header("ETag", '"endless"')
        self.end_headers()

    def do_GET(self) -> None:  # http.server requires this name
        size = self.records * RECORD + END_MARK
        requested = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(requested[1]) if requested else 0
        stop = min(size, int(requested[2]) + 1) if requested and requested[2] else size
        self.send_response(HTTPStatus.PARTIAL_CONTENT if requested else HTTPStatus.OK)
        if requested:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", '"endless"')
        self.end_headers()
        try:
            self._send(start, stop)
        except ConnectionError:  # the reader has closed the connection
            self.close_connection = True

    def _send(self, start: int, stop: int) -> None:
        for whole in _bytes_of(self.records, start, stop):
            for at in range(0, len(whole), _PIECE):
                piece = whole[at : at + _PIECE]
                self.wfile.write(piece)
                self.counter.add(len(piece))

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def main() -> None:
    """Run `endless SIZE COUNTER`: print the port and serve until the process is terminated."""
    _Handler.records, _Handler.counter = records_in(int(sys.argv[1])), _Counter(Path(sys.argv[2]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
