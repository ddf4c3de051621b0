"""Yield records of record files without TensorFlow, in the order of the dataset for the same request."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, count, islice

from ais_tar2tf.recordfiles.loading.dataset import SHUFFLED_FILES, TURN, LoadRequest
from ais_tar2tf.recordfiles.loading.orders import interleaved, shuffle_numbers, shuffled
from ais_tar2tf.records import Record

__all__ = ["records_of"]

_SEED_BITS = 31


def records_of(request: LoadRequest) -> Iterator[Record]:
    """Yield the records of a request, epoch after epoch."""
    per_epoch = len(request.records)
    if not per_epoch:
        return
    seed = random.getrandbits(_SEED_BITS) if request.seed is None else request.seed
    file_draws, record_draws = shuffle_numbers(seed), shuffle_numbers(seed)
    first_epoch, start = divmod(request.start_at, per_epoch)
    for epoch in count() if request.epochs < 0 else range(request.epochs):
        draws = next(file_draws), next(record_draws)
        if epoch >= first_epoch:
            yield from _epoch_records(request, *draws, start if epoch == first_epoch else 0)


def _epoch_records(
    request: LoadRequest, file_draws: Iterator[int], record_draws: Iterator[int], start: int
) -> Iterator[Record]:
    """Return the records of one epoch, without the first `start` of them."""
    if request.in_order:
        return iter(request.records.skip(start))
    records = _interleaved_files(request, file_draws)
    if request.window:
        records = shuffled(records, request.window, record_draws)
    return islice(records, start, None)


def _interleaved_files(request: LoadRequest, draws: Iterator[int]) -> Iterator[Record]:
    """Return the records of one epoch in the order in which files are read; the shuffle window is applied later."""
    files = request.records.readers()
    if not request.in_turns:
        return chain.from_iterable(read() for read in files)
    if request.window:
        files = list(shuffled(iter(files), max(1, len(files)), draws))
    cycle = request.interleave or (SHUFFLED_FILES if request.window else 1)
    return interleaved(files, max(1, min(cycle, len(files))), TURN)
