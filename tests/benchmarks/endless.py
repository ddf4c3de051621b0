"""A server for one shard of any size that stands nowhere: its bytes are worked out when they are asked for."""

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
"""Bytes of one record in the shard: two headers, the image and the label, in whole blocks."""

END_MARK = 2 * _BLOCK
_PIECE = 64 * 1024  # sent at once, so what was sent is known to this grain
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


def records_in(size: int) -> int:
    """Records of the largest such shard of at most `size` bytes."""
    return (size - END_MARK) // RECORD


def _record(number: int) -> bytes:
    parts: list[bytes] = []
    for field, body in (("jpg", _BODY), ("cls", b"%d" % (number % 10))):
        member = tarfile.TarInfo(f"{number:08d}.{field}")
        member.size = len(body)
        parts += [member.tobuf(tarfile.USTAR_FORMAT), body, bytes(-len(body) % _BLOCK)]
    return b"".join(parts)


def _bytes_of(records: int, start: int, stop: int) -> Iterator[memoryview]:
    """The bytes of a shard with so many records, from `start` to `stop`, a record at a time."""
    while start < stop:
        number, begin = divmod(start, RECORD)
        whole = _record(number) if number < records else bytes(RECORD)
        piece = memoryview(whole)[begin : begin + stop - start]
        yield piece
        start += len(piece)


class _Counter:
    """How many bytes were sent, in a file of eight bytes that others may map."""

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
        """There is a shard, and nothing else: no index beside it, for one."""
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

    def do_GET(self) -> None:  # the name is http.server's
        size = self.records * RECORD + END_MARK
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        stop = min(size, int(asked[2]) + 1) if asked and asked[2] else size
        self.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{size}")
        self.send_header("Content-Length", str(stop - start))
        self.send_header("ETag", '"endless"')
        self.end_headers()
        try:
            self._send(start, stop)
        except ConnectionError:  # the reader has what it wanted
            self.close_connection = True

    def _send(self, start: int, stop: int) -> None:
        for whole in _bytes_of(self.records, start, stop):
            for at in range(0, len(whole), _PIECE):
                piece = whole[at : at + _PIECE]
                self.wfile.write(piece)
                self.counter.add(len(piece))

    def log_message(self, *_: object) -> None:
        """Nobody wants to read it."""


def main() -> None:
    """`endless SIZE COUNTER`: serves until it is ended, and prints the port."""
    _Handler.records, _Handler.counter = records_in(int(sys.argv[1])), _Counter(Path(sys.argv[2]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
