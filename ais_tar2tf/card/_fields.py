"""What the values of one field are like, by their kinds: sizes, pixels, words, numbers. Constant memory, no I/O."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from ais_tar2tf.card._arrays import array_of, looked_at
from ais_tar2tf.card._audio import audio_header
from ais_tar2tf.card._numbers import Numbers
from ais_tar2tf.card._words import Words
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.headers import image_header
from ais_tar2tf.options import Card
from ais_tar2tf.schema import LABEL_FIELDS, extension_of
from ais_tar2tf.values import json_value

__all__ = ["FieldSurvey"]

_LONGEST_JSON = 1 << 20  # bytes of a document that is looked into
_MOST_KEYS = 200  # of JSON documents, counted one by one
_UNITS = {
    "size": "bytes",
    "height": "pixels",
    "width": "pixels",
    "seconds": "s",
    "rate": "Hz",
    "length": "characters",
}


class FieldSurvey:
    """One field: in how many records it is, and for each quantity its numbers, for each property its words."""

    def __init__(self, name: str, limits: Card) -> None:
        self.name = name
        self.is_label = extension_of(name) in LABEL_FIELDS
        self.records: int = 0
        self.kinds: Counter[str] = Counter()
        self.numbers: dict[str, Numbers] = {}
        self.words: dict[str, Words] = {}
        self._limits = limits

    def add(self, value: Any) -> None:
        self.records += 1
        if isinstance(value, bytes | bytearray | memoryview):
            self._add_file(bytes(value))
        elif isinstance(value, str):
            self._add_text(value)
        elif isinstance(value, bool | int | float | np.number | np.bool_):
            self.kinds["number"] += 1
            self._add_number(value)
        else:
            self._add_array(np.asarray(value))

    def unit(self, quantity: str) -> str:
        return _UNITS.get(quantity, "")

    @property
    def classes(self) -> Words | None:
        """The field's values, where they are few enough to be classes."""
        words = self.words.get("value")
        if words is None or words.given_up or not words.counts:
            return None
        repeated = len(words.counts) <= max(2, words.total // 2)
        return words if self.is_label or repeated else None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"records": self.records, "kinds": dict(self.kinds.most_common())}
        document["numbers"] = {name: numbers.to_json() for name, numbers in self.numbers.items()}
        counted = {name: words for name, words in self.words.items() if not words.given_up}
        document["counts"] = {name: dict(words.common(self._limits.shown_words)) for name, words in counted.items()}
        return document

    # By kind.

    def _add_file(self, data: bytes) -> None:
        self._measure("size", len(data))
        if (image := image_header(data)) is not None:
            self.kinds[f"image {image.format}"] += 1
            self._measure("height", image.height)
            self._measure("width", image.width)
            self._count("channels", str(image.channels))
        elif (audio := audio_header(data)) is not None:
            self.kinds[f"audio {audio.format}"] += 1
            self._measure("seconds", audio.seconds)
            self._measure("rate", audio.rate)
            self._count("channels", str(audio.channels))
        elif (array := array_of(data)) is not None:
            self._add_array(array)
        else:
            self._add_bytes(data)

    def _add_array(self, array: np.ndarray[Any, Any]) -> None:
        self.kinds[f"array {array.dtype.name}"] += 1
        self._count("shape", "×".join(map(str, array.shape)) or "scalar")
        if array.dtype.kind in "biuf":
            self._numbers("values").add_many(looked_at(array))

    def _add_bytes(self, data: bytes) -> None:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            self.kinds["bytes"] += 1
            return
        if "\0" in text:
            self.kinds["bytes"] += 1
        elif text[:1] in ("{", "[") and len(data) <= _LONGEST_JSON and self._add_json(text):
            self.kinds["json"] += 1
        else:
            self._add_text(text)

    def _add_text(self, text: str) -> None:
        number = _number(text)
        self.kinds["text" if number is None else "number"] += 1
        if number is not None:
            self._numbers("value").add(number)
        self._measure("length", len(text))
        self._count("value", text.strip())

    def _add_number(self, value: Any) -> None:
        self._numbers("value").add(float(value))
        self._count("value", str(value))

    def _add_json(self, text: str) -> bool:
        """The keys of a document's top level, and the numbers under them."""
        try:
            document: Any = json_value(text)
        except SchemaError:
            return False
        if isinstance(document, list):
            self._measure("entries", len(document))
            return True
        for key, value in document.items():
            self._count("key", str(key))
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and (f"{key}:" in self.numbers or len(self.numbers) < _MOST_KEYS):
                self._numbers(f"{key}:").add(_as_float(value))
        return True

    def _numbers(self, quantity: str) -> Numbers:
        numbers = self.numbers.get(quantity)
        if numbers is None:
            numbers = self.numbers[quantity] = Numbers()
        return numbers

    def _measure(self, quantity: str, value: float) -> None:
        self._numbers(quantity).add(value)

    def _count(self, what: str, word: str) -> None:
        words = self.words.get(what)
        if words is None:
            words = self.words[what] = Words(self._limits.words, self._limits.word_chars)
        words.add(word)


def _number(text: str) -> float | None:
    """A short text that is a number, as labels are written."""
    if not 0 < len(text) <= 32 or text[:1] in "nNiI_" or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf")
