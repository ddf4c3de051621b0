"""Records → the bytes that a file holds of each. What a worker process needs of this survives pickling."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ais_tar2tf.account import Account
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.export.framing import frame
from ais_tar2tf.export.tarfiles import record_members
from ais_tar2tf.mapping import mapping_error
from ais_tar2tf.records import Record

__all__ = ["Serializer", "encode_raw", "serialized"]

_SMALL_VARINTS = 1 << 14


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_VARINTS = [_varint(number) for number in range(_SMALL_VARINTS)]


@functools.lru_cache(1024)
def _name_entry(name: str) -> bytes:
    encoded = name.encode("utf-8", "surrogateescape")
    return b"\x0a" + _varint(len(encoded)) + encoded


@functools.lru_cache(8192)
def _bytes_prefix(name: str, size: int) -> bytes:
    """All of a feature's entry but its value, which has `size` bytes and stands last."""
    body = b"\x0a" + _varint(size)
    listed = b"\x0a" + _varint(len(body) + size) + body
    feature = _name_entry(name) + b"\x12" + _varint(len(listed) + size) + listed
    return b"\x0a" + _varint(len(feature) + size) + feature


def encode_raw(record: Record) -> bytes:
    """A serialized tf.train.Example of a record's key and its fields, each as bytes; not of its shard."""
    parts: list[bytes] = [b""]
    total = 0
    for name, value in record.items():
        if name == "__shard__":
            continue
        body: bytes = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
        prefix = _bytes_prefix(name, len(body))
        parts += (prefix, body)
        total += len(prefix) + len(body)
    parts[0] = b"\x0a" + (_VARINTS[total] if total < _SMALL_VARINTS else _varint(total))
    return b"".join(parts)


def serialized(example: Any) -> bytes:
    """A tf.train.Example, its bytes, or a dict of values, as bytes."""
    from ais_tar2tf import features

    if isinstance(example, bytes):
        return example
    if isinstance(example, dict):
        return features.encode(example)
    if hasattr(example, "SerializeToString"):
        return example.SerializeToString()
    raise TypeError(
        f"record_to_example returned {type(example).__name__}; a tf.train.Example, its bytes or a dict is expected"
    )


@dataclass(frozen=True)
class Serializer:
    """From a record to its bytes in a file of the kind `kind`.

    `encode` gives a tf.train.Example's bytes; for a tar, `change` gives the record that is written.
    """

    kind: str
    encode: Callable[[Record], Any] | None = None

    def units(
        self, records: Sequence[Record], account: Account
    ) -> tuple[list[bytes | None], list[bytes | None] | None]:
        """The bytes of each record, None where it failed and `on_error` said to skip it; and the Examples in them.

        Where fields are written as they are, there is no need to look into the Examples again: None.
        """
        payloads = [self._payload_or_none(record, account) for record in records] if self._may_fail else None
        if payloads is None:
            raw = map(encode_raw, records)
            return list(map(frame, raw)) if self.kind == "tfrecord" else list(raw), None
        if self.kind == "tfrecord":
            return [None if payload is None else frame(payload) for payload in payloads], payloads
        return payloads, (None if self.kind == "tar" else payloads)

    @property
    def _may_fail(self) -> bool:
        return self.encode is not None or self.kind == "tar"

    def _payload(self, record: Record) -> bytes:
        if self.kind == "tar":
            return record_members(record if self.encode is None else _as_record(self.encode(record), record))
        assert self.encode is not None
        return serialized(self.encode(record))

    def _payload_or_none(self, record: Record, account: Account) -> bytes | None:
        try:
            return self._payload(record)
        except Tar2TFError as error:
            account.take_back(error)
        except Exception as error:  # noqa: BLE001  # whatever a user's function raises
            account.take_back(mapping_error(error, record))
        return None


def _as_record(changed: Any, record: Record) -> Record:
    if not isinstance(changed, dict):
        raise TypeError(f"for a tar, a record's fields are expected, a dict of bytes, not {type(changed).__name__}")
    return {"__key__": record["__key__"], **changed}
