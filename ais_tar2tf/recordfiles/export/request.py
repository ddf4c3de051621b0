"""The options of an export, and their conversion to a job and a target.

The job says which shards are read, and how their records are encoded. The target says which files are written, and
where. This module must not read or write records.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

import xxhash

from ais_tar2tf.base.monitoring.progress import progress_for
from ais_tar2tf.base.monitoring.stats import Account, OnError
from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.errors import OptionError
from ais_tar2tf.options import Writing, check_effect
from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE, Bounds, bounds_of
from ais_tar2tf.recordfiles.export.fingerprints import fingerprint
from ais_tar2tf.recordfiles.export.manifest import NAME
from ais_tar2tf.recordfiles.export.routing import RatioRoute, Route, route_of
from ais_tar2tf.recordfiles.export.run import export_shards
from ais_tar2tf.recordfiles.export.serializers import Serializer, Typed
from ais_tar2tf.recordfiles.export.shard_output import ExportJob
from ais_tar2tf.recordfiles.export.staging import Share
from ais_tar2tf.recordfiles.export.target import EXISTS, ExportTarget
from ais_tar2tf.recordfiles.formats import find_format
from ais_tar2tf.records import Record
from ais_tar2tf.stores import TokenSource
from ais_tar2tf.streams.class_names import find_class_names
from ais_tar2tf.streams.reader import Shards
from ais_tar2tf.values.default_mappings import declared_fields
from ais_tar2tf.values.schema import Field, Schema

__all__ = ["ExportKeywords", "ExportOptions", "build_target", "check_names", "export_source"]

_ALIGNMENTS = ("stream", "shard")
_SPLIT = "train"


class ExportKeywords(TypedDict, total=False):
    """The options of `Source.export`."""

    format: str
    name: str
    split: str
    splits: Mapping[str, Any] | None
    seed: int
    shard_size: int | str | None
    shard_records: int | None
    align: str
    workers: int | None
    exists: str
    record_to_example: Callable[[Record], Any] | None
    schema: Schema | None
    types: Mapping[str, Any] | None
    idx: bool
    shard: tuple[int, int] | None
    progress: bool | None
    writing: Writing | None
    endpoint: str | None
    token: TokenSource | None


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `Source.export`.

    Attributes:
        format: `"tfrecord"`, `"array_record"` or `"tar"`.
        name: The first part of the names of the files.
        split: The split that all records belong to.
        splits: Several splits: a dict from the name of each split to a ratio, a function or a list of keys. Ratios
            add up to 1. Functions get a record, and the record goes to the first split whose function returns a true
            value. With lists of keys, a record goes to the split that lists its key.
        seed: The seed that assigns records to splits, if `splits` are ratios.
        shard_size: The largest size of a file in bytes: a number, or a text such as `"100MB"`.
        shard_records: The largest number of records in a file. If only `shard_records` is given, the size of a
            file is not bounded.
        align: With `"stream"`, files are filled in the order of the records, so a file may hold records of several
            input shards. With `"shard"`, each file holds records of one input shard.
        workers: The number of worker processes. Default: as many as there are cores.
        exists: What to do if `out` has files of an export. `"resume"` keeps a finished export, and continues an
            interrupted export. `"error"` raises an error. `"replace"` deletes the files of the earlier export.
        record_to_example: A function that gets a record and returns a tf.train.Example. For the format `"tar"`, it
            returns a dict of bytes. Default: fields are written as bytes.
        schema: The types of fields. With `schema=src.schema`, a number that is written as text stays text. With
            `schema=src.schema.with_field(Field("cls", "int64"))`, the field `cls` becomes a number.
        types: The types of the fields that are numbers, by the name of the field: `{"cls": "int64"}`.
        idx: Write an index for NVIDIA DALI next to each TFRecord file.
        shard: `(i, n)`: write only the share of host i, one of n hosts that are numbered from 0. In a job array, each
            host exports its share with `align="shard"`. When all are done, one host calls `t2t.finish(out)`, which
            publishes all shares. An Apache Beam pipeline passes a `Share` for each of its work items.
        progress: Whether to show a progress bar. Default: on a terminal.
        writing: Bounds on the bytes that several workers may hold on disk.
        endpoint: The endpoint of `out`. Default: the endpoint of the source, if the URLs have the same scheme.
        token: The AuthN token for `out`. Default: the token of the source, if the endpoint is the same.
    """

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
        record_format = find_format(self.format)
        record_format.check_installed()
        check_names(self.name, self.exists)
        check_choice("align", self.align, _ALIGNMENTS)
        if self.workers is not None and self.workers < 1:
            raise OptionError(f"workers is at least 1, not {self.workers!r}")
        if self.schema is not None and (not record_format.holds_examples or self.record_to_example is not None):
            raise OptionError("a schema is for TFRecord and ArrayRecord, and without record_to_example")
        if self.types is not None:
            self._check_types(self.types)
        self._check_share()
        if self.splits is not None and self.split != _SPLIT:
            raise OptionError(f"split={self.split!r} has no effect with splits=, which names them all: leave it out")
        if self.seed != 0 and not isinstance(self.route, RatioRoute):
            check_effect("seed", self.seed, "unless splits= are ratios", "leave it out")
        if self.idx and not record_format.supports_index:
            raise OptionError("DALI's index is of TFRecord files")

    def _check_types(self, types: Mapping[str, Any]) -> None:
        for name, value in (("record_to_example", self.record_to_example), ("schema", self.schema)):
            check_effect("types", value is not None, f"with {name}=", "which says all types; leave out one of both")
        if not find_format(self.format).holds_examples:
            check_effect(
                "types", types, f"with format={self.format!r}", f"members of a {self.format} are bytes; leave it out"
            )
        Typed.from_option(types)

    def check(self) -> None:
        """Raise OptionError if `shard_size`, `shard_records` or `splits` has a wrong value.

        The constructor does not check these three options, except `splits` if a `seed` is given. Without a call of
        `check`, their errors are raised when the export begins.
        """
        _ = self.bounds, self.route

    @property
    def function(self) -> Callable[[Record], Any] | None:
        """The function that encodes a record: `record_to_example`, or a function that applies `types`.

        None if neither option is given.
        """
        return self.record_to_example if self.types is None else Typed.from_option(self.types)

    @property
    def bounds(self) -> Bounds:
        """The bounds on the size and the number of records of each file."""
        return bounds_of(self.shard_size, self.shard_records, len(find_format(self.format).end))

    @property
    def route(self) -> Route:
        """The route that decides the split of each record."""
        return route_of(self.split if self.splits is None else self.splits, self.seed)

    @property
    def share(self) -> Share | None:
        """The share of input shards that this host exports; None if it exports all shards."""
        return self.shard if isinstance(self.shard, Share | None) else Share(*self.shard)

    def _check_share(self) -> None:
        share = self.share
        if share is None:
            return
        if not 0 <= share.host < share.hosts:
            raise OptionError(f"shard is (i, n) with i from 0 to n - 1, not {self.shard!r}")
        if self.align != "shard":
            raise OptionError("a job array needs align='shard': no file may hold records of two hosts' shards")


def _with_key(schema: Schema) -> Schema:
    """Return the schema, with the field `__key__` added if it is missing: every record is stored with its key."""
    return schema if "__key__" in schema else replace(schema, fields=(Field("__key__", "string"), *schema.fields))


def check_names(name: str, exists: str) -> None:
    """Raise `OptionError` if `name` cannot be part of file names, or `exists` is unknown."""
    if not NAME.fullmatch(name):
        raise OptionError(f"name is letters, digits and '_', not {name!r}: it is part of files' names")
    check_choice("exists", exists, EXISTS)


def export_source(
    shards: Shards, on_error: OnError, account: Account, out: str | os.PathLike[str], options: ExportOptions
) -> list[str]:
    """Export every record of `shards` to record files under `out`; return the paths or URLs of the files."""
    shards, target = build_target(shards, on_error, out, options)
    encode = options.function if target.schema is None else target.schema.encode
    job = ExportJob(
        replace(shards, names=()), on_error, options.route, Serializer(find_format(options.format), encode)
    )
    shown = len(shards.names) if options.share is None else len(options.share.chosen(shards.names))
    progress = progress_for("+".join(target.splits), shown, options.progress)
    return export_shards(
        target, job, shards.names, account, progress, workers=options.workers, writing=options.writing
    )


def build_target(
    shards: Shards, on_error: OnError, out: str | os.PathLike[str], options: ExportOptions
) -> tuple[Shards, ExportTarget]:
    """Return the input shards and the target of an export.

    If `record_to_example` declares the fields that it needs, only these fields are read from the shards.
    """
    selection = declared_fields(options.function)
    if selection is not None and shards.selection is None:
        shards = replace(shards, selection=selection)
    schema = None if options.schema is None else _with_key(options.schema)
    classes = _class_names(shards, options)
    return shards, ExportTarget(
        out=location_text(out),
        format=options.format,
        name=options.name,
        splits=options.route.names,
        bounds=options.bounds,
        align=options.align,
        exists=options.exists,
        index_files=options.idx,
        schema=schema,
        classes=classes,
        share=options.share,
        read=shards.read,
        endpoint=options.endpoint,
        token=options.token,
        plan=_plan(shards, on_error, options, classes),
    )


def _plan(
    shards: Shards, on_error: OnError, options: ExportOptions, classes: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the plan: all options and sources on which the content of the files depends, as JSON values.

    An interrupted export is resumed only if its plan is the same as the plan of the new run.
    """
    selection, bounds = shards.selection, options.bounds
    return {
        "sources": _names_digest(shards),
        "shards": len(shards.names),
        "fields": None if selection is None else [repr(want) for want in selection.wants],
        "grouping": fingerprint(shards.grouping),
        "on_error": fingerprint(on_error),
        "format": options.format,
        "name": options.name,
        "splits": options.route.plan_entry(),
        "shard_size": bounds.size,
        "shard_records": bounds.records,
        "align": options.align,
        "idx": options.idx,
        "schema": None if options.schema is None else options.schema.to_json(),
        "record_to_example": fingerprint(options.function),
        **({"classes": classes} if classes else {}),
        **({"types": dict(Typed.from_option(options.types).types)} if options.types is not None else {}),
    }


def _class_names(shards: Shards, options: ExportOptions) -> dict[str, list[str]]:
    """Return a dict with one entry: the feature that will hold the class numbers, and the names of the classes.

    Without a function that encodes the records, this feature is the field of the class numbers in the shards. With a
    function, the function's attribute `label` states the feature. The result is empty if the function has no such
    attribute, or there are no class names. It is also empty for a work item of a pipeline: the class names are added
    when all work items are published.
    """
    function = options.function
    feature = None if function is None else getattr(function, "label", None)
    unknown = function is not None and feature is None
    if unknown or (options.share is not None and options.share.name):
        return {}
    classes = find_class_names(shards)
    return {} if classes is None else {feature or classes.field: list(classes.names)}


def _names_digest(shards: Shards) -> str:
    """Return a hash of the URLs of all shards."""
    digest = xxhash.xxh3_128()
    for name in shards.names:
        digest.update(shards.store.full_url(name).encode("utf-8", "surrogateescape") + b"\n")
    return digest.hexdigest()
