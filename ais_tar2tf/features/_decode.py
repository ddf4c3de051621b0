"""A serialized tf.train.Example → named values. Heads of entries that were seen before are recognised as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from ais_tar2tf.errors import MalformedExample
from ais_tar2tf.features._values import BYTES, FLOATS, INTEGERS
from ais_tar2tf.features._varint import as_int64s, integers, read, varint

__all__ = ["decode"]

_REMEMBERED = 16_384  # heads of entries: some 4 MB, and 16 MB at most
_LONGEST_HEAD = 1_024  # bytes of one that is remembered
_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_LIST_TAGS = {kind << 3 | _DELIMITED: kind for kind in (BYTES, FLOATS, INTEGERS)}


# The arrays of short payloads, which are mostly labels; they are read-only, so that they can be shared.
_SHORT = 4  # bytes: two numbers up to 16,383, or one up to 268 million
_short: dict[bytes, Any] = {}
_F4, _from_buffer = np.dtype("<f4"), np.frombuffer

_outers: dict[int, bytes] = {}  # by a record's length: how it begins
# Entries whose list has one value or packed chunk that ends where the entry does: name, kind, payload's length.
_known: dict[bytes, tuple[str, int, int]] = {}
_layout: list[tuple[int, ...]] = [()]  # the lengths of the heads in the record that was read last


def decode(data: bytes) -> dict[str, Any]:
    """The features of a serialized tf.train.Example: a list of bytes, a float32 array or an int64 array each.

    Arrays are read-only where they need no copy. A feature without a value is an empty list of bytes.

    >>> decode(bytes.fromhex("0a100a0e0a056c6162656c12051a030a0103"))
    {'label': array([3])}
    """
    if type(data) is not bytes:
        data = bytes(data)
    end = len(data)
    outer = _outers.get(end) or _outer(end)
    if not data.startswith(outer):
        return _decode_slowly(data)
    at = len(outer)
    found: dict[str, Any] = {}
    known, short = _known.get, _short.get
    for length in _layout[0]:
        entry = known(data[at : at + length])
        if entry is None:
            break
        name, kind, size = entry
        at += length
        stop = at + size
        if kind == BYTES:
            found[name] = [data[at:stop]]
        elif kind == FLOATS:
            if stop > end:
                break
            found[name] = _from_buffer(data, _F4, size >> 2, at)
        else:
            payload = data[at:stop]
            array = short(payload)
            found[name] = _integers(payload, at) if array is None else array
        at = stop
    if at == end and len(found) == len(_layout[0]):
        return found
    return _decode_slowly(data)


def _integers(payload: bytes, offset: int) -> Any:
    array = integers(payload, offset)
    if len(payload) <= _SHORT:
        if len(_short) >= _REMEMBERED:
            _short.clear()
        array.setflags(write=False)
        _short[payload] = array
    return array


def _outer(length: int) -> bytes:
    """What a record of `length` bytes begins with, when it is one list of features and nothing else."""
    head = b""
    for width in range(1, 6):
        head = b"\x0a" + varint(max(0, length - 1 - width))
        if len(head) == 1 + width:
            break
    if len(_outers) >= _REMEMBERED:
        _outers.clear()
    _outers[length] = head
    return head


class _Message:
    """Walks the fields of one message in `data[at:end]`."""

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
        """Where a delimited value begins and ends."""
        size, begin = read(self.data, self.at, self.end)
        if size > self.end - begin:
            raise MalformedExample(f"a value of {size:,} bytes where {self.end - begin:,} are left", offset=begin)
        self.at = begin + size
        return begin, self.at

    def skip(self, tag: int) -> None:
        """A field that nobody knows."""
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


def _decode_slowly(data: bytes) -> dict[str, Any]:
    """Any record, and the layout of this one is remembered for the next."""
    found: dict[str, Any] = {}
    heads: list[int] = []
    example = _Message(data, 0, len(data))
    while example.at < example.end:
        if (tag := example.next_tag()) != 0x0A:
            example.skip(tag)
            continue
        entries = _Message(data, *example.next_span())
        while entries.at < entries.end:
            head = entries.at
            if (tag := entries.next_tag()) != 0x0A:
                entries.skip(tag)
                continue
            name, value, begin = _entry(_Message(data, *entries.next_span()), head)
            found[name] = value
            heads.append(begin - head)
    _layout[0] = tuple(heads) if len(heads) == len(found) and 0 not in heads else ()
    return found


def _entry(entry: _Message, head: int) -> tuple[str, Any, int]:
    """Name, value, and where the payload begins if the head is worth remembering, else `head`."""
    name, feature = "", _Feature(entry.data)
    fields = 0
    while entry.at < entry.end:
        tag = entry.next_tag()
        fields += 1
        if tag == 0x0A:
            begin, end = entry.next_span()
            name = _name(entry.data, begin, end)
        elif tag == 0x12:
            feature.add(_Message(entry.data, *entry.next_span()))
        else:  # protobuf would drop the whole entry without a word
            raise MalformedExample("beside its name and its values a feature has something else", offset=entry.at)
    begin, size = feature.only
    if fields != 2 or not size or begin + size != entry.end or entry.data[head:begin].find(b"\x12") < 0:
        return name, feature.value, head
    if feature.kind == FLOATS and size % 4:
        return name, feature.value, head
    if begin - head > _LONGEST_HEAD:
        return name, feature.value, head
    if len(_known) >= _REMEMBERED:
        _known.clear()
    _known[entry.data[head:begin]] = (name, feature.kind, size)
    return name, feature.value, begin


def _name(data: bytes, begin: int, end: int) -> str:
    try:
        return data[begin:end].decode()
    except UnicodeDecodeError:
        raise MalformedExample("a feature's name is not UTF-8", offset=begin) from None


class _Feature:
    """The value of one feature; a later list of another kind replaces what came before, one of the same kind adds."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.kind = BYTES
        self._values: list[Any] = []
        self.only = (0, 0)  # the one payload, when there is just one

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
            if tag == 0x0A:
                begin, end = values.next_span()
                self.only = (begin, end - begin) if not self._values else (0, 0)
                self._values.append(self._chunk(begin, end))
                continue
            self.only = (0, 0)
            if tag == 0x0D and self.kind == FLOATS:
                self._values.append(np.frombuffer(values.next_fixed(4), _F4))
            elif tag == 0x08 and self.kind == INTEGERS:
                number, values.at = read(self._data, values.at, values.end)
                self._values.append(as_int64s([number]))
            else:
                values.skip(tag)

    def _chunk(self, begin: int, end: int) -> Any:
        if self.kind == BYTES:
            return self._data[begin:end]
        if self.kind == INTEGERS:
            return _integers(self._data[begin:end], begin)
        if (end - begin) % 4:
            raise MalformedExample("floats take four bytes each", offset=begin)
        return np.frombuffer(self._data, _F4, (end - begin) // 4, begin)

    @property
    def value(self) -> Any:
        if self.kind == BYTES:
            return self._values
        if len(self._values) == 1:
            return self._values[0]
        return np.concatenate(self._values) if self._values else np.zeros(0, _F4 if self.kind == FLOATS else np.int64)
