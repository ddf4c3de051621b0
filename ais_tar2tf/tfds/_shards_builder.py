"""Tar shards as a TFDS data set: features from the schema, records in the order of the shards, bounded memory."""

from __future__ import annotations

import importlib
from typing import Any

# As modules of any kind: what TFDS says of its types is not what it does.
tfds: Any = importlib.import_module("tensorflow_datasets")
