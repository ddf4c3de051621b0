"""The definition of a transformer: plain values that are written as JSON. This module must not pickle code."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import xxhash

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.ops import Func, Pipeline
from ais_tar2tf.recordfiles.formats import all_formats, find_format
from ais_tar2tf.records import Record, splitter
from ais_tar2tf.values.default_mappings import default_record_to_example

__all__ = ["ENVIRONMENT", "OUTPUTS", "SECRET_NAME", "Definition"]

ENVIRONMENT = "AIS_TAR2TF_ETL"
"""The environment variable in which a container finds its definition."""

SECRET_NAME = "AIS_TAR2TF_ETL_SECRET"  # noqa: S105  # a variable's name
"""The environment variable with the secret that begins every request's path. If unset, targets need no secret."""

OUTPUTS = tuple(each.name for each in all_formats() if each.concatenated)
_VERSION = 1
_WHY = "code does not go to the cluster, and nothing is pickled"


@dataclass(frozen=True)
class Definition:
    """The work of a transformer: how it changes each record, and which format it writes.

    With every field at its default, the output is what `load_from_tar(path=…)` writes.

    Attributes:
        conversions: Ops that are applied to each record first.
        selections: The values that are selected from the converted record.
        record_to_example: An installed function, as "package.module:function", used instead of selections.
        output: "tfrecord" or "tar".
        grouping: "first-dot" or "last-dot".
    """

    conversions: tuple[Any, ...] = ()
    selections: tuple[Any, ...] = ()
    record_to_example: str | None = None
    output: str = "tfrecord"
    grouping: str = "first-dot"

    @classmethod
    def of(
        cls,
        conversions: Sequence[Any] = (),
        selections: Any = (),
        record_to_example: Callable[[Record], Any] | str | None = None,
        output: str = "tfrecord",
        grouping: Any = "first-dot",
    ) -> Definition:
        """Return a definition.

        Args:
            conversions: Ops that are applied to each record first.
            selections: The values to select from the converted record.
            record_to_example: A function of an installed module, or its name as "package.module:function".
            output: "tfrecord" or "tar".
            grouping: "first-dot" or "last-dot".

        Raises:
            SchemaError: An argument is not valid, or cannot be written as data.
        """
        if output not in OUTPUTS:
            raise SchemaError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        if callable(grouping):
            raise SchemaError(f"a grouping of your own is a function, and {_WHY}; say 'first-dot' or 'last-dot'")
        splitter(grouping)
        pipeline = Pipeline(conversions, selections)
        for op in pipeline.conversions:
            if isinstance(op, Func):
                raise SchemaError(
                    f"{_label(op.function)} is a function of yours, and {_WHY}: say it by ops, put it into an "
                    "installed module as record_to_example, or run it here (remote_exec=False)"
                )
        definition = cls(pipeline.conversions, pipeline.selections, _name_of(record_to_example), output, grouping)
        definition.to_json()  # raises an error if an op has a value that JSON cannot hold
        return definition

    @property
    def pipeline(self) -> Pipeline | None:
        return Pipeline(self.conversions, self.selections) if self.conversions or self.selections else None

    @property
    def function(self) -> Callable[[Record], Any] | None:
        """The function that `record_to_example` names, imported."""
        if self.record_to_example is None:
            return None
        return _import_function(self.record_to_example)

    @property
    def change(self) -> Callable[[Record], Any]:
        """The function that maps a record to the value to write, the same as in `AisDataset.load(path=…)`."""
        pipeline, function = self.pipeline, self.function
        if pipeline is None:
            default = default_record_to_example if find_format(self.output).holds_examples else dict
            return function or cast("Callable[[Record], Any]", default)
        if function is None:
            return pipeline
        return lambda record: function(pipeline.convert(record))

    @property
    def name(self) -> str:
        """The default name of the ETL: a hash, equal for equal definitions."""
        return f"t2t-{xxhash.xxh64_hexdigest(self.to_json().encode())}"

    def to_json(self) -> str:
        """Return the definition as JSON."""
        pipeline = Pipeline(self.conversions, self.selections)
        document: dict[str, Any] = {"version": _VERSION, **pipeline.to_json(), "output": self.output}
        document |= {"record_to_example": self.record_to_example, "grouping": self.grouping}
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Definition:
        """Return the definition that `to_json` wrote.

        Args:
            text: The text that `to_json` returned.

        Raises:
            SchemaError: The text is not such a definition.
        """
        try:
            document = json_value(text)
        except SchemaError as error:
            raise SchemaError(f"this is no definition ({error}): {text[:200]}") from error
        try:
            if not isinstance(document, Mapping) or document.get("version") != _VERSION:
                raise SchemaError(f"this is no definition of version {_VERSION}: {text[:200]}")
            function, output, grouping = (document[name] for name in ("record_to_example", "output", "grouping"))
            pipeline = Pipeline.from_json(cast("Mapping[str, Any]", document))
            return cls.of(pipeline.conversions, pipeline.selections, function, output, grouping)
        except (ValueError, LookupError, TypeError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"this is no definition ({error}): {text[:200]}") from error


def _name_of(function: Callable[[Record], Any] | str | None) -> str | None:
    """Return a function's name as `module:function`; refuse a function that no other process can import so."""
    if function is None or function is default_record_to_example:
        return None
    if isinstance(function, str):
        _import_function(function)
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or "<" in name:
        raise SchemaError(
            f"{_label(function)} is no function of a module that can be installed in the cluster, and {_WHY}: "
            "put it into one, say it by ops, or run it here (remote_exec=False)"
        )
    full_name = f"{module}:{name}"
    if _import_function(full_name) is not function:
        raise SchemaError(
            f"the cluster gets only the name of a function, and {full_name} names another function than the given one"
        )
    return full_name


def _import_function(full_name: str) -> Callable[[Record], Any]:
    module, colon, name = full_name.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise SchemaError(f"a function is named 'package.module:function', not {full_name!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SchemaError(
            f"there is no {full_name!r} here ({error}): install its module, also in the image"
        ) from error
    if not callable(found):
        raise SchemaError(f"{full_name!r} is no function")
    return found


def _label(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
