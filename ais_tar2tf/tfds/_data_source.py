"""Random access to the records of a prepared TFDS data set, in both formats, without TensorFlow.

TFDS has it for ArrayRecord alone, and without negative indices and slices. A TFRecord file has no index: where its
records begin is found by hopping over the lengths that it states, once for each file.
"""

from __future__ import annotations

import bisect
import importlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

import numpy as np

from ais_tar2tf import forking
from ais_tar2tf.allocation import LARGE_FIELDS, keep_freed
from ais_tar2tf.errors import SchemaError, TruncatedArchive
from ais_tar2tf.export.framing import FRAME_BYTES, HEADER_BYTES, check_payload, payload_length
from ais_tar2tf.tfds._plain_features import plain_decoder

# As modules of any kind: what TFDS says of its types is not what it does.
base: Any = importlib.import_module("tensorflow_datasets.core.data_sources.base")
decode: Any = importlib.import_module("tensorflow_datasets.core.decode")
file_adapters: Any = importlib.import_module("tensorflow_datasets.core.file_adapters")

__all__ = ["DataSource", "TFRecordFiles"]

_TRAILER_BYTES = FRAME_BYTES - HEADER_BYTES


class DataSource(base.BaseDataSource):
    """The samples of a split by number: `source[5]`, `source[-1]`, `source[2:8]`, which is such a source again."""

    def __init__(
        self,
        dataset_info: Any,
        split: Any,
        decoders: Any = None,
        deserialize_method: Any = decode.DeserializeMethod.DESERIALIZE_AND_DECODE,
    ) -> None:
        keep_freed(LARGE_FIELDS)
        instructions = base.file_instructions(dataset_info, split)
        array_record = dataset_info.file_format == file_adapters.FileFormat.ARRAY_RECORD
        files = _array_record(instructions) if array_record else TFRecordFiles(instructions)
        super().__init__(dataset_info, split, decoders, deserialize_method)
        self.data_source: Any = files
        self._rows = range(len(files))
        self._plain: Callable[[bytes], dict[str, Any]] | None = None
        if decoders is None and deserialize_method == decode.DeserializeMethod.DESERIALIZE_AND_DECODE:
            self._plain = plain_decoder(dataset_info.features)

    def __reduce__(self) -> tuple[Any, ...]:
        """Other processes read the data set's own description: the builder, which belongs to this one, stays."""
        said = (self.split, self.decoders, self.deserialize_method)
        return _restored, (os.fspath(self.dataset_info.data_dir), said, self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        if isinstance(key, slice):
            return self.rows(self._rows[key])
        return self._deserialize(self.data_source[self._rows[key]])

    def rows(self, rows: range) -> DataSource:
        """These rows of the same files, which stay open."""
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__, _rows=rows)
        return part

    def __getitems__(self, keys: Iterable[SupportsIndex]) -> list[Any]:
        rows = [self._rows[key] for key in keys]
        return [self._deserialize(record) for record in self.data_source.__getitems__(rows)] if rows else []

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def _deserialize(self, record: bytes) -> Any:
        return self._plain(record) if self._plain is not None else super()._deserialize(record)


def _restored(data_dir: str, said: tuple[Any, ...], rows: range) -> DataSource:
    tfds: Any = importlib.import_module("tensorflow_datasets")
    return DataSource(tfds.builder_from_directory(data_dir).info, *said).rows(rows)


def _array_record(instructions: list[Any]) -> Any:
    module: Any = importlib.import_module("array_record.python.array_record_data_source")
    return module.ArrayRecordDataSource(instructions) if instructions else ()


class TFRecordFiles:
    """The payloads of TFRecord files by number; files are opened when they are first read."""

    def __init__(self, instructions: Iterable[Any]) -> None:
        self._parts = [part for part in instructions if _count(part)]
        self._ends = list(itertools.accumulate(map(_count, self._parts)))
        self._files: dict[str, _File] = {}
        self._lock = forking.lock()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, key: SupportsIndex) -> bytes:
        row = range(len(self))[key]
        number = bisect.bisect_right(self._ends, row)
        part = self._parts[number]
        within = row - (self._ends[number - 1] if number else 0)
        return self._file(os.fspath(part.filename)).read(part.skip + within)

    def __getitems__(self, keys: Iterable[SupportsIndex]) -> list[bytes]:
        return [self[key] for key in keys]

    def __getstate__(self) -> dict[str, Any]:
        return {"_parts": self._parts, "_ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _files={}, _lock=forking.lock())

    def _file(self, name: str) -> _File:
        with self._lock:
            if name not in self._files:
                self._files[name] = _File(name)
            return self._files[name]


def _count(part: Any) -> int:
    """The records of a file that belong to a split: a slice of one leaves out some at its ends."""
    return part.examples_in_shard - part.skip if part.take < 0 else part.take


class _File:
    def __init__(self, name: str) -> None:
        self._name = name
        self._handle = open(name, "rb", buffering=0)  # noqa: SIM115, PTH123  # closed when it is collected
        self._offsets = np.fromiter(self._hop(), np.int64)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()

    def _hop(self) -> Iterator[int]:
        """Where each record begins, and where the file ends."""
        end, offset = os.fstat(self._handle.fileno()).st_size, 0
        while offset < end:
            yield offset
            header = os.pread(self._handle.fileno(), HEADER_BYTES, offset)
            offset += FRAME_BYTES + payload_length(header, file=self._name, offset=offset)
        if offset != end:
            raise TruncatedArchive("the file ends within a record", shard=self._name, offset=end)
        yield offset

    def read(self, number: int) -> bytes:
        if not 0 <= number < len(self._offsets) - 1:
            raise SchemaError(f"{self._name} holds {len(self._offsets) - 1:,} records; there is no number {number:,}")
        begin, end = int(self._offsets[number]), int(self._offsets[number + 1])
        handle = self._handle.fileno()
        payload = os.pread(handle, end - begin - FRAME_BYTES, begin + HEADER_BYTES)
        check_payload(payload, os.pread(handle, _TRAILER_BYTES, end - _TRAILER_BYTES), file=self._name, offset=begin)
        return payload
