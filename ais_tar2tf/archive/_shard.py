"""The archive in one shard: recognised, decompressed, and read as what it is. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

from ais_tar2tf.archive._frames import Format, FrameDecoder
from ais_tar2tf.archive._members import Archive, Bytes, Members, Wanted
from ais_tar2tf.archive._sniff import READ, Beginning, Container
from ais_tar2tf.archive._tar import TarReader
from ais_tar2tf.archive._tfrecord import TFRecordReader
from ais_tar2tf.archive._zip import ZipReader
from ais_tar2tf.archive._zip_directory import Directory
from ais_tar2tf.errors import ArchiveError, LimitExceeded, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import Limits

__all__ = ["ShardArchive"]


class ShardArchive:
    """The archive in one shard, recognised by content.

    `start` is an offset in the decompressed archive at which a member's headers begin, `number` how many records of a
    TFRecord file stand before it. What is not compressed is then fed from there; what is, is fed from the shard's
    beginning, and what comes before `start` is dropped. `compressed` says which (None until it is known).

    While `missing`, the directory of a zip is to be found (`DirectoryFinder`) before `resume` goes on with it.
    """

    def __init__(
        self,
        shard: str,
        limits: Limits,
        *,
        start: int = 0,
        number: int = 0,
        compressed: bool | None = None,
        wanted: Wanted | None = None,
        allow_missing_end: bool = False,
        allow_concatenated: bool = False,
    ) -> None:
        self.compressed: bool | None = compressed
        self.container: Container | None = None  # None until it is known
        self._shard = shard
        self._limits = limits
        self._start = start
        self._number = number
        self._wanted = wanted
        self._allow_missing_end = allow_missing_end
        self._allow_concatenated = allow_concatenated
        self._outer: Beginning | None = Beginning(shard)
        self._inner = Beginning(shard, start)
        self._decoder: FrameDecoder | None = None
        self._drop = start  # of what is decompressed
        self._archive: Archive | None = None
        self._count = 0  # members

    @property
    def ignored(self) -> int:
        return 0 if self._archive is None else self._archive.ignored

    @property
    def end(self) -> int:
        """Offset in the archive at which its members end, once it is finished."""
        return 0 if self._archive is None else self._archive.end

    @property
    def ended(self) -> bool:
        """Whether no member can follow those that came."""
        return self._archive is not None and self._archive.ended

    @property
    def missing(self) -> bool:
        return isinstance(self._archive, ZipReader) and self._archive.missing

    @property
    def decodes(self) -> bool:
        """Whether the first bytes were fed, and said how the others are compressed."""
        return self._decoder is not None

    @property
    def gap(self) -> int:
        """How many of the object's next bytes nobody will look at; 0 where that is not known."""
        return self._archive.gap if not self.decodes and isinstance(self._archive, TarReader) else 0

    def pass_over(self, count: int) -> None:
        """So many bytes of the gap will not be fed."""
        assert isinstance(self._archive, TarReader)
        self._archive.pass_over(count)

    def feed(self, block: Bytes) -> Iterator[Members]:
        if self._outer is not None:
            kind, block = self._outer.take(block)
            if kind is None:
                return
            self._outer = None
            self._open_outer(kind)
        if self._decoder is None:
            yield from self._read(block)
            return
        for decoded in self._decoder.feed(block):
            yield from self.feed_decoded(decoded)

    def decode(self, block: Bytes) -> Iterator[bytes]:
        """What a block of a compressed shard holds, for `feed_decoded`: the two may be called by two threads."""
        assert self._decoder is not None
        return self._decoder.feed(block)

    def feed_decoded(self, decoded: bytes) -> Iterator[Members]:
        drop = min(self._drop, len(decoded))
        self._drop -= drop
        if drop < len(decoded):
            yield from self._read(decoded[drop:] if drop else decoded)

    def resume(self, directory: Directory) -> Iterator[Members]:
        """Go on with a zip whose directory was missing."""
        assert isinstance(self._archive, ZipReader)
        yield from self._counted(self._archive.resume(directory))

    def finish(self) -> None:
        if self._outer is not None:
            raise self._too_short("the shard has", len(self._outer))
        if self._decoder is not None:
            self._decoder.finish()
            if self._drop:
                raise TruncatedArchive("the archive is shorter than it was", shard=self._shard, offset=self._drop)
        if self._archive is None:
            raise self._too_short("decompressed, the shard has", len(self._inner))
        self._archive.finish()

    def _open_outer(self, kind: Format | Container) -> None:
        is_compressed = isinstance(kind, Format)
        if self._start and is_compressed is not bool(self.compressed):
            raise ArchiveError("the shard is not what it was: begin it again", shard=self._shard, offset=self._start)
        self.compressed = is_compressed
        if isinstance(kind, Format):
            self._decoder = FrameDecoder(self._shard, self._limits, kind)
        else:
            self._open(kind)

    def _read(self, block: Bytes) -> Iterator[Members]:
        if self._archive is None:
            kind, block = self._inner.take(block)
            if kind is None:
                return
            if isinstance(kind, Format):
                raise UnsupportedArchive(
                    f"this is a {kind.name} file within another; {READ}", shard=self._shard, offset=self._start
                )
            self._open(kind)
        assert self._archive is not None
        yield from self._counted(self._archive.feed(block))
        if self.missing and self.compressed:
            raise UnsupportedArchive(
                "this is a zip within a compressed file, and its members don't say how long they are; unpack the zip",
                shard=self._shard,
                offset=self._start,
            )

    def _open(self, kind: Container) -> None:
        self.container = kind
        shard, limits, start = self._shard, self._limits, self._start
        if kind == "tfrecord":
            self._archive = TFRecordReader(shard, limits, start=start, number=self._number)
        elif kind == "zip":
            self._archive = ZipReader(shard, limits, start=start, wanted=self._wanted)
        else:
            self._archive = TarReader(
                shard,
                limits,
                start=start,
                wanted=self._wanted,
                allow_missing_end=self._allow_missing_end,
                allow_concatenated=self._allow_concatenated,
            )

    def _counted(self, all_members: Iterator[Members]) -> Iterator[Members]:
        for members in all_members:
            self._count += len(members.names)
            self._check_count(members.offsets[-1] if members.offsets else self._start)
            yield members
        self._check_count(self._start)

    def _check_count(self, offset: int) -> None:
        most = self._limits.members
        if self._count + self.ignored > most:
            raise LimitExceeded(f"there are over {most:,} members, Limits.members", shard=self._shard, offset=offset)

    def _too_short(self, what: str, count: int) -> TruncatedArchive:
        return TruncatedArchive(f"{what} {count} bytes: too short for any archive", shard=self._shard, offset=0)
