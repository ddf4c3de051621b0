"""The archive inside one shard: recognised, decompressed, and read by the reader of its format."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ais_tar2tf.archive.bounds import check_member_count
from ais_tar2tf.archive.compressions import Compression
from ais_tar2tf.archive.decompression import FrameDecoder
from ais_tar2tf.archive.members import Archive, Bytes, Members, Wanted
from ais_tar2tf.archive.sniff import SUPPORTED, Container, FormatSniffer
from ais_tar2tf.archive.tar import TarReader
from ais_tar2tf.archive.tfrecord import TFRecordReader
from ais_tar2tf.archive.zip import ZipReader
from ais_tar2tf.archive.zip_directory import Directory
from ais_tar2tf.base.file_bytes import FileBytes
from ais_tar2tf.errors import ArchiveError, TruncatedArchive, UnsupportedArchive
from ais_tar2tf.options import Limits

__all__ = ["ShardArchive"]


class ShardArchive:
    """Reads the members of one shard, whatever its format. Call `feed()` with each block, then `finish()`.

    A shard may be read from the middle. Then `start` is the offset, in the decompressed archive, at which a member's
    headers begin, `number` is how many records of a TFRecord file precede it, and `compressed` is the value that the
    attribute `compressed` had when the shard was read before. Blocks of an uncompressed shard begin at `start`.
    Blocks of a compressed shard begin at its first byte, and decompressed bytes before `start` are dropped.

    While `needs_directory` is true, the caller has to find the directory of a zip (see `find_directory`) and pass it
    to `resume()`. Until then, the caller must not call `feed()`.
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
        self.compressed: bool | None = compressed  # None while it is not known
        self.container: Container | None = None  # None until the first bytes were read
        self._shard = shard
        self._limits = limits
        self._start = start
        self._open_archive: dict[Container, Callable[[], Archive]] = {
            "tar": lambda: TarReader(
                shard,
                limits,
                start=start,
                wanted=wanted,
                allow_missing_end=allow_missing_end,
                allow_concatenated=allow_concatenated,
            ),
            "zip": lambda: ZipReader(shard, limits, start=start, wanted=wanted),
            "tfrecord": lambda: TFRecordReader(shard, limits, start=start, number=number),
        }
        self._shard_sniffer: FormatSniffer | None = FormatSniffer(shard)  # None after it recognised the format
        self._archive_sniffer = FormatSniffer(shard, start)  # of the decompressed bytes
        self._decoder: FrameDecoder | None = None
        self._drop = start  # decompressed bytes to drop
        self._archive: Archive | None = None
        self._count = 0  # members

    @property
    def ignored(self) -> int:
        """The number of members so far that are not files."""
        return 0 if self._archive is None else self._archive.ignored

    @property
    def end(self) -> int:
        """The offset in the archive at which its members end; valid after `finish()`."""
        return 0 if self._archive is None else self._archive.end

    @property
    def ended(self) -> bool:
        """Whether no later member can belong to the last record: the end was reached, or each member is a record."""
        return self._archive is not None and self._archive.ended

    @property
    def needs_directory(self) -> bool:
        """Whether the shard is a zip whose next member cannot be read without the directory."""
        return isinstance(self._archive, ZipReader) and self._archive.needs_directory

    @property
    def has_decoder(self) -> bool:
        """Whether the shard was recognised as compressed, so that `decode()` can be called."""
        return self._decoder is not None

    @property
    def gap(self) -> int:
        """How many of the shard's next bytes belong to no wanted member; 0 if unknown."""
        return self._archive.gap if not self.has_decoder and isinstance(self._archive, TarReader) else 0

    def skip(self, count: int) -> None:
        """Skip the first `count` bytes of the gap: the next block begins after them."""
        assert isinstance(self._archive, TarReader)
        self._archive.skip(count)

    def walk(self, file: FileBytes, stop: int, most: int) -> Members | None:
        """Find the next members in the file of this shard, as `TarReader.walk` does; None if a block must be fed.

        The next block begins at `position`.
        """
        if self.compressed or not isinstance(self._archive, TarReader):
            return None
        members = self._archive.walk(file, stop, most)
        return None if members is None else next(self._counted(iter((members,))))

    @property
    def position(self) -> int:
        """The offset in an uncompressed tar at which the next block begins."""
        assert isinstance(self._archive, TarReader)
        return self._archive.position

    @property
    def again(self) -> int:
        """The number of bytes at the end of the last block with which the next block has to begin."""
        return self._archive.again if isinstance(self._archive, TarReader) else 0

    def feed(self, block: Bytes, most_again: int = 0) -> Iterator[Members]:
        """Yield the members that end in the next block of the shard.

        `most_again` is passed to `TarReader.feed`. Members of other archives cannot be given back.
        """
        if self._shard_sniffer is not None:
            found, block = self._shard_sniffer.feed(block)
            if found is None:
                return
            self._shard_sniffer = None
            self._open_shard(found)
        if self._decoder is None:
            yield from self._read(block, most_again)
            return
        for decoded in self._decoder.feed(block):
            yield from self.feed_decoded(decoded)

    def decode(self, block: Bytes) -> Iterator[bytes]:
        """Yield the decompressed bytes of a block, for `feed_decoded()`.

        One thread may call this method while another calls `feed_decoded()`.
        """
        assert self._decoder is not None
        return self._decoder.feed(block)

    def feed_decoded(self, decoded: bytes) -> Iterator[Members]:
        """Yield the members that end in the next decompressed bytes."""
        drop = min(self._drop, len(decoded))
        self._drop -= drop
        if drop < len(decoded):
            yield from self._read(decoded[drop:] if drop else decoded)

    def resume(self, directory: Directory) -> Iterator[Members]:
        """Continue to read a zip with its directory, and yield the members that end in the block fed last."""
        assert isinstance(self._archive, ZipReader)
        yield from self._counted(self._archive.resume(directory))

    def finish(self) -> None:
        """Check that the shard and its archive are complete.

        Raises:
            TruncatedArchive: The bytes end before the archive does.
        """
        if self._shard_sniffer is not None:
            raise self._too_short("the shard has", len(self._shard_sniffer))
        if self._decoder is not None:
            self._decoder.finish()
            if self._drop:
                end = self._start - self._drop
                raise TruncatedArchive("the archive is shorter than it was", shard=self._shard, offset=end)
        if self._archive is None:
            raise self._too_short("decompressed, the shard has", len(self._archive_sniffer))
        self._archive.finish()

    def _open_shard(self, found: Compression | Container) -> None:
        is_compressed = isinstance(found, Compression)
        if self._start and is_compressed is not bool(self.compressed):
            raise ArchiveError("the shard is not what it was: begin it again", shard=self._shard, offset=self._start)
        self.compressed = is_compressed
        if isinstance(found, Compression):
            self._decoder = FrameDecoder(self._shard, self._limits, found)
        else:
            self._open(found)

    def _open(self, container: Container) -> None:
        self.container, self._archive = container, self._open_archive[container]()

    def _read(self, block: Bytes, most_again: int = 0) -> Iterator[Members]:
        if self._archive is None:
            found, block = self._archive_sniffer.feed(block)
            if found is None:
                return
            if isinstance(found, Compression):
                raise self._unsupported(f"this is a {found.name} file within another; {SUPPORTED}")
            self._open(found)
        archive = self._archive
        assert archive is not None
        is_tar = isinstance(archive, TarReader)
        yield from self._counted(archive.feed(block, most_again) if is_tar else archive.feed(block))
        if self.needs_directory and self.compressed:
            raise self._unsupported(
                "this is a zip within a compressed file, and its members don't say how long they are; unpack the zip"
            )

    def _counted(self, groups: Iterator[Members]) -> Iterator[Members]:
        """Yield the groups of members, and check `Limits.members` for each."""
        for members in groups:
            self._count += members.total
            if self._count + self.ignored > self._limits.members:
                self._check_count(members.offsets[-1] if members.total else self._start)
            yield members
            self._count -= members.given_back
        self._check_count(self._start)

    def _check_count(self, offset: int) -> None:
        check_member_count(self._limits, self._count + self.ignored, self._shard, offset)

    def _too_short(self, subject: str, count: int) -> TruncatedArchive:
        return TruncatedArchive(f"{subject} {count} bytes: too short for any archive", shard=self._shard, offset=0)

    def _unsupported(self, message: str) -> UnsupportedArchive:
        return UnsupportedArchive(message, shard=self._shard, offset=self._start)
