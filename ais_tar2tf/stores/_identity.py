"""Which content of an object a store answers with, and whether two answers are certainly of the same one. No I/O.

RFC 9110, section 8.8, calls a validator *strong* when it changes with every byte. Weak are an ETag that begins with
`W/`, and a Last-Modified so young that the object may have been written again within the same second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from ais_tar2tf.errors import ObjectChanged

__all__ = ["Identity", "validator_of"]

_WEAK = "W/"
_BETWEEN = "\t"  # between an ETag and a Last-Modified; neither holds one
_GRAIN = 5.0  # seconds: HTTP's dates have whole ones, FAT keeps every second one, clocks of two machines differ
_TIME_AND_SIZE = re.compile('"([0-9a-f]{1,16})-[0-9a-f]{1,16}"')  # nginx's ETag: no stronger than its time


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one content of an object from another. A field is empty where the store does not state it."""

    version: str = ""
    etag: str = ""  # as `validator_of` makes it
    checksum: str = ""  # "xxhash2:0123456789abcdef": algorithm and hex digest of the whole object
    size: int | None = None
    seen: str = ""
    """What a position adds: the state of a file, or a hash of the first bytes where there is no strong validator."""

    @property
    def is_strong(self) -> bool:
        """Whether an answer with the same identity is certainly of the same content."""
        return bool(self.version or self.checksum or _strong(self.etag))

    @property
    def is_told(self) -> bool:
        """Whether anything but the size is known."""
        return bool(self.version or self.checksum or self.etag or self.seen)

    def differs_from(self, other: Identity) -> str | None:
        """Return the name of the first field in which both are stated and differ."""
        for name in ("checksum", "version"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours and theirs and ours != theirs:
                return name
        if _differ(self.etag, other.etag):
            return "etag"
        return "size" if None not in (self.size, other.size) and self.size != other.size else None

    def is_proved_by(self, other: Identity) -> bool:
        """Whether `other`, stated later, is certainly of the same content."""
        if self.differs_from(other) is not None:
            return False
        same_fields = (self.version and other.version) or (self.checksum and other.checksum)
        return bool(same_fields) or not _strong(self.etag).isdisjoint(_strong(other.etag))

    def completed_by(self, other: Identity) -> Identity:
        """Return all that is known: an answer to a range may state less than the first one did."""
        return Identity(
            self.version or other.version,
            self.etag or other.etag,
            self.checksum or other.checksum,
            other.size if self.size is None else self.size,
            self.seen or other.seen,
        )

    def check(self, other: Identity, url: str) -> None:
        """Raise ObjectChanged if `other`, stated later, is certainly of another content."""
        what = self.differs_from(other)
        if what is not None:
            raise ObjectChanged(
                f"the object was replaced while it was read, or since its index or the checkpoint was written: its "
                f"{what} was {_shown(self, what)} and is {_shown(other, what)}; start this shard again",
                url=url,
            )

    def prove(self, other: Identity, url: str) -> None:
        """Raise ObjectChanged unless `other`, stated later, is certainly of the same content."""
        self.check(other, url)
        if not self.is_proved_by(other):
            raise ObjectChanged(
                "it is not certain that the object is still the one of which a part was read, or which its index or "
                "the checkpoint is of: the store states no strong ETag, version or checksum, and no Last-Modified "
                f"over {_GRAIN:g} s old, that both have in common; start this shard again",
                url=url,
            )


def validator_of(etag: str, modified: str, date: str) -> str:
    """Return what `Identity.etag` keeps of an answer's ETag, Last-Modified and Date.

    A strong ETag is kept alone. Otherwise Last-Modified is kept, too, marked as weak unless it was old at `date`.

    >>> validator_of('"a"', "Thu, 01 Jan 2026 00:00:00 GMT", "")
    '"a"'
    >>> validator_of("", "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:01 GMT")
    'W/Thu, 01 Jan 2026 00:00:00 GMT'
    """
    etag, modified = (each.strip().replace(_BETWEEN, " ") for each in (etag, modified))
    only_time = _TIME_AND_SIZE.fullmatch(etag)
    if etag and not etag.startswith(_WEAK) and only_time is None:
        return etag
    is_old = bool(modified) and _seconds_between(modified, date) >= _GRAIN
    if only_time is not None:
        is_of_time = bool(modified) and int(only_time[1], 16) == _timestamp(modified)
        return f"{_WEAK}{etag}" if is_of_time and not is_old else etag
    dated = modified if is_old or not modified else f"{_WEAK}{modified}"
    return _BETWEEN.join(filter(None, (etag, dated)))


def _seconds_between(earlier: str, later: str) -> float:
    """Return 0 where one of the two is no date."""
    before, behind = _timestamp(earlier), _timestamp(later)
    return 0.0 if before is None or behind is None else behind - before


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _parts(etag: str) -> dict[bool, str]:
    """Return the ETag (False) and the Last-Modified (True), of which either may be absent."""
    return {part.endswith(" GMT"): part for part in etag.split(_BETWEEN) if part}


def _strong(etag: str) -> frozenset[str]:
    return frozenset(part for part in etag.split(_BETWEEN) if part and not part.startswith(_WEAK))


def _differ(one: str, other: str) -> bool:
    if one == other:
        return False
    ours, theirs = _parts(one), _parts(other)
    return any(
        ours[kind].removeprefix(_WEAK) != theirs[kind].removeprefix(_WEAK) for kind in ours.keys() & theirs.keys()
    )


def _shown(identity: Identity, field: str) -> str:
    value = getattr(identity, field)
    return repr(value.replace(_BETWEEN, ", ") if isinstance(value, str) else value)
