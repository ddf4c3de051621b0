"""Random access to the records of a prepared TFDS data set, in both formats, without TensorFlow.

TFDS has it for ArrayRecord alone, and without negative indices and slices. A TFRecord file has no index: where its
records begin is found by hopping over the lengths that it states, once for each file.
"""

from __future__ import annotations

import importlib
from typing import Any

# As modules of any kind: what TFDS says of its types is not what it does.
base: Any = importlib.import_module("tensorflow_datasets.core.data_sources.base")
decode: Any = importlib.import_module("tensorflow_datasets.core.decode")
file_adapters: Any = importlib.import_module("tensorflow_datasets.core.file_adapters")
