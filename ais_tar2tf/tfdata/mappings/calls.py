"""The calls of a mapping inside a tf.data pipeline: as operations of a graph, or as a Python function.

An error in a graph does not name its record. So `map_graph` lets tf.data drop the records on which a mapping fails. A
check after the mapping finds gaps in the numbers of the records. For each gap, the check reads the missing records
again, and calls the mapping on each of them. If the mapping fails again, `on_error` decides whether the mapping's
error is raised or the record is skipped. A check takes some 0.1 ms, so it looks at whole batches, unless the last one
may be dropped.

This module must not decide whether a mapping runs as a graph or as Python: `tracing` does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.base.monitoring.stats import AutoChoice, Busy
from ais_tar2tf.errors import OptionError, Tar2TFError
from ais_tar2tf.fetch.tuning import Climb, calls_at_once
from ais_tar2tf.records import Record
from ais_tar2tf.tfdata.chunk_reader import ChunkReader
from ais_tar2tf.tfdata.columns import as_bytes
from ais_tar2tf.tfdata.mappings.concurrency import ConcurrencyLimit
from ais_tar2tf.tfdata.mappings.mapping import GraphMapping, PythonMapping
from ais_tar2tf.tfdata.mappings.outputs import PythonOutputs, flatten_shapes
from ais_tar2tf.tfdata.mappings.python_record import DIFFERENCE_COLUMN, NoSuchFieldError, unpack_record
from ais_tar2tf.tfdata.request import DatasetRequest
from ais_tar2tf.tfdata.shutdown import tensorflow_callback
from ais_tar2tf.tfdata.tf import Dataset, empty_value, is_op_determinism_enabled, no_autograph, tf
from ais_tar2tf.values.mapping_errors import mapping_error

__all__ = ["CORES", "batched", "guarded", "map_graph", "map_python", "thread_count"]

_TIMED = 16  # one call in 16 is timed: reporting a time to Python takes longer than a small mapping
# The number of cores that this process may use.
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _call_count(mapping: GraphMapping | PythonMapping, request: DatasetRequest) -> int:
    """Return how many calls of a mapping may run at the same time."""
    if request.parallel:
        return request.parallel
    return 1 if mapping.serial_reason else calls_at_once(request.elements.record_bytes, CORES)


def _report_calls(mapping: GraphMapping | PythonMapping, request: DatasetRequest, count: int, why: str) -> None:
    """Record `count`, the number of simultaneous calls, in the statistics, unless the user chose this number.

    The statistics also state the reason: `why`, or why the calls must run one after another.
    """
    if not request.parallel:
        why = f"one after the other, because {mapping.serial_reason}" if mapping.serial_reason else why
        request.account.note_choices({"parallel": AutoChoice(f"{count}", why)})


def thread_count(request: DatasetRequest) -> int:
    """Return how many threads of TensorFlow a mapping may need; 0 if TensorFlow's usual number is enough.

    Calls that wait, for example for a disk, need more threads than there are cores.
    """
    if isinstance(request.elements.mapping, PythonMapping):
        return _call_count(request.elements.mapping, request) + 1  # one more thread reads records
    return request.parallel or 0


def _timed(mapping: GraphMapping, request: DatasetRequest) -> Callable[[Any, Any], Any]:
    """Return a function of (record number, columns) that calls the mapping, and measures the time of some calls.

    With op determinism, TensorFlow forbids reading the clock, so no call is timed.
    """
    at_once = request.parallel or min(_call_count(mapping, request), CORES)

    @tensorflow_callback
    def report(seconds: Any) -> Any:
        request.account.add(mapping=float(seconds) * _TIMED / at_once)
        return np.True_

    if is_op_determinism_enabled():
        return no_autograph(lambda _number, columns: mapping(columns))

    @no_autograph
    def call(number: Any, columns: dict[str, Any]) -> Any:
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            value = mapping({name: tf.identity(column) for name, column in columns.items()})
        # The clock is read again after all results exist. A dependency on the function's call would wait only for its
        # side effects.
        tensors = [tf.identity(each) for each in tf.nest.flatten(value, expand_composites=True)]
        with tf.control_dependencies(tensors):
            seconds = tf.timestamp() - began

        def reported() -> Any:
            return tf.ensure_shape(tf.numpy_function(report, [seconds], tf.bool, stateful=True), ())

        with tf.control_dependencies(
            [tf.cond(tf.equal(number % _TIMED, _TIMED - 1), reported, lambda: tf.constant(True))]
        ):
            return tf.nest.map_structure(tf.identity, value, expand_composites=True)

    return call


def map_graph(dataset: Dataset, mapping: GraphMapping, reader: ChunkReader) -> Dataset:
    """Apply a graph mapping to a dataset of pairs (tags, columns), and make batches of the results.

    Args:
        dataset: The dataset. The tags of a record are the position of the record's chunk, as text, and the record's
            number.
        mapping: The mapping.
        reader: The reader of the dataset's chunks. It also reads the records of gaps again.
    """
    request = reader.request
    calls = _call_count(mapping, request)
    _report_calls(
        mapping,
        request,
        calls,
        f"records of some {request.elements.record_bytes:,} bytes, and {CORES} of the calls compute at once",
    )
    timed = _timed(mapping, request)
    if not mapping.fallible:
        mapped = dataset.map(no_autograph(lambda tags, columns: timed(tags[1], columns)), num_parallel_calls=calls)
        return batched(mapped, request)
    reader.diagnose_with(mapping)
    # A remainder is checked before it is dropped. TensorFlow's error about a batch of different shapes counts the
    # tensors of an element: with the value first, the number is the same as in the dataset. Without batches, older
    # checkpoints hold elements with the tags first.
    by_batch = request.loop.batch is not None and not request.loop.drop_remainder

    def paired(tags: Any, value: Any) -> Any:
        return (value, tags) if by_batch else (tags, value)

    tagged = no_autograph(lambda tags, columns: paired(tags, timed(tags[1], columns)))
    mapped = dataset.map(tagged, num_parallel_calls=calls).ignore_errors(log_warning=False)
    # An element with the number -1 follows the last mapped record. It never has the number that the check expects, so
    # the check also looks for missing records there.
    nothing = tf.nest.map_structure(empty_value, mapping.spec)
    end = tf.data.Dataset.from_tensors(paired((tf.constant(""), tf.constant(-1, tf.int64)), nothing))
    if by_batch:
        return _checked(batched(mapped, request).concatenate(end.batch(1)), reader, paired)
    return batched(_checked(mapped.concatenate(end), reader, paired), request)


def _checked(dataset: Dataset, reader: ChunkReader, paired: Callable[[Any, Any], Any]) -> Dataset:
    """Check the record numbers of elements that `paired` made, or of batches of them, and drop the tags."""
    diagnose_gaps = tensorflow_callback(reader.diagnose_gaps)

    @no_autograph
    def check(state: Any, element: Any) -> Any:
        position, last = state
        tags, value = paired(*element)  # its own inverse
        positions, numbers = (tf.reshape(tag, [-1]) for tag in tags)
        expected = tf.range(last + 1, last + 1 + tf.size(numbers, out_type=tf.int64))
        checked = tf.cond(
            tf.reduce_all(tf.equal(numbers, expected)),
            lambda: tf.constant(True),
            lambda: tf.ensure_shape(
                tf.numpy_function(diagnose_gaps, [position, last, positions, numbers], tf.bool, stateful=True), ()
            ),
        )
        with tf.control_dependencies([checked]):
            return (tf.identity(positions[-1]), tf.identity(numbers[-1])), (numbers[0] >= 0, value)

    before = tf.constant(""), tf.constant(reader.request.loop.start_at - 1, tf.int64)
    return _only_good(dataset.scan(before, check))


def batched(dataset: Dataset, request: DatasetRequest) -> Dataset:
    """Make batches of a dataset's elements if the request has batches."""
    loop = request.loop
    return dataset if loop.batch is None else dataset.batch(loop.batch, drop_remainder=loop.drop_remainder)


def map_python(dataset: Dataset, mapping: PythonMapping, request: DatasetRequest) -> Dataset:
    """Apply a Python mapping to a dataset of pairs (tags, columns)."""
    names, account = request.elements.names, request.account
    types = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(mapping.types)]
    shapes = flatten_shapes(mapping.shapes, len(types))

    busy = Busy(account)
    calls = _call_count(mapping, request)
    first = calls if request.parallel else min(calls, CORES)
    _report_calls(mapping, request, first, "as many as there are cores, until they wait")
    limit = ConcurrencyLimit(Climb(first, calls), account.note_choices)
    serial = mapping.serial_lock if mapping.serial_reason and not request.parallel else contextlib.nullcontext()
    outputs = PythonOutputs(types, shapes)
    nothing = [empty_value(tf.TensorSpec(shape, dtype)).numpy() for shape, dtype in zip(shapes, types, strict=True)]

    @tensorflow_callback
    def call(*values: bytes) -> list[Any]:
        return limit.call(lambda: mapped(lambda: unpack_record(names, values[:-1], values[-1])))

    def mapped(unpack: Callable[[], Record]) -> list[Any]:
        busy.enter()
        try:
            with serial:
                result = tf.nest.flatten(mapping.function(unpack()))
            converted = outputs.converted(result)
        except Exception as error:  # noqa: BLE001  # tf.data would end the dataset at a StopIteration
            account.take_back(_failure(error, unpack()))  # unpacked again: the mapping may have changed the record
            return [False, *nothing]
        finally:
            busy.leave()
        return [True, *converted]

    @no_autograph
    def apply(_tags: Any, columns: dict[str, Any]) -> Any:
        row = [columns[name] for name in (*names, DIFFERENCE_COLUMN)]
        good, *flat = tf.numpy_function(call, row, [tf.bool, *types], stateful=True)
        good.set_shape(())
        for tensor, shape in zip(flat, shapes, strict=True):
            tensor.set_shape(shape)
        return good, tf.nest.pack_sequence_as(mapping.types, flat)

    return _only_good(dataset.map(apply, num_parallel_calls=calls))


def _only_good(dataset: Dataset) -> Dataset:
    """Return the values of a dataset of pairs (is_good, value), without the values that are not good."""
    good = dataset.filter(no_autograph(lambda is_good, _value: is_good))
    return good.map(no_autograph(lambda _is_good, value: value))


def guarded(mapping: GraphMapping, names: Sequence[str]) -> PythonMapping:
    """Return a mapping in Python that calls a graph mapping for each record, as `small_checkpoints()` needs.

    An error of the graph is then raised for the one record that was passed, so the error can name this record.

    Raises:
        OptionError: The graph returns ragged or sparse tensors.
    """
    specs = tf.nest.flatten(mapping.spec)
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        raise OptionError("small_checkpoints() needs a mapping that returns dense tensors, not ragged or sparse ones")

    def call(record: Record) -> Any:
        return mapping({name: tf.constant(as_bytes(record.get(name, b""))) for name in mapping.fields})

    types = tf.nest.map_structure(lambda spec: spec.dtype, mapping.spec)
    shapes = [spec.shape for spec in specs]
    why = "checkpoints are to be small"
    return PythonMapping(call, tuple(names), types, shapes, why, mapping.serial_reason, absent=mapping.absent)


def _failure(error: Exception, record: Record) -> Tar2TFError:
    return error.with_record(record) if isinstance(error, NoSuchFieldError) else mapping_error(error, record)
