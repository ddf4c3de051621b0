"""The statistics of the values of one field, collected in constant memory for the card of a data set.

A card is the page that `ais-tar2tf card` writes. This module must not do I/O, and must not decode images or audio
files: it parses only their headers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.cli.card.arrays import array_of, spread_values
from ais_tar2tf.cli.card.audio import audio_header
from ais_tar2tf.cli.card.number_statistics import NumberStatistics
from ais_tar2tf.cli.card.word_counts import WordCounts
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import Card
from ais_tar2tf.values.file_headers import image_header
from ais_tar2tf.values.schema import LABEL_FIELDS, extension_of

__all__ = ["UNITS", "FieldStatistics"]

_LONGEST_JSON = 1 << 20  # bytes of a JSON document; a longer document is counted as text
_IMAGES = frozenset({"jpg", "jpeg", "png", "gif", "bmp"})  # the formats that TensorFlow decodes
_MOST_QUANTITIES = 200  # if `numbers` has so many entries, numbers at further JSON keys are not counted
# A text with one of these characters is no number on a card, though `float` reads nan, inf, infinity and 1_000.
_IN_NO_NUMBER = frozenset("nN_")
# The units of the quantities in `FieldStatistics.numbers`. All other quantities have no unit.
UNITS = {
    "size": "bytes",
    "height": "pixels",
    "width": "pixels",
    "seconds": "s",
    "rate": "Hz",
    "length": "characters",
}


class FieldStatistics:
    """The statistics of one field.

    Attributes:
        name: The field's name.
        is_label: Whether the field's name ends with an extension that is used for labels, such as "cls".
        is_image: Whether the field's name ends with the extension of an image format that TensorFlow decodes.
        records: How many records have the field.
        kinds: How many of the field's values are of each kind, such as "image jpeg" or "text".
        numbers: The statistics of each quantity: "size", "width", "value" (of values that are numbers), "values" (the
            elements of arrays), "KEY:" (the numbers at the key KEY of JSON documents), and so on.
        words: For each property of the values, how often each text occurs. The properties are "channels" (of images
            and audio files), "shape" (of arrays), "value" (of texts and numbers), and "key" (the keys of JSON
            documents).
    """

    def __init__(self, name: str, limits: Card) -> None:
        self.name = name
        self.is_label = extension_of(name) in LABEL_FIELDS
        self.is_image: bool = extension_of(name) in _IMAGES
        self.records: int = 0
        self.kinds: Counter[str] = Counter()
        self.numbers: defaultdict[str, NumberStatistics] = defaultdict(NumberStatistics)
        self.words: defaultdict[str, WordCounts] = defaultdict(lambda: WordCounts(limits.words, limits.word_chars))
        self._limits = limits

    def add(self, value: Any) -> None:
        """Count the field's value in one record."""
        self.records += 1
        if isinstance(value, bytes | bytearray | memoryview):
            self._add_file(bytes(value))
        elif isinstance(value, str):
            self._add_text(value)
        elif isinstance(value, bool | int | float | np.number | np.bool_):
            self.kinds["number"] += 1
            self.numbers["value"].add(float(value))
            self.words["value"].add(str(value))
        else:
            self._add_array(np.asarray(value))

    @property
    def class_counts(self) -> WordCounts | None:
        """The counts of the field's values if the values look like classes, else None.

        Values look like classes if there are at most `Card.words` different values, and the field is a label or its
        values repeat. They repeat if each value occurs twice or more on average, or if there are at most two
        different values.
        """
        words = self.words.get("value")
        if words is None or words.overflowed or not words.counts:
            return None
        repeat = len(words.counts) <= max(2, words.total // 2)
        return words if self.is_label or repeat else None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"records": self.records, "kinds": dict(self.kinds.most_common())}
        document["numbers"] = {name: numbers.to_json() for name, numbers in self.numbers.items()}
        counted = {name: words for name, words in self.words.items() if not words.overflowed}
        document["counts"] = {name: dict(words.common(self._limits.shown_words)) for name, words in counted.items()}
        return document

    def _add_file(self, data: bytes) -> None:
        self.numbers["size"].add(len(data))
        if (image := image_header(data)) is not None:
            self.kinds[f"image {image.format}"] += 1
            self.numbers["height"].add(image.height)
            self.numbers["width"].add(image.width)
            self.words["channels"].add(str(image.channels))
        elif (audio := audio_header(data)) is not None:
            self.kinds[f"audio {audio.format}"] += 1
            self.numbers["seconds"].add(audio.seconds)
            self.numbers["rate"].add(audio.rate)
            self.words["channels"].add(str(audio.channels))
        elif (array := array_of(data)) is not None:
            self._add_array(array)
        else:
            self._add_bytes(data)

    def _add_array(self, array: np.ndarray[Any, Any]) -> None:
        self.kinds[f"array {array.dtype.name}"] += 1
        self.words["shape"].add("×".join(map(str, array.shape)) or "scalar")
        if array.dtype.kind in "biuf":
            self.numbers["values"].add_many(spread_values(array))

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
            self.numbers["value"].add(number)
        self.numbers["length"].add(len(text))
        self.words["value"].add(text.strip())

    def _add_json(self, text: str) -> bool:
        """Count the top-level keys of a JSON text, and the numbers at these keys. Return False for invalid JSON."""
        try:
            document: Any = json_value(text)
        except SchemaError:
            return False
        if isinstance(document, list):
            self.numbers["entries"].add(len(document))
            return True
        for key, value in document.items():
            self.words["key"].add(str(key))
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and (f"{key}:" in self.numbers or len(self.numbers) < _MOST_QUANTITIES):
                self.numbers[f"{key}:"].add(_as_float(value))
        return True


def _number(text: str) -> float | None:
    """Return the number that a short text states; None for any other text, such as "nan", "-inf" or "1_000"."""
    if len(text) > 32 or not _IN_NO_NUMBER.isdisjoint(text):
        return None
    try:
        return float(text)
    except ValueError:
        return None


def _as_float(value: float) -> float:
    """Return a number as a float; infinity if it is too large for a float."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
