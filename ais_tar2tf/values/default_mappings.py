"""The default mappings, which apply when the user passes no mapping.

`default_record_to_pair` maps a record to (image, label), `default_record_to_example` maps it to a tf.train.Example,
and `default_record_parser` maps a serialized Example to (image, label). The first call imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import MissingField, SchemaError
from ais_tar2tf.records import Record, Selection, listed_fields
from ais_tar2tf.values.graph_values import decode_image, is_tensor, to_number, with_check

tf: Any = LazyModule("tensorflow")

__all__ = [
    "IMAGE_FIELDS",
    "LABEL",
    "Mapping",
    "declared_fields",
    "default_record_parser",
    "default_record_to_example",
    "default_record_to_pair",
    "present_fields",
]

IMAGE_FIELDS = ("jpg", "jpeg", "png", "gif", "bmp", "webp")
"""The extensions of images that TensorFlow decodes. The first of these fields in a record is its image."""

LABEL = "cls"
"""The field of the label of a record: the text of a number."""

Mapping = Callable[..., Any]
"""A function of a record that returns an element of a dataset."""

_IMAGES = (*IMAGE_FIELDS, "image")  # select("image=jpg;png") names its result `image`
_PAIR_OF_FIELDS = "map t2t.default_record_to_pair"


def declared_fields(function: Mapping | None) -> Selection | None:
    """Return the selection of fields that a mapping declares in its attribute `fields`, or None."""
    declared = getattr(function, "fields", None)
    return None if declared is None else Selection(declared)


def present_fields(names: Sequence[str], record: Record) -> list[str]:
    """Return the fields of `names` that a record has; if it is traced, those that every sampled record has."""
    among = getattr(record, "among", None)
    return [name for name in names if name in record] if among is None else among(names)


def default_record_to_pair(record: Record) -> tuple[Any, Any]:
    """Map a record to the pair of its image and its label, for training.

    The mapping also accepts the elements of `t2t.load(folder).dataset(split)`.

    Args:
        record: A record with an image (`jpg`, `png`, `image`, …) and a label, `cls`. A record with the features
            `image_raw` and `label`, which `default_record_to_example` wrote, is accepted, too.

    Returns:
        The image as float32 of shape 224×224×3 in 0..1, and the label as int32.

    Raises:
        SchemaError: The record has no image or no label.

    Example:
        train = t2t.open("ais://imagenet/train-{000..146}.tar").dataset(t2t.default_record_to_pair, batch=32)
    """
    image, label = _image_and_label(record)
    return decode_image(image), tf.cast(label, tf.int32) if label.dtype.is_integer else to_number(label, tf.int32)


def _image_and_label(record: Record) -> tuple[Any, Any]:
    """Return the encoded image and the label of a record as tensors."""
    if is_tensor(record):
        raise SchemaError(
            "the default pair needs a record, a dict of fields, but this is a tensor: to read exported files, "
            f"read t2t.load(folder).dataset(split), and {_PAIR_OF_FIELDS}"
        )
    image = _image_of(record)
    labels = present_fields((LABEL, "label"), record)
    if image is None or not labels:
        needed = f"an image ({', '.join(_IMAGES)}) and {LABEL!r}"
        raise SchemaError(f"the default pair needs {needed}; there are: {listed_fields(record)}")
    return image, tf.convert_to_tensor(record[labels[0]])


def _image_of(record: Record) -> Any:
    """Return the first encoded image of a record that is not empty; None if the record has no field with an image.

    In a traced record, a field can be optional. It is an empty string for the records that lack it.
    """
    among = getattr(record, "among", None)
    names = (*_IMAGES, "image_raw")
    names = present_fields(names, record) if among is None else among(names, optional=True)
    *preferred, image = [tf.convert_to_tensor(record[name]) for name in names] or [None]
    for candidate in reversed(preferred):
        image = tf.where(tf.strings.length(candidate) > 0, candidate, image)
    return image


# Select the image in any of the formats, and name it `jpg`.
default_record_to_pair.fields = (f"{_IMAGES[0]}={';'.join(_IMAGES)}", LABEL)  # type: ignore[attr-defined]


def default_record_to_example(record: Record) -> Any:
    """Map a record to a tf.train.Example with the features `image_raw`, `height`, `width`, `depth` and `label`.

    `image_raw` holds the encoded image. The image is also decoded once, so that a damaged image is found when the
    record is written, not when it is read.

    Args:
        record: A record with an image (`jpg`, `png`, `image`, …) and a label, `cls`.

    Returns:
        The tf.train.Example.

    Raises:
        MissingField: The record has no image or no label.
    """
    from ais_tar2tf.values import features

    image_field = next((name for name in _IMAGES if name in record), None)
    if image_field is None or LABEL not in record:
        raise MissingField(
            f"the default record_to_example needs an image and {LABEL!r}; there are: {listed_fields(record)}",
            shard=record["__shard__"],
            key=record["__key__"],
        )
    height, width, depth = tf.io.decode_image(record[image_field], expand_animations=False).shape
    feature = {
        "height": features.int64_feature(height),
        "width": features.int64_feature(width),
        "depth": features.int64_feature(depth),
        "label": features.int64_feature(int(record[LABEL])),
        "image_raw": features.bytes_feature(record[image_field]),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature))


# The feature that holds the class number. An export uses it to look up the name of the class.
default_record_to_example.label = "label"  # type: ignore[attr-defined]
default_record_to_example.fields = (*(f"{name}?" for name in _IMAGES), f"{LABEL}?")  # type: ignore[attr-defined]


def default_record_parser(serialized: Any, scale: float = 1.0) -> tuple[Any, Any]:
    """Parse a tf.train.Example of `default_record_to_example` into (image, label).

    The Examples in files of `Source.export` hold the fields of records. Read such files by
    `t2t.load(folder).dataset(split).map(t2t.default_record_to_pair)`.

    Args:
        serialized: A serialized tf.train.Example.
        scale: The value of white; 255 gives pixels in 0..255.

    Returns:
        The image as float32 of shape 224×224×3, and the label as int32.

    Raises:
        SchemaError: `serialized` is a dict of fields.

    Example:
        train = tf.data.TFRecordDataset("train.record").map(t2t.default_record_parser)
    """
    if isinstance(serialized, dict):
        raise SchemaError(
            f"default_record_parser takes a serialized tf.train.Example, not its fields: {_PAIR_OF_FIELDS}"
        )
    spec = {"image_raw": tf.io.RaggedFeature(tf.string), "label": tf.io.RaggedFeature(tf.int64)}
    parsed = tf.io.parse_single_example(serialized, spec)
    image, label = (_only_value(parsed[name], name) for name in spec)
    return decode_image(image, scale=scale), tf.cast(label, tf.int32)


def _only_value(values: Any, name: str) -> Any:
    """Return the only value of a feature as a tensor, which fails unless there is exactly one value."""
    message = (
        f"default_record_parser: this Example has no {name!r}, so default_record_to_example did not make it; "
        f"to read exported files, read t2t.load(folder).dataset(split), and {_PAIR_OF_FIELDS}"
    )
    return tf.reshape(with_check(values, tf.equal(tf.size(values), 1), message), ())
