"""Plain loops over record files, in the order in which a dataset has them, without TensorFlow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, count, islice

from ais_tar2tf.loading.dataset import SHUFFLED_FILES, TURN, LoadRequest
from ais_tar2tf.loading.orders import Draws, ShuffleSeeds, interleaved, shuffled
from ais_tar2tf.records import Record

__all__ = ["records_of"]

_SEED_BITS = 31


def records_of(request: LoadRequest) -> Iterator[Record]:
    """Yield the records of a request, epoch after epoch."""
    each = len(request.records)
    if not each:
        return
    seed = random.getrandbits(_SEED_BITS) if request.seed is None else request.seed
    of_files, of_records = ShuffleSeeds(seed), ShuffleSeeds(seed)
    passed, start = divmod(request.start_at, each)
    for epoch in count() if request.epochs < 0 else range(request.epochs):
        draws = of_files.of_next_epoch(), of_records.of_next_epoch()
        if epoch >= passed:
            yield from _in_epoch(request, *draws, start if epoch == passed else 0)


def _in_epoch(request: LoadRequest, of_files: Draws, of_records: Draws, start: int) -> Iterator[Record]:
    """The records of one epoch, without the first `start`."""
    if request.in_order:
        return iter(request.records.behind(start))
    records = _in_files(request, of_files)
    if request.window:
        records = shuffled(records, request.window, of_records)
    return islice(records, start, None)


def _in_files(request: LoadRequest, draws: Draws) -> Iterator[Record]:
    """The records of one epoch, before they are shuffled among each other."""
    files = request.records.readers()
    if not request.in_turns:
        return chain.from_iterable(read() for read in files)
    if request.window:
        files = list(shuffled(iter(files), max(1, len(files)), draws))
    cycle = request.interleave or (SHUFFLED_FILES if request.window else 1)
    return interleaved(files, max(1, min(cycle, len(files))), TURN)
