"""Option objects: frozen, keyword-only, checked when made, the same after pickling.

Every default stands here once, with its unit and its reason.
"""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar, dataclass_transform

from ais_tar2tf.errors import OptionError, OptionTypeError
from ais_tar2tf.locations import local_folder
from ais_tar2tf.nearest import checked_class, suggestion

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

IMAGE_BYTES = 512 * MIB  # of one image's pixels: what TensorFlow's decoders refuse, too

LEAST_READ_AHEAD = 4 * MIB  # of one of the streams that share a read-ahead, however many they are

_TURN = 64  # records
_LEAST_WINDOW = 2  # records that can change places

EVEN = ("pad", "drop", "stop")  # how hosts get equal numbers of records

SHARED_SEED = 0  # of a shuffled dataset that is split among hosts and has no seed=; any number that all of them know


TUNED_CONNECTIONS = 8  # where nobody said how many: four streams of these are still no burden to one target


def whole_number(name: str, value: Any, *, least: int | None = None) -> int:
    """`value` as an int: numpy's and TensorFlow's have no place in a checkpoint's text. `name` is for errors.

    >>> whole_number("batch", 1e3, least=1)
    1000
    """
    whole: Any = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(value, bool) or not hasattr(whole, "__index__"):
        raise OptionTypeError(f"{name} is a whole number, not {value!r}")
    try:
        number = operator.index(whole)
    except TypeError:  # an array
        raise OptionTypeError(f"{name} is a whole number, not {value!r}") from None
    if least is not None and number < least:
        raise OptionError(f"{name} is {least} or more, not {number}")
    return number


def checked_slice(which: slice) -> slice:
    """Return a slice of records whose bounds are whole numbers."""
    first, behind, step = (
        None if each is None else whole_number(f"the {name} of a slice of records", each)
        for name, each in (("begin", which.start), ("end", which.stop), ("step", which.step))
    )
    if step == 0:
        raise OptionError("the step of a slice of records is not 0: it is 1 for every record, 2 for every other one")
    return slice(first, behind, step)


def epochs_of(repeat: Any) -> int:
    """Return how often records are read, as `repeat=` says; -1 for ever, which tf.data writes so, too.

    >>> epochs_of(None), epochs_of(-1), epochs_of(3)
    (-1, -1, 3)
    """
    if repeat is None:
        return -1
    epochs = whole_number("repeat", repeat)
    if epochs < 1 and epochs != -1:
        raise OptionError(f"repeat is 1 or more, or None for ever, not {epochs}")
    return epochs


def check_effect(name: str, value: Any, why: str, advice: str) -> None:
    """Refuse an option that was given and can have no effect; `why` says together with which others.

    >>> check_effect("drop_remainder", False, "without batch=", "say batch=, or leave it out")
    """
    if value is not None and value is not False:
        raise OptionError(f"{name}= has no effect {why}: {advice}")


def shuffle_window(value: Any) -> int:
    """Return a window in records, in which at least two records can change places."""
    window = whole_number("shuffle", value)
    if window < _LEAST_WINDOW:
        raise OptionError(
            f"shuffle={window} shuffles nothing: it is a window in records; True is one of {Shuffle().window:,}, "
            "False is none"
        )
    return window


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(dataclasses.field,))
def _options(kind: type[_Kind]) -> type[_Kind]:
    """Make a frozen dataclass of keywords, which refuses a misspelt one by naming the nearest."""
    return checked_class(dataclass(frozen=True, kw_only=True)(kind))


class _Checked:
    """Numbers must be of the annotated kind, and positive unless their name is in `_may_be_zero`."""

    _may_be_zero: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        for field in fields(self):  # pyright: ignore[reportArgumentType]  # subclasses are dataclasses
            kind, _, other = str(field.type).partition(" | ")
            name = f"{type(self).__name__}.{field.name}"
            value: Any = getattr(self, field.name)
            absent = (value, other) == (None, "None")
            if absent or kind not in ("int", "float"):
                continue
            if kind == "int":
                value = whole_number(name, value)
                object.__setattr__(self, field.name, value)
            elif isinstance(value, bool) or not hasattr(value, "__float__"):
                raise OptionTypeError(f"{name} is a number, not {value!r}")
            least_ok = value >= 0 if field.name in self._may_be_zero else value > 0
            if not least_ok:
                bound = "zero or more" if field.name in self._may_be_zero else "more than zero"
                raise OptionError(f"{name} must be {bound}, not {value!r}")


@_options
class Timeouts(_Checked):
    """Seconds, and a rate. There is no total: a shard may take hours as long as bytes keep coming at that rate.

    Only time spent waiting for a server counts, so that no reader is too slow.

    >>> Timeouts(idle=5).connect
    3.0
    """

    _may_be_zero = frozenset({"least_rate"})

    connect: float = 3.0  # a machine that is there answers a SYN at once; one lost SYN is sent again after 1 s
    idle: float = 20.0  # AIStore itself needs some 20 s to give up on a dead target
    least_rate: float = 1_024.0  # bytes a second of an answer: at fewer, a shard of 100 MB takes a day; 0: any rate
    slow: float = 30.0  # until an answer that comes at less than least_rate ends; not less than idle
    listing: float = 300.0  # until the next 1,000 names of a cloud's listing; S3 takes 1 s, with all its tries 180
    dropped: float = 30.0  # an iterator that is not continued keeps its stream this long; a dropped one for a second


@_options
class Retry(_Checked):
    """How often, and how far apart, a failed request is tried again. The budget starts again with progress.

    The delays are full-jitter exponential: between half and all of `first_delay * 2**n`, at most `max_delay`;
    a server's Retry-After is obeyed up to `max_retry_after`.
    """

    _may_be_zero = frozenset({"first_delay", "max_delay", "max_retry_after", "unreachable", "unanswered"})

    attempts: int = 11  # with the delays below 22 to 45 s: AIStore needs 20 to see a target's death
    first_delay: float = 0.2  # seconds; a target that restarts is back in about one
    max_delay: float = 8.0  # seconds
    max_retry_after: float = 60.0  # seconds; a server that asks for more gets this
    # For an endpoint that cannot be connected to and has never answered: it is likely misspelt. With the time that a
    # program takes to start, it ends in 5 seconds. One that has answered before is waited for by `attempts`.
    unreachable: float = 4.0  # seconds
    # For an endpoint that takes connections and has never answered: most likely another program listens there. A busy
    # cluster may be slow with its first answer, so this is as long as Timeouts.idle: the first request has as much
    # time as any other, and is not sent a second time into the same silence.
    unanswered: float = 20.0  # seconds

    def delay(self, tried: int, draw: Callable[[], float], *, asked: float | None = None) -> float:
        """Seconds before the next try, `tried` having failed; `draw` is random in [0, 1), `asked` a Retry-After."""
        delay = min(self.max_delay, self.first_delay * 2 ** min(tried - 1, 30)) * (0.5 + draw() / 2)
        return max(delay, min(asked, self.max_retry_after)) if asked is not None else delay


@_options
class Limits(_Checked):
    """Bounds on what data may cost. Passing one is a typed error that names the field here."""

    template: int = 1_000_000  # shards that one template or listing may name: their names take some 100 MB
    listing_page: int = 10_000  # names asked for at once: AIStore's own page, the largest that it gives
    listed: int = 100_000_000  # names that a listing may show in which few match: 10,000 pages of AIStore's
    header_bytes: int = 1 * MIB  # PAX and GNU long-name bodies before one member; Go's tar reader has the same
    name_bytes: int = 64 * KIB  # a member's name; POSIX paths end at 4 KiB
    member_bytes: int = 1 * GIB  # one file in a shard; it is held whole
    sparse_bytes: int = 4 * GIB  # what all sparse members of one shard become: zeros cost nothing to claim
    members: int = 20_000_000  # of one shard, links and directories too: ten fields for as many records as `keys`
    directory_bytes: int = 64 * MIB  # the list of members in a zip that needs it beforehand, held whole: a million
    value_bytes: int = 256 * MIB  # of a JSON or msgpack file that is decoded: as Python's objects ten times that
    record_bytes: int = 2 * GIB - 1  # all fields of one record; a tf.train.Example can hold no more
    ratio: int = 1_100  # decompressed / compressed bytes; deflate cannot exceed 1,032 on honest data
    window_bytes: int = (
        128 * MIB
    )  # what a decompressor may keep to look back: `xz -9` needs 65, `zstd --long` 128 MiB
    keys: int = 2_000_000  # records in one shard: remembering their keys costs some 120 bytes each
    key_bytes: int = 256 * MIB  # of all keys of one shard, which an index of a compressed shard keeps
    files: int = 5_000_000  # below a folder, or rows of a CSV file, that is packed: their names take 50 bytes each
    fields: int = 10_000  # fields of one record; more means that the grouping rule does not fit the names
    vocabulary: int = 30_000  # different labels of one field that are written down; ImageNet-21k has 21,841
    label_chars: int = 200  # of one label: what is longer is prose
    read_ahead_bytes: int = 32 * MIB  # received and not yet parsed, of one stream: 10 Gbit/s at 25 ms of distance
    chunk_bytes: int = 2 * MIB  # records handed to tf.data at once; above this page faults cost more than calls
    chunk_records: int = 512  # the same in records, so that tiny records do not wait for each other
    index_bytes: int = 256 * MIB  # of an index file, held whole: 8 bytes a record, so 30 million records
    proved_bytes: int = 1 * GIB  # of files that are hashed to prove an index of another store: 1 s, from a disk 10 s
    document_bytes: int = 64 * MIB  # of a manifest or another JSON document, held whole: 200 bytes a shard and a file
    token_bytes: int = 64 * KIB  # of a file that holds a token; a signed one has a kilobyte
    journal_bytes: int = 1 * GIB  # of the journal that an export goes on from: some kilobytes a shard
    state_bytes: int = 16 * MIB  # of the state that Resume keeps: some 500 bytes for each source of a mixture
    open_streams: int = 8  # streams kept open between two reads of one dataset; the least recently used is closed

    def shared(self, by: int) -> Limits:
        """For one of `by` streams that are read at once: together they read no further ahead than one."""
        own = self.read_ahead_bytes
        return replace(self, read_ahead_bytes=min(own, max(LEAST_READ_AHEAD, own // by)))


@_options
class Shuffle(_Checked):
    """Order as a pure function of (template, seed, epoch, host).

    Shards are permuted; `shards` of them are read at once, in turns of `turn` records; every window of
    `window` records (or of `window_bytes` of the archives, whichever is full first) is permuted. A checkpoint
    stores where the window began, never its records.

    >>> Shuffle(window=4096, seed=7).shards
    4
    """

    _may_be_zero = frozenset({"seed"})

    window: int = 2_048  # records; with 100 KB records the window is then bounded by window_bytes
    window_bytes: int = 64 * MIB
    shards: int = 4  # read at once; each has its part of Limits.read_ahead_bytes
    turn: int | None = None  # records from one shard before the next one's turn; None: 64, or its part of the window
    seed: int | None = None  # None: drawn when the dataset is made, kept in checkpoints; with shard=, SHARED_SEED
    reshuffle_each_epoch: bool = True
    whole: bool = False  # instead: a permutation over all records of all shards, each read by itself; needs an index

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("window", "window_bytes", "shards", "turn") if self.whole else ():
            if getattr(self, name) != getattr(type(self), name):
                raise OptionError(f"Shuffle.{name} has no effect with whole=True, which has no windows: leave it out")

    @property
    def in_turn(self) -> int:
        """`turn`, or what it is when nobody said it: shorter ones mix no better within a window, and cost calls."""
        return self.turn or min(_TURN, max(1, self.window // self.shards))


@_options
class Tls:
    """Whom to trust, and who to be: paths of PEM files.

    What is not given here is looked for in the environment: for `ais://` in AIS_CLIENT_CA, AIS_CRT, AIS_CRT_KEY and
    AIS_SKIP_VERIFY_CRT, for `s3://` in AWS_CA_BUNDLE.

    >>> Tls(ca="/etc/ssl/our-ca.pem").verify
    True
    """

    ca: str | os.PathLike[str] | None = None  # in place of those that the system trusts
    certificate: str | os.PathLike[str] | None = None  # ours, for servers that ask for one
    key: str | os.PathLike[str] | None = None  # None: it stands in the certificate's file
    verify: bool = True  # False: anybody may answer in the server's name; a warning says so

    def __post_init__(self) -> None:
        if self.key and not self.certificate:
            raise OptionError("Tls.key belongs to a certificate: give Tls.certificate, too")


@_options
class Read(_Checked):
    """How shards are read; everything `open` and `iter_records` take beside the shards themselves."""

    _may_be_zero = frozenset({"jump_bytes", "most_connections"})

    timeouts: Timeouts = Timeouts()
    retry: Retry = Retry()
    limits: Limits = Limits()
    tls: Tls = Tls()
    connections: int = (
        2  # to the store at once, per stream; more pay off where one connection is slower than the link
    )
    most_connections: int = 0  # to which they grow by themselves while that pays off; 0: they don't
    range_bytes: int = (
        16 * MIB
    )  # asked for in one request when there are several connections; with 8 a thousand readers wear proxies out
    jump_bytes: int = (
        512 * KIB
    )  # of fields that are not selected: from here on, asking for what is behind them beats receiving them; 0: never
    allow_missing_end: bool = False  # accept a tar that just stops between two members, without a zero block
    allow_concatenated: bool = False  # go on behind a tar's end mark where another tar follows: `cat a.tar b.tar`

    def of_lane(self, lanes: int) -> Read:
        """For one of several shards that are read at once: they share the connections and the read-ahead."""
        connections = -(-self.connections // lanes)
        return replace(self, connections=connections, most_connections=0, limits=self.limits.shared(lanes))

    def of_source(self, sources: int) -> Read:
        """For one of several sources that are mixed: they share the read-ahead, and to what connections may grow."""
        most = max(self.connections, self.most_connections // sources) if self.most_connections else 0
        return replace(self, most_connections=most, limits=self.limits.shared(sources))


@_options
class Cache(_Checked):
    """Where what was read is kept for the next epoch: a folder, which processes may share, or `"memory"`.

    >>> Cache("/scratch/shards", max_bytes=200 * GIB).trust
    0.0
    """

    _may_be_zero = frozenset({"trust"})

    dir: str | os.PathLike[str] = dataclasses.field(kw_only=False)
    max_bytes: int | None = None  # None: disk_bytes or memory_bytes
    trust: float = 0.0  # seconds for which a shard is believed to be as its store said last; 0: HEAD at each start
    disk_bytes: int = 64 * GIB  # a third of the smallest local disks that machines for training have
    memory_bytes: int = 1 * GIB  # of this process; more would rather be the machine's own page cache

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
        return self.dir == "memory"

    @property
    def bound(self) -> int:
        """In bytes."""
        return self.max_bytes or (self.memory_bytes if self.in_memory else self.disk_bytes)


@_options
class Writing(_Checked):
    """What an export with several workers may hold on disk, beside the files that it writes."""

    segment_bytes: int = (
        32 * MIB
    )  # a worker's output before it is handed over; small enough to stay in the page cache
    waiting_bytes: int = (
        512 * MIB
    )  # handed over and waiting for an earlier shard; then only that shard's worker goes on


@_options
class Card(_Checked):
    """What a card may hold: it is one file, for a browser to open at once, whatever the size of the data."""

    _may_be_zero = frozenset({"seed"})

    samples: int = 24  # records on the contact sheet: four rows on a wide screen
    pixels: int = 50_000_000  # of an image that is shown or made smaller: decoded, it takes four bytes for each
    media_bytes: int = 96 * KIB  # an image or a recording that is shown as it is; a larger image needs Pillow
    text_chars: int = 400  # of a sample's text: enough to see what it is about
    words: int = 1_000  # different labels or words of a field that are counted; ImageNet has as many
    word_chars: int = 80  # a longer text is no label
    shown_words: int = 40  # classes with a bar of their own
    fields: int = 200  # with statistics of their own; a table with more is read by nobody
    shards: int = 10_000  # whose sizes are kept one by one, at some 200 bytes each
    errors: int = 50  # bad records that are named; all are counted
    seed: int = 0  # of the choice of samples, so that the same data give the same card


@_options
class Hdf5(_Checked):
    """How HDF5 and netCDF files are read, whose library takes every file for a sound one.

    >>> Hdf5(seconds=5).isolate is None
    True
    """

    isolate: bool | None = None  # by a helper process; None: as AIS_TAR2TF_HDF5 says, `isolated` or `in-process`
    seconds: float = 30.0  # for one file, by a helper; a gigabyte of deflated values takes 5
