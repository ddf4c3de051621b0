"""Pipelines of ops, and the JSON form of ops and pipelines.

An op is a conversion, which makes a new record of a record, or a selection, which returns a value of a record. A
pipeline applies conversions and then selections. This module must not decode fields by itself: each op does its work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.ops import conversions, selections
from ais_tar2tf.ops.base import ConversionOp, Op, SelectionOp
from ais_tar2tf.ops.conversions import Func, Rename
from ais_tar2tf.ops.selections import SelectDict, SelectList, fields_read, selection_of
from ais_tar2tf.records import KEY_AND_SHARD, Record

__all__ = ["Pipeline", "from_json", "to_json"]

# The classes of ops by name. Func is left out, because its function cannot be written as JSON.
_OPS: dict[str, type[Op]] = {
    name: kind
    for module in (conversions, selections)
    for name in module.__all__
    if isinstance(kind := getattr(module, name), type) and issubclass(kind, Op) and kind is not Func
}


@known_options
def to_json(ops: Sequence[Op | str]) -> list[dict[str, Any]]:
    """Return ops as plain values.

    Args:
        ops: The ops. The name of a field stands for a `Select`.

    Returns:
        A dict for each op, which `json.dumps` accepts and `from_json` reads.

    Raises:
        SchemaError: An op is a `Func`, which cannot be written.

    Example:
        >>> from ais_tar2tf.ops import Resize
        >>> to_json([Resize("jpg", (4, 5)), "cls"])
        [{'op': 'Resize', 'field': 'jpg', 'size': [4, 5]}, {'op': 'Select', 'field': 'cls'}]
    """
    return [(selection_of(op) if isinstance(op, str) else op).to_json() for op in ops]


@known_options
def from_json(said: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Make ops from the plain values that `to_json` returned.

    Args:
        said: A dict for each op.

    Returns:
        The ops.

    Raises:
        SchemaError: A dict describes no op.
    """
    return [_op_of(each) for each in said]


def _op_of(described: Any) -> Any:
    if not isinstance(described, Mapping):
        raise SchemaError(f"this is no op: {described!r}; a dict as {{'op': 'Select', 'field': 'cls'}} is expected")
    given = dict(described)
    name = given.pop("op", None)
    if not isinstance(name, str) or name not in _OPS:
        raise SchemaError(f"there is no op {name!r}; there are: {', '.join(_OPS)}")
    try:
        if name == "Rename":
            return Rename(given["names"])
        if name == "SelectList":
            return SelectList(tuple(from_json(given["items"])))
        if name == "SelectDict":
            return SelectDict({each: _op_of(item) for each, item in given["items"].items()})
        return _OPS[name](**given)
    except SchemaError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SchemaError(f"this is no {name}: {dict(described)!r}") from error


class Pipeline:
    """Conversions that are applied one after the other, and then selections.

    A pipeline is called with a record. It returns the selected value, or a tuple of values if it has several
    selections. Without selections it returns the converted record.

    Example:
        >>> from ais_tar2tf.ops import Decode
        >>> Pipeline([Rename(label="cls"), Decode("label")], ["__key__", "label"])({"__key__": "a", "cls": b"7"})
        ('a', 7)
    """

    @known_options
    def __init__(
        self,
        conversions: Sequence[Any] = (),
        selections: str | Mapping[str, Any] | SelectionOp | Sequence[Any] = (),
    ) -> None:
        """Set the ops.

        Args:
            conversions: Conversions, or functions of a record.
            selections: A selection, the name of a field, or a list or a dict of these.

        Raises:
            SchemaError: One of the arguments contains an object of another type.
        """
        self.conversions: tuple[ConversionOp, ...] = tuple(_conversion(each) for each in conversions)
        chosen = [selections] if isinstance(selections, str | Mapping | SelectionOp) else list(selections)
        self.selections: tuple[SelectionOp, ...] = tuple(selection_of(each) for each in chosen)

    def __call__(self, record: Record) -> Any:
        converted = self.convert(record)
        if not self.selections:
            return converted
        values = tuple(selection(converted) for selection in self.selections)
        return values[0] if len(values) == 1 else values

    def convert(self, record: Record) -> Record:
        """Apply the conversions without the selections.

        Args:
            record: A record of plain values or of tensors.

        Returns:
            The converted record.

        Raises:
            MissingField: The record lacks a field that a conversion reads.
            MappingError: A value cannot be converted.
        """
        for conversion in self.conversions:
            record = conversion(record)
        return dict(record.items())

    @property
    def reads(self) -> frozenset[str] | None:
        """The fields of an unconverted record that the pipeline needs; None if it may need all of them."""
        if not self.selections:
            return None
        needed = fields_read(self.selections)
        for conversion in reversed(self.conversions):
            read = conversion.reads
            if needed is None or read is None:
                return None
            if isinstance(conversion, Rename):
                needed -= {new for new, _ in conversion.names}
            needed |= read
        return needed

    @property
    def pushed_down(self) -> tuple[tuple[str, ...] | None, Pipeline]:
        """The fields to request from the reader (None: all fields), and the pipeline that remains to be applied.

        If the first conversion is a `Rename`, the reader renames the fields instead of the pipeline, if it can. One
        graph then fits records with a `jpg` and records with a `png`: the graph reads the field `image` of both.
        """
        head, *others = self.conversions or (None,)
        rest = Pipeline(others, self.selections)
        if not isinstance(head, Rename) or rest.reads is None:
            return _in_order(self.reads, {}), self
        renames = {new: f"{new}={';'.join(olds)}" for new, olds in head.names}
        # The reader must not rename if the remaining pipeline also reads one of the old names. After a Rename in the
        # pipeline, that field may be gone. The reader would return it, because the remaining pipeline requests it.
        if (head.reads - renames.keys()) & rest.reads:
            return _in_order(self.reads, {}), self
        return _in_order(rest.reads, renames), rest

    def as_mapping(self) -> Callable[[Record], Any]:
        """Return the pipeline as a mapping for `Source.dataset`.

        Returns:
            A function of a record. It has an attribute `fields`, which names the fields that the function reads. The
            attribute is missing if the function may read all fields.
        """
        import tensorflow as tf

        wants, rest = self.pushed_down
        mapping: Any = tf.autograph.experimental.do_not_convert(rest.__call__)
        if wants is not None:
            mapping.fields = wants
        return mapping

    def to_json(self) -> dict[str, Any]:
        """Return the pipeline as plain values.

        Returns:
            A dict that `json.dumps` accepts and `from_json` reads.

        Raises:
            SchemaError: A conversion is a function.
        """
        return {"conversions": to_json(self.conversions), "selections": to_json(self.selections)}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Pipeline:
        """Make a pipeline from the plain values that `to_json` returned.

        Args:
            said: The dict that `to_json` returned.

        Returns:
            The pipeline.

        Raises:
            SchemaError: The dict describes no pipeline, or a dict in it describes no op.
        """
        document: Any = said
        names = ("conversions", "selections")
        if not isinstance(document, Mapping) or not all(
            isinstance(document.get(name), list | tuple) for name in names
        ):
            raise SchemaError(
                f"this is no pipeline: {document!r}; a dict with the lists 'conversions' and 'selections' is expected"
            )
        return cls(*(from_json(document[name]) for name in names))


def _conversion(given: Any) -> ConversionOp:
    if isinstance(given, ConversionOp):
        return given
    if callable(given) and not isinstance(given, SelectionOp):
        return Func(given)  # type: ignore[arg-type]  # Func checks what the function returns
    raise SchemaError(f"{given!r} converts nothing; Decode, Convert, Resize, Rotate, Rename or Func is expected")


def _in_order(names: frozenset[str] | None, renames: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return requests for fields, sorted by name; None for all fields.

    The key and the shard are left out, because every record has them anyway.

    Args:
        names: The names of the fields; None for all fields.
        renames: The request for each field that the reader must rename, such as "image=jpg;png".
    """
    return (
        None
        if names is None
        else tuple(renames.get(name, name) for name in sorted(names) if name not in KEY_AND_SHARD)
    )
