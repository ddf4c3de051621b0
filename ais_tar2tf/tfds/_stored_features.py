"""The features.json of a prepared data set, read so that nothing in it chooses what is imported.

TFDS imports the module of every class that a features.json names, and a module may lie in the working folder. Here
only classes of TFDS itself are accepted.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ais_tar2tf.documents import parse_json, read_file
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.options import MIB

# As a module of any kind: what TFDS says of its types is not what it does.
tfds: Any = importlib.import_module("tensorflow_datasets")

__all__ = ["FEATURES", "stored_features"]

FEATURES = "features.json"

_MOST = 16 * MIB  # of features.json: 10,000 fields take 2 MB
_NAMES_A_CLASS = frozenset({"pythonClassName", "python_class_name", "type", "proto_cls", "protoCls"})
_TRUSTED = "tensorflow_datasets."


def stored_features(folder: Path) -> Any | None:
    """Return the features of the data set in `folder`, or None when none has been prepared there.

    Raises:
        SchemaError: features.json is damaged, too large, or names a class that is not TFDS's own.
    """
    path = folder / FEATURES
    if not path.exists():
        return None
    data = read_file(path, most=_MOST, limit="document_bytes", fail=SchemaError)
    document = parse_json(data, where=str(path), fail=SchemaError)
    for name in _classes(document):
        if not name.startswith(_TRUSTED):
            raise SchemaError(f"{path}: it names the class {name!r}, which is none of TFDS's: prepare the data anew")
    try:
        return tfds.features.FeatureConnector.from_config(str(folder))
    except Exception as error:  # TFDS and protobuf raise what they please
        raise SchemaError(f"{path}: TFDS cannot read it ({type(error).__name__}: {error})") from error


def _classes(document: Any) -> Iterator[str]:
    """Yield every name of a class in a features.json, wherever it stands."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            # A field may be called "type": then its value is an object, and no name.
            yield from (str(value[key]) for key in _NAMES_A_CLASS & value.keys() if isinstance(value[key], str))
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
