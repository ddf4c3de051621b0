"""The faults by name: how each is set up, and what may come of it."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
from collections.abc import Callable

from backports import zstd

from ais_tar2tf.errors import (
    AccessDenied,
    ArchiveError,
    ChecksumMismatch,
    LimitExceeded,
    ObjectChanged,
    RecordError,
    ShardNotFound,
    StoreError,
    TransportError,
    TruncatedArchive,
    UnsupportedArchive,
)
from tests.faults import GOOD, Fault, Thing, ais, tagged
from tests.matrix.scene import CANARY, Scene, Setup, gzipped, nobodys_tls, shard

__all__ = ["FAULTS"]

_STALL = 0.5  # seconds that a stalled line is waited for
_UNPROVED = (ChecksumMismatch, ArchiveError, TruncatedArchive, LimitExceeded, UnsupportedArchive)
_BOMB = 8 << 20


def _refused(scene: Scene) -> Setup:
    """Nobody listens, from the start or from the middle on."""
    if scene.draw.random() < 0.5:
        scene.server.refuse()
        return Setup(errors=(TransportError,), everything=True)
    cut = Fault(after=scene.draw.randrange(1, scene.size), before=scene.server.refuse)
    return Setup(faults=[cut], errors=(TransportError,), everything=True, connections=1)


def _status(*statuses: int, **headers: str) -> Callable[[Scene], Setup]:
    def setup(scene: Scene) -> Setup:
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        faults = [Fault(status=scene.draw.choice(statuses), headers=said) for _ in range(scene.draw.randint(1, 3))]
        if scene.draw.random() < 0.5:  # in the middle of the object
            faults.insert(0, Fault(after=scene.anywhere(), then="short"))
        return Setup(faults=faults)

    return setup


def _status_at_door(scene: Scene) -> Setup:
    return Setup(at_door=[Fault(status=scene.draw.choice([408, 429, 500, 502, 503]))] * 2)


def _for_ever(scene: Scene) -> Setup:
    return Setup(faults=[Fault(status=scene.draw.choice([500, 503]))] * 40, errors=(TransportError,), attempts=3)


def _no_answer(scene: Scene) -> Setup:
    return Setup(faults=[Fault(mute=True)] * scene.draw.randint(1, 3))


def _never_an_answer(scene: Scene) -> Setup:
    silent = Fault(silent=True)
    return Setup(faults=[silent] * 40, errors=(TransportError,), attempts=1, idle=_STALL, connections=1)


def _dead_target(scene: Scene) -> Setup:
    return Setup(at_door=[scene.led_to(scene.nobody())] * scene.draw.randint(1, 3))


def _dead_for_good(scene: Scene) -> Setup:
    return Setup(at_door=[scene.led_to(scene.nobody())] * 40, errors=(TransportError,), attempts=3)


def _broken(**how: object) -> Callable[[Scene], Setup]:
    """One to three breaks, each somewhere in what is left."""

    def setup(scene: Scene) -> Setup:
        faults = [Fault(after=scene.anywhere(), **how) for _ in range(scene.draw.randint(1, 3))]  # type: ignore[arg-type]
        return Setup(faults=faults)

    return setup


def _no_length(scene: Scene) -> Setup:
    return Setup(faults=[Fault(framing=scene.draw.choice(["close", "chunked"]), ranges=False)] * 9)


def _no_length_cut(scene: Scene) -> Setup:
    """Nobody could tell such an end from a good one, but for the checksum and the archive's own end mark."""
    cut = Fault(framing="close", after=scene.before_the_end(), then="short", ranges=False)
    return Setup(faults=[cut] * 9, errors=(ChecksumMismatch, TruncatedArchive))


def _length_too_great(scene: Scene) -> Setup:
    """It closes before the length; asked again it tells another one."""
    too_great = Fault(off=scene.draw.choice([1, 512, 100_000]), ranges=False)
    return Setup(faults=[too_great], errors=(ObjectChanged,), connections=1)


def _length_too_small(scene: Scene) -> Setup:
    """What comes behind it is no answer to the next request."""
    too_small = Fault(off=scene.before_the_end() - scene.size, ranges=False)
    return Setup(faults=[too_small] * 9, errors=(ChecksumMismatch, TruncatedArchive), counted=False)


def _stall(scene: Scene) -> Setup:
    return Setup(faults=[Fault(after=scene.anywhere(), then="stall")], idle=_STALL, attempts=8)


def _stall_for_ever(scene: Scene) -> Setup:
    faults = [Fault(after=scene.anywhere(), then="stall"), *[Fault(after=0, then="stall")] * 40]
    return Setup(faults=faults, errors=(TransportError,), attempts=2, idle=_STALL, connections=1)


def _trickle(scene: Scene) -> Setup:
    """All of it takes longer than the idle time-out."""
    slow = Fault(piece=1 + scene.size // 8, pause=_STALL / 6)
    return Setup(faults=[slow], idle=_STALL, attempts=8)


def _progress(scene: Scene) -> Setup:
    """More breaks than there are tries; each try brings something."""
    step = scene.size // 14
    return Setup(faults=[Fault(after=step, then="short"), Fault(status=503)] * 10, attempts=3, connections=1)


def _ranges_ignored(scene: Scene) -> Setup:
    return Setup(faults=[Fault(after=scene.anywhere()), Fault(ranges=False), Fault(ranges=False)])


def _wrong_range(scene: Scene) -> Setup:
    wrong = Fault(shift=scene.draw.choice([-1, 1, 512]))
    return Setup(faults=[Fault(after=scene.draw.randrange(1, scene.size)), wrong, wrong])


def _repeated(scene: Scene) -> Setup:
    """What came before the break comes once more, in a range that is said to be what was asked for."""
    again = Fault(again=scene.draw.choice([1, 512, 100_000]))
    return Setup(faults=[Fault(after=scene.draw.randrange(1, scene.size), then="short"), again, again])


def _interim(scene: Scene) -> Setup:
    several = tuple(scene.draw.choices([100, 102, 103], k=scene.draw.randint(1, 3)))
    return Setup(faults=[Fault(interim=several)] * 9)


def _byte_flipped(scene: Scene) -> Setup:
    """What no checksum covers, neither the store's nor gzip's, nobody could see: that is not asked for."""
    scene.zipped = scene.zipped or not scene.states_checksum
    flipped = Fault(flip=scene.anywhere())
    may_be_exact = not scene.states_checksum  # a byte of gzip's header that says nothing
    errors = (*_UNPROVED, RecordError)
    return Setup(faults=[flipped], errors=errors, may_be_exact=may_be_exact, damaged=True, connections=1)


def _replaced(scene: Scene) -> Setup:
    """Between the request and its resume."""
    whole = (gzipped if scene.zipped else shard)(7)
    changed = ais(whole, 2) if scene.states_checksum else tagged(whole, "2")
    before, stated = scene.data, scene.thing(scene.data).stated
    if scene.draw.random() < 0.5:  # the very same length
        changed.data = whole[: len(before)].ljust(len(before), b"\0")
    assert changed.stated != stated

    def replace() -> None:
        scene.server.things[scene.name(scene.faulty)] = changed

    cut = Fault(after=scene.before_the_end(), then="short")
    return Setup(faults=[cut, Fault(before=replace)], errors=(ObjectChanged,), connections=1)


def _checksum_absent(scene: Scene) -> Setup:
    thing = Thing(scene.data, {"Ais-Version": "1"} if scene.way == "ais" else {})
    return Setup(thing=thing, faults=[Fault(after=scene.anywhere())])


def _checksum_wrong(scene: Scene) -> Setup:
    return Setup(thing=Thing(scene.data, ais(b"something else").stated), errors=(ChecksumMismatch,))


def _checksum_of_another_kind(scene: Scene) -> Setup:
    stated = {"Ais-Checksum-Type": scene.draw.choice(["none", "rot13"]), "Ais-Checksum-Value": "0"}
    return Setup(thing=Thing(scene.data, stated))


def _gzip_cut(scene: Scene) -> Setup:
    scene.zipped = True
    cut = scene.data[: scene.draw.randrange(1, scene.size)]
    return Setup(thing=scene.thing(cut), errors=(TruncatedArchive,))


def _two_members(scene: Scene) -> Setup:
    """`cat a.gz b.gz`, cut anywhere in the tar."""
    scene.zipped = True
    whole = shard(scene.faulty)
    cut = scene.draw.randrange(len(whole))
    return Setup(thing=scene.thing(b"".join(map(gzip.compress, (whole[:cut], whole[cut:])))))


def _bomb(scene: Scene) -> Setup:
    """A member larger than its limit, or more from less than an honest compressor makes."""
    scene.zipped = True
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        info = tarfile.TarInfo(f"s{scene.faulty}/zeros.bin")
        info.size = _BOMB
        tar.addfile(info, io.BytesIO(bytes(_BOMB)))
    compress = scene.draw.choice([gzip.compress, bz2.compress, zstd.compress])
    limit = 1 << 20 if compress is gzip.compress else None
    return Setup(thing=scene.thing(compress(made.getvalue())), errors=(LimitExceeded,), member_bytes=limit)


def _tar_cut(scene: Scene) -> Setup:
    scene.zipped = False
    return Setup(thing=scene.thing(scene.data[: scene.before_the_end()]), errors=(TruncatedArchive,))


def _tar_damaged(scene: Scene) -> Setup:
    """A header's checksum does not hold; the store's holds, for it was damaged before it was stored."""
    scene.zipped = False
    damaged = bytearray(scene.data)
    damaged[100] ^= 1  # in the first header
    return Setup(thing=scene.thing(bytes(damaged)), errors=(ArchiveError, UnsupportedArchive))


def _not_there(scene: Scene) -> Setup:
    return Setup(faults=[Fault(status=404)] * 40, errors=(ShardNotFound,))


def _gone_in_the_middle(scene: Scene) -> Setup:
    cut = Fault(after=scene.draw.randrange(1, scene.size), then="short")
    return Setup(faults=[cut, *[Fault(status=404)] * 40], errors=(ShardNotFound,), connections=1)


def _token_expired(scene: Scene) -> Setup:
    """In the middle. A function gives a new one; plain HTTP and S3 have none to ask."""
    cut = Fault(after=scene.draw.randrange(1, scene.size), then="short")
    if scene.way == "ais":
        return Setup(faults=[cut], at_door=[GOOD, Fault(status=401)], token_renewed=True, connections=1)
    return Setup(faults=[cut, Fault(status=401)], errors=(AccessDenied,), connections=1)


def _denied(scene: Scene) -> Setup:
    """And the server that got a token repeats it in its message."""
    said = f'{{"message": "no rights for {CANARY if scene.way == "ais" else "anybody"}"}}'.encode()
    return Setup(at_door=[Fault(status=scene.draw.choice([401, 403]), body=said)] * 40, errors=(AccessDenied,))


def _loop(scene: Scene) -> Setup:
    """The door leads to itself."""
    back = Fault(status=307, headers={"Location": f"/{scene.door(scene.faulty)}"})
    return Setup(at_door=[back] * 40, errors=(StoreError,))


def _elsewhere(scene: Scene) -> Setup:
    """Followed, but with neither token nor range lost nor anything more said than was asked."""
    return Setup(at_door=[scene.led_to(scene.elsewhere().url)] * 9)


def _no_trust(scene: Scene) -> Setup:
    return Setup(at_door=[scene.led_to(scene.elsewhere(nobodys_tls()).url)] * 9, errors=(StoreError,))


FAULTS: dict[str, Callable[[Scene], Setup]] = {
    "refused": _refused,
    "408": _status(408),
    "429, Retry-After": _status(429, Retry_After="0.01"),
    "500": _status(500),
    "502": _status(502, 504),
    "503": _status(503, Retry_After="0"),
    "any of them at the first server": _status_at_door,
    "500 or 503 for ever": _for_ever,
    "closed in place of an answer": _no_answer,
    "never an answer": _never_an_answer,
    "redirect to a dead target": _dead_target,
    "redirect to a target dead for good": _dead_for_good,
    "reset in the body": _broken(then="reset"),
    "closed before the length": _broken(then="short"),
    "chunked, closed early": _broken(then="short", framing="chunked"),
    "no length": _no_length,
    "no length, closed early": _no_length_cut,
    "length too great": _length_too_great,
    "length too small": _length_too_small,
    "stall": _stall,
    "stall for ever": _stall_for_ever,
    "trickle": _trickle,
    "more breaks than tries": _progress,
    "ranges ignored": _ranges_ignored,
    "wrong range": _wrong_range,
    "bytes repeated behind the resume": _repeated,
    "interim answers": _interim,
    "byte flipped": _byte_flipped,
    "replaced before the resume": _replaced,
    "checksum absent": _checksum_absent,
    "checksum wrong": _checksum_wrong,
    "checksum of an unknown kind": _checksum_of_another_kind,
    "gzip cut": _gzip_cut,
    "gzip of two members": _two_members,
    "bomb": _bomb,
    "tar cut": _tar_cut,
    "tar damaged": _tar_damaged,
    "404": _not_there,
    "404 in the middle": _gone_in_the_middle,
    "token expired in the middle": _token_expired,
    "denied for good": _denied,
    "redirect loop": _loop,
    "redirect elsewhere": _elsewhere,
    "TLS that does not verify": _no_trust,
}
