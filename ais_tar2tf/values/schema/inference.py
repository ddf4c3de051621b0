"""`Inference` infers a schema from records, one record after another, in bounded memory.

This module must not hold records, and must not do I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import Limits
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.values.schema.field import Field
from ais_tar2tf.values.schema.kinds import LABEL_FIELDS, extension_of
from ais_tar2tf.values.schema.observation import label_text, observe
from ais_tar2tf.values.schema.schema import Schema, record_prefix

__all__ = ["Inference", "infer"]


class _Summary:
    """A summary of one field: a `Field` that fits all values, the number of values, and a vocabulary."""

    def __init__(self, *, is_label: bool) -> None:
        self.field: Field | None = None
        self.records = 0
        # The different values, if they may become the vocabulary of the field; None: the field gets no vocabulary.
        self.words: set[str] | None = set() if is_label else None

    def add(self, field: Field, value: Any, limits: Limits) -> None:
        """Add a value. `field` describes this value and all values before it."""
        self.field = field
        self.records += 1
        if self.words is None:
            return
        word = label_text(value)
        if word is None or len(word) > limits.label_chars:
            self.words = None
            return
        self.words.add(word)
        if len(self.words) > limits.vocabulary:
            self.words = None


class Inference:
    """Infers the schema of records. Call `add` with each record. `schema` is available at any time.

    A field gets a vocabulary, the list of its different values, if all of these conditions are true:

    * The extension of the field is `cls`, `label`, `class` or `category`, or its name is in `labels`.
    * Its values are texts, not numbers, of at most `Limits.label_chars` characters.
    * It has at most `Limits.vocabulary` different values.

    >>> inference = Inference()
    >>> inference.add({"jpg": b"GIF89a" + bytes([40, 0, 30, 0, 0, 0, 0]), "cls": b"7"})
    >>> print(inference.schema["cls"])
    cls: int64, text
    """

    def __init__(self, *, labels: Iterable[str] = (), limits: Limits | None = None) -> None:
        """Begin without records.

        Args:
            labels: Names of fields that hold labels.
            limits: The limits of fields, and of words in a vocabulary.
        """
        self._labels = frozenset(labels)
        self._limits = limits or Limits()
        self._summaries: dict[str, _Summary] = {}
        self.records = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Merge the values of one record into the schema. An error leaves the schema unchanged.

        Args:
            record: The record.

        Raises:
            SchemaError: A value has no type that a schema can state, or it does not fit the earlier values of its
                field; the error names the record. Or the records have more fields than `Limits.fields`.
        """
        merged: list[tuple[_Summary, Field, Any]] = []
        new: dict[str, _Summary] = {}
        for name, value in record.items():
            if name in KEY_AND_SHARD:
                continue
            summary = self._summaries.get(name)
            if summary is None:
                summary = new[name] = self._new_summary(name, len(new))
            try:
                observed = observe(name, value)
                if observed is None:
                    continue
                known = summary.field
                field = observed if known is None or known == observed else known.merge(observed)
            except SchemaError as error:
                raise SchemaError(f"{record_prefix(record)}{error}") from error
            merged.append((summary, field, value))
        self._summaries.update(new)
        for summary, field, value in merged:
            summary.add(field, value, self._limits)
        self.records += 1

    def _new_summary(self, name: str, others: int) -> _Summary:
        """Return the summary of a new field. `others` is the number of new fields before it in the same record."""
        if len(self._summaries) + others >= self._limits.fields:
            raise SchemaError(f"records have over {self._limits.fields:,} different fields, Limits.fields")
        is_label = name in self._labels or extension_of(name) in LABEL_FIELDS
        return _Summary(is_label=is_label)

    @property
    def schema(self) -> Schema:
        """The schema of the records that were added so far."""
        fields = [self._finished(summary) for summary in self._summaries.values() if summary.field is not None]
        return Schema(tuple(fields), records=self.records)

    def _finished(self, summary: _Summary) -> Field:
        field = summary.field
        assert field is not None
        has_vocabulary = summary.words and field.dtype == "string" and not field.shape
        words = tuple(sorted(summary.words or ())) if has_vocabulary else None
        return replace(field, optional=summary.records < self.records, vocabulary=words)


def infer(records: Iterable[Mapping[str, Any]], *, limits: Limits | None = None) -> Schema:
    """Infer the schema of records.

    Args:
        records: The records. All of them are read.
        limits: The limits of fields, and of words in a vocabulary.

    Raises:
        SchemaError: A value does not fit the earlier values of its field, or the records have more fields than
            `Limits.fields`.
    """
    inference = Inference(limits=limits)
    for record in records:
        inference.add(record)
    return inference.schema
