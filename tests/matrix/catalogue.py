"""The faults by name: how each one is set up, and with which errors a read may end."""

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
from tests.matrix.scene import CANARY, Scene, Setup, gzipped, shard, untrusted_tls
from tests.support.fault_server import GOOD, Fault, ServedObject, ais, tagged

__all__ = ["FAULTS"]

_STALL = 0.5  # seconds of the idle time-out, after which a stalled connection counts as broken
_UNPROVED = (ChecksumMismatch, ArchiveError, TruncatedArchive, LimitExceeded, UnsupportedArchive)
_BOMB = 8 << 20


def _refused(scene: Scene) -> Setup:
    """The server refuses connections, from the start or from the middle of an object."""
    if scene.draw.random() < 0.5:
        scene.server.stop_listening()
        return Setup(errors=(TransportError,), server_fails=True)
    cut = Fault(after=scene.draw.randrange(1, scene.size), before=scene.server.stop_listening)
    return Setup(faults=[cut], errors=(TransportError,), server_fails=True, connections=1)


def _status(*statuses: int, **headers: str) -> Callable[[Scene], Setup]:
    def setup(scene: Scene) -> Setup:
        fault_headers = {name.replace("_", "-"): value for name, value in headers.items()}
        faults = [
            Fault(status=scene.draw.choice(statuses), headers=fault_headers) for _ in range(scene.draw.randint(1, 3))
        ]
        if scene.draw.random() < 0.5:  # in the middle of the object
            faults.insert(0, Fault(after=scene.any_offset(), then="short"))
        return Setup(faults=faults)

    return setup


def _status_at_first_server(scene: Scene) -> Setup:
    return Setup(first_server=[Fault(status=scene.draw.choice([408, 429, 500, 502, 503]))] * 2)


def _status_forever(scene: Scene) -> Setup:
    return Setup(faults=[Fault(status=scene.draw.choice([500, 503]))] * 40, errors=(TransportError,), attempts=3)


def _no_answer(scene: Scene) -> Setup:
    return Setup(faults=[Fault(mute=True)] * scene.draw.randint(1, 3))


def _silent(scene: Scene) -> Setup:
    silent = Fault(silent=True)
    return Setup(faults=[silent] * 40, errors=(TransportError,), attempts=1, idle=_STALL, connections=1)


def _dead_target(scene: Scene) -> Setup:
    return Setup(first_server=[scene.redirect_to(scene.dead_url())] * scene.draw.randint(1, 3))


def _target_stays_dead(scene: Scene) -> Setup:
    return Setup(first_server=[scene.redirect_to(scene.dead_url())] * 40, errors=(TransportError,), attempts=3)


def _broken(**how: object) -> Callable[[Scene], Setup]:
    """The connection breaks one to three times, at random offsets of the remaining bytes."""

    def setup(scene: Scene) -> Setup:
        faults = [Fault(after=scene.any_offset(), **how) for _ in range(scene.draw.randint(1, 3))]  # type: ignore[arg-type]
        return Setup(faults=faults)

    return setup


def _no_length(scene: Scene) -> Setup:
    return Setup(faults=[Fault(framing=scene.draw.choice(["close", "chunked"]), ranges=False)] * 9)


def _no_length_cut(scene: Scene) -> Setup:
    """Only the checksum and the archive's end mark distinguish this end from the end of a whole object."""
    cut = Fault(framing="close", after=scene.before_end(), then="short", ranges=False)
    return Setup(faults=[cut] * 9, errors=(ChecksumMismatch, TruncatedArchive))


def _length_too_large(scene: Scene) -> Setup:
    """The connection closes before the stated length. The next answer states a different length."""
    too_large = Fault(length_error=scene.draw.choice([1, 512, 100_000]), ranges=False)
    return Setup(faults=[too_large], errors=(ObjectChanged,), connections=1)


def _length_too_small(scene: Scene) -> Setup:
    """The client must not take the bytes after the stated length for its next answer."""
    too_small = Fault(length_error=scene.before_end() - scene.size, ranges=False)
    return Setup(faults=[too_small] * 9, errors=(ChecksumMismatch, TruncatedArchive), counted=False)


def _stall(scene: Scene) -> Setup:
    return Setup(faults=[Fault(after=scene.any_offset(), then="stall")], idle=_STALL, attempts=8)


def _stall_forever(scene: Scene) -> Setup:
    faults = [Fault(after=scene.any_offset(), then="stall"), *[Fault(after=0, then="stall")] * 40]
    return Setup(faults=faults, errors=(TransportError,), attempts=2, idle=_STALL, connections=1)


def _trickle(scene: Scene) -> Setup:
    """Bytes arrive slowly but steadily; the whole object takes longer than the idle time-out."""
    slow = Fault(piece=1 + scene.size // 8, pause=_STALL / 6)
    return Setup(faults=[slow], idle=_STALL, attempts=8)


def _progress(scene: Scene) -> Setup:
    """There are more breaks than tries, but every try makes progress."""
    step = scene.size // 14
    return Setup(faults=[Fault(after=step, then="short"), Fault(status=503)] * 10, attempts=3, connections=1)


def _ranges_ignored(scene: Scene) -> Setup:
    return Setup(faults=[Fault(after=scene.any_offset()), Fault(ranges=False), Fault(ranges=False)])


def _wrong_range(scene: Scene) -> Setup:
    wrong = Fault(shift=scene.draw.choice([-1, 1, 512]))
    return Setup(faults=[Fault(after=scene.draw.randrange(1, scene.size)), wrong, wrong])


def _repeated(scene: Scene) -> Setup:
    """After the break, some bytes are sent again, although Content-Range states the requested range."""
    repeated = Fault(repeat=scene.draw.choice([1, 512, 100_000]))
    return Setup(faults=[Fault(after=scene.draw.randrange(1, scene.size), then="short"), repeated, repeated])


def _interim(scene: Scene) -> Setup:
    several = tuple(scene.draw.choices([100, 102, 103], k=scene.draw.randint(1, 3)))
    return Setup(faults=[Fault(interim=several)] * 9)


def _byte_flipped(scene: Scene) -> Setup:
    """A bit of the body flips. A checksum of the store or of gzip covers it, otherwise nobody could detect it."""
    scene.zipped = scene.zipped or not scene.states_checksum
    flipped = Fault(flip=scene.any_offset())
    may_be_exact = not scene.states_checksum  # if the byte is one of gzip's header that has no meaning
    errors = (*_UNPROVED, RecordError)
    return Setup(faults=[flipped], errors=errors, may_be_exact=may_be_exact, damaged=True, connections=1)


def _replaced(scene: Scene) -> Setup:
    """The shard is replaced between the request and its resume."""
    whole = (gzipped if scene.zipped else shard)(7)
    changed = ais(whole, 2) if scene.states_checksum else tagged(whole, "2")
    before, headers = scene.data, scene.thing(scene.data).headers
    if scene.draw.random() < 0.5:  # the same length
        changed.data = whole[: len(before)].ljust(len(before), b"\0")
    assert changed.headers != headers

    def replace() -> None:
        scene.server.objects[scene.name(scene.faulty)] = changed

    cut = Fault(after=scene.before_end(), then="short")
    return Setup(faults=[cut, Fault(before=replace)], errors=(ObjectChanged,), connections=1)


def _checksum_absent(scene: Scene) -> Setup:
    thing = ServedObject(scene.data, {"Ais-Version": "1"} if scene.way == "ais" else {})
    return Setup(thing=thing, faults=[Fault(after=scene.any_offset())])


def _checksum_wrong(scene: Scene) -> Setup:
    return Setup(thing=ServedObject(scene.data, ais(b"something else").headers), errors=(ChecksumMismatch,))


def _checksum_of_another_kind(scene: Scene) -> Setup:
    headers = {"Ais-Checksum-Type": scene.draw.choice(["none", "rot13"]), "Ais-Checksum-Value": "0"}
    return Setup(thing=ServedObject(scene.data, headers))


def _gzip_cut(scene: Scene) -> Setup:
    scene.zipped = True
    cut = scene.data[: scene.draw.randrange(1, scene.size)]
    return Setup(thing=scene.thing(cut), errors=(TruncatedArchive,))


def _two_gzip_members(scene: Scene) -> Setup:
    """The tar is cut anywhere, and both parts are compressed separately, as `cat a.gz b.gz` joins them."""
    scene.zipped = True
    whole = shard(scene.faulty)
    cut = scene.draw.randrange(len(whole))
    return Setup(thing=scene.thing(b"".join(map(gzip.compress, (whole[:cut], whole[cut:])))))


def _bomb(scene: Scene) -> Setup:
    """A member is larger than its limit, or expands more than an honest compressor's output."""
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
    return Setup(thing=scene.thing(scene.data[: scene.before_end()]), errors=(TruncatedArchive,))


def _tar_damaged(scene: Scene) -> Setup:
    """A header's checksum is wrong. The store's is right, because the tar was damaged before it was stored."""
    scene.zipped = False
    damaged = bytearray(scene.data)
    damaged[100] ^= 1  # in the first header
    return Setup(thing=scene.thing(bytes(damaged)), errors=(ArchiveError, UnsupportedArchive))


def _not_found(scene: Scene) -> Setup:
    return Setup(faults=[Fault(status=404)] * 40, errors=(ShardNotFound,))


def _not_found_in_the_middle(scene: Scene) -> Setup:
    cut = Fault(after=scene.draw.randrange(1, scene.size), then="short")
    return Setup(faults=[cut, *[Fault(status=404)] * 40], errors=(ShardNotFound,), connections=1)


def _token_expired(scene: Scene) -> Setup:
    """The token expires in the middle of an object. Only AIStore's client can call a function for a new one."""
    cut = Fault(after=scene.draw.randrange(1, scene.size), then="short")
    if scene.way == "ais":
        return Setup(faults=[cut], first_server=[GOOD, Fault(status=401)], token_renewed=True, connections=1)
    return Setup(faults=[cut, Fault(status=401)], errors=(AccessDenied,), connections=1)


def _denied(scene: Scene) -> Setup:
    """The server denies access, and its message contains the token, which must not appear in the error."""
    message = f'{{"message": "no rights for {CANARY if scene.way == "ais" else "anybody"}"}}'.encode()
    return Setup(
        first_server=[Fault(status=scene.draw.choice([401, 403]), body=message)] * 40, errors=(AccessDenied,)
    )


def _redirect_loop(scene: Scene) -> Setup:
    """The first server redirects to itself."""
    back = Fault(status=307, headers={"Location": f"/{scene.first_request(scene.faulty)}"})
    return Setup(first_server=[back] * 40, errors=(StoreError,))


def _redirect_to_other_server(scene: Scene) -> Setup:
    """A redirect to another server is followed, without sending the token there."""
    return Setup(first_server=[scene.redirect_to(scene.other_server().url)] * 9)


def _untrusted(scene: Scene) -> Setup:
    return Setup(first_server=[scene.redirect_to(scene.other_server(untrusted_tls()).url)] * 9, errors=(StoreError,))


FAULTS: dict[str, Callable[[Scene], Setup]] = {
    "refused": _refused,
    "408": _status(408),
    "429, Retry-After": _status(429, Retry_After="0.01"),
    "500": _status(500),
    "502": _status(502, 504),
    "503": _status(503, Retry_After="0"),
    "408 to 503 at the first server": _status_at_first_server,
    "500 or 503 forever": _status_forever,
    "closed without an answer": _no_answer,
    "no answer at all": _silent,
    "redirect to a dead target": _dead_target,
    "redirect to a target that stays dead": _target_stays_dead,
    "reset in the body": _broken(then="reset"),
    "closed before the length": _broken(then="short"),
    "chunked, closed early": _broken(then="short", framing="chunked"),
    "no length": _no_length,
    "no length, closed early": _no_length_cut,
    "length too large": _length_too_large,
    "length too small": _length_too_small,
    "stall": _stall,
    "stall forever": _stall_forever,
    "trickle": _trickle,
    "more breaks than tries": _progress,
    "ranges ignored": _ranges_ignored,
    "wrong range": _wrong_range,
    "bytes repeated after a resume": _repeated,
    "interim answers": _interim,
    "byte flipped": _byte_flipped,
    "replaced before the resume": _replaced,
    "checksum absent": _checksum_absent,
    "checksum wrong": _checksum_wrong,
    "checksum of an unknown kind": _checksum_of_another_kind,
    "gzip cut": _gzip_cut,
    "gzip of two members": _two_gzip_members,
    "decompression bomb": _bomb,
    "tar cut": _tar_cut,
    "tar damaged": _tar_damaged,
    "404": _not_found,
    "404 in the middle": _not_found_in_the_middle,
    "token expired in the middle": _token_expired,
    "denied for good": _denied,
    "redirect loop": _redirect_loop,
    "redirect to another server": _redirect_to_other_server,
    "untrusted TLS certificate": _untrusted,
}
