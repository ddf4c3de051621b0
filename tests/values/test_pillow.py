"""Images of plain records, decoded by Pillow without TensorFlow, compared with TensorFlow."""

from __future__ import annotations

import functools
import io
import itertools
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageFile

import ais_tar2tf as t2t
from ais_tar2tf.errors import MappingError, SchemaError
from ais_tar2tf.values.decoders.pillow import pixels
from tests.support import shards as made

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # channels of PNG's colour types
_HEIGHT, _WIDTH = 13, 21


def picture(height: int = 48, width: int = 67, seed: int = 0) -> np.ndarray:
    """Return an image with smooth gradients and some noise, like a photograph."""
    rows, columns = np.mgrid[:height, :width]
    smooth = np.stack([127 + 100 * np.sin(columns / (7 + c)) * np.cos(rows / (5 + c)) for c in range(3)], -1)
    noise = np.random.default_rng(seed).normal(0, 8, smooth.shape)
    return (smooth + noise).clip(0, 255).astype(np.uint8)


def encoded(image: Any, image_format: str, mode: str = "RGB", **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).convert(mode).save(buffer, image_format, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(depth: int, colour: int, *, extra: bytes = b"", transparent: bool = False) -> bytes:
    """Return a PNG of random pixels, written chunk by chunk, because Pillow cannot write most of these types."""
    random = np.random.default_rng(depth * 8 + colour)
    row = -(-_WIDTH * depth * _CHANNELS[colour] // 8)
    rows = b"".join(b"\0" + random.bytes(row) for _ in range(_HEIGHT))
    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, depth, colour, 0, 0, 0)), extra]
    if colour == 3:
        parts.append(chunk(b"PLTE", random.bytes(3 << depth)))
    if transparent:
        parts.append(chunk(b"tRNS", {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: bytes([0, 128])}[colour]))
    return b"\x89PNG\r\n\x1a\n" + b"".join([*parts, chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")])


_PNGS = {
    f"depth {depth}, colour {colour}{', transparent' * transparent}": png(depth, colour, transparent=transparent)
    for colour, depth, transparent in itertools.product(_CHANNELS, (1, 2, 4, 8, 16), (False, True))
    if (depth >= 8 or colour in (0, 3)) and not (colour == 3 and depth == 16) and not (transparent and colour > 3)
}


def by_tensorflow(data: bytes, channels: int, dtype: str) -> Any:
    return tf.io.decode_image(data, channels, tf.as_dtype(dtype), expand_animations=False).numpy()


@functools.cache
def by_tensorflow_accurately(data: bytes, channels: int = 0) -> Any:
    return tf.io.decode_jpeg(data, channels, dct_method="INTEGER_ACCURATE").numpy()


# Decoded images


@pytest.mark.parametrize("name", _PNGS)
def test_a_png_has_tensorflow_s_pixels(name: str) -> None:
    by_pillow = 0
    for channels, dtype in itertools.product((0, 1, 3, 4), ("uint8", "uint16")):
        found = pixels(_PNGS[name], dtype, channels)
        if found is None:
            continue  # TensorFlow decodes this type
        by_pillow += 1
        wanted = by_tensorflow(_PNGS[name], channels, dtype)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_array_equal(found, wanted)
        assert found.flags.writeable
    assert by_pillow
    assert pixels(_PNGS[name], "uint8", 0) is not None


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("quality", [30, 75, 95])
def test_a_jpeg_has_tensorflow_s_accurate_pixels(mode: str, progressive: bool, quality: int) -> None:
    sampled = (0, 1, 2) if mode != "L" else (-1,)
    for subsampling, size in itertools.product(sampled, ((48, 67), (1, 1), (17, 3))):
        options = {"quality": quality, "progressive": progressive, "subsampling": subsampling}
        data = encoded(picture(*size), "JPEG", mode, **options)
        found = pixels(data, "uint8", 0)
        np.testing.assert_array_equal(found, by_tensorflow_accurately(data))
        np.testing.assert_array_equal(pixels(data, "uint8", 3), by_tensorflow_accurately(data, 3))


def test_a_jpeg_is_near_the_pixels_of_a_dataset() -> None:
    """The bound that the README states, for photographs of usual quality."""
    for quality, seed in itertools.product((50, 75, 90, 95), range(4)):
        data = encoded(picture(120, 160, seed), "JPEG", quality=quality)
        apart = np.abs(pixels(data, "uint8", 0).astype(int) - by_tensorflow(data, 0, "uint8"))
        assert apart.mean() < 1.5
        assert apart.max() <= 8


def test_sixteen_bit_colours_and_other_formats_are_decoded_by_tensorflow() -> None:
    assert pixels(png(16, 2), "uint16", 0) is None
    assert pixels(png(16, 2), "uint8", 0) is not None
    assert pixels(encoded(picture(), "GIF"), "uint8", 0) is None
    assert pixels(encoded(picture(), "BMP"), "uint8", 0) is None
    assert pixels(encoded(picture(), "PNG"), "uint8", 1) is None, "grey of colours has other weights"
    assert pixels(b"", "uint8", 0) is None


def test_metadata_are_ignored(recwarn: pytest.WarningsRecorder) -> None:
    """Orientation is ignored as by TensorFlow, broken EXIF does not warn, and a text of 1 GB is not decompressed."""
    plain = encoded(picture(), "JPEG")
    turned = Image.Exif()
    turned[0x0112] = 6  # turned by 90°
    exif = encoded(picture(), "JPEG", exif=turned, comment=b"a comment", icc_profile=b"x" * 70_000)
    broken = plain[:2] + b"\xff\xe1\x00\x10Exif\0\0broken!!" + plain[2:]
    padded = plain[:2] + b"\xff\xff\xff\xfe\x00\x04ab" + plain[2:]
    for data in (exif, broken, padded):
        np.testing.assert_array_equal(pixels(data, "uint8", 0), pixels(plain, "uint8", 0))
    bomb = chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 28)))
    with_gamma = chunk(b"gAMA", struct.pack(">I", 100_000)) + chunk(b"eXIf", b"broken")
    for extra in (bomb, with_gamma, chunk(b"iCCP", b"broken"), chunk(b"acTL", struct.pack(">II", 9, 0))):
        np.testing.assert_array_equal(pixels(png(8, 2, extra=extra), "uint8", 0), pixels(png(8, 2), "uint8", 0))
    assert not recwarn.list


# Damaged and too large images


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_an_image_that_is_cut_anywhere_is_refused(kind: str) -> None:
    data = encoded(picture(), kind)
    for stop in range(12, len(data), 11):
        with pytest.raises(SchemaError):
            pixels(data[:stop], "uint8", 0)


def test_a_png_with_any_wrong_bit_is_refused() -> None:
    """Pillow alone does not verify the checksums of a PNG."""
    data = encoded(picture(), "PNG")
    for place in range(8, len(data), 13):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(SchemaError):
            pixels(bytes(damaged), "uint8", 0)


def test_a_jpeg_with_wrong_bits_decodes_as_in_tensorflow() -> None:
    data, random = encoded(picture(), "JPEG"), np.random.default_rng(0)
    refused = 0
    for _ in range(150):
        damaged = bytearray(data)
        damaged[random.integers(3, len(data))] ^= 1 << random.integers(0, 8)
        try:
            found = pixels(bytes(damaged), "uint8", 0)
        except SchemaError:
            refused += 1
            continue
        if found is not None:
            np.testing.assert_array_equal(found, by_tensorflow_accurately(bytes(damaged)))
    assert refused


@pytest.mark.parametrize("size", [(60_000, 60_000), (1 << 31, 1), (20_000, 9_000), (1 << 14, 1 << 13)])
def test_a_decompression_bomb_is_refused_before_it_is_decoded(size: tuple[int, int]) -> None:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, 8, 6, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(SchemaError, match=r"pixels with 4 channels, which take 536,870,912 bytes or more"):
            pixels(bomb, "uint8", 0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_png(bomb)


def test_a_cmyk_jpeg_is_measured_with_its_four_channels() -> None:
    """TensorFlow refuses it, too, although three channels of 12,000 × 12,000 pixels would be below the limit."""
    data = bytearray(encoded(picture(16, 16), "JPEG", "CMYK"))
    at = data.index(b"\xff\xc0") + 5
    data[at : at + 4] = struct.pack(">HH", 12_000, 12_000)
    with pytest.raises(SchemaError, match="pixels with 4 channels"):
        pixels(bytes(data), "uint8", 0)
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.io.decode_jpeg(bytes(data), try_recover_truncated=True)


@pytest.mark.parametrize("segment", [b"\xff\xe1\0\x16Exif\0\0II*\0\x08\0\0\0\xff\xff" + bytes(4), b"\xff\xfe\0\4ab"])
def test_metadata_between_the_scans_of_a_jpeg_is_ignored(segment: bytes) -> None:
    data = encoded(picture(), "JPEG", progressive=True)
    second = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
    begin = data.rindex(b"\xff\xc4", 0, second)  # the tables before the second scan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = pixels(data[:begin] + segment + data[begin:] + segment, "uint8", 0)
    np.testing.assert_array_equal(found, pixels(data, "uint8", 0))


def test_a_large_image_below_the_limit_causes_no_warning() -> None:
    """Pillow's own limits, for whom a picture of 90 million pixels is a reason to warn, are not in the way."""
    rows = zlib.compress(bytes(95_000_001 // 1000 * 1001))
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1000, 95_000, 1, 0, 0, 0, 0))
    data = b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pixels(data, "uint8", 0).shape == (95_000, 1000, 1)


def test_cut_images_are_refused_even_if_pillow_accepts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert pixels(encoded(picture(), "JPEG")[:-500], "uint8", 0) is None  # TensorFlow refuses it


# Records


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    rows = [(f"{at}", {"jpg": made.image(at), "png": made.image(at, "PNG")}) for at in range(5)]
    (tmp_path / "s-0.tar").write_bytes(made.tar(rows))
    return tmp_path


def test_a_damaged_image_is_an_error_that_names_its_record(image_folder: Path) -> None:
    (image_folder / "s-0.tar").write_bytes(
        made.tar([("a", {"jpg": made.image(0)}), ("b", {"jpg": made.image(1)[:-90]})])
    )
    with pytest.raises(MappingError, match=r"field 'jpg' did not decode as image.*damaged or cut") as caught:
        list(t2t.open(image_folder).records(decode={"jpg": "image"}))
    assert caught.value.key == "b"
    skipping = t2t.open(image_folder, on_error="skip-record")
    assert [record["__key__"] for record in skipping.records(decode={"jpg": "image"})] == ["a"]
    assert skipping.stats.skipped == {"MappingError": 1}


_LOOP = """
import sys
import ais_tar2tf as t2t
shapes = [(record["jpg"].shape, record["png"].shape) for record in t2t.open({folder!r}).records(decode={decode})]
assert shapes == [((30, 40, 3), (30, 40, 3))] * 5, shapes
print("tensorflow" in sys.modules)
"""


@pytest.mark.parametrize("decode", ["True", "{'jpg': 'image', 'png': 'image'}"])
def test_a_plain_loop_does_not_import_tensorflow(image_folder: Path, decode: str) -> None:
    code = _LOOP.format(folder=str(image_folder), decode=decode)
    done = subprocess.run([sys.executable, "-Werror", "-c", code], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_without_pillow_tensorflow_decodes(image_folder: Path) -> None:
    code = "import sys; sys.modules['PIL'] = None\n" + _LOOP.format(folder=str(image_folder), decode="True")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_graphs_and_python_mappings_of_datasets_have_the_same_pixels(image_folder: Path) -> None:
    source = t2t.open(image_folder)
    in_graph = list(source.dataset(decode={"jpg": "image"}, graph=None).as_numpy_iterator())
    as_python = source.dataset(
        lambda record: record["jpg"],
        decode={"jpg": "image"},
        graph=False,
        output_types=tf.uint8,
        output_shapes=(None, None, 3),
    )
    for one, other in zip(in_graph, as_python.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(one["jpg"], other)
