"""The reader of chunks: the Python function that a dataset's graph calls for its next records.

The dataset calls the reader in a `tf.data.Dataset.scan`. The state of this scan contains the text of the next chunk's
position, and tf.data passes the text to each call. Between two calls, the open stream at this position waits in a
`StreamPool`, so that sequential reading opens no new stream. For a position from a checkpoint, the pool has no
stream, and the reader opens one. The reader must not decide the order of records: the streams do.

A *run* is the pass of one iterator over the dataset (see `runs.py`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ais_tar2tf.base import forking
from ais_tar2tf.base.file_bytes import raise_unread
from ais_tar2tf.errors import MappingError, Tar2TFError
from ais_tar2tf.records import BlockTable, Record, Records
from ais_tar2tf.streams.datasets.loops import wrong_index
from ais_tar2tf.streams.order import StreamPosition
from ais_tar2tf.streams.reader import Stream
from ais_tar2tf.tfdata.columns import as_bytes, as_column, column_of, packed, require_absent
from ais_tar2tf.tfdata.liveness import LivenessTokens, number_of
from ais_tar2tf.tfdata.mappings.mapping import GraphMapping, PythonMapping
from ais_tar2tf.tfdata.mappings.python_record import DIFFERENCE_COLUMN, field_differences
from ais_tar2tf.tfdata.progress import EpochOffset, IterationStart
from ais_tar2tf.tfdata.request import DatasetRequest
from ais_tar2tf.tfdata.runs import Run, Runs
from ais_tar2tf.tfdata.stream_pool import ActiveReads, StreamPool
from ais_tar2tf.values.mapping_errors import mapping_error

__all__ = ["ChunkReader"]


class ChunkReader:
    """Reads the chunks of one dataset by position, and finds the errors of records on which a mapping failed.

    TensorFlow's threads call `read_chunk`. If the dataset has several iterators, several threads call it at once.
    """

    def __init__(self, request: DatasetRequest, start: IterationStart | None = None) -> None:
        self.request = request
        self.cut: Any = request.cut
        self.start: IterationStart = start or IterationStart()
        read = request.reading.read
        self.active_reads: ActiveReads = ActiveReads()
        self._tokens = LivenessTokens()
        self._pool = StreamPool(read.limits.open_streams, read.timeouts.dropped, self._tokens)
        self._next_epoch = 0  # the first epoch of the next iterator
        self._lock = forking.lock()
        self._runs = Runs()
        self._fallible_mapping: GraphMapping | None = None
        self._position_error: Exception | None = None

    def diagnose_with(self, mapping: GraphMapping) -> None:
        """Make `read_chunk` keep its errors for `diagnose_gaps` instead of raising them.

        A graph mapping that can fail runs under `ignore_errors()`, which would also suppress errors of `read_chunk`.
        """
        self._fallible_mapping = mapping

    def read_chunk(self, text: bytes, token: Any) -> tuple[Any, ...]:
        """Read the chunk at a position.

        Args:
            text: The text of the position; empty for a new iterator.
            token: The iterator's token from the previous call; see the module `liveness`.

        Returns:
            A tuple, of which `dataset.py` hands to TensorFlow what the dataset needs:

            * the text of the next position, and the token: the arguments of the next call
            * whether there is a next call
            * the text of this position; empty unless a mapping can fail
            * the number of the chunk's first record
            * the columns of the chunk

            The columns are empty at the end of the run, after an error that is kept for `diagnose_gaps`, and when
            another thread closed the stream during the call.
        """
        began = time.perf_counter()
        token = self._tokens.current(token)
        try:
            position, stream = self._locate(text)
        except Exception as error:
            if self._fallible_mapping is None:
                raise
            self._position_error = error
            return self._outputs(text, token, self._beginning(0, 0), Records())
        run = self._runs.of(position)
        try:
            if run.error is not None:
                return self._outputs(text, token, position, Records())
            return self._read_run(run, position, stream, text, token)
        finally:
            ended = time.perf_counter()
            self.request.account.add(reading=ended - began, idle=began - (run.last_return or began))
            run.last_return = ended

    def _locate(self, text: bytes) -> tuple[StreamPosition, Stream | None]:
        """Return the position that a text stands for, and the open stream at this position, if there is one."""
        if not text:
            return self._begin_run()
        stream = self._pool.take(text)
        return (self._parse(text), None) if stream is None else (stream.position, stream)

    def _read_run(
        self, run: Run, position: StreamPosition, stream: Stream | None, text: bytes, token: Any
    ) -> tuple[Any, ...]:
        """Read the next chunk of a run, and return the result of `read_chunk`.

        After an error, close the stream. Raise the error, or keep it for `diagnose_gaps`.
        """
        try:
            stream = stream or self._open(position)
            return self._next_chunk(run, position, stream, token)
        except Exception as error:
            if stream is not None:
                stream.close()
            if self.start.log is not None:
                self.start.log.failed(position.run)
            if self._fallible_mapping is None:
                raise
            run.error = error
            return self._outputs(text, token, position, Records())

    def _next_chunk(self, run: Run, position: StreamPosition, stream: Stream, token: Any) -> tuple[Any, ...]:
        """Read the next chunk of a stream, and return the result of `read_chunk`.

        Then put the stream into the pool, or close it at the end of the run.
        """
        chunk = self._read(stream, position)
        if chunk is None:
            return self._outputs(position.to_text().encode(), token, position, Records(), has_next=True)
        next_position = stream.position
        next_text = next_position.to_text().encode()
        outputs = self._outputs(next_text, token, position, chunk, has_next=bool(chunk))
        stream = self._checked_end(stream) if chunk else stream
        self._log(position, next_position, next_text)
        if chunk:
            self._check_length(next_position, at_end=False)
            self._pool.put(next_text, stream, number_of(token))
            self.request.account.add_emitted(len(chunk))
        else:
            run.end_count = position.count
            stream.close()
            self._check_length(position, at_end=True)
        return outputs

    def _log(self, position: StreamPosition, next_position: StreamPosition, next_text: bytes) -> None:
        log, start = self.start.log, self.request.loop.start_at
        if log is None:
            return
        if next_position.count > position.count:
            log.passed(position.run, next_position.count - start, next_text.decode())
        else:
            log.ended(position.run, position.count - start)

    def _checked_end(self, stream: Stream) -> Stream:
        """Check that a stream has no more records than the index states, and return the stream.

        After this number of records, tf.data asks for no further chunk. So a surplus record would be lost silently.
        If another thread closes the stream during the check, return a new stream at the same position.
        """
        end = stream.position
        if self._expected_end(end) != end.count:
            return stream
        surplus = self._read(stream, end)
        while surplus is None:
            stream = self._open(end)
            surplus = self._read(stream, end)
        if surplus:
            raise wrong_index(self.request.reading, end.seed, fewer=False)
        return stream

    def _expected_end(self, position: StreamPosition) -> int | None:
        """Return the record count at the end of a run; None if the run is endless, or no index states the count."""
        per_epoch = self.request.reading.length(position.seed)
        if per_epoch is None or self.request.loop.epochs < 0:
            return None
        return max(
            self.request.loop.start_at, self.request.loop.epochs * per_epoch - self._runs.of(position).records_before
        )

    def _check_length(self, position: StreamPosition, *, at_end: bool) -> None:
        """Raise an error if a run has more or fewer records than the index states."""
        expected = self._expected_end(position)
        if expected is None or position.count == expected or (position.count < expected and not at_end):
            return
        if at_end and self._runs.of(position).begin is None:
            return  # another process began the run, so the number of records before its begin is unknown
        raise wrong_index(self.request.reading, position.seed, fewer=at_end)

    def _read(self, stream: Stream, position: StreamPosition) -> Records | None:
        """Return the next chunk of a stream; None if another thread closed the stream. Close it after an error."""
        most, is_first = self._records_to_batch_end(position), position.count == self.request.loop.start_at
        mapping = self.request.elements.mapping
        with self.active_reads.reading(stream):
            try:
                chunk = stream.next_chunk(most, full=most is not None or not is_first)
                return chunk if mapping is None else require_absent(chunk, mapping.absent)
            except BaseException:
                if stream.closed:
                    return None
                stream.close()
                raise

    def _records_to_batch_end(self, position: StreamPosition) -> int | None:
        """Return how many records to read so that the chunk ends where a batch ends.

        TensorFlow need not copy records to make a batch that lies in one chunk. The first chunk has only one batch,
        so that it arrives early. Return None if the dataset has no batches, or if a batch is larger than a chunk.
        """
        batch, whole = self.request.loop.batch, self.request.batches_per_chunk
        if batch is None or not whole:
            return None
        emitted = position.count - self.request.loop.start_at
        return batch * (whole if emitted else 1) - emitted % batch

    def note_unread(self, files: Any, text: bytes) -> np.bool_:
        """Raise the error after TensorFlow could not read the fields of a chunk from their files.

        A mapping that can fail runs under `ignore_errors()`, which would suppress this error. Then keep the error: it
        ends the run, and `diagnose_gaps` raises it.

        Args:
            files: A row for each file, which begins with the descriptor.
            text: The text of the chunk's position; empty unless a mapping can fail.

        Returns:
            False, because the run ends.
        """
        try:
            raise_unread(files[:, 0])
        except Tar2TFError as error:
            if self._fallible_mapping is None:
                raise
            self._runs.of(self._parse(text)).error = error
            return np.False_

    def diagnose_gaps(self, text: bytes, last: np.int64, texts: Any, numbers: Any) -> np.bool_:
        """Find the errors of the records between records on which the mapping succeeded.

        The dataset's `on_error` decides whether such an error is raised or counted as a skip. An error that
        `read_chunk` kept is always raised.

        Args:
            text: The text of the position of the chunk that contains record `last`; empty before the first record.
            last: The number of the last record on which the mapping succeeded.
            texts: The texts of the positions of the chunks that contain the records `numbers`.
            numbers: The numbers of the next records on which the mapping succeeded. The number -1 stands for the end.

        Returns:
            True, because TensorFlow needs a value.
        """
        for next_text, number in zip(texts, numbers, strict=True):
            if number != last + 1:
                self._diagnose_gap(text, last, number)
            text, last = next_text, number
        return np.True_

    def _diagnose_gap(self, text: bytes, last: np.int64, number: np.int64) -> None:
        error, self._position_error = self._position_error, None
        if error is not None:
            raise error
        begin = self._parse(text) if text else self._runs.latest_begin()
        run, at_end = self._runs.of(begin), number < 0
        if at_end and run.error is not None:
            raise run.error
        if at_end and run.end_count == last + 1:
            return
        stream = self.request.reading.open(begin, self.request.account.with_new_stats())
        try:
            stream.discard(int(last) + 1 - begin.count)
            missing = None if at_end else int(number - last) - 1
            while missing is None or missing > 0:
                chunk = stream.next_chunk(missing)
                if not chunk:
                    break
                for record in chunk:
                    self.request.account.take_back(self._mapping_failure(record))
                missing = None if missing is None else missing - len(chunk)
        finally:
            stream.close()

    def _mapping_failure(self, record: Record) -> Tar2TFError:
        assert self._fallible_mapping is not None
        try:
            self._fallible_mapping.try_on(
                {name: as_bytes(record.get(name, b"")) for name in self.request.elements.names}
            )
        except Exception as error:  # noqa: BLE001  # the mapping may raise any error
            return mapping_error(error, record)
        return MappingError(
            "the mapping failed on this record, but succeeded when it was called again",
            shard=record["__shard__"],
            key=record["__key__"],
        )

    def _begin_run(self) -> tuple[StreamPosition, Stream | None]:
        """Choose and return the first position of a new iterator.

        Also return the open stream at this position if a stream was needed to find the position; otherwise None.
        """
        offset = self.start.next_offset(max(1, self.request.loop.epochs)) or EpochOffset(self._take_epoch())
        number = random.SystemRandom().getrandbits(62)
        stream = None if offset.position is None else self._stream_from(offset.position, offset.skip, number)
        position = self._counted_position(offset, number) if stream is None else stream.position
        run = self._runs.of(position)
        run.begin, run.records_before = position, offset.records
        if self.start.log is not None:
            self.start.log.began(number, offset)
        return position, stream

    def _beginning(self, epoch: int, run_number: int) -> StreamPosition:
        seed = self.start.seed_for(self.request.loop.seed)
        return replace(self.request.reading.begin(epoch, seed, self.request.loop.epochs), run=run_number)

    def _counted_position(self, offset: EpochOffset, run_number: int) -> StreamPosition:
        """Return the position of an `EpochOffset`. Find it by counting records from the start of the epoch."""
        request, begin = self.request, self._beginning(offset.epoch, run_number)
        records = offset.records + request.loop.start_at
        found = request.reading.seek(begin, records, request.account) if records else begin
        return replace(found, count=request.loop.start_at)

    def _stream_from(self, text: str, skip: int, run_number: int) -> Stream:
        """Open a stream at a saved position, and discard the first `skip` records."""
        saved = self.request.reading.parse(text)
        stream = self._open(replace(saved, run=run_number, count=self.request.loop.start_at - skip))
        stream.discard(skip)
        return stream

    def has_records(self, offset: EpochOffset, records: int) -> bool:
        """Return whether at least `records` records follow an offset. The statistics do not count these records."""
        reading = self.request.reading
        position = self._counted_position(offset, 0) if offset.position is None else reading.parse(offset.position)
        stream = reading.open(position, self.request.account.with_new_stats())
        try:
            stream.discard(offset.skip)
            while records > 0 and (chunk := stream.next_chunk(records)):
                records -= len(chunk)
            return records <= 0
        finally:
            stream.close()

    def _parse(self, text: bytes) -> StreamPosition:
        """Return the position of a text. Let new iterators begin after the last epoch of the position's run."""
        position = self.request.reading.parse(text.decode())
        with self._lock:
            self._next_epoch = max(self._next_epoch, position.epoch + max(0, position.epochs_left) + 1)
        return position

    def _take_epoch(self) -> int:
        """Return the first epoch of a new iterator. Reserve all its epochs, or only the first if they are endless."""
        with self._lock:
            epoch = self._next_epoch
            self._next_epoch += max(1, self.request.loop.epochs)
        return epoch

    def _open(self, position: StreamPosition) -> Stream:
        return self.request.source.open(position, self.request.account)

    def _outputs(
        self, next_text: bytes, token: Any, position: StreamPosition, chunk: Records, *, has_next: bool = False
    ) -> tuple[Any, ...]:
        """Return the result of `read_chunk`, in the types that TensorFlow accepts."""
        text = b"" if self._fallible_mapping is None else position.to_text().encode()
        names = self.request.elements.columns
        if self.cut is None:
            arrays = [as_column(self._column(name, chunk)) for name in names]
        else:
            table = chunk.block_table or BlockTable((), [], frozenset())
            others = {name: self._column(name, chunk) for name in names if name not in table.places}
            arrays = packed(table.with_columns(others), names)
        return next_text, token, np.bool_(has_next), text, np.int64(position.count), *arrays

    def _column(self, name: str, chunk: Records) -> Sequence[Any]:
        request = self.request
        if name == DIFFERENCE_COLUMN:
            return field_differences(chunk, request.elements.names)
        optional = name in request.elements.optional or isinstance(request.elements.mapping, PythonMapping)
        return column_of(chunk, name, optional=optional)
