"""The seed of a shuffled order: given, the default that hosts share, or drawn. No I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ais_tar2tf.options import SHARED_SEED, whole_number

__all__ = ["Seed", "choose_seed"]

_BITS = 62  # of a drawn seed: it fits into TensorFlow's int64, and two equal draws are practically impossible


@dataclass(frozen=True, slots=True)
class Seed:
    """A seed, and whether it was drawn at random. Only a drawn seed may be replaced by the seed of an earlier run."""

    value: int
    drawn: bool = False


def choose_seed(given: int | None, *, shared: bool) -> Seed:
    """Return the seed of a shuffled dataset.

    Args:
        given: The value of `seed=`, or None.
        shared: Whether several hosts read shares of the dataset. All hosts then use `SHARED_SEED`: if each drew a
            seed of its own, their shares would overlap and miss records.

    >>> choose_seed(None, shared=True)
    Seed(value=0, drawn=False)
    """
    if given is not None:
        return Seed(whole_number("seed", given))
    return Seed(SHARED_SEED) if shared else Seed(random.getrandbits(_BITS), drawn=True)
