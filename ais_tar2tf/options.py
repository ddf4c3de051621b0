"""Options: every limit and every default, with its unit and the reason for its value.

The classes are frozen, take keywords (`Cache` also a path), check their values when they are made, and survive
pickling. Each default is defined here and nowhere else.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict, TypeVar, dataclass_transform

from ais_tar2tf.base.nearest import checked_class, suggestion
from ais_tar2tf.base.urls.locations import local_folder
from ais_tar2tf.errors import OptionError, OptionTypeError

__all__ = [
    "SHARED_SEED",
    "Cache",
    "Card",
    "Hdf5",
    "Limits",
    "Read",
    "Retry",
    "Shuffle",
    "Timeouts",
    "Tls",
    "Writing",
]


def __dir__() -> list[str]:
    return sorted(__all__)


_Kind = TypeVar("_Kind")

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

IMAGE_BYTES = 512 * MIB  # the most pixels of an image, in bytes; TensorFlow's decoders have the same limit
MIN_READ_AHEAD = 4 * MIB  # the least read-ahead of a stream, however many streams share Limits.read_ahead_bytes
EVEN = ("pad", "drop", "stop")  # the ways in which hosts get equally many records
SHARED_SEED = 0  # the default seed of a shuffle that several hosts share: any number that is the same on all of them
TUNED_CONNECTIONS = 8  # the most for a stream without connections=; an AIStore target serves four such streams

_TURN = 64  # the most records in a default turn of a shuffle


def whole_number(name: str, value: Any, *, minimum: int | None = None) -> int:
    """Return `value` as an int, because a checkpoint cannot store numbers of NumPy or TensorFlow.

    Args:
        name: The name of the option, for the error.
        value: A whole number of any type.
        minimum: The smallest number that is accepted.

    >>> whole_number("batch", 1e3, minimum=1)
    1000
    """
    whole: Any = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(value, bool) or not hasattr(whole, "__index__"):
        raise OptionTypeError(f"{name} is a whole number, not {value!r}")
    try:
        number = operator.index(whole)
    except TypeError:  # an array
        raise OptionTypeError(f"{name} is a whole number, not {value!r}") from None
    if minimum is not None and number < minimum:
        raise OptionError(f"{name} is {minimum} or more, not {number}")
    return number


def check_effect(name: str, value: Any, why: str, advice: str) -> None:
    """Refuse an option that has no effect together with the other options. None and False count as not given.

    Args:
        name: The name of the option.
        value: The value that was given.
        why: The reason, as "without batch=".
        advice: What the user should do, as the end of the error's sentence.

    >>> check_effect("drop_remainder", False, "without batch=", "say batch=, or leave it out")
    """
    if value is not None and value is not False:
        raise OptionError(f"{name}= has no effect {why}: {advice}")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def _options(kind: type[_Kind]) -> type[_Kind]:
    """Make a frozen dataclass that takes keywords only, and suggests the nearest name for a misspelt one."""
    return checked_class(dataclass(frozen=True, kw_only=True)(kind))


class _Checked:
    """A base class of options that checks their numbers.

    A number must have the annotated type, and be positive unless its name is in `_may_be_zero`.
    """

    _may_be_zero: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for field in fields(self):  # pyright: ignore[reportArgumentType]  # subclasses are dataclasses
            kind, _, other = str(field.type).partition(" | ")
            name = f"{type(self).__name__}.{field.name}"
            value: Any = getattr(self, field.name)
            is_absent = (value, other) == (None, "None")
            if is_absent or kind not in ("int", "float"):
                continue
            if kind == "int":
                value = whole_number(name, value)
                object.__setattr__(self, field.name, value)
            elif isinstance(value, bool) or not hasattr(value, "__float__"):
                raise OptionTypeError(f"{name} is a number, not {value!r}")
            may_be_zero = field.name in self._may_be_zero
            if value < 0 or (value == 0 and not may_be_zero):
                bound = "zero or more" if may_be_zero else "more than zero"
                raise OptionError(f"{name} must be {bound}, not {value!r}")


@_options
class Timeouts(_Checked):
    """How long to wait for a server, in seconds, and how slow it may be.

    There is no timeout of a whole shard, which may take hours as long as bytes arrive at `least_rate`. Only time that
    is spent waiting for a server counts, so a slow consumer causes no timeout.

    >>> Timeouts(idle=5).connect
    3.0
    """

    _may_be_zero = frozenset({"least_rate"})

    connect: float = 3.0  # a reachable machine answers a SYN at once; a lost SYN is sent again after 1 s
    idle: float = 20.0  # without a byte received; AIStore itself needs some 20 s to notice that a target has died
    least_rate: float = 1_024.0  # bytes per second of an answer: 100 MB in a day; 0: any rate is accepted
    slow: float = 30.0  # until an answer below least_rate is ended; a value below `idle` counts as `idle`
    listing: float = 300.0  # for a page of 1,000 names in a cloud's listing; S3 needs 1 s, or 180 s with all retries
    dropped: float = 30.0  # for which a paused iterator keeps its stream open; a deleted iterator keeps it for 1 s


@_options
class Retry(_Checked):
    """How often, and how far apart, a failed request is repeated. Received bytes reset the count.

    The delays grow exponentially with jitter: a random time between half and all of `first_delay * 2**n`, and at most
    `max_delay`. A server's Retry-After is obeyed up to `max_retry_after`.
    """

    _may_be_zero = frozenset({"first_delay", "max_delay", "max_retry_after", "unreachable", "unanswered"})

    attempts: int = 11  # take 22 to 45 s with the default delays: AIStore needs 20 s to notice that a target died
    first_delay: float = 0.2  # seconds; a target that restarts is back in about a second
    max_delay: float = 8.0  # seconds
    max_retry_after: float = 60.0  # seconds; a longer Retry-After is shortened to this
    # Seconds of retries while no connection can be made to an endpoint that has never answered: its name is probably
    # misspelt. With the start of Python, a user waits 5 s. An endpoint that has answered gets all `attempts`.
    unreachable: float = 4.0
    # Seconds of retries while an endpoint accepts connections and has never answered: probably another program
    # listens there. A busy cluster may take long for its first answer, so the first request gets as much time as any
    # other: this equals Timeouts.idle. After that time, the request is not repeated.
    unanswered: float = 20.0

    def delay(self, tried: int, draw: Callable[[], float], *, asked: float | None = None) -> float:
        """Return the seconds to wait before the next attempt.

        Args:
            tried: The number of attempts that failed.
            draw: Returns a random number in [0, 1).
            asked: The server's Retry-After, in seconds.
        """
        delay = min(self.max_delay, self.first_delay * 2 ** min(tried - 1, 30)) * (0.5 + draw() / 2)
        return max(delay, min(asked, self.max_retry_after)) if asked is not None else delay


@_options
class Limits(_Checked):
    """Bounds on what data may cost. The error about a bound ends with its name, such as `Limits.keys`."""

    template: int = 1_000_000  # shards named by a template or a listing: their names take some 100 MB
    listing_page: int = 10_000  # names requested at once: the largest page that AIStore returns
    listed: int = 100_000_000  # names that a listing returns, even if few of them match: 10,000 pages of AIStore
    header_bytes: int = 1 * MIB  # PAX and GNU long-name headers of a member; Go's tar reader has the same limit
    name_bytes: int = 64 * KIB  # the name of a member; POSIX paths end at 4 KiB
    member_bytes: int = 1 * GIB  # a member, which is held in memory
    sparse_bytes: int = 4 * GIB  # all sparse members of a shard, expanded; a tiny shard can stand for any size
    members: int = 20_000_000  # members of a shard, links and directories included: ten for each of `keys`
    directory_bytes: int = 64 * MIB  # the central directory of a zip, which is held in memory: a million members
    value_bytes: int = 256 * MIB  # a JSON or msgpack file to decode: ten times as large as Python objects
    record_bytes: int = 2 * GIB - 1  # all fields of a record; a tf.train.Example can hold no more
    ratio: int = 1_100  # decompressed bytes for each compressed byte; deflate cannot exceed 1,032
    window_bytes: int = 128 * MIB  # a decompressor's look-back: `xz -9` needs 65 MiB, `zstd --long` 128 MiB
    keys: int = 2_000_000  # records in a shard: remembering a key takes some 120 bytes
    key_bytes: int = 256 * MIB  # all keys of a compressed shard, which its index holds
    files: int = 5_000_000  # files in a folder, or rows of a CSV file, to pack: a name takes 50 bytes
    fields: int = 10_000  # fields of a record; more mean that the grouping does not fit the names
    vocabulary: int = 30_000  # distinct labels of a field that a schema keeps; ImageNet-21k has 21,841
    label_chars: int = 200  # characters of a label: a longer text is prose
    read_ahead_bytes: int = 32 * MIB  # received and not yet parsed, for each stream: 10 Gbit/s at a distance of 25 ms
    chunk_bytes: int = 2 * MIB  # a chunk for tf.data; 4 MiB if its fields stay in blocks, 8 MiB from local tars
    chunk_records: int = 1024  # records of a chunk, so that tiny records need not wait until chunk_bytes are full
    index_bytes: int = 256 * MIB  # an index file, which is held in memory: 8 bytes a record, so 30 million records
    proved_bytes: int = 1 * GIB  # hashed to prove that a copied index fits: 1 s from memory, 10 s from a disk
    document_bytes: int = 64 * MIB  # a manifest or another JSON document, held in memory: 200 bytes a shard or file
    token_bytes: int = 64 * KIB  # a file with a token; a signed token has a kilobyte
    journal_bytes: int = 1 * GIB  # the journal of an interrupted export: some kilobytes a shard
    state_bytes: int = 16 * MIB  # the state that Resume stores: some 500 bytes for each source of a mixture
    open_streams: int = 8  # idle streams of a dataset that stay open; the least recently used one is closed first

    def shared(self, by: int) -> Limits:
        """Return the limits of one of `by` streams, which together read ahead as many bytes as one stream alone.

        Each stream reads ahead at least 4 MiB, however many streams there are.
        """
        own = self.read_ahead_bytes
        return replace(self, read_ahead_bytes=min(own, max(MIN_READ_AHEAD, own // by)))


@_options
class Shuffle(_Checked):
    """A shuffle, whose order is a function of template, seed, epoch and host alone.

    The shards are permuted, and `shards` of them are read at once, in turns of `turn` records. Each window of
    `window` records is permuted; a window also ends after `window_bytes` of the shards. A checkpoint stores where the
    window began, and no records.

    >>> Shuffle(window=4096, seed=7).shards
    4
    """

    _may_be_zero = frozenset({"seed"})

    window: int = 2_048  # records; for records of 100 KB, window_bytes is the smaller bound
    window_bytes: int = 64 * MIB
    shards: int = 4  # read at once; they share Limits.read_ahead_bytes
    turn: int | None = None  # records read from one shard before the next shard; None: 64, or less for a small window
    seed: int | None = None  # None: drawn for each dataset, stored in its checkpoints; SHARED_SEED with shard=
    reshuffle_each_epoch: bool = True
    whole: bool = False  # permute all records of all shards, without windows; records are read singly, by an index

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "window_bytes", "shards", "turn") if self.whole else ():
            if getattr(self, name) != getattr(type(self), name):
                raise OptionError(f"Shuffle.{name} has no effect with whole=True, which has no windows: leave it out")

    @property
    def in_turn(self) -> int:
        """The records in a turn: `turn`, or its default. Shorter turns cost more calls and mix a window no better."""
        return self.turn or min(_TURN, max(1, self.window // self.shards))


@_options
class Tls:
    """The certificates to trust and to present, as paths of PEM files.

    Defaults come from the environment: for `ais://` from AIS_CLIENT_CA, AIS_CRT, AIS_CRT_KEY and
    AIS_SKIP_VERIFY_CRT, for `s3://` from AWS_CA_BUNDLE.

    >>> Tls(ca="/etc/ssl/our-ca.pem").verify
    True
    """

    ca: str | os.PathLike[str] | None = None  # the authorities to trust; None: those that the system trusts
    certificate: str | os.PathLike[str] | None = None  # the certificate to present to servers that ask for one
    key: str | os.PathLike[str] | None = None  # its key; None: it is in the certificate's file
    verify: bool = True  # False: trust any server, after a warning

    def __post_init__(self) -> None:
        if self.key and not self.certificate:
            raise OptionError("Tls.key belongs to a certificate: give Tls.certificate, too")


@_options
class Read(_Checked):
    """How shards are read. Most fields are options of `t2t.open`."""

    _may_be_zero = frozenset({"jump_bytes", "most_connections"})

    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    limits: Limits = Limits()
    tls: Tls = Tls()
    connections: int = 2  # of a stream; more are faster if one connection is slower than the network
    # The number grows up to this while reading becomes faster; on a near link it begins with 1. 0: it stays as it is.
    most_connections: int = 0
    range_bytes: int = 16 * MIB  # of a request of several connections; at 8 MiB, 1,000 readers overload a proxy
    jump_bytes: int = 512 * KIB  # the shortest run of unselected fields that a new request skips; 0: none is skipped
    allow_missing_end: bool = False  # accept a tar that ends between two members, without a zero block
    allow_concatenated: bool = False  # continue after a tar's end mark if another tar follows: `cat a.tar b.tar`

    def of_lane(self, lanes: int) -> Read:
        """Return the options of one of several shards read at once, which share connections and read-ahead."""
        connections = -(-self.connections // lanes)
        return replace(self, connections=connections, most_connections=0, limits=self.limits.shared(lanes))

    def of_source(self, sources: int) -> Read:
        """Return the options of one of several mixed sources, which share read-ahead and additional connections."""
        most = max(self.connections, self.most_connections // sources) if self.most_connections else 0
        return replace(self, most_connections=most, limits=self.limits.shared(sources))


class RequestKeywords(TypedDict, total=False):
    """The keywords of every call that reads from a store."""

    limits: Limits | None
    retry: Retry | None
    timeouts: Timeouts | None


class ReadKeywords(RequestKeywords, total=False):
    """The keywords from which a `Read` is made. None, or a missing keyword, stands for the default."""

    connections: int | None
    tls: Tls | None
    allow_missing_end: bool
    allow_concatenated: bool


@_options
class Cache(_Checked):
    """A cache that keeps shards for the next epoch: in a folder, which processes may share, or in memory.

    >>> Cache("/scratch/shards", max_bytes=200 * GIB).trust
    0.0
    """

    _may_be_zero = frozenset({"trust"})

    dir: str | os.PathLike[str] = dataclasses.field(kw_only=False)  # the path of a folder, or "memory"
    max_bytes: int | None = None  # None: disk_bytes or memory_bytes
    trust: float = 0.0  # seconds for which a cached shard is used without a HEAD; 0: each use begins with a HEAD
    disk_bytes: int = 64 * GIB  # a third of the smallest local disk of a machine for training
    memory_bytes: int = 1 * GIB  # for each process; more memory is of better use to the machine's page cache

    def __post_init__(self) -> None:
        super().__post_init__()
        local_folder(self.dir, "a cache")
        if isinstance(self.dir, str) and "/" not in self.dir and not self.in_memory:
            near = suggestion(self.dir, ["memory"])
            if near:
                raise OptionError(f"cache {self.dir!r} would be a folder{near} For the folder, say './{self.dir}'")
        unused = "disk_bytes" if self.in_memory else "memory_bytes"
        if getattr(self, unused) != getattr(type(self), unused):
            raise OptionError(f"Cache.{unused} has no effect with dir={os.fspath(self.dir)!r}: say max_bytes=")

    @property
    def in_memory(self) -> bool:
        """Whether the cache is in memory."""
        return self.dir == "memory"

    @property
    def bound(self) -> int:
        """The most bytes that the cache may hold."""
        return self.max_bytes or (self.memory_bytes if self.in_memory else self.disk_bytes)


@_options
class Writing(_Checked):
    """The disk space that an export with several workers may take, in addition to the files that it writes."""

    segment_bytes: int = 32 * MIB  # output that a worker hands over at once; it fits into the page cache
    waiting_bytes: int = 512 * MIB  # output that waits for an earlier shard; at this bound, only its worker goes on


@_options
class Card(_Checked):
    """The bounds of a data card: one file that a browser opens at once, whatever the size of the data."""

    _may_be_zero = frozenset({"seed"})

    samples: int = 24  # records in the gallery: four rows on a wide screen
    pixels: int = 50_000_000  # the largest image that is decoded, at four bytes a pixel
    media_bytes: int = 96 * KIB  # the largest file that is embedded unchanged; Pillow shrinks larger images
    text_chars: int = 400  # shown of a sample's text: enough to see its subject
    words: int = 1_000  # distinct labels or words that are counted in a field; ImageNet has 1,000 classes
    word_chars: int = 80  # the longest text that counts as a label
    shown_words: int = 40  # classes with a bar of their own
    fields: int = 200  # fields with statistics; nobody reads a longer table
    shards: int = 10_000  # shards whose sizes are stored, at some 200 bytes each
    errors: int = 50  # bad records that are listed; all are counted
    seed: int = 0  # for the choice of samples, so that the same data give the same card


@_options
class Hdf5(_Checked):
    """How HDF5 and netCDF files are read. Their library is not safe against hostile files.

    >>> Hdf5(seconds=5).isolate is None
    True
    """

    isolate: bool | None = None  # read in a helper process; None: yes, unless AIS_TAR2TF_HDF5 is `in-process`
    seconds: float = 30.0  # for one file in a helper process; a gigabyte of deflated values takes 5 s
