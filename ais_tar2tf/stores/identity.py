"""The identity of an object's content. It shows whether two answers certainly have the same content.

This module must do no I/O.

A validator is an ETag or a Last-Modified. RFC 9110, section 8.8, calls a validator *strong* if it changes with every
change of the content. Any other validator is *weak*. An ETag that begins with `W/` is weak. A Last-Modified is weak
if it is so young that the object may be written again in the same second. This module marks a weak Last-Modified by
the prefix `W/`, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime

from ais_tar2tf.errors import ObjectChanged

__all__ = ["Identity", "validator_of"]

_WEAK = "W/"
_SEPARATOR = "\t"  # between an ETag and a Last-Modified; neither of them holds a tab
# Seconds of age from which a Last-Modified is strong: HTTP states times in steps of 1 s, FAT in steps of 2 s, and the
# clocks of two machines differ.
_MIN_AGE = 5.0
_TIME_AND_SIZE = re.compile('"([0-9a-f]{1,16})-[0-9a-f]{1,16}"')  # nginx's ETag: time and size of a file, in hex


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one content of an object. A field that the store does not state is "", or None for `size`."""

    version: str = ""
    etag: str = ""  # the result of `validator_of`: an ETag, a Last-Modified, or both
    checksum: str = ""  # of the whole object: the algorithm and the hex digest, such as "xxhash2:0123456789abcdef"
    size: int | None = None  # of the whole object, in bytes
    fingerprint: str = ""
    """The state of a local file, or a hash of an object's first bytes if its store states no strong validator.

    A position stores the fingerprint, so that a reader that continues there can recognise the content. `differs_from`
    and `is_proved_by` ignore the fingerprint.
    """

    @property
    def is_strong(self) -> bool:
        """Whether all answers with this identity certainly have the same content."""
        return bool(self.version or self.checksum or _strong(self.etag))

    @property
    def is_stated(self) -> bool:
        """Whether any field but the size is known."""
        return bool(self.version or self.checksum or self.etag or self.fingerprint)

    def differs_from(self, other: Identity) -> str | None:
        """Return the name of a field that both identities state, but differently; None if there is no such field."""
        for name in ("checksum", "version"):
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours and theirs and ours != theirs:
                return name
        if _differ(self.etag, other.etag):
            return "etag"
        return "size" if None not in (self.size, other.size) and self.size != other.size else None

    def is_proved_by(self, other: Identity) -> bool:
        """Return whether `other`, an identity that was stated later, certainly belongs to the same content."""
        if self.differs_from(other) is not None:
            return False
        same_fields = (self.version and other.version) or (self.checksum and other.checksum)
        return bool(same_fields) or not _strong(self.etag).isdisjoint(_strong(other.etag))

    def completed_by(self, other: Identity) -> Identity:
        """Return this identity with its empty fields filled from `other`: an answer may state only some fields."""
        return Identity(
            self.version or other.version,
            self.etag or other.etag,
            self.checksum or other.checksum,
            other.size if self.size is None else self.size,
            self.fingerprint or other.fingerprint,
        )

    def check(self, other: Identity, url: str) -> None:
        """Raise ObjectChanged if `other`, an identity that was stated later, certainly belongs to another content."""
        field = self.differs_from(other)
        if field is not None:
            raise ObjectChanged(
                f"the object was replaced while it was read, or since its index or the checkpoint was written: its "
                f"{field} was {_shown(self, field)} and is {_shown(other, field)}; start this shard again",
                url=url,
            )

    def prove(self, other: Identity, url: str) -> None:
        """Raise ObjectChanged unless `other`, an identity stated later, certainly belongs to the same content."""
        self.check(other, url)
        if not self.is_proved_by(other):
            raise ObjectChanged(
                "it is not certain that the object is still the one of which a part was read, or which its index or "
                "the checkpoint is of: the store states no strong ETag, version or checksum, and no Last-Modified "
                f"over {_MIN_AGE:g} s old, that both have in common; start this shard again",
                url=url,
            )


def validator_of(etag: str, modified: str, date: str) -> str:
    """Return the value of `Identity.etag` for an answer's ETag, Last-Modified and Date.

    A strong ETag is returned alone. If the ETag is weak or missing, the Last-Modified is returned, too, and marked as
    weak if it is young. nginx makes its ETag from the file's time and size, without `W/`. Such an ETag is returned
    alone, and marked as weak if its time is that of a young Last-Modified.

    >>> validator_of('"a"', "Thu, 01 Jan 2026 00:00:00 GMT", "")
    '"a"'
    >>> validator_of("", "Thu, 01 Jan 2026 00:00:00 GMT", "Thu, 01 Jan 2026 00:00:01 GMT")
    'W/Thu, 01 Jan 2026 00:00:00 GMT'
    """
    etag, modified = (each.strip().replace(_SEPARATOR, " ") for each in (etag, modified))
    time_and_size = _TIME_AND_SIZE.fullmatch(etag)
    if etag and not etag.startswith(_WEAK) and time_and_size is None:
        return etag
    is_old = bool(modified) and _seconds_between(modified, date) >= _MIN_AGE
    if time_and_size is not None:
        is_of_time = bool(modified) and int(time_and_size[1], 16) == _timestamp(modified)
        return f"{_WEAK}{etag}" if is_of_time and not is_old else etag
    dated = modified if is_old or not modified else f"{_WEAK}{modified}"
    return _SEPARATOR.join(filter(None, (etag, dated)))


def _seconds_between(earlier: str, later: str) -> float:
    """Return the seconds between two dates of HTTP; 0 if a date is malformed."""
    first, last = _timestamp(earlier), _timestamp(later)
    return 0.0 if first is None or last is None else last - first


def _timestamp(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def _parts(etag: str) -> dict[bool, str]:
    """Split a value of `Identity.etag` into {False: the ETag, True: the Last-Modified}. Either key may be missing."""
    return {part.endswith(" GMT"): part for part in etag.split(_SEPARATOR) if part}


def _strong(etag: str) -> frozenset[str]:
    """Return the strong validators in a value of `Identity.etag`."""
    return frozenset(part for part in etag.split(_SEPARATOR) if part and not part.startswith(_WEAK))


def _differ(one: str, other: str) -> bool:
    """Return whether two values of `Identity.etag` differ in the ETag or in the Last-Modified. `W/` is ignored."""
    if one == other:
        return False
    ours, theirs = _parts(one), _parts(other)
    return any(
        ours[kind].removeprefix(_WEAK) != theirs[kind].removeprefix(_WEAK) for kind in ours.keys() & theirs.keys()
    )


def _shown(identity: Identity, field: str) -> str:
    value = getattr(identity, field)
    return repr(value.replace(_SEPARATOR, ", ") if isinstance(value, str) else value)
