"""What a mapping makes of each record: calls in C++, or of Python, so many at once.

One that can fail runs unguarded in C++, and failed records drop out; a check behind it sees the gap in the count of
records, finds the missing record again by its position, and says which it was and why.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ais_tar2tf.account import Busy, Choice
from ais_tar2tf.errors import OptionError, Tar2TFError
from ais_tar2tf.fetch.tuning import Climb, calls_at_once
from ais_tar2tf.mapping import mapping_error
from ais_tar2tf.records import Record
from ais_tar2tf.tfdata.calls import plainly
from ais_tar2tf.tfdata.chunks import Chunks, Request
from ais_tar2tf.tfdata.gate import Gate
from ais_tar2tf.tfdata.given import DIFFERENCE, NoSuchField, given
from ais_tar2tf.tfdata.graphs import Dataset, as_it_is, determinism, nothing_of, tf
from ais_tar2tf.tfdata.returned import Returned
from ais_tar2tf.tfdata.tracing import GraphMapping, PythonMapping, flatten_shapes

__all__ = ["CORES", "guarded", "map_graph", "map_python", "tell_calls", "threads"]

_TIMED = 16  # one mapping in so many is timed: telling Python costs more than a small mapping takes
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tell_calls(request: Request) -> None:
    if not request.parallel:
        alone = _alone(request)
        why = f"records of some {request.record_bytes:,} bytes, and {CORES} of the calls compute at once"
        why = f"one after the other, because {alone}" if alone else why
        request.account.chose({"parallel": Choice(f"{_calls(request)}", why)})


def _calls(request: Request) -> int:
    """How many mappings are under way, each with its record."""
    if request.parallel:
        return request.parallel
    return 1 if _alone(request) else calls_at_once(request.record_bytes, CORES)


def _alone(request: Request) -> str:
    """Why the mapping is called for one record after the other; "" where several calls change nothing."""
    return request.mapping.alone if request.mapping is not None else ""


def threads(request: Request) -> int:
    """What the mapping's calls may need; one in Python may wait for something else than a core."""
    if isinstance(request.mapping, PythonMapping):
        return _calls(request) + 1  # and one that reads
    return request.parallel or 0


def _timed(mapping: GraphMapping, request: Request) -> Callable[[Any, Any], Any]:
    """The mapping; of some records, how long it took goes to the account. Determinism forbids asking the clock."""

    @plainly
    def tell(seconds: Any) -> Any:
        request.account.add(mapping=float(seconds) * _TIMED / (request.parallel or min(_calls(request), CORES)))
        return np.True_

    if determinism():
        return as_it_is(lambda _number, columns: mapping(columns))

    @as_it_is
    def call(number: Any, columns: dict[str, Any]) -> Any:
        began = tf.timestamp()
        with tf.control_dependencies([began]):
            value = mapping({name: tf.identity(column) for name, column in columns.items()})
        # A control dependency on a call waits for its side effects only: on what it returns, for all of it.
        tensors = [tf.identity(each) for each in tf.nest.flatten(value, expand_composites=True)]
        with tf.control_dependencies(tensors):
            seconds = tf.timestamp() - began

        def told() -> Any:
            return tf.ensure_shape(tf.numpy_function(tell, [seconds], tf.bool, stateful=True), ())

        with tf.control_dependencies(
            [tf.cond(tf.equal(number % _TIMED, _TIMED - 1), told, lambda: tf.constant(True))]
        ):
            return tf.nest.map_structure(tf.identity, value, expand_composites=True)

    return call


def map_graph(dataset: Dataset, mapping: GraphMapping, request: Request, chunks: Chunks) -> Dataset:
    calls = _calls(request)
    timed = _timed(mapping, request)
    if not mapping.fallible:
        return dataset.map(as_it_is(lambda tags, columns: timed(tags[1], columns)), num_parallel_calls=calls)
    chunks.diagnose_with(mapping)
    explain = plainly(chunks.explain)
    tagged = as_it_is(lambda tags, columns: (tags, timed(tags[1], columns)))
    mapped = dataset.map(tagged, num_parallel_calls=calls).ignore_errors(log_warning=False)
    nothing = tf.nest.map_structure(nothing_of, mapping.spec)
    end = tf.data.Dataset.from_tensors(((tf.constant(""), tf.constant(-1, tf.int64)), nothing))

    @as_it_is
    def check(state: Any, element: Any) -> Any:
        position, last = state
        (at, number), value = element
        checked = tf.cond(
            tf.equal(number, last + 1),
            lambda: tf.constant(True),
            lambda: tf.ensure_shape(tf.numpy_function(explain, [position, last, number], tf.bool, stateful=True), ()),
        )
        with tf.control_dependencies([checked]):
            return (tf.identity(at), tf.identity(number)), (number >= 0, value)

    return (
        mapped.concatenate(end)
        .scan((tf.constant(""), tf.constant(request.start_at - 1, tf.int64)), check)
        .filter(as_it_is(lambda is_record, _value: is_record))
        .map(as_it_is(lambda _is_record, value: value))
    )


def map_python(dataset: Dataset, mapping: PythonMapping, request: Request) -> Dataset:
    names, account = request.names, request.account
    types = [tf.as_dtype(dtype) for dtype in tf.nest.flatten(mapping.types)]
    shapes = flatten_shapes(mapping.shapes, len(types))

    busy = Busy(account)
    gate = _gate(request)
    turn = mapping.turn if mapping.alone and not request.parallel else contextlib.nullcontext()
    returned = Returned(types, shapes)
    nothing = [nothing_of(tf.TensorSpec(shape, dtype)).numpy() for shape, dtype in zip(shapes, types, strict=True)]

    @plainly
    def call(*values: bytes) -> list[Any]:
        return gate.call(lambda: mapped(lambda: given(names, values[:-1], values[-1])))

    def mapped(record: Callable[[], Record]) -> list[Any]:
        busy.enter()
        try:
            with turn:
                result = tf.nest.flatten(mapping.function(record()))
            converted = returned.converted(result)
        except Exception as error:  # noqa: BLE001  # a StopIteration would end the dataset without a word
            account.take_back(_failure(error, record()))  # which the mapping may have changed
            return [False, *nothing]
        finally:
            busy.leave()
        return [True, *converted]

    @as_it_is
    def apply(_tags: Any, columns: dict[str, Any]) -> Any:
        row = [columns[name] for name in (*names, DIFFERENCE)]
        good, *flat = tf.numpy_function(call, row, [tf.bool, *types], stateful=True)
        good.set_shape(())
        for tensor, shape in zip(flat, shapes, strict=True):
            tensor.set_shape(shape)
        return good, tf.nest.pack_sequence_as(mapping.types, flat)

    return (
        dataset.map(apply, num_parallel_calls=_calls(request))
        .filter(as_it_is(lambda good, _value: good))
        .map(as_it_is(lambda _good, value: value))
    )


def guarded(mapping: GraphMapping, names: Sequence[str]) -> PythonMapping:
    """Return a mapping that calls the graph from Python for each record, and so knows which one fails."""
    specs = tf.nest.flatten(mapping.spec)
    if not all(isinstance(spec, tf.TensorSpec) for spec in specs):
        raise OptionError("small_checkpoints() needs a mapping that returns dense tensors, not ragged or sparse ones")

    def call(record: Record) -> Any:
        return mapping({name: tf.constant(_as_bytes(record.get(name, b""))) for name in mapping.fields})

    types = tf.nest.map_structure(lambda spec: spec.dtype, mapping.spec)
    shapes = [spec.shape for spec in specs]
    why = "checkpoints are to be small"
    return PythonMapping(call, tuple(names), types, shapes, why, mapping.alone, absent=mapping.absent)


def _gate(request: Request) -> Gate:
    most = _calls(request)
    first = most if request.parallel else min(most, CORES)
    if not request.parallel:
        alone = _alone(request)
        why = f"one after the other, because {alone}" if alone else "as many as there are cores, until they wait"
        request.account.chose({"parallel": Choice(f"{first}", why)})
    return Gate(Climb(first, most), request.account.chose)


def _as_bytes(value: Any) -> bytes:
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _failure(error: Exception, record: Record) -> Tar2TFError:
    return error.of(record) if isinstance(error, NoSuchField) else mapping_error(error, record)
