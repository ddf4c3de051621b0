"""Archives of every format for the tests, written by others than us, and our reader over their bytes."""

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

from ais_tar2tf.archive import DirectoryFinder, Members, ShardArchive
from ais_tar2tf.options import Limits

SHARD = "memory://b/s"

Named = Sequence[tuple[str, bytes]]


class Found(NamedTuple):
    name: str
    body: bytes
    offset: int


class Pipe(io.RawIOBase):
    """What cannot seek, so that whoever writes a zip into it leaves the sizes to what stands behind each member."""

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
"""A compressor for every ending."""


def as_everything(members: Named) -> dict[str, bytes]:
    """The same members in every format that has an end, by its ending."""
    tar = tar_of(members)
    return {
        "tar": tar,
        **{f"tar.{ending}": compress(tar) for ending, compress in COMPRESS.items()},
        "zip": zip_of(members),
        "stored.zip": zip_of(members, zipfile.ZIP_STORED),
        "piped.zip": zip_of(members, piped=True),
        "stored.piped.zip": zip_of(members, zipfile.ZIP_STORED, piped=True),
    }


def drain(archive: ShardArchive, data: bytes, blocks: Sequence[bytes], limits: Limits) -> Iterator[Found]:
    """The members of `blocks`, as the reader takes them; `data` is the object, of which ranges are asked for."""
    for block in blocks:
        for members in archive.feed(block):
            yield from _told(members)
        if archive.missing:
            finder = DirectoryFinder(SHARD, limits, len(data))
            while finder.needs is not None:
                finder.give(data[slice(*finder.needs)])
            assert finder.directory is not None
            for members in archive.resume(finder.directory):
                yield from _told(members)
    archive.finish()


def _told(members: Members) -> Iterator[Found]:
    for name, offset, start, size in zip(members.names, members.offsets, members.starts, members.sizes, strict=True):
        yield Found(name, bytes(members.data[start : start + size]), offset)


def read(data: bytes, blocks: Sequence[bytes] | None = None, limits: Limits | None = None) -> list[Found]:
    limits = limits or Limits()
    return list(drain(ShardArchive(SHARD, limits), data, [data] if blocks is None else blocks, limits))
