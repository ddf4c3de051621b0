"""Ops together, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.nearest import known_options
from ais_tar2tf.ops._base import Conversion, Op, Selection
from ais_tar2tf.ops._conversions import Convert, Decode, Func, Rename, Resize, Rotate
from ais_tar2tf.ops._selections import Select, SelectDict, SelectJSON, SelectList, selection_of, union
from ais_tar2tf.records import NAMES, Record

__all__ = ["Pipeline", "from_json", "to_json"]

_OPS: dict[str, type[Op]] = {
    each.__name__: each
    for each in (Decode, Convert, Resize, Rotate, Rename, Select, SelectJSON, SelectList, SelectDict)
}


@known_options
def to_json(ops: Sequence[Op | str]) -> list[dict[str, Any]]:
    """Ops as plain values; a string is a Select. `Func` has no such form.

    >>> to_json([Resize("jpg", (4, 5)), "cls"])
    [{'op': 'Resize', 'field': 'jpg', 'size': [4, 5]}, {'op': 'Select', 'field': 'cls'}]
    """
    return [(selection_of(op) if isinstance(op, str) else op).to_json() for op in ops]


@known_options
def from_json(said: Sequence[Mapping[str, Any]]) -> list[Any]:
    """What `to_json` gave."""
    return [_op_of(each) for each in said]


def _op_of(said: Mapping[str, Any]) -> Any:
    given = dict(said)
    name = given.pop("op", None)
    if name not in _OPS:
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
        raise SchemaError(f"this is no {name}: {dict(said)!r}") from error


class Pipeline:
    """Conversions one after the other, then selections: one gives its value, several a tuple, none the record.

    >>> Pipeline([Rename(label="cls"), Decode("label")], ["__key__", "label"])({"__key__": "a", "cls": b"7"})
    ('a', 7)
    """

    @known_options
    def __init__(
        self,
        conversions: Sequence[Any] = (),
        selections: str | Mapping[str, Any] | Selection | Sequence[Any] = (),
    ) -> None:
        self.conversions: tuple[Conversion, ...] = tuple(_conversion(each) for each in conversions)
        chosen = [selections] if isinstance(selections, str | Mapping | Selection) else list(selections)
        self.selections: tuple[Selection, ...] = tuple(selection_of(each) for each in chosen)

    def __call__(self, record: Record) -> Any:
        converted = self.convert(record)
        if not self.selections:
            return converted
        values = tuple(selection(converted) for selection in self.selections)
        return values[0] if len(values) == 1 else values

    def convert(self, record: Record) -> Record:
        """The conversions alone. What was renamed while it was read already is left as it is."""
        for conversion in self.conversions:
            record = conversion(record)
        return dict(record.items())

    @property
    def reads(self) -> frozenset[str] | None:
        """The fields of the record that came in which are needed; None when all of them may be."""
        if not self.selections:
            return None
        needed = union(self.selections)
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
        """What to ask the reader for, and what is then left to do: a Rename that comes first is done by the reader.

        So records that have a `jpg` and records that have a `png` fit one graph: their `image` is read.
        """
        head, *others = self.conversions or (None,)
        rest = Pipeline(others, self.selections)
        if not isinstance(head, Rename) or rest.reads is None:
            return _in_order(self.reads, {}), self
        renames = {new: f"{new}={';'.join(olds)}" for new, olds in head.names}
        if (head.reads - renames.keys()) & rest.reads:
            return _in_order(self.reads, {}), self
        return _in_order(rest.reads, renames), rest

    def as_mapping(self) -> Callable[[Record], Any]:
        """As a function for `Source.dataset`, which says by itself what it reads."""
        import tensorflow as tf

        wants, rest = self.pushed_down
        mapping: Any = tf.autograph.experimental.do_not_convert(rest.__call__)
        if wants is not None:
            mapping.fields = wants
        return mapping

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {"conversions": to_json(self.conversions), "selections": to_json(self.selections)}

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Pipeline:
        """What `to_json` gave."""
        return cls(from_json(said["conversions"]), from_json(said["selections"]))


def _conversion(given: Any) -> Conversion:
    if isinstance(given, Conversion):
        return given
    if callable(given) and not isinstance(given, Selection):
        return Func(given)  # type: ignore[arg-type]  # whatever it gives is checked
    raise SchemaError(f"{given!r} converts nothing; Decode, Convert, Resize, Rotate, Rename or Func is expected")


def _in_order(names: frozenset[str] | None, renames: Mapping[str, str]) -> tuple[str, ...] | None:
    return None if names is None else tuple(renames.get(name, name) for name in sorted(names) if name not in NAMES)
