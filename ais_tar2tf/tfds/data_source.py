"""Random access to the records of a prepared TFDS data set, in both file formats, without TensorFlow.

TFDS itself offers random access only for ArrayRecord, and without negative indices and slices. A TFRecord file has no
index, so this module reads the lengths of all records, once for each file, to find where they begin.
"""

from __future__ import annotations

import bisect
import importlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex

import numpy as np

from ais_tar2tf.base import forking
from ais_tar2tf.base.allocation import LARGE_FIELDS, keep_freed
from ais_tar2tf.errors import SchemaError, TruncatedArchive
from ais_tar2tf.recordfiles.formats.framing import FRAME_BYTES, HEADER_BYTES, check_payload, payload_length
from ais_tar2tf.tfds.plain_features import plain_decoder

# Loaded as untyped modules, because the type hints of TFDS do not match its behaviour.
base: Any = importlib.import_module("tensorflow_datasets.core.data_sources.base")
decode: Any = importlib.import_module("tensorflow_datasets.core.decode")
file_adapters: Any = importlib.import_module("tensorflow_datasets.core.file_adapters")

__all__ = ["DataSource"]

_TRAILER_BYTES = FRAME_BYTES - HEADER_BYTES


class DataSource(base.BaseDataSource):
    """A sequence of the samples of a split: `source[5]`, `source[-1]`, or `source[2:8]`, which is a DataSource."""

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
        files = _array_record(instructions) if array_record else _TFRecordFiles(instructions)
        super().__init__(dataset_info, split, decoders, deserialize_method)
        self.data_source: Any = files
        self._rows = range(len(files))
        self._decode_plain: Callable[[bytes], dict[str, Any]] | None = None
        if decoders is None and deserialize_method == decode.DeserializeMethod.DESERIALIZE_AND_DECODE:
            self._decode_plain = plain_decoder(dataset_info.features)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the folder and the arguments. The unpickling process opens the data set itself."""
        arguments = (self.split, self.decoders, self.deserialize_method)
        return _reopened, (os.fspath(self.dataset_info.data_dir), arguments, self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        if isinstance(key, slice):
            return self.rows(self._rows[key])
        return self._deserialize(self.data_source[self._rows[key]])

    def rows(self, rows: range) -> DataSource:
        """Return a DataSource of some rows of the same files, which stay open."""
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__, _rows=rows)
        return part

    def __getitems__(self, keys: Iterable[SupportsIndex]) -> list[Any]:
        rows = [self._rows[key] for key in keys]
        return [self._deserialize(record) for record in self.data_source.__getitems__(rows)] if rows else []

    def __iter__(self) -> Iterator[Any]:
        return map(self.__getitem__, range(len(self)))

    def _deserialize(self, record: bytes) -> Any:
        return self._decode_plain(record) if self._decode_plain is not None else super()._deserialize(record)


def _reopened(data_dir: str, arguments: tuple[Any, ...], rows: range) -> DataSource:
    tfds: Any = importlib.import_module("tensorflow_datasets")
    return DataSource(tfds.builder_from_directory(data_dir).info, *arguments).rows(rows)


def _array_record(instructions: list[Any]) -> Any:
    module: Any = importlib.import_module("array_record.python.array_record_data_source")
    return module.ArrayRecordDataSource(instructions) if instructions else ()


class _TFRecordFiles:
    """A sequence of the payloads in TFRecord files. A file is opened on the first read."""

    def __init__(self, instructions: Iterable[Any]) -> None:
        self._parts = [part for part in instructions if _count(part)]
        self._ends = list(itertools.accumulate(map(_count, self._parts)))
        self._files: dict[str, _TFRecordFile] = {}
        self._lock = forking.lock()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, key: SupportsIndex) -> bytes:
        row = range(len(self))[key]
        number = bisect.bisect_right(self._ends, row)
        part = self._parts[number]
        number_in_file = part.skip + row - (self._ends[number - 1] if number else 0)
        return self._file(os.fspath(part.filename)).read(number_in_file)

    def __getitems__(self, keys: Iterable[SupportsIndex]) -> list[bytes]:
        return [self[key] for key in keys]

    def __getstate__(self) -> dict[str, Any]:
        return {"_parts": self._parts, "_ends": self._ends}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _files={}, _lock=forking.lock())

    def _file(self, name: str) -> _TFRecordFile:
        with self._lock:
            if name not in self._files:
                self._files[name] = _TFRecordFile(name)
            return self._files[name]


def _count(part: Any) -> int:
    """Return how many records of a file belong to a split. A slice of a split skips records at its ends."""
    return part.examples_in_shard - part.skip if part.take < 0 else part.take


class _TFRecordFile:
    """An open TFRecord file and the offsets of its records."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._handle = open(name, "rb", buffering=0)  # noqa: SIM115, PTH123  # closed by __del__
        self._offsets = np.fromiter(self._record_offsets(), np.int64)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._handle.close()

    def _record_offsets(self) -> Iterator[int]:
        """Yield the offset of each record, and the size of the file."""
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
