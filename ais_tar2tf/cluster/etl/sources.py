"""The sources of a shard for a transformer: a request's body, a file on a shared disk, or the target itself."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from urllib.parse import unquote, urlencode

from ais_tar2tf.errors import AccessDenied, ShardNotFound, StoreError
from ais_tar2tf.options import KIB, MIB, Timeouts
from ais_tar2tf.stores.one_shot import open_blocks

__all__ = ["BLOCK", "RequestBody", "body_blocks", "file_blocks", "pulled_blocks", "shard_url"]

BLOCK = 1 * MIB
"""Bytes read at once."""

_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")
_MAX_TRAILERS = 100  # trailer fields after the last chunk
_MAX_LINE = 64 * KIB  # bytes of a chunk's header, which holds the length and extensions


class RequestBody(Iterator[bytes]):
    """The body of a request as an iterator of blocks. `at_end` tells whether all blocks were read.

    Args:
        stream: The connection, at the first byte of the body.
        length: The length of the body; None for a body in chunked transfer coding.
    """

    def __init__(self, stream: BufferedIOBase, length: int | None) -> None:
        self._blocks = body_blocks(stream, length)
        self.at_end: bool = length == 0

    def __next__(self) -> bytes:
        try:
            return next(self._blocks)
        except StopIteration:
            self.at_end = True
            raise


def body_blocks(stream: BufferedIOBase, length: int | None) -> Iterator[bytes]:
    """Yield a request's body: `length` bytes, or HTTP chunks when `length` is None."""
    if length is None:
        yield from _chunks(stream)
        return
    while length > 0:
        block = stream.read(min(BLOCK, length))
        if not block:
            raise ConnectionError(f"the request ended {length:,} bytes early")
        length -= len(block)
        yield block


def _chunks(stream: BufferedIOBase) -> Iterator[bytes]:
    while True:
        size = stream.readline(_MAX_LINE).partition(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(size):
            raise ConnectionError("a chunk of the request's body is malformed")
        left = int(size, 16)
        if left == 0:
            break
        yield from body_blocks(stream, left)
        if stream.readline(_MAX_LINE) not in (b"\r\n", b"\n"):
            raise ConnectionError("a chunk of the request's body is malformed")
    for _ in range(_MAX_TRAILERS):
        if not stream.readline(_MAX_LINE).strip():
            return
    raise ConnectionError(f"the request has more than {_MAX_TRAILERS} trailer fields after its body")


def file_blocks(quoted: str, roots: Sequence[str]) -> Iterator[bytes]:
    """Yield the blocks of a local file that the target names instead of sending it.

    Raises:
        AccessDenied: The file is not below one of `roots`.
        ShardNotFound: The file cannot be opened, or is not a regular file.
    """
    path = os.path.realpath(unquote(quoted))
    if not any(Path(path).is_relative_to(os.path.realpath(root)) for root in roots):
        raise AccessDenied("files are read only below the folders that --root (roots=) names", url=path, status=403)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise ShardNotFound(f"the target's file cannot be opened ({error.strerror})", url=path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode) or os.path.realpath(path) != path:
        os.close(descriptor)
        raise ShardNotFound("this is no file, or a folder on the way to it was replaced", url=path)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        while block := file.read(BLOCK):
            yield block


def pulled_blocks(target: str, path: str, query: dict[str, str], timeouts: Timeouts) -> Iterator[bytes]:
    """Yield the blocks of an object of the target that redirected the client to this service.

    Args:
        target: The target's URL.
        path: The path of the client's request.
        query: The query of the request to the target.
        timeouts: The timeouts of the connection to the target.
    """
    if not target:
        raise StoreError("AIS_TARGET_URL is not set: there is no target to ask", url=path)
    requested = f"{target.rstrip('/')}/{path.lstrip('/')}" + (f"?{urlencode(query)}" if query else "")
    with open_blocks(requested, timeouts, shown=shard_url(path)) as blocks:
        yield from blocks


def shard_url(path: str) -> str:
    """Return the shard's URL, for errors and `__shard__`; targets write `bucket/name` or `ais/@#/bucket/name`.

    >>> shard_url("/b/a/0.tar"), shard_url("/ais%2F@%23%2Fb%2Fa%2F0.tar"), shard_url("s3/@ns#x/b/0.tar")
    ('ais://b/a/0.tar', 'ais://b/a/0.tar', 's3://b/0.tar')
    """
    name = unquote(path.lstrip("/"), errors="surrogateescape")
    provider, at, rest = name.partition("/@")
    if at and "#" in rest.partition("/")[0] and "/" not in provider:
        return f"{provider}://{rest.partition('/')[2]}"
    return f"ais://{name}"
