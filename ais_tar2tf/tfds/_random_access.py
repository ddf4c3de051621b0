"""What both builders share: random access in both formats, and tf.data over ArrayRecord, which TFDS refuses."""

from __future__ import annotations

import importlib
from typing import Any

# As modules of any kind: what TFDS says of its types is not what it does.
tfds: Any = importlib.import_module("tensorflow_datasets")
decode: Any = importlib.import_module("tensorflow_datasets.core.decode")
file_adapters: Any = importlib.import_module("tensorflow_datasets.core.file_adapters")
