"""Collect payloads into batches, because handling a batch costs little more than handling a payload. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ais_tar2tf.options import MIB

__all__ = ["payload_batches"]

_BATCH_BYTES = 1 * MIB


def payload_batches(payloads: Iterable[bytes], max_records: int | None = None) -> Iterator[list[bytes]]:
    """Yield `payloads` in lists of about 1 MiB, and of at most `max_records` payloads."""
    batch: list[bytes] = []
    size = 0
    for payload in payloads:
        batch.append(payload)
        size += len(payload)
        if size >= _BATCH_BYTES or len(batch) == max_records:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
