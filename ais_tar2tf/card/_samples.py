"""The records on the contact sheet: chosen evenly from a stream, each cut down to what can be shown. No I/O."""

from __future__ import annotations

import io
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ais_tar2tf.card._arrays import array_of, as_picture
from ais_tar2tf.card._audio import audio_header
from ais_tar2tf.headers import ImageHeader, image_header
from ais_tar2tf.options import Card
from ais_tar2tf.records import NAMES

__all__ = ["Chosen", "Sample", "Shown"]

_THUMBNAIL = 224  # pixels of the longer side, of images that are too large to be shown as they are
_SHOWN_BY_BROWSERS = frozenset({"jpeg", "png", "gif", "webp", "bmp"})


@dataclass(frozen=True, slots=True)
class Shown:
    """One field of a sample: `form` is image, audio, line, text or none; `note` says what cannot be seen."""

    name: str
    form: str
    content: Any = None
    media_type: str = ""
    note: str = ""


@dataclass(slots=True)
class Sample:
    """One record as it is shown."""

    key: str
    shard: str
    number: int
    fields: list[Shown] = field(default_factory=list[Shown])


class Chosen:
    """So many samples of a stream of unknown length, each record as likely as any other (reservoir sampling)."""

    def __init__(self, limits: Card) -> None:
        self._limits = limits
        self._draw = random.Random(limits.seed)  # noqa: S311  # a choice of samples, no secret
        self._kept: list[Sample] = []
        self._seen = 0

    def add(self, record: dict[str, Any]) -> None:
        place = self._seen if self._seen < self._limits.samples else self._draw.randrange(self._seen + 1)
        self._seen += 1
        if place >= self._limits.samples:
            return
        sample = self._made(record, self._seen)
        if place < len(self._kept):
            self._kept[place] = sample
        else:
            self._kept.append(sample)

    @property
    def samples(self) -> list[Sample]:
        """In the stream's order."""
        return sorted(self._kept, key=lambda sample: sample.number)

    def _made(self, record: dict[str, Any], number: int) -> Sample:
        fields = [_shown(name, value, self._limits) for name, value in record.items() if name not in NAMES]
        return Sample(
            str(record.get("__key__", f"record {number}")), str(record.get("__shard__", "")), number, fields
        )


def _shown(name: str, value: Any, limits: Card) -> Shown:
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
            return Shown(name, "none", note=note)
        return Shown(name, "audio", data, f"audio/{audio.format}", note)
    array = array_of(data)
    return _array(name, array) if array is not None else _bytes(name, data, limits)


def _value(name: str, value: Any, limits: Card) -> Shown:
    array = np.asarray(value)
    if array.ndim and array.dtype.kind in "biuf":
        return _array(name, array)
    return _text(name, str(value), limits)


def _image(name: str, data: bytes, image: ImageHeader, limits: Card) -> Shown:
    note = f"{image.width}×{image.height}"
    if image.width * image.height > limits.pixels:
        return Shown(name, "none", note=f"{note}, more pixels than are decoded for a card (Card.pixels)")
    if len(data) <= limits.media_bytes and image.format in _SHOWN_BY_BROWSERS:
        return Shown(name, "image", data, f"image/{image.format}", note)
    small = _thumbnail(data, image.format, limits.pixels)
    if small is None:
        return Shown(name, "none", note=f"{note}, too large to be shown; pip install 'ais_tar2tf[card]' shrinks it")
    return Shown(name, "image", small, "image/jpeg", note)


def _thumbnail(data: bytes, kind: str, most: int) -> bytes | None:
    """A small JPEG; None without Pillow, and when the image does not decode, or has more pixels than its header."""
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
    except Exception:  # noqa: BLE001  # whatever a broken image makes Pillow raise
        return None
    return out.getvalue()


def _array(name: str, array: np.ndarray[Any, Any]) -> Shown:
    note = f"{array.dtype.name} {'×'.join(map(str, array.shape))}"
    picture = as_picture(array) if array.dtype.kind in "biuf" else None
    if picture is None:
        return Shown(name, "text", str(array)[:80], note=note)
    form, content = picture
    return Shown(name, form, content, "image/png" if form == "image" else "", note)


def _bytes(name: str, data: bytes, limits: Card) -> Shown:
    try:
        text = data[: 4 * limits.text_chars].decode(
            errors="strict" if len(data) <= 4 * limits.text_chars else "ignore"
        )
    except UnicodeDecodeError:
        return Shown(name, "none", note=f"{len(data):,} bytes, begins {data[:8].hex(' ')}")
    if "\0" in text:
        return Shown(name, "none", note=f"{len(data):,} bytes, begins {data[:8].hex(' ')}")
    return _text(name, text, limits)


def _text(name: str, text: str, limits: Card) -> Shown:
    cut = len(text) > limits.text_chars
    return Shown(name, "text", text[: limits.text_chars].strip() + (" …" if cut else ""))
