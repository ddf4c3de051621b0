"""The reader of features.json: the file in which TFDS describes the features of a prepared data set.

TFDS imports the module of every class that a features.json names, even a hostile module in the working folder. So
this reader must refuse a file that names a class outside of TFDS.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ais_tar2tf.base.documents.sealed import parse_json, read_file
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import MIB

# Loaded as an untyped module, because the type hints of TFDS do not match its behaviour.
tfds: Any = importlib.import_module("tensorflow_datasets")

__all__ = ["FEATURES", "stored_features"]

FEATURES = "features.json"

_MAX_BYTES = 16 * MIB  # the largest features.json; 10,000 fields take 2 MB
# The keys of a features.json whose values are names of classes.
_CLASS_KEYS = frozenset({"pythonClassName", "python_class_name", "type", "proto_cls", "protoCls"})
_TRUSTED = "tensorflow_datasets."  # the beginning of the name of every class of TFDS


def stored_features(folder: Path) -> Any | None:
    """Return the features of the data set in `folder`, or None if no data set has been prepared there.

    Raises:
        SchemaError: features.json is damaged, too large, or names a class that is not TFDS's own.
    """
    path = folder / FEATURES
    if not path.exists():
        return None
    data = read_file(path, most=_MAX_BYTES, limit=None, fail=SchemaError)
    document = parse_json(data, where=str(path), fail=SchemaError)
    for name in _class_names(document):
        if not name.startswith(_TRUSTED):
            raise SchemaError(f"{path}: it names the class {name!r}, which is none of TFDS's: prepare the data anew")
    try:
        # Like `from_config`, but without reading the file again, which may have been replaced since the check.
        features = tfds.features.FeatureConnector.from_json(document)
        features.load_metadata(str(folder), feature_name=None)
    except Exception as error:  # TFDS and protobuf raise errors of many types
        raise SchemaError(f"{path}: TFDS cannot read it ({type(error).__name__}: {error})") from error
    return features


def _class_names(document: Any) -> Iterator[str]:
    """Yield every class name in a features.json, however deep it is nested."""
    stack = [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            # A field of the data set may be called "type", too. The value of this key is then an object, not a text.
            yield from (str(value[key]) for key in _CLASS_KEYS & value.keys() if isinstance(value[key], str))
            stack += value.values()
        elif isinstance(value, list):
            stack += value
