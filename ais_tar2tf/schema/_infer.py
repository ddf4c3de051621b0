"""A schema out of records, one after the other, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import Limits
from ais_tar2tf.records import NAMES
from ais_tar2tf.schema._field import Field
from ais_tar2tf.schema._kinds import LABEL_FIELDS, extension_of
from ais_tar2tf.schema._observe import label_text, observe
from ais_tar2tf.schema._schema import Schema

__all__ = ["Inference", "infer"]


class _Seen:
    """What was seen of one field: its type so far, in how many records, and its words if it is a label."""

    def __init__(self, is_label: bool) -> None:
        self.field: Field | None = None
        self.records = 0
        self.words: set[str] | None = set() if is_label else None


class Inference:
    """Records in, their schema out: `add` as many as there are, `schema` at any time.

    Labels get a vocabulary: fields called `cls`, `label`, `class` or `category`, and those in `labels`, when their
    texts are no numbers and there are at most `Limits.vocabulary` different ones.

    >>> inference = Inference()
    >>> inference.add({"jpg": b"GIF89a" + bytes([40, 0, 30, 0, 0, 0, 0]), "cls": b"7"})
    >>> print(inference.schema["cls"])
    cls: int64, text
    """

    def __init__(self, *, labels: Iterable[str] = (), limits: Limits | None = None) -> None:
        self._labels = frozenset(labels)
        self._limits = limits or Limits()
        self._seen: dict[str, _Seen] = {}
        self.records = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Take one record into account; a SchemaError names one that does not fit, and nothing changes."""
        changes: list[tuple[_Seen, Field]] = []
        for name, value in record.items():
            if name in NAMES:
                continue
            seen = self._seen.get(name) or self._begin(name)
            try:
                found = observe(name, value)
                if found is None:
                    continue
                before = seen.field
                field = found if before is None or before == found else before.merge(found)
            except SchemaError as error:
                raise _naming(error, record) from error
            changes.append((seen, field))
            if seen.words is not None:
                self._note_word(seen, value)
        for seen, field in changes:
            seen.field = field
            seen.records += 1
        self.records += 1

    def _begin(self, name: str) -> _Seen:
        if len(self._seen) >= self._limits.fields:
            raise SchemaError(f"records have over {self._limits.fields:,} different fields, Limits.fields")
        is_label = name in self._labels or extension_of(name) in LABEL_FIELDS
        return self._seen.setdefault(name, _Seen(is_label))

    def _note_word(self, seen: _Seen, value: Any) -> None:
        word = label_text(value)
        assert seen.words is not None
        if word is None or len(word) > self._limits.label_chars:
            seen.words = None
            return
        seen.words.add(word)
        if len(seen.words) > self._limits.vocabulary:
            seen.words = None

    @property
    def schema(self) -> Schema:
        """What the records so far are."""
        fields = [self._finished(seen) for seen in self._seen.values() if seen.field is not None]
        return Schema(tuple(fields), records=self.records)

    def _finished(self, seen: _Seen) -> Field:
        field = seen.field
        assert field is not None
        words = tuple(sorted(seen.words)) if seen.words and field.dtype == "string" and not field.shape else None
        return replace(field, optional=seen.records < self.records, vocabulary=words)


def _naming(error: SchemaError, record: Mapping[str, Any]) -> SchemaError:
    if "__key__" not in record:
        return SchemaError(str(error))
    return SchemaError(f"{record.get('__shard__', '')}, record {record['__key__']!r}: {error}".removeprefix(", "))


def infer(records: Iterable[Mapping[str, Any]], *, limits: Limits | None = None) -> Schema:
    """The schema of all of `records`."""
    inference = Inference(limits=limits)
    for record in records:
        inference.add(record)
    return inference.schema
