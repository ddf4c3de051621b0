"""The decoder of tf.train.Example: a serialized Example becomes a dict of values.

An Example is a list of entries. Each entry has a name and a feature. The payload of an entry is the bytes of the
feature's values. The head of an entry is all its bytes before the payload. `features/__init__.py` describes the wire
format.

Most Examples of one file have the same heads. So the decoder caches heads, and keeps the lengths of the heads in the
last Example that it parsed. `decode` assumes that the heads of the next Example have these lengths, and looks up
these heads in the cache. If a head is not in the cache, or the entries do not fill the Example, `_parse` parses the
whole Example.

In this module, a field is a field of a protobuf message. This module must not use a schema.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ais_tar2tf.errors import MalformedExample
from ais_tar2tf.values.features.feature_lists import BYTES, FLOATS, INTEGERS
from ais_tar2tf.values.features.varint import integers, read, varint

__all__ = ["decode"]

_MAX_CACHED = 16_384  # the most items of each cache; a full cache of heads takes about 4 MB, and at most 16 MB
_LONGEST_HEAD = 1_024  # bytes; longer heads are not cached
# A tag is the number of a field, shifted left by three bits, plus the wire type.
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIELD_1, _FIELD_2 = 1 << 3 | _DELIMITED, 2 << 3 | _DELIMITED
_FIELD_1_VARINT, _FIELD_1_FIXED32 = 1 << 3 | _VARINT, 1 << 3 | _FIXED32
_LIST_TAGS = {kind << 3 | _DELIMITED: kind for kind in (BYTES, FLOATS, INTEGERS)}

_FLOAT32, _from_buffer = np.dtype("<f4"), np.frombuffer

# A cache of integer arrays, by payload, for payloads of at most `_SHORT_BYTES` bytes. Such payloads are mostly
# labels, which repeat. The cached arrays are read-only, because results share them.
_SHORT_BYTES = 4  # enough for two numbers up to 16,383, or for one number up to 268 million
_short: dict[bytes, Any] = {}

_prefixes: dict[int, bytes] = {}  # all bytes of an Example before its first entry, by the length of the Example
# The cache of heads. For each head, it has the name and the kind of the feature, and the length of the payload. Only
# heads of entries with a single payload (a value of bytes, or packed numbers) at the end of the entry are cached.
_known: dict[bytes, tuple[str, int, int]] = {}
_layout: list[tuple[int, ...]] = [()]  # the lengths of the heads in the last Example that was parsed


def decode(data: bytes) -> dict[str, Any]:
    """Decode a serialized tf.train.Example.

    Args:
        data: The serialized Example.

    Returns:
        A dict from the name of each feature to its value: a list of bytes, a float32 array, or an int64 array. The
        value of a feature without a list is []. Arrays that share memory with `data` or with other results are
        read-only.

    Raises:
        MalformedExample: `data` is not a tf.train.Example.

    >>> decode(bytes.fromhex("0a100a0e0a056c6162656c12051a030a0103"))
    {'label': array([3])}
    """
    if type(data) is not bytes:
        data = bytes(data)
    end = len(data)
    prefix = _prefixes.get(end) or _new_prefix(end)
    if not data.startswith(prefix):
        return _parse(data)
    at = len(prefix)
    features: dict[str, Any] = {}
    known, short = _known.get, _short.get
    for length in _layout[0]:
        entry = known(data[at : at + length])
        if entry is None:
            break
        name, kind, size = entry
        at += length
        stop = at + size
        if kind == BYTES:
            features[name] = [data[at:stop]]
        elif kind == FLOATS:
            if stop > end:
                break
            features[name] = _from_buffer(data, _FLOAT32, size >> 2, at)
        else:
            payload = data[at:stop]
            array = short(payload)
            features[name] = _integers(payload, at) if array is None else array
        at = stop
    if at == end and len(features) == len(_layout[0]):
        return features
    return _parse(data)


def _integers(payload: bytes, offset: int) -> Any:
    array = integers(payload, offset)
    if len(payload) <= _SHORT_BYTES:
        if len(_short) >= _MAX_CACHED:
            _short.clear()
        array.setflags(write=False)
        _short[payload] = array
    return array


def _new_prefix(length: int) -> bytes:
    """Return and cache the prefix of an Example of `length` bytes: the tag and the length of its Features message.

    An Example begins with this prefix if the Features message is the only field of the Example.
    """
    head = b""
    for width in range(1, 6):
        head = b"\x0a" + varint(max(0, length - 1 - width))
        if len(head) == 1 + width:
            break
    if len(_prefixes) >= _MAX_CACHED:
        _prefixes.clear()
    _prefixes[length] = head
    return head


class _Message:
    """A cursor over the fields of one protobuf message, which is `data[at:end]`."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end

    def next_tag(self) -> int:
        tag, self.at = read(self.data, self.at, self.end)
        if tag >> 3 == 0 or tag >> 32:
            raise MalformedExample("a field with an impossible number", offset=self.at)
        return tag

    def next_span(self) -> tuple[int, int]:
        """Return the offsets at which the next length-delimited value begins and ends, and skip the value."""
        size, begin = read(self.data, self.at, self.end)
        if size > self.end - begin:
            raise MalformedExample(f"a value of {size:,} bytes where {self.end - begin:,} are left", offset=begin)
        self.at = begin + size
        return begin, self.at

    def skip(self, tag: int) -> None:
        """Skip the value of an unknown field."""
        wire = tag & 7
        if wire == _DELIMITED:
            self.next_span()
        elif wire == _VARINT:
            _, self.at = read(self.data, self.at, self.end)
        elif wire in (_FIXED64, _FIXED32):
            self.next_fixed(8 if wire == _FIXED64 else 4)
        else:
            raise MalformedExample(f"wire type {wire} is not used by tf.train.Example", offset=self.at)

    def next_fixed(self, size: int) -> bytes:
        begin = self.at
        if begin + size > self.end:
            raise MalformedExample(f"a value of {size} bytes is cut", offset=begin)
        self.at = begin + size
        return self.data[begin : self.at]


def _parse(data: bytes) -> dict[str, Any]:
    """Decode any Example by parsing all its bytes, and cache its heads for later Examples."""
    features: dict[str, Any] = {}
    heads: list[int] = []
    example = _Message(data, 0, len(data))
    while example.at < example.end:
        if (tag := example.next_tag()) != _FIELD_1:
            example.skip(tag)
            continue
        entries = _Message(data, *example.next_span())
        while entries.at < entries.end:
            entry_at = entries.at
            if (tag := entries.next_tag()) != _FIELD_1:
                entries.skip(tag)
                continue
            name, value, head_bytes = _parse_entry(_Message(data, *entries.next_span()), entry_at)
            features[name] = value
            heads.append(head_bytes)
    _layout[0] = tuple(heads) if len(heads) == len(features) and 0 not in heads else ()
    return features


def _parse_entry(entry: _Message, entry_at: int) -> tuple[str, Any, int]:
    """Return the name and the value of an entry, and the length of its head, or 0 if this head cannot be cached.

    `entry` is the content of the entry. `entry_at` is the offset of the tag before it, where the head begins.
    """
    name, feature = "", _Feature(entry.data)
    fields = 0
    while entry.at < entry.end:
        tag = entry.next_tag()
        fields += 1
        if tag == _FIELD_1:
            begin, end = entry.next_span()
            name = _name(entry.data, begin, end)
        elif tag == _FIELD_2:
            feature.add(_Message(entry.data, *entry.next_span()))
        else:  # protobuf would silently drop the whole entry
            raise MalformedExample("a feature has something else besides a name and values", offset=entry.at)
    begin, size = feature.single_payload
    is_regular = (
        fields == 2
        and 0 < size == entry.end - begin
        and b"\x12" in entry.data[entry_at:begin]  # false only if the feature's tag (_FIELD_2) takes several bytes
        and not (feature.kind == FLOATS and size % 4)
        and begin - entry_at <= _LONGEST_HEAD
    )
    if not is_regular:
        return name, feature.value, 0
    if len(_known) >= _MAX_CACHED:
        _known.clear()
    _known[entry.data[entry_at:begin]] = (name, feature.kind, size)
    return name, feature.value, begin - entry_at


def _name(data: bytes, begin: int, end: int) -> str:
    try:
        return data[begin:end].decode()
    except UnicodeDecodeError:
        raise MalformedExample("a feature's name is not UTF-8", offset=begin) from None


class _Feature:
    """The value of one feature.

    Encoders write one list. If there are several, a list of the same kind as the list before it adds its values, and
    a list of another kind replaces all values before it.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.kind = BYTES
        self._values: list[Any] = []
        self.single_payload = (0, 0)  # offset and size of the only payload; (0, 0) if there is none, or more than one

    def add(self, feature: _Message) -> None:
        while feature.at < feature.end:
            tag = feature.next_tag()
            if tag not in _LIST_TAGS:
                feature.skip(tag)
                continue
            if _LIST_TAGS[tag] != self.kind:
                self.kind, self._values = _LIST_TAGS[tag], []
            self._add_list(_Message(self._data, *feature.next_span()))

    def _add_list(self, values: _Message) -> None:
        while values.at < values.end:
            tag = values.next_tag()
            if tag == _FIELD_1:
                begin, end = values.next_span()
                self.single_payload = (begin, end - begin) if not self._values else (0, 0)
                self._values.append(self._payload(begin, end))
                continue
            self.single_payload = (0, 0)
            if tag == _FIELD_1_FIXED32 and self.kind == FLOATS:
                self._values.append(np.frombuffer(values.next_fixed(4), _FLOAT32))
            elif tag == _FIELD_1_VARINT and self.kind == INTEGERS:
                number, values.at = read(self._data, values.at, values.end)
                self._values.append(np.array([number], np.uint64).view(np.int64))
            else:
                values.skip(tag)

    def _payload(self, begin: int, end: int) -> Any:
        """Return the payload between two offsets: bytes, or an array of packed numbers."""
        if self.kind == BYTES:
            return self._data[begin:end]
        if self.kind == INTEGERS:
            return _integers(self._data[begin:end], begin)
        if (end - begin) % 4:
            raise MalformedExample("floats take four bytes each", offset=begin)
        return np.frombuffer(self._data, _FLOAT32, (end - begin) // 4, begin)

    @property
    def value(self) -> Any:
        if self.kind == BYTES:
            return self._values
        if len(self._values) == 1:
            return self._values[0]
        return (
            np.concatenate(self._values)
            if self._values
            else np.zeros(0, _FLOAT32 if self.kind == FLOATS else np.int64)
        )
