"""The Python code that a card shows for loading its data set into TensorFlow. This module must not run the code."""

from __future__ import annotations

from collections.abc import Mapping

from ais_tar2tf.cli.card.statistics import DataStatistics

__all__ = ["loader_of"]

_RAW_LOADER = """\
import ais_tar2tf as t2t

src = t2t.open({url!r}{options}){select}
dataset = src.dataset(shuffle=True, seed=1, batch=32)  # dicts of raw bytes
print(dataset.element_spec)
"""
_PAIR_LOADER = """\
import ais_tar2tf as t2t
import tensorflow as tf


def pair(record):
    image = tf.io.decode_image(record["image"], channels=3, expand_animations=False)
    return tf.image.resize(image, (224, 224)) / 255, tf.strings.to_number(record["cls"], tf.int32)


src = t2t.open({url!r}{options}).select({image!r}, "cls")
dataset = src.dataset(pair, shuffle=True, seed=1, batch=32)  # what a model's fit takes
"""


def loader_of(stats: DataStatistics, url: str, endpoint: str | None = None, grouping: str | None = None) -> str:
    """Return Python code that loads a data set into TensorFlow.

    Args:
        stats: The statistics of the data set.
        url: The URL of the shards.
        endpoint: The value of --endpoint. It appears in the code only if `url` is an ais:// URL.
        grouping: The value of --grouping.
    """
    options = f", endpoint={endpoint!r}" if endpoint and url.startswith("ais://") else ""
    options += f", grouping={grouping!r}" if grouping else ""
    optional = {name: each.records for name, each in stats.fields.items() if each.records < stats.records}
    image = _image_in(stats, optional)
    if image and "cls" in stats.fields and "cls" not in optional:
        return _PAIR_LOADER.format(url=url, options=options, image=f"image={image}")
    wanted = ", ".join(repr(f"{name}?" if name in optional else name) for name in stats.fields)
    select = f".select({wanted})  # b'' where a record has no such field" if optional else ""
    return _RAW_LOADER.format(url=url, options=options, select=select)


def _image_in(stats: DataStatistics, optional: Mapping[str, int]) -> str:
    """Return the name of an image field that all records have, or alternatives such as "jpg;png", or an empty text.

    Alternatives are returned if each record has exactly one of them: each record has an image, and the numbers of
    records that have the alternatives add up to the number of all records.

    Args:
        stats: The statistics of the data set.
        optional: For each field that some records lack, the number of records that have the field.
    """
    images = [name for name, each in stats.fields.items() if each.is_image]
    in_all = next((name for name in images if name not in optional), "")
    alternatives = [name for name in images if name in optional]
    counts = sum(optional[name] for name in alternatives)
    is_one_each = counts == stats.records == stats.records_with_image
    return in_all or (";".join(alternatives) if is_one_each else "")
