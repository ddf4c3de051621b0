"""`DatasetRequest`: describes a dataset that is to be built. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ais_tar2tf.base.monitoring.stats import Account
from ais_tar2tf.native.operation import cut_library
from ais_tar2tf.options import KIB
from ais_tar2tf.records import KEY_AND_SHARD
from ais_tar2tf.streams.datasets import Reading
from ais_tar2tf.streams.datasets.loops import RecordLoop
from ais_tar2tf.streams.order.seeds import Seed
from ais_tar2tf.tfdata.liveness import can_observe_tokens
from ais_tar2tf.tfdata.mappings.mapping import GraphMapping, PythonMapping
from ais_tar2tf.tfdata.mappings.python_record import DIFFERENCE_COLUMN

__all__ = ["DatasetRequest", "Elements"]

_LARGEST_CUT = 128 * KIB  # bytes of a downloaded record; fields of a larger one are often in two blocks
_ONE_EPOCH = RecordLoop(seed=Seed(0))


@dataclass(frozen=True)
class Elements:
    """How the elements of a dataset are made of records.

    Attributes:
        names: The fields that the mapping gets. Without a mapping, the fields of an element.
        optional: The fields that a record may lack. A lacking field has the value b"".
        mapping: The user's mapping. None: the records are the elements.
        record_bytes: The size of a typical record, in bytes.
    """

    names: tuple[str, ...]
    optional: frozenset[str] = frozenset()
    mapping: GraphMapping | PythonMapping | None = None
    record_bytes: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of a chunk. A graph mapping gets only columns that it reads, but at least one."""
        if isinstance(self.mapping, GraphMapping):
            return self.mapping.fields or KEY_AND_SHARD[:1]
        return self.names if self.mapping is None else (*self.names, DIFFERENCE_COLUMN)


@dataclass(frozen=True)
class DatasetRequest:
    """Everything from which a dataset is built. All options are already checked.

    Attributes:
        reading: The records, in the order in which they are read.
        account: The statistics that reading updates.
        elements: How the elements are made of the records.
        loop: The number of epochs, and the batches.
        parallel: The number of calls of the mapping that run at the same time; None to choose it automatically.
        split: Whether `shard=` divides the records among hosts. TensorFlow must then not divide them again.
        small_checkpoints: Whether a checkpoint holds only positions, without the prefetched records.
        native: Whether the native operation may be used.
    """

    reading: Reading
    account: Account
    elements: Elements
    loop: RecordLoop = _ONE_EPOCH
    parallel: int | None = None
    split: bool = False
    small_checkpoints: bool = False
    native: bool = True

    @cached_property
    def _in_blocks(self) -> Reading | None:
        """The records whose fields the operation cuts; None if they are taken one by one."""
        return self.reading.in_blocks()

    @cached_property
    def cut(self) -> Any:
        """TensorFlow's operation that cuts fields out of blocks and files; None where Python copies each field."""
        reading = self._in_blocks
        is_large = self.elements.record_bytes > _LARGEST_CUT
        if not self.native or reading is None or (is_large and not (reading.from_files and self.account.raises)):
            return None
        return cut_library() if can_observe_tokens() else None  # the operation needs arrays that keep files open

    @property
    def source(self) -> Reading:
        """The records as they are read: with their fields in blocks and files if the operation cuts them."""
        return self.reading if self.cut is None or self._in_blocks is None else self._in_blocks

    @cached_property
    def batches_per_chunk(self) -> int:
        """The number of whole batches in a chunk; 0 without batches, or if a batch is too large."""
        if self.loop.batch is None:
            return 0
        limits = self.source.read.limits
        # Python's copies of the fields take as much memory again, unless the operation cuts them out of blocks.
        room = limits.chunk_bytes // 2 if self.cut is None else limits.chunk_bytes
        records = room // max(1, self.elements.record_bytes)
        return min(limits.chunk_records, records) // self.loop.batch

    @property
    def record_count(self) -> int | None:
        """The number of records that an iterator emits; -1 if it is endless, None if the number is unknown."""
        per_epoch = self.reading.length(self.loop.seed.value)
        if self.loop.epochs < 0:
            return 0 if per_epoch == 0 else -1
        return None if per_epoch is None else max(0, self.loop.epochs * per_epoch - self.loop.start_at)

    @property
    def element_count(self) -> int | None:
        """The number of batches, or of records without batches; -1 and None mean the same as in `record_count`."""
        records = self.record_count
        if records is None or records < 0 or self.loop.batch is None:
            return records
        return records // self.loop.batch if self.loop.drop_remainder else -(-records // self.loop.batch)
