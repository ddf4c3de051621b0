"""Build archives of every format with foreign libraries, and read them with the package's own reader."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import lz4.frame
from backports import zstd

from ais_tar2tf.archive import Members, ShardArchive, find_directory
from ais_tar2tf.options import Limits

SHARD = "memory://b/s"

Named = Sequence[tuple[str, bytes]]


class Found(NamedTuple):
    """A member that the reader returned; `offset` is where its entry begins in the archive."""

    name: str
    body: bytes
    offset: int


class Pipe(io.RawIOBase):
    """A file that cannot seek. zipfile then writes each member's sizes after its data, in a data descriptor."""

    def __init__(self) -> None:
        self.written = io.BytesIO()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self.written.write(data)


def tar_of(members: Named, tar_format: int = tarfile.USTAR_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tar_format) as tar:
        for name, body in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(body), 1.5 if tar_format == tarfile.PAX_FORMAT else 1
            tar.addfile(info, io.BytesIO(body))
    return made.getvalue()


def zip_of(members: Named, method: int = zipfile.ZIP_DEFLATED, *, piped: bool = False, comment: bytes = b"") -> bytes:
    out: Pipe | io.BytesIO = Pipe() if piped else io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:  # type: ignore[arg-type]
        for name, body in members:
            file.writestr(zipfile.ZipInfo(name), body, method)
        file.comment = comment
    return (out.written if isinstance(out, Pipe) else out).getvalue()


def lz4_of(data: bytes) -> bytes:
    return lz4.frame.compress(data, content_checksum=True, block_checksum=True)


def zstd_of(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 6, mtime=0),
    "zst": zstd_of,
    "lz4": lz4_of,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
"""The compressors, by file ending."""


def in_every_format(members: Named) -> dict[str, bytes]:
    """Return archives of the same members in every format that marks its end, by file ending."""
    tar = tar_of(members)
    return {
        "tar": tar,
        **{f"tar.{ending}": compress(tar) for ending, compress in COMPRESS.items()},
        "zip": zip_of(members),
        "stored.zip": zip_of(members, zipfile.ZIP_STORED),
        "piped.zip": zip_of(members, piped=True),
        "stored.piped.zip": zip_of(members, zipfile.ZIP_STORED, piped=True),
    }


def drain(
    archive: ShardArchive, data: bytes, blocks: Sequence[bytes], limits: Limits, *, shard: str = SHARD
) -> Iterator[Found]:
    """Yield the members of `blocks`. `data` is the whole object, of which a directory may need ranges."""
    for block in blocks:
        for members in archive.feed(block):
            yield from members_of(members)
        if archive.needs_directory:
            directory = find_directory(shard, limits, len(data), lambda start, stop: data[start:stop])
            for members in archive.resume(directory):
                yield from members_of(members)
    archive.finish()


def members_of(members: Members) -> Iterator[Found]:
    for name, offset, start, size in zip(members.names, members.offsets, members.starts, members.sizes, strict=True):
        yield Found(name, bytes(members.data[start : start + size]), offset)


def read(data: bytes, blocks: Sequence[bytes] | None = None, limits: Limits | None = None) -> list[Found]:
    """Return all members of an archive that arrives in `blocks`, by default as one block."""
    limits = limits or Limits()
    return list(drain(ShardArchive(SHARD, limits), data, [data] if blocks is None else blocks, limits))


def pieces(data: bytes, step: int) -> list[bytes]:
    """Cut `data` into pieces of `step` bytes."""
    return [data[at : at + step] for at in range(0, len(data), step)]
