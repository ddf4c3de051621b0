"""What a transformer does, as plain values: written as JSON, read back, and never as pickled code."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import xxhash

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.mapping import default_record_to_example
from ais_tar2tf.ops import Func, Pipeline
from ais_tar2tf.records import Record, splitter
from ais_tar2tf.values import json_value

__all__ = ["ENVIRONMENT", "OUTPUTS", "SECRET_NAME", "Definition"]

ENVIRONMENT = "AIS_TAR2TF_ETL"
"""Where a container finds its definition."""

SECRET_NAME = "AIS_TAR2TF_ETL_SECRET"  # noqa: S105  # a variable's name
"""Where a container finds the first part of every request's path; without it, the cluster's targets may ask."""

OUTPUTS = ("tfrecord", "tar")
_VERSION = 1
_WHY = "code does not go to the cluster, and nothing is pickled"


@dataclass(frozen=True)
class Definition:
    """Conversions and selections, then a function of an installed module by its name, then the kind of output.

    Without any of them, TFRecord is made by the default record_to_example, as `load_from_tar(path=…)` does.
    """

    conversions: tuple[Any, ...] = ()
    selections: tuple[Any, ...] = ()
    record_to_example: str | None = None  # "package.module:function"
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
        """Checked: what cannot be said as data is refused here, with the reason."""
        if output not in OUTPUTS:
            raise SchemaError(f"output is one of {', '.join(OUTPUTS)}, not {output!r}")
        if callable(grouping):
            raise SchemaError(f"a grouping of your own is a function, and {_WHY}; say 'first-dot' or 'last-dot'")
        splitter(grouping)
        pipeline = Pipeline(conversions, selections)
        for op in pipeline.conversions:
            if isinstance(op, Func):
                raise SchemaError(
                    f"{_shown(op.function)} is a function of yours, and {_WHY}: say it by ops, put it into an "
                    "installed module as record_to_example, or run it here (remote_exec=False)"
                )
        made = cls(pipeline.conversions, pipeline.selections, _name_of(record_to_example), output, grouping)
        made.to_json()
        return made

    @property
    def pipeline(self) -> Pipeline | None:
        return Pipeline(self.conversions, self.selections) if self.conversions or self.selections else None

    @property
    def function(self) -> Callable[[Record], Any] | None:
        """The record_to_example, imported by its name."""
        if self.record_to_example is None:
            return None
        return _imported(self.record_to_example)

    @property
    def change(self) -> Callable[[Record], Any]:
        """From a record to what is written of it, as `AisDataset.load(path=…)` does it on this machine."""
        pipeline, function = self.pipeline, self.function
        if pipeline is None:
            usual = default_record_to_example if self.output == "tfrecord" else dict
            return function or cast("Callable[[Record], Any]", usual)
        if function is None:
            return pipeline
        return lambda record: function(pipeline.convert(record))

    @property
    def name(self) -> str:
        """Of the ETL, if it gets no other: the same for the same definition."""
        return f"t2t-{xxhash.xxh64_hexdigest(self.to_json().encode())}"

    def to_json(self) -> str:
        pipeline = Pipeline(self.conversions, self.selections)
        said: dict[str, Any] = {"version": _VERSION, **pipeline.to_json(), "output": self.output}
        said |= {"record_to_example": self.record_to_example, "grouping": self.grouping}
        return json.dumps(said, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Definition:
        try:
            said = json_value(text)
        except SchemaError as error:
            raise SchemaError(f"this is no definition ({error}): {text[:200]}") from error
        try:
            if not isinstance(said, Mapping) or said.get("version") != _VERSION:
                raise SchemaError(f"this is no definition of version {_VERSION}: {text[:200]}")
            pipeline = Pipeline.from_json(cast("Mapping[str, Any]", said))
            function = said["record_to_example"]
            return cls.of(pipeline.conversions, pipeline.selections, function, said["output"], said["grouping"])
        except (ValueError, LookupError, TypeError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"this is no definition ({error}): {text[:200]}") from error


def _name_of(function: Callable[[Record], Any] | str | None) -> str | None:
    """`module:function`, if that gives the function back in another process."""
    if function is None or function is default_record_to_example:
        return None
    if isinstance(function, str):
        _imported(function)
        return function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if not module or module == "__main__" or "<" in name:
        raise SchemaError(
            f"{_shown(function)} is no function of a module that can be installed in the cluster, and {_WHY}: put it "
            "into one, say it by ops, or run it here (remote_exec=False)"
        )
    said = f"{module}:{name}"
    if _imported(said) is not function:
        raise SchemaError(f"{said} is another function than the one given, and {_WHY}")
    return said


def _imported(said: str) -> Callable[[Record], Any]:
    module, colon, name = said.partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise SchemaError(f"a function is named 'package.module:function', not {said!r}")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise SchemaError(f"there is no {said!r} here ({error}): install its module, also in the image") from error
    if not callable(found):
        raise SchemaError(f"{said!r} is no function")
    return found


def _shown(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
