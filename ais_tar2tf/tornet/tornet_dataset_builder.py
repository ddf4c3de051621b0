"""TorNet as a TFDS data set. Importing this registers the name `tornet`; TensorFlow is not needed, nor imported."""

from __future__ import annotations

import importlib
from typing import Any

# As modules of any kind: what TFDS says of its types is not what it does.
tfds: Any = importlib.import_module("tensorflow_datasets")
hashing: Any = importlib.import_module("tensorflow_datasets.core.hashing")
