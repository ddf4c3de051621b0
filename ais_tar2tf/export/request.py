"""From what a user says of an export to what is run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import google_crc32c
import xxhash

from ais_tar2tf.account import Account, OnError
from ais_tar2tf.class_names import find_class_names
from ais_tar2tf.errors import OptionError
from ais_tar2tf.export.boundaries import DEFAULT_SIZE, Bounds, bounds_of
from ais_tar2tf.export.formats import check_format, overhead_of
from ais_tar2tf.export.manifest import NAME
from ais_tar2tf.export.portions import Share
from ais_tar2tf.export.run import EXISTS, Target, export_shards
from ais_tar2tf.export.serializers import Serializer, Typed
from ais_tar2tf.export.shard_units import Job
from ais_tar2tf.export.splits import Ratios, Route, described, route_of
from ais_tar2tf.locations import location_text
from ais_tar2tf.mapping import wants
from ais_tar2tf.nearest import check_choice
from ais_tar2tf.options import Writing, check_effect
from ais_tar2tf.progress import progress_for
from ais_tar2tf.reader import Shards
from ais_tar2tf.records import Record
from ais_tar2tf.schema import Field, Schema
from ais_tar2tf.stores import TokenSource, whole_url

__all__ = ["ExportOptions", "check_names", "export_source", "function_described", "target_of"]

_ALIGNMENTS = ("stream", "shard")
_SPLIT = "train"


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What `Source.export` takes beside the place; it says what each means."""

    format: str = "tfrecord"
    name: str = "dataset"
    split: str = _SPLIT
    splits: Mapping[str, Any] | None = None
    seed: int = 0
    shard_size: int | str | None = DEFAULT_SIZE
    shard_records: int | None = None
    align: str = "stream"
    workers: int | None = None
    exists: str = "resume"
    record_to_example: Callable[[Record], Any] | None = None
    schema: Schema | None = None
    types: Mapping[str, Any] | None = None
    idx: bool = False
    shard: tuple[int, int] | Share | None = None
    progress: bool | None = None
    writing: Writing | None = None
    endpoint: str | None = None
    token: TokenSource | None = None

    def __post_init__(self) -> None:
        check_format(self.format)
        check_names(self.name, self.exists)
        check_choice("align", self.align, _ALIGNMENTS)
        if self.workers is not None and self.workers < 1:
            raise OptionError(f"workers is at least 1, not {self.workers!r}")
        if self.schema is not None and (self.format == "tar" or self.record_to_example is not None):
            raise OptionError("a schema is for TFRecord and ArrayRecord, and without record_to_example")
        if self.types is not None:
            self._check_types(self.types)
        self._check_share()
        if self.splits is not None and self.split != _SPLIT:
            raise OptionError(f"split={self.split!r} has no effect with splits=, which names them all: leave it out")
        if self.seed != 0 and not isinstance(self.route, Ratios):
            check_effect("seed", self.seed, "unless splits= are ratios", "leave it out")
        if self.idx and self.format != "tfrecord":
            raise OptionError("DALI's index is of TFRecord files")

    def _check_types(self, types: Mapping[str, Any]) -> None:
        for name, value in (("record_to_example", self.record_to_example), ("schema", self.schema)):
            check_effect("types", value is not None, f"with {name}=", "which says all types; leave out one of both")
        if self.format == "tar":
            check_effect("types", types, "with format='tar'", "members of a tar are bytes; leave it out")
        Typed.of(types)

    def check(self) -> None:
        """Refuse now what is otherwise refused when the export begins: bounds and splits."""
        _ = self.bounds, self.route

    @property
    def function(self) -> Callable[[Record], Any] | None:
        """What makes an Example of a record, where a record is not written as it is."""
        return self.record_to_example if self.types is None else Typed.of(self.types)

    @property
    def bounds(self) -> Bounds:
        return bounds_of(self.shard_size, self.shard_records, overhead_of(self.format))

    @property
    def route(self) -> Route:
        return route_of(self.split if self.splits is None else self.splits, self.seed)

    @property
    def share(self) -> Share | None:
        return self.shard if isinstance(self.shard, Share | None) else Share(*self.shard)

    def _check_share(self) -> None:
        share = self.share
        if share is None:
            return
        if not 0 <= share.host < share.of:
            raise OptionError(f"shard is (i, n) with i from 0 to n - 1, not {self.shard!r}")
        if self.align != "shard":
            raise OptionError("a job array needs align='shard': no file may hold records of two hosts' shards")


def with_key(schema: Schema) -> Schema:
    """The schema of records that are stored with their key."""
    return schema if "__key__" in schema else replace(schema, fields=(Field("__key__", "string"), *schema.fields))


def check_names(name: str, exists: str) -> None:
    if not NAME.fullmatch(name):
        raise OptionError(f"name is letters, digits and '_', not {name!r}: it is part of files' names")
    check_choice("exists", exists, EXISTS)


def export_source(
    shards: Shards, on_error: OnError, account: Account, out: str | os.PathLike[str], options: ExportOptions
) -> list[str]:
    """Every record of `shards` into record files under `out`; gives the files."""
    shards, target = target_of(shards, on_error, out, options)
    encode = options.function if target.schema is None else target.schema.encode
    job = Job(replace(shards, names=()), on_error, options.route, Serializer(options.format, encode))
    shown = len(shards.names) if options.share is None else len(options.share.chosen(shards.names))
    progress = progress_for("+".join(target.splits), shown, options.progress)
    return export_shards(
        target, job, shards.names, account, progress, workers=options.workers, writing=options.writing
    )


def target_of(
    shards: Shards, on_error: OnError, out: str | os.PathLike[str], options: ExportOptions
) -> tuple[Shards, Target]:
    """What is read for an export of `shards`, and what is written."""
    selection = wants(options.function)
    if selection is not None and shards.selection is None:
        shards = replace(shards, selection=selection)
    schema = None if options.schema is None else with_key(options.schema)
    bounds = options.bounds
    classes = _classes_of(shards, options)
    return shards, Target(
        out=location_text(out),
        kind=options.format,
        name=options.name,
        splits=options.route.names,
        bounds=bounds,
        align=options.align,
        exists=options.exists,
        index_files=options.idx,
        schema=schema,
        classes=classes,
        share=options.share,
        read=shards.read,
        endpoint=options.endpoint,
        token=options.token,
        plan={
            "sources": _names_digest(shards),
            "shards": len(shards.names),
            "fields": None if shards.selection is None else [repr(want) for want in shards.selection.wants],
            "grouping": shards.grouping if isinstance(shards.grouping, str) else function_described(shards.grouping),
            "on_error": on_error if isinstance(on_error, str) else function_described(on_error),
            "format": options.format,
            "name": options.name,
            "splits": described(options.route),
            "shard_size": bounds.size,
            "shard_records": bounds.records,
            "align": options.align,
            "idx": options.idx,
            "schema": None if options.schema is None else options.schema.to_json(),
            "record_to_example": function_described(options.function),
            **({"classes": classes} if classes else {}),
            **({"types": dict(Typed.of(options.types).types)} if options.types is not None else {}),
        },
    )


def _classes_of(shards: Shards, options: ExportOptions) -> dict[str, list[str]]:
    """Return the names of the classes by the feature that will have their numbers.

    Of what a function makes of a record that is known only where the function says it, in its attribute `label`. A
    work item leaves it to who publishes all of them.
    """
    function = options.function
    feature = None if function is None else getattr(function, "label", None)
    unsaid = function is not None and feature is None
    if unsaid or (options.share is not None and options.share.name):
        return {}
    found = find_class_names(shards)
    return {} if found is None else {feature or found.field: list(found.names)}


def _names_digest(shards: Shards) -> str:
    digest = xxhash.xxh3_128()
    for name in shards.names:
        digest.update(whole_url(shards.store, name).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()


def function_described(function: Callable[..., Any] | None) -> str | None:
    """Where a function comes from, and a sum over its code: another one of the same name is another plan."""
    if function is None:
        return None
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    text = b"" if code is None else _code(code)
    return f"{getattr(function, '__module__', '')}.{name} {google_crc32c.value(text):08x}"


def _code(code: Any) -> bytes:
    parts = [code.co_code, repr(code.co_names).encode()]
    parts += [_code(each) if hasattr(each, "co_code") else repr(each).encode() for each in code.co_consts]
    return b"\n".join(parts)
