"""From a record to what a model takes: the default mappings, and what an error of a user's mapping becomes.

TensorFlow is imported when something here is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ais_tar2tf.errors import MappingError, MissingField, SchemaError
from ais_tar2tf.headers import foreign_image
from ais_tar2tf.records import Record, Selection, said_fields

__all__ = [
    "IMAGE_FIELDS",
    "LABEL",
    "Mapping",
    "default_record_parser",
    "default_record_to_example",
    "default_record_to_pair",
    "held",
    "is_tensor",
    "mapping_error",
    "next_of_image",
    "there_of",
    "to_number",
    "told",
    "wants",
]

IMAGE_FIELDS = ("jpg", "jpeg", "png", "gif", "bmp", "webp")
"""The extensions of images that TensorFlow decodes; a record's image is the first of them that it has."""

_IMAGES = (*IMAGE_FIELDS, "image")  # as select("image=jpg;png") names it
_SIZE = (224, 224)
_READ_BY_TENSORFLOW = ("float32", "float64", "int32", "int64", "uint32", "uint64")  # out of text, within bounds
LABEL = "cls"
"""The field with a record's label: a number, as text."""

Mapping = Callable[..., Any]
_PAIR_OF_FIELDS = "map t2t.default_record_to_pair"


def decode_image(encoded: Any, *, scale: float = 1.0) -> Any:
    """An encoded image as float32, 224×224×3, black 0 and white `scale`."""
    import tensorflow as tf

    image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
    image = tf.image.convert_image_dtype(image, tf.float32)
    return tf.ensure_shape(tf.image.resize(image, _SIZE) * scale, (*_SIZE, 3))


def to_number(text: Any, dtype: Any) -> Any:
    """A number written as text, with spaces or a line's end around it; it has to fit into its type."""
    import tensorflow as tf

    dtype, word = tf.as_dtype(dtype), tf.strings.strip(text)
    if dtype.name in _READ_BY_TENSORFLOW:
        return tf.strings.to_number(word, dtype)
    if not dtype.is_integer:
        return tf.cast(tf.strings.to_number(word, tf.float64), dtype)
    number = tf.strings.to_number(word, tf.int64)
    narrow = tf.cast(number, dtype)
    fits = tf.reduce_all(tf.equal(tf.cast(narrow, tf.int64), number))
    return held(narrow, fits, tf.strings.join([tf.strings.as_string(number), f" does not fit into {dtype.name}"]))


def held(value: Any, condition: Any, otherwise: Any) -> Any:
    """`value` where the condition holds; else what a graph raises says `otherwise`."""
    import tensorflow as tf

    check = tf.debugging.Assert(condition, [otherwise])
    with tf.control_dependencies([] if check is None else [check]):  # None: it held at once
        return tf.identity(value)


def mapping_error(error: Exception, record: Record) -> MappingError | MissingField:
    """What a user's function raised on `record`, as an error that names it."""
    if isinstance(error, MappingError | MissingField):
        return error
    failure = MappingError(
        f"the mapping failed: {told(error)}{next_of_image(error, record)}",
        shard=record["__shard__"],
        key=record["__key__"],
    )
    failure.__cause__ = error
    return failure


def told(error: Exception) -> str:
    """An error's type, and what it says."""
    return f"{type(error).__name__}: {_essence(error)}"


def next_of_image(error: Exception, record: Record) -> str:
    """Return what to do about an image that TensorFlow does not decode, as the end of an error's sentence."""
    if "image file format" not in str(error):
        return ""
    for name, value in record.items():
        found = foreign_image(value) if isinstance(value, bytes) else None
        if found:
            return (
                f"; field {name!r} is a {found} image: convert it to PNG or JPEG, or decode it by a mapping "
                "in Python, with output_types="
            )
    return ""


def is_tensor(value: Any) -> bool:
    """Whether a graph's, or TensorFlow's own, value stands where a plain record has bytes."""
    return hasattr(value, "op") or hasattr(value, "numpy")


def there_of(names: Sequence[str], record: Record) -> list[str]:
    """Return which of these fields a record has; one that is traced answers for the records of a sample."""
    among = getattr(record, "among", None)
    return [name for name in names if name in record] if among is None else among(names)


def _image_of(record: Record) -> Any:
    """The first encoded image of a record that is not empty, as a graph has it of a field that is absent; or None."""
    import tensorflow as tf

    among = getattr(record, "among", None)
    names = (*_IMAGES, "image_raw")
    names = there_of(names, record) if among is None else among(names, optional=True)
    *others, last = [tf.convert_to_tensor(record[name]) for name in names] or [None]
    for each in reversed(others):
        last = tf.where(tf.strings.length(each) > 0, each, last)
    return last


def _essence(error: Exception) -> str:
    """The telling line of an error's text: TensorFlow's stands before the node that it names."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no text"]
    node = next((at for at, line in enumerate(lines) if "{{node" in line), None)
    told = lines[0] if node is None else lines[node].partition("[[")[0].strip() or lines[max(0, node - 1)]
    return told.rpartition("}} ")[2][:400]


def default_record_to_pair(record: Record) -> tuple[Any, Any]:
    """(image as float32 224×224×3 in 0..1, label as int32), of the record's image and its `cls`.

    It also maps what `t2t.load(…).dataset(…)` gives: `.map(t2t.default_record_to_pair)`.
    """
    import tensorflow as tf

    image, label = _image_and_label(record)
    return decode_image(image), tf.cast(label, tf.int32) if label.dtype.is_integer else to_number(label, tf.int32)


def _image_and_label(record: Record) -> tuple[Any, Any]:
    """The encoded image and the label, as tensors, of a record or of what `default_record_to_example` stored."""
    import tensorflow as tf

    if is_tensor(record):
        raise SchemaError(
            "the default pair is of a record, a dict of its fields, and this is a tensor: of files of an export, "
            f"read t2t.load(folder).dataset(split), and {_PAIR_OF_FIELDS}"
        )
    image = _image_of(record)
    labels = there_of((LABEL, "label"), record)
    if image is None or not labels:
        needed = f"an image ({', '.join(_IMAGES)}) and {LABEL!r}"
        raise SchemaError(f"the default pair needs {needed}; there are: {said_fields(record)}")
    return image, tf.convert_to_tensor(record[labels[0]])


# A mapping may say itself what it reads, and under which names: any image here arrives as `jpg`.
default_record_to_pair.fields = (f"{_IMAGES[0]}={';'.join(_IMAGES)}", LABEL)  # type: ignore[attr-defined]


def default_record_to_example(record: Record) -> Any:
    """A tf.train.Example with the encoded image as `image_raw`, its `height`, `width`, `depth`, and the `label`.

    The image is decoded once, so that one that does not decode is found when it is written, not when it is read.
    """
    import tensorflow as tf

    from ais_tar2tf import features

    found = next((name for name in _IMAGES if name in record), None)
    if found is None or LABEL not in record:
        raise MissingField(
            f"the default record_to_example needs an image and {LABEL!r}; there are: {said_fields(record)}",
            shard=record["__shard__"],
            key=record["__key__"],
        )
    height, width, depth = tf.io.decode_image(record[found], expand_animations=False).shape
    label = int(record[LABEL])
    feature = {
        "height": features.int64_feature(height),
        "width": features.int64_feature(width),
        "depth": features.int64_feature(depth),
        "label": features.int64_feature(label),
        "image_raw": features.bytes_feature(record[found]),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


# The feature that has the number of the class, whose name an export then knows.
default_record_to_example.label = "label"  # type: ignore[attr-defined]
default_record_to_example.fields = (*(f"{name}?" for name in _IMAGES), f"{LABEL}?")  # type: ignore[attr-defined]


def default_record_parser(serialized: Any, scale: float = 1.0) -> tuple[Any, Any]:
    """What `default_record_to_example` wrote, as the pair that the in-memory path gives: the same pixels.

    `scale=255` gives 0..255. Files that hold the fields of records, as `Source.export` writes them, are read by
    `t2t.load(folder).dataset(split).map(t2t.default_record_to_pair)`.
    """
    import tensorflow as tf

    if isinstance(serialized, dict):
        raise SchemaError(
            f"default_record_parser takes a serialized tf.train.Example, not its fields: {_PAIR_OF_FIELDS}"
        )
    spec = {"image_raw": tf.io.RaggedFeature(tf.string), "label": tf.io.RaggedFeature(tf.int64)}
    parsed = tf.io.parse_single_example(serialized, spec)
    image, label = (_only(parsed[name], name) for name in spec)
    return decode_image(image, scale=scale), tf.cast(label, tf.int32)


def _only(values: Any, name: str) -> Any:
    """The one value of a feature of an Example that `default_record_to_example` made."""
    import tensorflow as tf

    told = (
        f"default_record_parser: this Example has no {name!r}, so default_record_to_example did not make it; "
        f"of files that export wrote, read t2t.load(folder).dataset(split), and {_PAIR_OF_FIELDS}"
    )
    return tf.reshape(held(values, tf.equal(tf.size(values), 1), told), ())


def wants(function: Mapping | None) -> Selection | None:
    """The fields that a mapping says it reads, in its attribute `fields`."""
    said = getattr(function, "fields", None)
    return Selection(said) if said is not None else None
