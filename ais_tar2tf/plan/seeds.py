"""The seed of a shuffled order: given, the default that hosts share, or drawn. No I/O."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ais_tar2tf.options import SHARED_SEED, whole_number

__all__ = ["Seed", "choose_seed"]

_BITS = 62  # of a drawn seed: it fits into TensorFlow's int64, and two draws never agree by chance


@dataclass(frozen=True, slots=True)
class Seed:
    """A seed, and whether it was drawn. Only a drawn seed may be replaced by the one of an earlier run."""

    value: int
    drawn: bool = False


def choose_seed(given: int | None, *, shared: bool) -> Seed:
    """Return the seed of a shuffled dataset.

    Args:
        given: What the user asked for; None without `seed=`.
        shared: Several hosts read shares of the dataset. Each host would draw another seed, so that their shares
            would overlap and miss records; they all use `SHARED_SEED`.

    >>> choose_seed(None, shared=True)
    Seed(value=0, drawn=False)
    """
    if given is not None:
        return Seed(whole_number("seed", given))
    return Seed(SHARED_SEED) if shared else Seed(random.getrandbits(_BITS), drawn=True)
