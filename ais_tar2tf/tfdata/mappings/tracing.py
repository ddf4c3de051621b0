"""`prepare`: decides whether a mapping runs as a TensorFlow graph or as Python, and finds the fields that it reads.

A mapping that cannot be traced, because it uses PIL, numpy or json, runs as Python and needs `output_types=` and
`output_shapes=`. So does a mapping that depends on something that a trace would freeze: randomness, state or the
clock. `purity` searches for these.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.base.nearest import suggestion
from ais_tar2tf.errors import MissingField, OptionTypeError, SchemaError
from ais_tar2tf.records import Record, listed_fields
from ais_tar2tf.tfdata.mappings.mapping import GraphMapping, PythonMapping, argument_of
from ais_tar2tf.tfdata.mappings.outputs import check_types, require_types_and_shapes, with_shapes, with_types
from ais_tar2tf.tfdata.mappings.traced_record import NO_ATTRIBUTES, KnownFields, TracedRecord, TraceNotes
from ais_tar2tf.tfdata.purity import RANDOMNESS, find_impurities
from ais_tar2tf.values.default_mappings import LABEL, Mapping
from ais_tar2tf.values.graph_values import to_number

if TYPE_CHECKING:
    tf: Any
else:
    tf = LazyModule("tensorflow")

__all__ = ["prepare"]

_TRACES = 3  # traces of a mapping; if they differ, the mapping depends on randomness that the search did not find
_REMEDY = (
    ". Or use tf.random, tf.timestamp and tf.Variable, which work in a graph; or say graph=True: Python then "
    "runs only while the mapping is traced, and all records get the values of one trace"
)
_TRACES_DIFFER = f"{RANDOMNESS} or keeps state (traced again, it gave another graph)"
_SEEDED = "it draws random numbers of a seed, which repeat only if calls run in the same order"
# In the text of an error: the function would fail as Python, too.
_MISTAKE = re.compile(r"module '[\w.]+' has no attribute '|\bname '\w+' is not defined")
_log = logging.getLogger("ais_tar2tf")

# Graph operations that cannot fail on any data of the right type.
_HARMLESS = frozenset(
    {"Const", "Identity", "IdentityN", "NoOp", "Pack", "Placeholder", "StringLower", "StringUpper", "StringStrip"}
)


def prepare(
    function: Mapping,
    fields: KnownFields,
    sample: Record | None,
    *,
    output_types: Any = None,
    output_shapes: Any = None,
    label_is_number: bool = False,
    graph: bool | None = None,
) -> GraphMapping | PythonMapping:
    """Return a user's mapping as a graph, or as a function that runs as Python.

    Args:
        function: The user's mapping of a record.
        fields: The fields that records may have.
        sample: The first record. Errors name it.
        output_types: The types of the returned values, in the same structure. A graph does not need them.
        output_shapes: The shapes of the returned values. A graph does not need them.
        label_is_number: Whether to convert the field `cls` to int32 if the mapping returns it unchanged as the second
            value of a pair, and `output_types` is None.
        graph: True for a graph in any case; False for Python in any case; None for a graph unless the mapping
            cannot be traced, or depends on something that a trace would freeze.

    Raises:
        MissingField: The mapping reads a field that no record has.
        SchemaError: The mapping has to run as Python, and its output types or shapes are missing; or `graph=True`,
            and the mapping cannot be traced.
        OptionTypeError: The function cannot be called with one record.
    """
    graph = None if graph is None else bool(graph)  # it may be numpy's bool
    check_types(output_types)
    _check_parameters(function)
    return _Preparation(function, fields, sample, output_types, output_shapes, label_is_number, graph).choose()


class _Preparation(NamedTuple):
    """The arguments of `prepare`, and the steps by which it decides."""

    function: Mapping
    fields: KnownFields
    sample: Record | None
    output_types: Any
    output_shapes: Any
    label_is_number: bool
    graph: bool | None

    def choose(self) -> GraphMapping | PythonMapping:
        found = find_impurities(self.function)
        not_thread_safe = str(found.not_thread_safe or "")
        if self.graph is False:
            return self._as_python("runs as Python (graph=False)", serial_reason=not_thread_safe)
        if self.graph is None and found.first is not None:
            why = f"runs as Python, for each record anew, because {found.first}"
            return self._as_python(why, _REMEDY, serial_reason=not_thread_safe)
        notes, traces = TraceNotes(), list[GraphMapping]()
        try:
            for _ in range(_TRACES):
                traces.append(self._trace(notes))
        except Exception as error:  # noqa: BLE001  # a user's function may raise any error on symbolic tensors
            if not notes.undecided:
                return self._as_python(self._why_no_graph(error, notes), serial_reason=not_thread_safe)
        if notes.undecided:
            asks = f"asks whether a record has {notes.undecided[0]!r}, which a graph cannot answer"
            if self.graph:
                raise SchemaError(f"graph=True, but this mapping {asks}{self.fields.advice}")
            return self._as_python(f"{asks}, so it runs as Python", self.fields.advice, serial_reason=not_thread_safe)
        return self._compared(traces, notes, not_thread_safe)

    def _as_python(self, why: str, remedy: str = "", *, serial_reason: str) -> PythonMapping:
        """Return the function as a mapping in Python. Raise SchemaError if its output types or shapes are unknown."""
        what = f"this mapping {why}"
        outputs = require_types_and_shapes(self.output_types, self.output_shapes, what, remedy)
        return PythonMapping(self.function, tuple(self.fields.names), *outputs, why, serial_reason)

    def _compared(
        self, traces: Sequence[GraphMapping], notes: TraceNotes, not_thread_safe: str
    ) -> GraphMapping | PythonMapping:
        """Return the first trace if the traces are equal, or if `graph` is True; otherwise a mapping in Python."""
        # The function read the fields in `notes.missing`, and caught the KeyError.
        absent = () if self.fields.selected else dict.fromkeys([*notes.absent, *notes.missing])
        serial_reason = _SEEDED if _has_seeded_randomness(traces[0]) else ""
        traced = replace(traces[0], absent=tuple(absent), serial_reason=serial_reason)
        if len({_graph_text(each) for each in traces}) == 1:
            return traced
        if self.graph:
            _log.warning(
                "graph=True: each trace of the mapping gives another graph; the first graph is used for all records"
            )
            return traced
        why = f"runs as Python, for each record anew, because {_TRACES_DIFFER}"
        return self._as_python(why, _REMEDY, serial_reason=not_thread_safe or _TRACES_DIFFER)

    def _why_no_graph(self, error: Exception, notes: TraceNotes) -> str:
        """Return why a function cannot be traced. Raise an error if the function would fail as Python, too."""
        ours = _own_error(error)
        if notes.missing and (isinstance(error, KeyError) or _last_line(error).startswith("KeyError")):
            raise _no_such_field(notes.missing[0], self.fields.names, self.sample) from None
        if ours is not None:
            raise ours from None
        _, as_attribute, advice = _last_line(error).partition(NO_ATTRIBUTES)
        if as_attribute:
            raise SchemaError(f"the mapping reads an attribute; {as_attribute}{advice}") from error
        if _MISTAKE.search(_last_line(error)):
            raise SchemaError(f"the mapping fails for every record: {_last_line(error)}") from error
        if self.graph:
            raise SchemaError(
                f"graph=True, but this mapping cannot become a TensorFlow graph: {_last_line(error)}"
            ) from error
        return f"cannot become a TensorFlow graph ({_last_line(error)}), so it runs as Python"

    def _trace(self, notes: TraceNotes) -> GraphMapping:
        """Trace the function once.

        Log in `notes` what the function does with fields that some or all records lack. The result states which
        fields this trace uses; they are not logged in `notes.touched`, because another trace may use others.
        """
        function, names, touched = self.function, self.fields.names, set[str]()
        notes = replace(notes, touched=touched)
        no_autograph: Callable[[Mapping], Mapping] = tf.autograph.experimental.do_not_convert

        kind = TracedRecord.class_for(self.fields, notes)

        @no_autograph
        def begin(arguments: dict[str, Any]) -> TracedRecord:
            return kind({name: arguments[argument_of(name)] for name in names})

        @no_autograph
        def finish(result: Any, arguments: dict[str, Any]) -> Any:
            if result is None:
                raise SchemaError("the mapping returns None: does a `return` miss at its end?")
            if inspect.isgenerator(result):
                raise SchemaError("the mapping is a generator: return what becomes of the record instead of `yield`")
            if isinstance(result, TracedRecord):
                result = result.copy()
            if self.label_is_number and self.output_types is None:
                result = _number_label(result, arguments.get(argument_of(LABEL)))
            return with_shapes(with_types(result, self.output_types), self.output_shapes)

        def by_argument(**arguments: Any) -> Any:
            return finish(function(begin(arguments)), arguments)

        specs = {argument_of(name): tf.TensorSpec((), tf.string) for name in names}
        traced = tf.function(by_argument).get_concrete_function(**specs)
        if not tf.nest.flatten(traced.structured_outputs):
            raise TypeError("the function returns nothing")
        operations = {operation.type for operation in traced.graph.get_operations()}
        used = tuple(name for name in names if name in touched)
        return GraphMapping(traced, tuple(names), used, fallible=not operations <= _HARMLESS)


def _check_parameters(function: Mapping) -> None:
    """Refuse a function that cannot be called with one record."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C without a signature
        return
    try:
        signature.bind({})
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise OptionTypeError(
            f"a mapping is called with one record, a dict of its fields, and {name}{signature} cannot be ({error}): "
            "write it as def mapping(record)"
        ) from None


def _own_error(error: BaseException | None) -> SchemaError | MissingField | None:
    """Return the error of this package that AutoGraph wrapped in another error; None if there is none."""
    while error is not None and not isinstance(error, SchemaError | MissingField):
        error = error.__cause__ or error.__context__
    return error


def _has_seeded_randomness(mapping: GraphMapping) -> bool:
    """Return whether a graph has random operations with a seed. Their numbers depend on the order of calls."""
    graph = mapping.traced.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return any(node.attr["seed"].i or node.attr["seed2"].i for node in nodes if "seed2" in node.attr)


def _graph_text(mapping: GraphMapping) -> str:
    """Return a graph as text that is the same for equal graphs: without numbers in names, with sorted functions."""
    graph = mapping.traced.graph.as_graph_def()
    parts = [str(graph.node), *sorted(re.sub(r"_\d+", "", str(function)) for function in graph.library.function)]
    return re.sub(r"_\d+", "", "\n".join(parts))


def _number_label(result: Any, label: Any) -> Any:
    if isinstance(result, tuple) and len(result) == 2 and label is not None and result[1] is label:
        return result[0], to_number(label, tf.int32)
    return result


def _no_such_field(field: str, names: Sequence[str], sample: Record | None) -> MissingField:
    at = sample or {"__shard__": "(no record)", "__key__": ""}
    return MissingField(
        f"the mapping reads field {field!r}; there are: {listed_fields(names)}{suggestion(field, names)}",
        shard=at["__shard__"],
        key=at["__key__"],
    )


def _last_line(error: Exception) -> str:
    """Return the last line of an error's text. AutoGraph puts the original message there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
