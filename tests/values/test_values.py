"""Decoding JSON, msgpack, arrays and headers needs bounded time and memory, and every error is ours."""

from __future__ import annotations

import io
import json
import struct
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

import ais_tar2tf as t2t
from ais_tar2tf.base.documents.parsing import json_value, msgpack_value
from ais_tar2tf.cli.card.audio import audio_header
from ais_tar2tf.cli.card.samples import SampleReservoir
from ais_tar2tf.errors import SchemaError, Tar2TFError
from ais_tar2tf.options import KIB, MIB, Card
from ais_tar2tf.stores.memory import MemoryStore
from ais_tar2tf.values.arrays import decode_npy, decode_npz
from ais_tar2tf.values.decoders import Decoder
from ais_tar2tf.values.file_headers import array_header, image_header
from tests.support import shards as made


def costs(act: Callable[[], Any]) -> tuple[float, int]:
    """Check that a block stays within bounds of CPU seconds and bytes of memory."""
    tracemalloc.start()
    try:
        began = time.process_time()
        act()
        return time.process_time() - began, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# JSON and msgpack

VALUE = {"a": [1, 2.5, None, True, "ü", {"b": []}], "c": {}}
LARGE = {"boxes": [{"x": number, "y": [number, -number], "label": "a name"} for number in range(20_000)]}


@pytest.mark.parametrize("value", [VALUE, LARGE, [], 3, "text", None])
def test_written_documents_are_read(value: Any) -> None:
    assert json_value(json.dumps(value).encode()) == value
    assert msgpack_value(msgpack.packb(value)) == value


def test_json_in_the_encodings_that_json_has() -> None:
    for encoding in ("utf-8", "utf-16", "utf-32", "utf-8-sig"):
        assert json_value(json.dumps(VALUE, ensure_ascii=False).encode(encoding)) == VALUE


WRONG_JSON = {
    "nothing": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe\xff",
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested a little": b"[" * 300 + b"]" * 300,
    "crowded": b"[" + b"{}," * 1_000_000 + b"{}]",
    "a number without an end": b"9" * 100_000,
}
WRONG_MSGPACK = {
    "nothing": b"",
    "cut": b"\x92\x01",
    "more behind it": b"\x01\x01",
    "no text": b"\xa1\xff",
    "nested": b"\x91" * 100_000 + b"\x01",
    "nested a little": b"\x91" * 300 + b"\x01",
    "crowded": b"\xdd" + struct.pack(">I", 3_000_000) + b"\x90" * 3_000_000,
    "lists that state more than there is": (b"\xdd" + struct.pack(">I", 2**20)) * 500 + bytes(MIB),
    "a key that is none": b"\x81\x90\x01",
    "a time that is none": b"\xd7\xff" + b"\xff" * 8,
}


@pytest.mark.parametrize("data", WRONG_JSON.values(), ids=WRONG_JSON)
def test_malformed_json_is_refused(data: bytes) -> None:
    def read() -> None:
        with pytest.raises(SchemaError):
            Decoder("json")(data)

    seconds, memory = costs(read)
    assert seconds < 5
    assert memory < 64 * MIB


@pytest.mark.parametrize("data", WRONG_MSGPACK.values(), ids=WRONG_MSGPACK)
def test_malformed_msgpack_is_refused(data: bytes) -> None:
    def read() -> None:
        with pytest.raises(SchemaError):
            Decoder("msgpack")(data)

    seconds, memory = costs(read)
    assert seconds < 5
    assert memory < 64 * MIB


def test_values_that_are_too_large() -> None:
    for read, data in ((json_value, b"[1, 2, 3]"), (msgpack_value, b"\x93\x01\x02\x03")):
        with pytest.raises(SchemaError, match=r"Limits\.value_bytes"):
            read(data, 3)


def test_the_limit_of_a_text_is_in_bytes() -> None:
    for text, size in (('["a"]', 5), ('["ä"]', 6), ('["\U0001f600"]', 8), ('["\ud800"]', 7)):
        assert json_value(text, size) == [text[2:3]]
        with pytest.raises(SchemaError, match=rf"JSON of {size} bytes passes the limit of {size - 1}"):
            json_value(text, size - 1)


def test_a_record_names_itself_when_its_json_is_hostile() -> None:
    store = MemoryStore("hostile-values")
    store.put("a.tar", made.tar([("k", {"json": b"[" * 100_000})]))
    with t2t.open(store.url("a.tar")) as source, pytest.raises(Tar2TFError, match="'k'"):
        list(source.records(decode={"json": "json"}))


# Arrays


def _npz(method: int, stated: int, content: bytes) -> bytes:
    """Return a zip of one member with a false size."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as file:
        file.writestr("a.npy", content)
    data = bytearray(out.getvalue())
    entry = data.rfind(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", stated)
    return bytes(data)


def test_an_array_that_expands_beyond_its_stated_size() -> None:
    data = _npz(zipfile.ZIP_DEFLATED, 10, bytes(64 * MIB))

    def read() -> None:
        with pytest.raises(SchemaError):
            decode_npz(data)

    assert costs(read)[1] < 4 * MIB


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_that_numpy_never_writes(method: int) -> None:
    """Python's zipfile decompresses these methods without a limit."""
    with pytest.raises(SchemaError, match="neither stored nor deflated"):
        decode_npz(_npz(method, 128, bytes(4 * MIB)))


def test_an_npz_with_too_many_entries() -> None:
    entry = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    count = 200_000
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0, 0, count * len(entry), 0, 0)
    data = entry * count + end

    def read() -> None:
        with pytest.raises(SchemaError, match=r"Limits\.fields"):
            decode_npz(data)

    assert costs(read)[1] < 4 * MIB


def _npy(header: str, body: bytes = b"") -> bytes:
    written = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(written)) + written + body


HEADERS = [
    "{'descr': '<f4', 'shape': (1,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1e999,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 100 + ")}",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (0, " + "9" * 100 + ")}",
    "{'descr': 'O', 'fortran_order': False, 'shape': (1,)}",
    "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
    "[" * 5_000,
    "('descr',)",
    "",
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_an_invalid_array_header(header: str) -> None:
    data = _npy(header, bytes(100))
    assert array_header(data) is None
    if "('a'" not in header:
        with pytest.raises(SchemaError):
            decode_npy(data)


def test_a_valid_array_header() -> None:
    header = array_header(_npy("{'descr': '>i2', 'fortran_order': True, 'shape': (0, 3)}"))
    assert header is not None
    assert (header.dtype, header.shape, header.fortran_order) == ("int16", (0, 3), True)


# Headers of images and sounds

JPEG_END = b"\xff\xc0" + struct.pack(">HBHHB", 11, 8, 20, 30, 3) + bytes(9)
LONG: dict[str, bytes] = {
    "fill": b"\xff\xd8\xff" + b"\xff" * (64 * MIB),
    "markers without a length": b"\xff\xd8" + b"\xff\xd0" * (32 * MIB),
    "empty segments": b"\xff\xd8" + b"\xff\xe0\x00\x02" * (16 * MIB),
    "empty chunks": made.image(1, "PNG")[:25] + b"\x03" + bytes(7) + (bytes(4) + b"aaaa" + bytes(4)) * (5 * MIB),
}


@pytest.mark.parametrize("data", LONG.values(), ids=LONG)
def test_an_endless_header(data: bytes) -> None:
    found: list[object] = []
    seconds, _ = costs(lambda: found.append(image_header(data)))
    assert found == [None]
    assert seconds < 0.5


def test_fill_before_a_marker_and_segments_of_profiles() -> None:
    profile = b"\xff\xe2\xff\xff" + bytes(65_533)
    header = image_header(b"\xff\xd8" + profile * 300 + b"\xff\xff\xff" + JPEG_END)
    assert header is not None
    assert (header.height, header.width, header.channels) == (20, 30, 3)


def test_a_sound_with_an_endless_header() -> None:
    data = b"RIFF\xff\xff\xff\x7fWAVE" + b"JUNK\0\0\0\0" * (4 * MIB)
    found: list[object] = []
    seconds, _ = costs(lambda: found.append(audio_header(data)))
    assert found == [None]
    assert seconds < 2


# The card


def _png(width: int, height: int) -> bytes:
    """Return a black PNG with one bit per pixel, in which a hundred million pixels need 12 KB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    line = bytes(1 + (width + 7) // 8)
    packed = b"".join(packer.compress(line * 100) for _ in range(height // 100)) + packer.flush()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def _sample(data: bytes, limits: Card) -> Any:
    samples = SampleReservoir(limits)
    samples.add({"__key__": "k", "__shard__": "s", "png": data})
    return samples.samples[0].fields[0]


@pytest.mark.parametrize("shown_as_it_is", [True, False])
def test_an_image_of_many_pixels_is_not_decoded(shown_as_it_is: bool) -> None:
    """An image of many pixels is decoded neither by us nor by the browser that shows the card."""
    data = _png(20_000, 20_000)
    shown: list[Any] = []
    limits = Card(media_bytes=MIB if shown_as_it_is else KIB)
    _, memory = costs(lambda: shown.append(_sample(data, limits)))
    assert (shown[0].form, shown[0].content) == ("none", None)
    assert "20000×20000, more pixels than are decoded for a card (Card.pixels)" in shown[0].note
    assert memory < 8 * MIB


def test_an_image_with_more_pixels_than_its_first_header_states() -> None:
    """What Pillow would decode counts: a PNG with a second IHDR, or a format that hides behind a mark."""
    pytest.importorskip("PIL")
    assert _sample(_png(200, 200), Card(media_bytes=100)).form == "image"
    assert _sample(_png(200, 200), Card(media_bytes=100, pixels=200 * 199)).form == "none"


def test_arrays_with_invalid_shapes_are_shown_as_bytes() -> None:
    for header in HEADERS:
        assert _sample(_npy(header, bytes(100)), Card()).form in ("none", "text")


def test_an_array_is_shown_on_the_card() -> None:
    out = io.BytesIO()
    np.save(out, np.arange(12.0).reshape(3, 4))
    assert _sample(out.getvalue(), Card()).form == "image"
