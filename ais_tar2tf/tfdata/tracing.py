"""How a user's function of a record is traced: into a graph when it can be, and which fields it touches.

What cannot be traced (PIL, numpy, json) runs as Python, and must say what it returns. So does a function in which
`reach` finds something that a trace would freeze: randomness, state, the clock.
TensorFlow is imported when something here is called.
"""

from __future__ import annotations

import inspect
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ais_tar2tf.errors import MissingField, OptionTypeError, SchemaError
from ais_tar2tf.mapping import LABEL, Mapping, to_number
from ais_tar2tf.nearest import suggestion
from ais_tar2tf.records import Record, said_fields
from ais_tar2tf.tfdata.chance import RANDOMNESS
from ais_tar2tf.tfdata.reach import findings_of
from ais_tar2tf.tfdata.traced import NO_ATTRIBUTES, Fields, Notes, TracedRecord

__all__ = ["GraphMapping", "PythonMapping", "flatten_shapes", "prepare"]


@dataclass(frozen=True)
class GraphMapping:
    """A traced function of all `names`, of which it touches `fields`."""

    traced: Any  # a ConcreteFunction of one string tensor a name
    names: tuple[str, ...]
    fields: tuple[str, ...]
    fallible: bool  # whether there is an operation in it that can fail on data
    absent: tuple[str, ...] = ()  # fields that no record may have: the function asked, and the sample had none
    alone: str = ""  # why it is called for one record after the other; "" where several calls change nothing

    @property
    def spec(self) -> Any:
        """The structure, types and shapes of what it returns."""
        import tensorflow as tf

        return tf.nest.map_structure(tf.type_spec_from_value, self.traced.structured_outputs)

    @property
    def selected(self) -> Any:
        """The structure with a field's name in each place, when all it does is to hand fields on; else None."""
        import tensorflow as tf

        fields = {_argument(name): name for name in self.names}
        found = [fields.get(_origin(tensor)) for tensor in tf.nest.flatten(self.traced.outputs)]
        if None in found or len(found) != len(tf.nest.flatten(self.traced.structured_outputs)):
            return None
        return tf.nest.pack_sequence_as(self.traced.structured_outputs, found)

    def try_on(self, values: dict[str, bytes]) -> None:
        """Raise what it raises on one record."""
        import tensorflow as tf

        self({name: tf.constant(value) for name, value in values.items()})

    def __call__(self, columns: dict[str, Any]) -> Any:
        import tensorflow as tf

        blank = tf.constant("")
        return self.traced(**{_argument(n): columns[n] if n in self.fields else blank for n in self.names})


def _origin(tensor: Any) -> str:
    """The name of the operation that a tensor comes from, through operations that change nothing."""
    while tensor.op.type == "Identity":
        (tensor,) = tensor.op.inputs
    return tensor.op.name if tensor.op.type == "Placeholder" else ""


@dataclass(frozen=True)
class PythonMapping:
    """A function that runs as Python, and the types and shapes of what it returns."""

    function: Mapping
    fields: tuple[str, ...]
    types: Any
    shapes: Any
    why: str  # it is no graph
    alone: str = ""  # why it is called from one thread at a time; "" for a function that keeps nothing
    turn: threading.Lock = field(default_factory=threading.Lock)  # of all datasets that are made with it
    absent: tuple[str, ...] = ()  # as a graph's


_TRACES = 3  # of one function: chance that nothing was found of shows in one that differs
_REMEDY = (
    ". Or use tf.random, tf.timestamp and tf.Variable, which work in a graph; or say graph=True, and Python runs "
    "only once, for all records"
)
_DIFFERS = f"{RANDOMNESS} or keeps state (traced again, it gave another graph)"
_SEEDED = "it draws random numbers of a seed, which are the same again in the same order"
_MISTAKE = re.compile(r"module '[\w.]+' has no attribute '|\bname '\w+' is not defined")  # in a graph and in Python
_log = logging.getLogger("ais_tar2tf")

# Graph operations that cannot fail on any data of the right type; all others are guarded.
_HARMLESS = frozenset(
    {"Const", "Identity", "IdentityN", "NoOp", "Pack", "Placeholder", "StringLower", "StringUpper", "StringStrip"}
)


def prepare(
    function: Mapping,
    fields: Fields,
    sample: Record | None,
    *,
    output_types: Any = None,
    output_shapes: Any = None,
    label_is_number: bool = False,
    graph: bool | None = None,
) -> GraphMapping | PythonMapping:
    """Trace `function` over a record of the fields, or find that it has to run as Python.

    `label_is_number`: a `cls` that a pair hands through untouched is a label, and becomes int32 unless
    `output_types` says otherwise. `graph`: True for a graph in any case, False for Python in any case; None for a
    graph where nothing is found that a trace would freeze.

    Raises:
        MissingField: The function reads a field that no record has.
        SchemaError: It has to run as Python, and nothing says what it returns; or `graph=True`, and it cannot.
        OptionTypeError: `graph` is neither True nor False nor None.
    """
    if str(graph) not in ("None", "True", "False"):
        raise OptionTypeError(f"graph is True, False or None, not {graph!r}")
    check_types(output_types)
    _check_parameters(function)
    names, found = fields.names, findings_of(function)

    def as_python(why: str, remedy: str = "", *, alone: str = "") -> PythonMapping:
        shown = _required(output_types, output_shapes, f"this mapping {why}", remedy)
        return PythonMapping(function, tuple(names), *shown, why, str(found.alone or alone))

    if graph is False:
        return as_python("runs as Python (graph=False)")
    if graph is None and found.first is not None:
        return as_python(f"runs as Python, for each record anew, because {found.first}", _REMEDY)
    notes, traces = Notes(), list[GraphMapping]()
    try:
        for _ in range(_TRACES):
            traces.append(_trace(function, fields, notes, output_types, output_shapes, label_is_number))
    except Exception as error:  # noqa: BLE001  # whatever a user's function raises on symbolic tensors
        if not notes.asked:
            return as_python(_why_no_graph(error, notes, fields, sample, must_be=graph))
    if notes.asked:
        asks = f"asks whether a record has {notes.asked[0]!r}, which a graph cannot answer"
        if graph:
            raise SchemaError(f"graph=True, but this mapping {asks}{fields.advice}")
        return as_python(f"{asks}, so it runs as Python", fields.advice)
    absent = () if fields.selected else dict.fromkeys([*notes.absent, *notes.missing])  # it caught the KeyError
    traced = replace(traces[0], absent=tuple(absent), alone=_SEEDED if _draws_of_a_seed(traces[0]) else "")
    if len({_drawing(each) for each in traces}) == 1:
        return traced
    if graph:
        _log.warning("graph=True: traced again, the mapping gives another graph; all records get what the first drew")
        return traced
    return as_python(f"runs as Python, for each record anew, because {_DIFFERS}", _REMEDY, alone=_DIFFERS)


def _check_parameters(function: Mapping) -> None:
    """Refuse a function that cannot be called with one record."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a function in C that does not say
        return
    try:
        signature.bind({})
    except TypeError as error:
        name = getattr(function, "__name__", type(function).__name__)
        raise OptionTypeError(
            f"a mapping is called with one record, a dict of its fields, and {name}{signature} cannot be ({error}): "
            "write it as def mapping(record)"
        ) from None


def _why_no_graph(
    error: Exception, notes: Notes, fields: Fields, sample: Record | None, *, must_be: bool | None
) -> str:
    """Say why a function has no graph that can run as Python; raise what is wrong with it in any case."""
    ours = _ours(error)
    if notes.missing and (isinstance(error, KeyError) or _last_line(error).startswith("KeyError")):
        raise _no_such_field(notes.missing[0], fields.names, sample) from None
    if ours is not None:
        raise ours from None
    _, as_attribute, said = _last_line(error).partition(NO_ATTRIBUTES)
    if as_attribute:
        raise SchemaError(f"the mapping reads an attribute; {as_attribute}{said}") from error
    if _MISTAKE.search(_last_line(error)):
        raise SchemaError(f"the mapping fails for every record: {_last_line(error)}") from error
    if must_be:
        raise SchemaError(
            f"graph=True, but this mapping cannot become a TensorFlow graph: {_last_line(error)}"
        ) from error
    return f"cannot become a TensorFlow graph ({_last_line(error)}), so it runs as Python"


def _ours(error: BaseException | None) -> SchemaError | MissingField | None:
    """What we raised ourselves, within what AutoGraph made of it."""
    while error is not None and not isinstance(error, SchemaError | MissingField):
        error = error.__cause__ or error.__context__
    return error


def _draws_of_a_seed(mapping: GraphMapping) -> bool:
    """Return whether a graph has random operations that a seed gives the same numbers, in the same order of calls."""
    graph = mapping.traced.graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return any(node.attr["seed"].i or node.attr["seed2"].i for node in nodes if "seed2" in node.attr)


def _drawing(mapping: GraphMapping) -> str:
    """The graph as text, without the counters that TensorFlow puts into names; its functions stand in no order."""
    graph = mapping.traced.graph.as_graph_def()
    parts = [str(graph.node), *sorted(re.sub(r"_\d+", "", str(function)) for function in graph.library.function)]
    return re.sub(r"_\d+", "", "\n".join(parts))


def _trace(
    function: Mapping,
    fields: Fields,
    notes: Notes,
    output_types: Any,
    output_shapes: Any,
    label_is_number: bool,
) -> GraphMapping:
    import tensorflow as tf

    names, touched = fields.names, set[str]()
    notes = replace(notes, touched=touched)
    as_it_is: Callable[[Mapping], Mapping] = tf.autograph.experimental.do_not_convert  # ours, unlike the user's

    kind = TracedRecord.of_trace(fields, notes)

    @as_it_is
    def begin(arguments: dict[str, Any]) -> TracedRecord:
        return kind({name: arguments[_argument(name)] for name in names})

    @as_it_is
    def finish(result: Any, arguments: dict[str, Any]) -> Any:
        if result is None:
            raise SchemaError("the mapping returns None: does a `return` miss at its end?")
        if inspect.isgenerator(result):
            raise SchemaError("the mapping is a generator: return what becomes of the record instead of `yield`")
        if isinstance(result, TracedRecord):
            result = result.copy()
        if label_is_number and output_types is None:
            result = _number_label(result, arguments.get(_argument(LABEL)))
        return _shaped(_typed(result, output_types), output_shapes)

    def by_argument(**arguments: Any) -> Any:
        return finish(function(begin(arguments)), arguments)

    specs = {_argument(name): tf.TensorSpec((), tf.string) for name in names}
    traced = tf.function(by_argument).get_concrete_function(**specs)
    if not tf.nest.flatten(traced.structured_outputs):
        raise TypeError("the function returns nothing")
    operations = {operation.type for operation in traced.graph.get_operations()}
    used = tuple(name for name in names if name in touched)
    return GraphMapping(traced, tuple(names), used, fallible=not operations <= _HARMLESS)


def _argument(name: str) -> str:
    """A field's name as the name of a graph's input: `seg.png` is no identifier."""
    return "f_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in name)


def _number_label(result: Any, label: Any) -> Any:
    import tensorflow as tf

    if isinstance(result, tuple) and len(result) == 2 and label is not None and result[1] is label:
        return result[0], to_number(label, tf.int32)
    return result


def _typed(result: Any, output_types: Any) -> Any:
    """The result with the types asked for: numbers written as text are read, numbers are cast."""
    import tensorflow as tf

    if output_types is None:
        return tf.nest.map_structure(
            lambda value: value if tf.is_tensor(value) else tf.convert_to_tensor(value), result
        )

    def convert(value: Any, dtype: Any) -> Any:
        tensor = tf.convert_to_tensor(value)
        if tensor.dtype == tf.string and tf.as_dtype(dtype) != tf.string:
            return to_number(tensor, dtype)
        if tf.as_dtype(dtype) == tf.string and tensor.dtype != tf.string:
            raise SchemaError(
                f"output_types says string, and the mapping returns {tensor.dtype.name}: say tf.{tensor.dtype.name}, "
                "or make text of it by tf.strings.as_string"
            )
        return tf.cast(tensor, dtype) if tensor.dtype != tf.as_dtype(dtype) else tensor

    return tf.nest.map_structure(convert, result, _like(result, output_types))


def _shaped(result: Any, output_shapes: Any) -> Any:
    import tensorflow as tf

    if output_shapes is None:
        return result
    flat = tf.nest.flatten(result)
    shapes = flatten_shapes(output_shapes, len(flat))
    for value, shape in zip(flat, shapes, strict=True):
        if not value.shape.is_compatible_with(shape):
            raise SchemaError(f"output_shapes says {shape}, and the mapping returns a value of shape {value.shape}")
    return tf.nest.pack_sequence_as(
        result, [tf.ensure_shape(value, shape) for value, shape in zip(flat, shapes, strict=True)]
    )


def _like(result: Any, types: Any) -> Any:
    import tensorflow as tf

    flat = tf.nest.flatten(types)
    if len(flat) != len(tf.nest.flatten(result)):
        raise SchemaError(f"output_types has {len(flat)} types, the mapping returns {len(tf.nest.flatten(result))}")
    return tf.nest.pack_sequence_as(result, flat)


def check_types(output_types: Any) -> None:
    """Refuse types that TensorFlow does not have."""
    import tensorflow as tf

    for each in [] if output_types is None else tf.nest.flatten(output_types):
        try:
            tf.as_dtype(each)
        except TypeError:
            raise SchemaError(
                f"output_types: there is no type {each!r}; say tf.float32, tf.int64, tf.string …"
            ) from None


def flatten_shapes(shapes: Any, count: int) -> list[Any]:
    """The shapes in a nest of shapes; a lone list or tuple of numbers is one shape."""
    import tensorflow as tf

    def is_shape(value: Any) -> bool:
        return isinstance(value, tf.TensorShape) or (
            isinstance(value, list | tuple) and all(n is None or isinstance(n, int) for n in value)
        )

    def walk(value: Any) -> Iterator[Any]:
        if is_shape(value):
            yield tf.TensorShape(value)
        elif isinstance(value, dict):
            for key in sorted(value):
                yield from walk(value[key])
        elif not isinstance(value, list | tuple):
            raise SchemaError(f"output_shapes holds shapes, as (224, 224, 3) or (), not {value!r}")
        else:
            for part in value:
                yield from walk(part)

    found = list(walk(shapes))
    if len(found) == 1 and shapes == (None,) * count:
        unknown: Any = None  # which the stubs do not know
        found = [tf.TensorShape(unknown)] * count
    if len(found) != count:
        raise SchemaError(f"output_shapes has {len(found)} shapes, the mapping returns {count}")
    return found


def _required(output_types: Any, output_shapes: Any, what: str, remedy: str) -> tuple[Any, Any]:
    """Return the types and shapes, which only the user knows of a function in Python."""
    given = {"output_types": output_types, "output_shapes": output_shapes}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise SchemaError(
            f"{what}, and needs {' and '.join(missing)}: say what it returns, for example "
            f"output_types=(tf.float32, tf.int32), output_shapes=((224, 224, 3), ()){remedy}"
        )
    return output_types, output_shapes


def _no_such_field(field: str, names: Sequence[str], sample: Record | None) -> MissingField:
    at = sample or {"__shard__": "(no record)", "__key__": ""}
    return MissingField(
        f"the mapping reads field {field!r}; there are: {said_fields(names)}{suggestion(field, names)}",
        shard=at["__shard__"],
        key=at["__key__"],
    )


def _last_line(error: Exception) -> str:
    """Where AutoGraph and Python put what really happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
