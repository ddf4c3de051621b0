"""Members → records: the grouping rules, the selection of fields, and the account of what fits neither. No I/O.

A record is what stands together under one key: `{"__key__": "a/b", "__shard__": url, "jpg": bytes, ...}`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from xxhash import xxh3_128_digest

from ais_tar2tf.account import Account
from ais_tar2tf.archive import Members
from ais_tar2tf.errors import (
    ArchiveError,
    DuplicateField,
    DuplicateKey,
    LimitExceeded,
    MissingField,
    RecordError,
    StrayMember,
)
from ais_tar2tf.options import Limits

__all__ = ["NAMES", "Grouper", "Grouping", "Record", "RecordBatch", "Selection", "Want", "splitter"]

_NO_FIELDS = frozenset({"__key__", "__shard__"})

Record = dict[str, Any]
"""`__key__` and `__shard__` as text, every field as bytes."""

NAMES = ("__key__", "__shard__")
"""The entries of a record that are no fields of it."""

Split = Callable[[str], "tuple[str, str] | None"]
Grouping = str | Split
"""`"first-dot"`, `"last-dot"`, or a callable from a member's name to (key, field), None to leave it out."""


@dataclass(slots=True)
class RecordBatch:
    """Consecutive records of one shard, where each begins in its archive, and the bytes of its fields."""

    records: list[Record] = field(default_factory=list[Record])
    offsets: list[int] = field(default_factory=list[int])
    sizes: list[int] = field(default_factory=list[int])


def _first_dot(name: str) -> tuple[str, str] | None:
    key, dot, field = name.partition(".")
    if "/" in field:  # the dot was a folder's
        base = name.rfind("/") + 1
        stem, dot, field = name[base:].partition(".")
        key = name[:base] + stem
    return (key, field.lower()) if dot and key and key[-1] != "/" else None


def _last_dot(name: str) -> tuple[str, str] | None:
    base = name.rfind("/") + 1
    dot = name.rfind(".", base + 1)
    return (name[:dot], name[dot + 1 :].lower()) if dot > 0 and not _is_no_field(name) else None


def splitter(grouping: Grouping) -> Split:
    """The function from a member's name to (key, field).

    >>> splitter("first-dot")("a/b.seg.PNG")
    ('a/b', 'seg.png')
    >>> splitter("last-dot")("a/b.seg.PNG")
    ('a/b.seg', 'png')
    """
    if callable(grouping):
        return lambda name: None if name.endswith("/") else grouping(name)
    rules = {"first-dot": _first_dot, "last-dot": _last_dot}
    if grouping not in rules:
        raise ValueError(f"grouping is one of {', '.join(rules)} or a callable, not {grouping!r}")
    return rules[grouping]


def _is_no_field(name: str) -> bool:
    """Names that nobody means as data: macOS's `._*`, and directories written as files."""
    return name.endswith("/") or name[name.rfind("/") + 1 :].startswith("._")


@dataclass(frozen=True, slots=True)
class Want:
    """One field asked for: the first of `sources` that a record has, under `name`."""

    name: str
    sources: tuple[str, ...]
    optional: bool = False

    @classmethod
    def parse(cls, text: str) -> Want:
        """`"jpg"`, `"cls?"` (may be absent), `"jpg;png"` (the first there is), `"image=jpg;png"` (renamed).

        >>> Want.parse("image=jpg;png?")
        Want(name='image', sources=('jpg', 'png'), optional=True)
        """
        body = text.removesuffix("?")
        name, renamed, alternatives = body.partition("=")
        sources = tuple(source.lower() for source in (alternatives if renamed else body).split(";"))
        if not all(sources) or not name:
            raise ValueError(f"a field is asked for as 'jpg', 'cls?' or 'image=jpg;png', not {text!r}")
        return cls(name if renamed else sources[0], sources, optional=text.endswith("?"))


class Selection:
    """The fields that are read; all others are skipped without being copied."""

    def __init__(self, fields: Iterable[str | Want]) -> None:
        self.wants: tuple[Want, ...] = tuple(f if isinstance(f, Want) else Want.parse(f) for f in fields)
        names = [want.name for want in self.wants]
        if len(set(names)) < len(names):
            raise ValueError(f"a field is selected twice: {', '.join(names)}")
        self.sources: frozenset[str] = frozenset(source for want in self.wants for source in want.sources)

    @property
    def names(self) -> list[str]:
        return [want.name for want in self.wants]


class Grouper:
    """Members of one shard in, whole records out; the record that may still grow is kept back."""

    def __init__(
        self,
        shard: str,
        account: Account,
        limits: Limits,
        *,
        grouping: Grouping = "first-dot",
        selection: Selection | None = None,
    ) -> None:
        self._shard = shard
        self._account = account
        self._limits = limits
        self._split = splitter(grouping)
        self._selection = selection
        self._sources = None if selection is None else selection.sources
        self._seen: set[bytes] = set()
        self._key: str | None = None
        self._offset = 0
        self._fields: Record = {}
        self._size = 0
        self._met: set[str] | None = None  # fields of this record that were not selected, when some were not
        self._twice: str | None = None
        self._failure: ArchiveError | RecordError | None = None  # to be raised behind the records before it

    def wants(self, name: str) -> bool:
        """Whether the body of the member `name` will be looked at."""
        parts = self._split(name)
        return parts is not None and (self._sources is None or parts[1] in self._sources)

    def add(self, members: Members) -> RecordBatch:
        """The records that are whole now. What stops here, stops behind the records that come before it."""
        self._raise_failure()
        batch = RecordBatch()
        try:
            self._add(members, batch)
        except (ArchiveError, RecordError) as error:
            if not batch.records:
                raise
            self._failure = error
        return batch

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _add(self, members: Members, batch: RecordBatch) -> None:
        """This loop runs for every member there is, so it calls little."""
        split, sources, data, most = self._split, self._sources, members.data, self._limits.record_bytes
        current, fields = self._key, self._fields
        for name, offset, start, size in zip(
            members.names, members.offsets, members.starts, members.sizes, strict=True
        ):
            parts = split(name)
            if parts is None or not parts[1]:
                self._leave_out(name)
                continue
            key, field = parts
            if key != current:
                if current is not None:
                    self._flush(batch)
                current, fields = key, self._begin(key, offset)
            if sources is not None and field not in sources:
                self._note_unselected(field)
            elif field in fields:
                self._twice = field
            else:
                self._size += size
                if self._size > most:
                    raise self._limit("record_bytes", f"record {key!r} has over {most:,} bytes", offset)
                fields[field] = bytes(data[start : start + size])
        self._check_fields()

    @property
    def kept_back_at(self) -> int | None:
        """Where the record that may still grow begins; None before the first and behind the last."""
        return None if self._key is None else self._offset

    def finish(self) -> RecordBatch:
        """The last record: the shard is at its end."""
        self._raise_failure()
        batch = RecordBatch()
        if self._key is not None:
            self._flush(batch)
            self._key = None
        return batch

    def _begin(self, key: str, offset: int) -> Record:
        self._key, self._offset, self._size, self._twice, self._met = key, offset, 0, None, None
        self._fields = {"__key__": key, "__shard__": self._shard}
        return self._fields

    def _leave_out(self, name: str) -> None:
        left_out_by_user = self._split not in (_first_dot, _last_dot)
        if left_out_by_user or _is_no_field(name):
            self._account.add(ignored=1)
            return
        self._account.record_error(
            StrayMember(
                f"member {name!r} has no extension, so it belongs to no record; "
                "leave it out by a grouping of your own, or skip it by on_error='skip-record'",
                shard=self._shard,
                key=name,
            )
        )

    def _note_unselected(self, field: str) -> None:
        if self._met is None:
            self._met = set()
        if field in self._met:
            self._twice = field
        self._met.add(field)

    def _check_fields(self) -> None:
        count = len(self._fields) - len(_NO_FIELDS) + (len(self._met) if self._met else 0)
        if count > self._limits.fields:
            message = (
                f"record {self._key!r} has over {self._limits.fields:,} fields (does the grouping fit the names?)"
            )
            raise self._limit("fields", message, self._offset)

    def _limit(self, name: str, message: str, offset: int) -> LimitExceeded:
        return LimitExceeded(f"{message}, Limits.{name}", shard=self._shard, offset=offset)

    def _flush(self, batch: RecordBatch) -> None:
        """The record is whole: check it, and put it into the batch or to the account."""
        key = self._key
        assert key is not None
        seen = self._seen
        before = len(seen)
        seen.add(xxh3_128_digest(key.encode("utf-8", "surrogateescape")))
        if len(seen) > self._limits.keys:
            raise self._limit("keys", f"there are over {self._limits.keys:,} records", self._offset)
        self._check_fields()
        record = self._fields
        if len(seen) == before or self._twice is not None or self._selection is not None:
            try:
                record = self._checked(key, known=len(seen) == before)
            except (DuplicateKey, DuplicateField, MissingField) as error:
                self._account.record_error(error)
                return
        batch.records.append(record)
        batch.offsets.append(self._offset)
        batch.sizes.append(self._size)

    def _checked(self, key: str, *, known: bool) -> Record:
        if known:
            raise DuplicateKey(
                "the key came before, and comes back after other records; was the shard written unsorted?",
                shard=self._shard,
                key=key,
            )
        if self._twice is not None:
            raise DuplicateField(f"field {self._twice!r} is there twice", shard=self._shard, key=key)
        return self._fields if self._selection is None else self._select(self._selection.wants, key)

    def _select(self, wants: Sequence[Want], key: str) -> Record:
        fields = self._fields
        record: Record = {"__key__": key, "__shard__": self._shard}
        for want in wants:
            for source in want.sources:
                if source in fields:
                    record[want.name] = fields[source]
                    break
            else:
                if not want.optional:
                    raise self._missing(want, key)
        return record

    def _missing(self, want: Want, key: str) -> MissingField:
        there = sorted({*(self._fields.keys() - _NO_FIELDS), *(self._met or ())})
        return MissingField(
            f"field {' or '.join(want.sources)!r} is missing (there are: {', '.join(there) or 'none'}); "
            f"select {want.name + '?'!r} if it may be absent",
            shard=self._shard,
            key=key,
        )
