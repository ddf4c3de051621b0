"""Statistics of the features in the records of one split. The schema of an export is made from these statistics.

The size of the statistics does not grow with the number of records. The statistics of several shards can be added in
any order. This module must not read shards or write files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import Records
from ais_tar2tf.values import features
from ais_tar2tf.values.schema import Field, Schema

__all__ = ["FeatureStatistics", "SplitStatistics"]

_DTYPES = {"bytes": "bytes", "float": "float32", "int64": "int64"}


@dataclass(slots=True)
class FeatureStatistics:
    """Statistics of one feature."""

    kind: str  # "bytes", "float" or "int64"
    min_values: int  # the smallest number of values in a record
    max_values: int  # the largest number of values in a record
    records: int  # the number of records that have the feature

    def add(self, other: FeatureStatistics, name: str) -> None:
        """Add statistics of the same feature in other records. `name` is the name of the feature, for errors."""
        if self.kind != other.kind and self.max_values and other.max_values:
            raise SchemaError(f"feature {name!r} is {self.kind} in one record and {other.kind} in another")
        self.kind = self.kind if self.max_values else other.kind
        self.min_values = min(self.min_values, other.min_values)
        self.max_values = max(self.max_values, other.max_values)
        self.records += other.records


@dataclass
class SplitStatistics:
    """Statistics of all features in the records of one split, or in some of these records."""

    records: int = 0
    features: dict[str, FeatureStatistics] = field(default_factory=dict[str, FeatureStatistics])

    def add_raw(self, records: Records, kept: Sequence[int]) -> None:
        """Add the records with the numbers `kept`. Each field is written as one value of type bytes."""
        entries = records.entries
        if entries is not None:
            counts = {tuple(entries): len(kept)} if kept else {}
        else:
            counts = Counter(tuple(records[at]) for at in kept)
        for names, count in counts.items():
            self.records += count
            for name in names:
                if name != "__shard__":
                    self._merge(name, FeatureStatistics("bytes", 1, 1, count))

    def add_examples(self, payloads: Iterable[bytes]) -> None:
        """Add records that are serialized tf.train.Examples."""
        for payload in payloads:
            self.records += 1
            for name, values in features.decode(payload).items():
                self._merge(name, FeatureStatistics(_kind(values), len(values), len(values), 1))

    def _merge(self, name: str, feature: FeatureStatistics) -> None:
        merged = self.features.get(name)
        if merged is None:
            self.features[name] = feature
        else:
            merged.add(feature, name)

    def add(self, other: SplitStatistics) -> None:
        """Add statistics of other records of the same split."""
        self.records += other.records
        for name, feature in other.features.items():
            self._merge(name, replace(feature))  # a copy, because `_merge` may keep the object and change it later

    def schema(self) -> Schema:
        """Return the schema of the records that were added."""
        return Schema(
            tuple(_field(name, feature, self.records) for name, feature in sorted(self.features.items())),
            records=self.records,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as values for JSON."""
        return {
            "records": self.records,
            "features": {name: list(astuple(feature)) for name, feature in sorted(self.features.items())},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SplitStatistics:
        """Return the statistics that `to_json` described. The caller has checked `data`."""
        return cls(data["records"], {name: FeatureStatistics(*feature) for name, feature in data["features"].items()})


def _field(name: str, feature: FeatureStatistics, records: int) -> Field:
    dtype = "string" if name == "__key__" else _DTYPES[feature.kind]
    count = feature.max_values if feature.min_values == feature.max_values else None
    shape = () if count == 1 else (count,)
    return Field(name, dtype, shape, optional=feature.records < records)


def _kind(values: Any) -> str:
    if isinstance(values, list):
        return "bytes"
    return "float" if values.dtype.kind == "f" else "int64"
