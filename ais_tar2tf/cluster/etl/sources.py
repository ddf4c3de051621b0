"""Where a shard's bytes come from in a target's request: its body, a file that both see, or the target itself."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlencode

from ais_tar2tf.errors import AccessDenied, ShardNotFound, StoreError
from ais_tar2tf.options import KIB, MIB, Timeouts
from ais_tar2tf.stores.once import reading

__all__ = ["BLOCK", "Body", "Readable", "body_blocks", "file_blocks", "pulled_blocks", "shard_url"]

BLOCK = 1 * MIB
"""Read at once."""

_CHUNK_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")
_TRAILERS = 100  # fields after the last chunk
_LINE = 64 * KIB  # of a chunk's length, with whatever extensions


class Readable(Protocol):
    """What of a request's stream is used."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self, size: int, /) -> bytes: ...


class Body(Iterator[bytes]):
    """A request's body, block by block, which knows whether it was read to its end.

    Args:
        stream: Where the body comes from.
        length: Its length; None where it comes in chunks.
    """

    def __init__(self, stream: Readable, length: int | None) -> None:
        self._blocks = body_blocks(stream, length)
        self.whole: bool = length == 0

    def __next__(self) -> bytes:
        try:
            return next(self._blocks)
        except StopIteration:
            self.whole = True
            raise


def body_blocks(stream: Readable, length: int | None) -> Iterator[bytes]:
    """Yield a request's body: `length` bytes, or chunks as HTTP has them where `length` is None."""
    if length is None:
        yield from _chunks(stream)
        return
    while length > 0:
        block = stream.read(min(BLOCK, length))
        if not block:
            raise ConnectionError(f"the request ended {length:,} bytes early")
        length -= len(block)
        yield block


def _chunks(stream: Readable) -> Iterator[bytes]:
    while True:
        size = stream.readline(_LINE).partition(b";")[0].strip()
        if not _CHUNK_SIZE.fullmatch(size):
            raise ConnectionError("the request's chunks are not as HTTP has them")
        left = int(size, 16)
        if left == 0:
            break
        yield from body_blocks(stream, left)
        if stream.readline(_LINE) not in (b"\r\n", b"\n"):
            raise ConnectionError("the request's chunks are not as HTTP has them")
    for _ in range(_TRAILERS):
        if not stream.readline(_LINE).strip():
            return
    raise ConnectionError(f"the request has more than {_TRAILERS} fields behind its body")


def file_blocks(quoted: str, roots: Sequence[str]) -> Iterator[bytes]:
    """A file that the target names, if it lies below one of `roots`: they share the disks, so it need not be sent."""
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


@contextmanager
def pulled_blocks(target: str, path: str, query: dict[str, str], timeouts: Timeouts) -> Generator[Iterator[bytes]]:
    """The object, asked of the target that sent the client here; `path` as it came."""
    if not target:
        raise StoreError("AIS_TARGET_URL is not set: there is no target to ask", url=path)
    asked = f"{target.rstrip('/')}/{path.lstrip('/')}" + (f"?{urlencode(query)}" if query else "")
    with reading(asked, timeouts, shown=shard_url(path)) as blocks:
        yield blocks


def shard_url(path: str) -> str:
    """What errors and `__shard__` call it: of `bucket/name`, or of `ais/@#/bucket/name`, as targets write both.

    >>> shard_url("/b/a/0.tar"), shard_url("/ais%2F@%23%2Fb%2Fa%2F0.tar"), shard_url("s3/@ns#x/b/0.tar")
    ('ais://b/a/0.tar', 'ais://b/a/0.tar', 's3://b/0.tar')
    """
    name = unquote(path.lstrip("/"), errors="surrogateescape")
    provider, at, rest = name.partition("/@")
    if at and "#" in rest.partition("/")[0] and "/" not in provider:
        return f"{provider}://{rest.partition('/')[2]}"
    return f"ais://{name}"
