"""The two forms that a user's mapping takes in a dataset: a TensorFlow graph, or a Python function."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.values.default_mappings import Mapping

if TYPE_CHECKING:
    tf: Any
else:
    tf = LazyModule("tensorflow")

__all__ = ["GraphMapping", "PythonMapping", "argument_of"]


@dataclass(frozen=True)
class GraphMapping:
    """A mapping that was traced into a TensorFlow graph. Call it with a dict of tensors by field.

    Attributes:
        traced: The ConcreteFunction of the graph. It takes a string tensor for each field of `names`.
        names: The fields that records may have.
        fields: The fields that the graph reads. For any other field, the graph gets an empty string.
        fallible: Whether the graph has an operation that can fail for some records.
        absent: Fields that no record may have, because the trace relies on their absence from the sample.
        serial_reason: Why calls must run one after another; "" when they may run in parallel.
    """

    traced: Any
    names: tuple[str, ...]
    fields: tuple[str, ...]
    fallible: bool
    absent: tuple[str, ...] = ()
    serial_reason: str = ""

    @property
    def spec(self) -> Any:
        """The structure of the values that the graph returns, with their types and shapes."""
        return tf.nest.map_structure(tf.type_spec_from_value, self.traced.structured_outputs)

    @property
    def selected(self) -> Any:
        """The returned structure with the names of fields in place of their values.

        None if the graph does more than return fields unchanged.
        """
        fields = {argument_of(name): name for name in self.names}
        found = [fields.get(_placeholder_of(tensor)) for tensor in tf.nest.flatten(self.traced.outputs)]
        if None in found or len(found) != len(tf.nest.flatten(self.traced.structured_outputs)):
            return None
        return tf.nest.pack_sequence_as(self.traced.structured_outputs, found)

    def try_on(self, values: dict[str, bytes]) -> None:
        """Run the graph on the values of one record. Raise the error that the graph raises."""
        self({name: tf.constant(value) for name, value in values.items()})

    def __call__(self, columns: dict[str, Any]) -> Any:
        blank = tf.constant("")
        return self.traced(**{argument_of(n): columns[n] if n in self.fields else blank for n in self.names})


@dataclass(frozen=True)
class PythonMapping:
    """A mapping that runs as Python for each record.

    Attributes:
        function: The user's function.
        fields: The fields that the function gets.
        types: The structure of the types that the function returns (`output_types`).
        shapes: The shapes of these values (`output_shapes`).
        why: Why the mapping does not run as a graph.
        serial_reason: Why calls must run one after another; "" when they may run in parallel.
        serial_lock: Held during a call that must not run at the same time as another. All datasets of this mapping
            use the same lock.
        absent: Fields that no record may have; see `GraphMapping`.
    """

    function: Mapping
    fields: tuple[str, ...]
    types: Any
    shapes: Any
    why: str
    serial_reason: str = ""
    serial_lock: threading.Lock = field(default_factory=threading.Lock)
    absent: tuple[str, ...] = ()


def argument_of(field_name: str) -> str:
    """Return the name of the graph's input for a field: an identifier, which a field such as `seg.png` is not."""
    return "f_" + "".join(c if c.isascii() and c.isalnum() else f"_{ord(c):x}_" for c in field_name)


def _placeholder_of(tensor: Any) -> str:
    """Return the name of the input that a tensor is an unchanged copy of; "" for any other tensor."""
    while tensor.op.type == "Identity":
        (tensor,) = tensor.op.inputs
    return tensor.op.name if tensor.op.type == "Placeholder" else ""
