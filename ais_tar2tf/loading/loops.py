"""Plain loops over record files, in the order in which a dataset has them, without TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, count

from ais_tar2tf.loading.dataset import SHUFFLED_FILES, TURN, LoadRequest
from ais_tar2tf.loading.orders import ShuffleSeeds, interleaved, shuffled
from ais_tar2tf.records import Record

__all__ = ["records_of"]

_SEED_BITS = 31


def records_of(request: LoadRequest, epochs: int = 1) -> Iterator[Record]:
    """Yield the records of a request, epoch after epoch; -1: for ever."""
    seed = random.getrandbits(_SEED_BITS) if request.seed is None else request.seed
    of_files, of_records = ShuffleSeeds(seed), ShuffleSeeds(seed)
    for _ in count() if epochs < 0 else range(epochs):
        if not len(request.records):
            return
        records = _in_files(request, of_files)
        if request.window:
            records = shuffled(records, request.window, of_records.of_next_epoch())
        yield from records


def _in_files(request: LoadRequest, seeds: ShuffleSeeds) -> Iterator[Record]:
    """The records of one epoch, before they are shuffled among each other."""
    files = request.records.readers()
    if not request.in_turns:
        return chain.from_iterable(read() for read in files)
    if request.window:
        files = list(shuffled(iter(files), max(1, len(files)), seeds.of_next_epoch()))
    cycle = request.interleave or (SHUFFLED_FILES if request.window else 1)
    return interleaved(files, max(1, min(cycle, len(files))), TURN)
