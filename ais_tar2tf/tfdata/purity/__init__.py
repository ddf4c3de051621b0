"""A static search for causes that make a function impure: randomness, state, the clock.

    impurities = find_impurities(mapping)

A TensorFlow graph keeps the values that Python computes during a trace as constants. So an impure mapping must run as
Python for each record. The search starts at the function (`search`), reads the bytecode of each reachable function
(`bytecode`), resolves the expressions in the bytecode to objects (`expressions`, `inspection`), and classifies these
objects (`causes`). The search must not run any code of the user: no property, no descriptor, no `__getattr__`.
"""

from __future__ import annotations

from ais_tar2tf.tfdata.purity.causes import CLOCK, RANDOMNESS, STATE
from ais_tar2tf.tfdata.purity.search import Impurities, Impurity, find_impurities

__all__ = ["CLOCK", "RANDOMNESS", "STATE", "Impurities", "Impurity", "find_impurities"]
