"""What stood in the records that were written: the kind of each feature, how many values, in how many records.

It costs constant memory, and what was seen of two shards can be added up: the order does not matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ais_tar2tf import features
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.records import Record

__all__ = ["KINDS", "Observed", "Seen"]

KINDS = ("bytes", "float", "int64")


@dataclass(slots=True)
class Seen:
    """One feature: its kind, the fewest and most values in a record, and in how many records it was."""

    kind: str
    least: int
    most: int
    records: int

    def add(self, other: Seen, name: str) -> None:
        if self.kind != other.kind and self.most and other.most:
            raise SchemaError(f"feature {name!r} is {self.kind} in one record and {other.kind} in another")
        self.kind = self.kind if self.most else other.kind
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)
        self.records += other.records


@dataclass
class Observed:
    records: int = 0
    features: dict[str, Seen] = field(default_factory=dict[str, Seen])

    def raw(self, records: Iterable[Record]) -> None:
        """Records whose fields are written as bytes, each as one value."""
        for names, count in Counter(map(tuple, records)).items():
            self.records += count
            for name in names:
                if name != "__shard__":
                    self._see(name, Seen("bytes", 1, 1, count))

    def examples(self, payloads: Iterable[bytes]) -> None:
        """Serialized tf.train.Examples."""
        for payload in payloads:
            self.records += 1
            for name, values in features.decode(payload).items():
                self._see(name, Seen(_kind(values), len(values), len(values), 1))

    def _see(self, name: str, seen: Seen) -> None:
        known = self.features.get(name)
        if known is None:
            self.features[name] = seen
        else:
            known.add(seen, name)

    def add(self, other: Observed) -> None:
        self.records += other.records
        for name, seen in other.features.items():
            self._see(name, Seen(seen.kind, seen.least, seen.most, seen.records))

    def to_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "features": {
                name: [seen.kind, seen.least, seen.most, seen.records] for name, seen in sorted(self.features.items())
            },
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Observed:
        return cls(data["records"], {name: Seen(*seen) for name, seen in data["features"].items()})


def _kind(values: Sequence[Any] | Any) -> str:
    if isinstance(values, list):
        return "bytes"
    return "float" if values.dtype.kind == "f" else "int64"
