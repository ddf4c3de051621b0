"""The sample records of a card. They are drawn at random, and reduced to the values that a page can show.

This module must not do I/O.
"""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ais_tar2tf.cli.card.arrays import array_of, as_picture
from ais_tar2tf.cli.card.audio import audio_header
from ais_tar2tf.options import Card
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.values.file_headers import ImageHeader, image_header

__all__ = ["CardField", "CardRecord", "SampleReservoir"]

_THUMBNAIL = 224  # pixels of the longer side, for images that are too large to be embedded unchanged
_SHOWN_BY_BROWSERS = frozenset({"jpeg", "png", "gif", "webp", "bmp"})


@dataclass(frozen=True, slots=True)
class CardField:
    """A field of a sample record, reduced to a value that a page can show.

    Attributes:
        name: The field's name.
        form: How the page shows the field: "image", "audio", "line", "text" or "none".
        content: The bytes of an image or of audio, the values of a line, or the text.
        media_type: The media type of an image or of audio.
        note: Text about the field: size, length, or the reason why the content is not shown.
    """

    name: str
    form: str
    content: Any = None
    media_type: str = ""
    note: str = ""


@dataclass(slots=True)
class CardRecord:
    """A sample record; `number` is its place in the stream, from 1."""

    key: str
    shard: str
    number: int
    fields: list[CardField] = field(default_factory=list[CardField])


class SampleReservoir:
    """A random sample of a stream of unknown length (reservoir sampling).

    Args:
        limits: The number of samples, and the bounds on their size.
    """

    def __init__(self, limits: Card) -> None:
        self._limits = limits
        self._draw = random.Random(limits.seed)  # noqa: S311  # a choice of samples, no secret
        self._samples: list[CardRecord] = []
        self._seen = 0

    def add(self, record: dict[str, Any]) -> None:
        place = self._seen if self._seen < self._limits.samples else self._draw.randrange(self._seen + 1)
        self._seen += 1
        if place >= self._limits.samples:
            return
        sample = self._reduce(record, self._seen)
        if place < len(self._samples):
            self._samples[place] = sample
        else:
            self._samples.append(sample)

    @property
    def samples(self) -> list[CardRecord]:
        """The samples in the order of the stream."""
        return sorted(self._samples, key=lambda sample: sample.number)

    def _reduce(self, record: dict[str, Any], number: int) -> CardRecord:
        fields = [_field(name, value, self._limits) for name, value in record.items() if name not in KEY_AND_SHARD]
        return CardRecord(
            str(record.get("__key__", f"record {number}")), str(record.get("__shard__", "")), number, fields
        )


def _field(name: str, value: Any, limits: Card) -> CardField:
    if isinstance(value, str):
        return _text(name, value, limits)
    if not isinstance(value, bytes | bytearray | memoryview):
        return _value(name, value, limits)
    data = bytes(value)
    if (image := image_header(data)) is not None:
        return _image(name, data, image, limits)
    if (audio := audio_header(data)) is not None:
        note = f"{audio.seconds:.2f} s, {audio.rate:,} Hz, {audio.channels} ch"
        if len(data) > limits.media_bytes:
            return CardField(name, "none", note=note)
        return CardField(name, "audio", data, f"audio/{audio.format}", note)
    array = array_of(data)
    return _array(name, array) if array is not None else _bytes(name, data, limits)


def _value(name: str, value: Any, limits: Card) -> CardField:
    array = np.asarray(value)
    if array.ndim and array.dtype.kind in "biuf":
        return _array(name, array)
    return _text(name, str(value), limits)


def _image(name: str, data: bytes, image: ImageHeader, limits: Card) -> CardField:
    note = f"{image.width}×{image.height}"
    if image.width * image.height > limits.pixels:
        return CardField(name, "none", note=f"{note}, more pixels than are decoded for a card (Card.pixels)")
    if len(data) <= limits.media_bytes and image.format in _SHOWN_BY_BROWSERS:
        return CardField(name, "image", data, f"image/{image.format}", note)
    small = _thumbnail(data, image.format, limits.pixels)
    if small is None:
        return CardField(
            name, "none", note=f"{note}, too large to be shown; pip install 'ais_tar2tf[card]' shrinks it"
        )
    return CardField(name, "image", small, "image/jpeg", note)


def _thumbnail(data: bytes, kind: str, most: int) -> bytes | None:
    """Return a small JPEG; None without Pillow, or for an image that is damaged or larger than `most` pixels."""
    try:
        from PIL import Image
    except ImportError:
        return None
    try:
        with Image.open(io.BytesIO(data), formats=[kind]) as image:
            if image.width * image.height > most:
                return None
            image.thumbnail((_THUMBNAIL, _THUMBNAIL))
            out = io.BytesIO()
            image.convert("RGB").save(out, "JPEG", quality=82)
    except Exception:  # noqa: BLE001  # for damaged images, Pillow raises many kinds of errors
        return None
    return out.getvalue()


def _array(name: str, array: np.ndarray[Any, Any]) -> CardField:
    note = f"{array.dtype.name} {'×'.join(map(str, array.shape))}"
    picture = as_picture(array) if array.dtype.kind in "biuf" else None
    if picture is None:
        return CardField(name, "text", str(array)[:80], note=note)
    form, content = picture
    return CardField(name, form, content, "image/png" if form == "image" else "", note)


def _bytes(name: str, data: bytes, limits: Card) -> CardField:
    try:
        text = data[: 4 * limits.text_chars].decode(
            errors="strict" if len(data) <= 4 * limits.text_chars else "ignore"
        )
    except UnicodeDecodeError:
        return CardField(name, "none", note=f"{len(data):,} bytes, begins {data[:8].hex(' ')}")
    if "\0" in text:
        return CardField(name, "none", note=f"{len(data):,} bytes, begins {data[:8].hex(' ')}")
    return _text(name, text, limits)


def _text(name: str, text: str, limits: Card) -> CardField:
    cut = len(text) > limits.text_chars
    return CardField(name, "text", text[: limits.text_chars].strip() + (" …" if cut else ""))
