"""The native step: C functions that find records in a block of bytes, and a TensorFlow operation that cuts fields.

Everything also works without it, in pure Python, and with the same results. This package must not decide anything:
`archive/` and `records/` decide what is read natively, and check what comes back.
"""

from __future__ import annotations

from ais_tar2tf.native.library import Engine, Grouped, TarLibrary, Walked, engine, gather, tar_library

__all__ = ["Engine", "Grouped", "TarLibrary", "Walked", "engine", "gather", "tar_library"]
