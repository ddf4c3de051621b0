"""`t2t.pack`: pack a folder, a CSV file, or records into tar shards in a store.

`plan_pack` decides everything without a request to the store, and `run_plan` writes. The command line shows the plan
before it calls `run_plan`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from ais_tar2tf.base.monitoring.progress import Progress, progress_for
from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.errors import ExportError, OptionTypeError, SchemaError, ShardNotFound
from ais_tar2tf.options import Limits
from ais_tar2tf.recordfiles.export.boundaries import DEFAULT_SIZE, Bounds, FillLevel
from ais_tar2tf.recordfiles.packing import PackOptions, Rows, inspect_source
from ais_tar2tf.recordfiles.packing.class_files import ClassFiles
from ais_tar2tf.recordfiles.packing.contents import SplitContents
from ais_tar2tf.recordfiles.packing.plan import PackPlan, ShardNames, check_template, make_plan, name_matcher
from ais_tar2tf.recordfiles.packing.result import PackResult
from ais_tar2tf.recordfiles.packing.shard_files import upload_shard, write_shards
from ais_tar2tf.records import Record, splitter
from ais_tar2tf.stores import Store, TokenSource, check_access, check_bucket, open_store, split_url
from ais_tar2tf.streams.arguments import read_options

__all__ = ["pack", "plan_pack", "run_plan"]

_split = splitter("first-dot")
_logger = logging.getLogger("ais_tar2tf.recordfiles.packing")


@known_options
def pack(
    source: Rows,
    url: str | os.PathLike[str],
    *,
    shard_size: int | str | None = DEFAULT_SIZE,
    shard_records: int | None = None,
    shuffle: bool | int | None = None,
    grouping: str | None = None,
    labels: str | None = "auto",
    splits: bool | None = None,
    classes: Sequence[str] | None = None,
    root: str | os.PathLike[str] | None = None,
    follow_links: bool = False,
    create: bool = False,
    exists: str = "error",
    limits: Limits | None = None,
    progress: bool | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> PackResult:
    """Write a folder, a CSV file or records as tar shards into a store. Each shard is verified by reading it back.

    Args:
        source: A folder, a CSV file, or records. In a folder, files with the same name before the extension (`1.jpg`
            and `1.json`) are a record, and sub-folders with images (or other files of one kind) are classes. The
            field `cls` is the number of a record's class; the names of the classes are sorted, as in Keras. Folders
            named train, val, test … are splits. Hidden files, documents such as README, and files outside of the
            class folders are left out and counted. In a CSV file, the column `filename` names a file, and the column
            `label` states its label. Records are dicts with `__key__` and fields, whose values are encoded by the
            extension of the field.
        url: The template of the shards' names, such as `ais://bucket/{split}-{:05d}.tar`. The number of a shard, from
            0, replaces `{}` or `{:05d}`, and the name of a split replaces `{split}`.
        shard_size: The largest size of a shard, in bytes or as "100MB".
        shard_records: The largest number of records in a shard.
        shuffle: The seed of the records' order, or False for the order of names. None: class folders are shuffled
            with seed 0, since neighbours have the same label there, and all other sources are not shuffled.
        grouping: Where the key ends in a file name with several dots. "first-dot": `a.seg.png` is the field `seg.png`
            of the record `a`. "last-dot": `a.seg.png` is the field `png` of the record `a_seg`, since dots in keys
            become `_`. None: as "first-dot", but names such as `cat.0.jpg`, for which it may be wrong, are refused.
        labels: "folders": each sub-folder is a class. None: no sub-folder is a class. "auto": decided by the kinds of
            files in the sub-folders.
        splits: Whether sub-folders are splits. None: they are splits if all of them are named train, val, test ….
        classes: All class names in the order of their numbers; by default the alphabetical order.
        root: The folder of the files that a CSV file names; by default the folder of the CSV file.
        follow_links: Pack the files and folders that symbolic links point to, also outside of the folder.
        create: Create the bucket.
        exists: "error" raises an error if there are shards already. "replace" replaces them, and removes the other
            shards of an earlier, longer run.
        limits: Bounds on what may be packed; see `options.Limits`.
        progress: Whether to show a progress bar; None: on a terminal or in a notebook, after two seconds.
        endpoint: The address of the store, if the URL does not state it.
        token: A token for the store, or a function that returns one.

    Returns:
        The URLs of the shards: a list with further attributes that count the records and the files left out.

    Raises:
        ShardNotFound: There is nothing to pack.
        UnclearLayout: The names of files do not decide what is a record, a class or a split. The text of the error
            names the option that decides.
        ExportError: There are shards already, and `exists` is "error".

    Example:
        >>> import ais_tar2tf as t2t
        >>> t2t.pack([{"__key__": "a", "txt": "hello"}], "memory://doc-pack/train-{}.tar", create=True)
        ['memory://doc-pack/train-0.tar']
    """
    options = PackOptions(
        shard_size=shard_size,
        shard_records=shard_records,
        shuffle=shuffle,
        grouping=grouping,
        labels=labels,
        splits=splits,
        classes=classes,
        root=root,
        follow_links=follow_links,
        exists=exists,
        limits=limits,
    )
    plan = plan_pack(source, url, options, progress=progress)
    for text in (*plan.contents.warnings, *plan.contents.unexpected):
        _logger.warning("%s", text)
    packed = run_plan(plan, create=create, progress=progress, endpoint=endpoint, token=token)
    for text in packed.warnings:
        _logger.warning("%s", text)
    return packed


def plan_pack(
    source: Rows, url: str | os.PathLike[str], options: PackOptions, *, progress: bool | None = None
) -> PackPlan:
    """Return the plan to pack `source`. No file in a folder is opened, and no request is sent to a store."""
    template = _checked_template(url)
    with progress_for("looking at files", wanted=progress, counted="files") as bar:
        contents = inspect_source(
            source, options, lambda count: bar.add(count - bar.records, 0), _own_shard_matcher(source, template)
        )
    return make_plan(contents, template, options)


def _checked_template(url: object) -> str:
    if not isinstance(url, str | os.PathLike):
        raise OptionTypeError(f"url is a template of shards, as 'ais://bucket/train-{{:05d}}.tar', not {url!r}")
    template = location_text(url)
    check_template(template)
    return template


def _own_shard_matcher(source: Rows, url: str) -> Callable[[str], bool]:
    """Return a function that tells whether a path below the folder `source` is the path of a shard of this run."""
    scheme, _, template = split_url(url)
    if scheme != "file" or not isinstance(source, str | os.PathLike):
        return lambda _: False
    folder, root = (os.path.realpath(path) for path in (os.path.dirname(template) or ".", source))  # noqa: PTH120
    if folder != root and not folder.startswith(f"{root.rstrip('/')}/"):
        return lambda _: False
    below = os.path.relpath(folder, root)
    name = os.path.basename(template)  # noqa: PTH119
    return name_matcher(name if below == "." else f"{below}/{name}")


def run_plan(
    plan: PackPlan,
    *,
    create: bool = False,
    progress: bool | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> PackResult:
    """Write the shards of `plan` and the documents with the names of classes. The options are those of `pack`."""
    check_access(plan.url, endpoint=endpoint, token=token)
    scheme, bucket, name = split_url(plan.url)
    begun = {split.name: _begin_reading(split, plan) for split in plan.contents.splits if split.records is None}
    options = plan.options
    read = read_options(limits=options.limits)
    with contextlib.closing(open_store(scheme, bucket, read, endpoint=endpoint, token=token)) as store:
        if create:
            store.create()
        elif scheme != "file":  # folders are created when a shard is written
            check_bucket(store, name.partition("{")[0])
        names = {split: ShardNames(template) for split, template in plan.templates.items()}
        if options.exists == "error":
            for each in names.values():
                _refuse_existing(store, each, 0)
        for split in plan.contents.splits:
            _refuse_too_few_names(split, names[split.name], options.bounds)
        class_files = ClassFiles(store, read, plan.contents, plan.templates)
        contents = class_files.with_existing_numbers(plan.contents)
        class_files.remove_outdated(contents)
        packed = PackResult(contents, plan.seed)
        with progress_for("pack", wanted=progress, size=contents.size) as bar:
            for split in contents.splits:
                records = begun.get(split.name) or split.read(contents.class_numbers, plan.seed)
                _write_split(store, names[split.name], split.name, records, options, packed, bar)
        packed.classes_files = class_files.write(contents)
    return packed


def _begin_reading(split: SplitContents, plan: PackPlan) -> Iterator[Record]:
    """Read the first record, and return an iterator over all records.

    Call this before anything is created in the store: if there is no record, or a wrong one, nothing is created then.
    """
    records = split.read({}, None)
    first = next(records, None)
    if first is None:
        raise ShardNotFound("there is nothing to pack: no row came", url=plan.url)
    return chain([_checked(first)], records)


def _write_split(
    store: Store,
    names: ShardNames,
    split: str,
    records: Iterator[Record],
    options: PackOptions,
    packed: PackResult,
    bar: Progress,
) -> None:
    number = 0
    replaces = options.exists == "replace"
    with tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder:
        path = Path(folder, "shard.tar")
        shards = write_shards(
            map(_checked, records),
            FillLevel(options.bounds),
            path,
            lambda record: bar.add(1, packed.add_record(record)),
        )
        with contextlib.closing(shards):
            for shard in shards:
                if not replaces:
                    _refuse_existing(store, names, number)
                upload_shard(store, names.at(number), shard)
                packed.add_shard(split, store.url(names.at(number)))
                number += 1
    if replaces:
        _remove_from(store, names, number)


def _checked(record: Record) -> Record:
    """Return `record`; raise SchemaError if its members would be read as another record."""
    key = record["__key__"]
    for field in record:
        if field != "__key__" and _split(f"{key}.{field}") != (key, field):
            raise SchemaError(
                f"record {key!r}, field {field!r}: a key has no dot in its last part, and a field is in lower case; "
                f"as a member's name {key + '.' + field!r} it would be read as another record. With "
                "grouping='last-dot' (--grouping last-dot) dots in keys become '_'"
            )
    if len(record) < 2:
        raise SchemaError(f"record {key!r} has no fields")
    return record


def _refuse_too_few_names(split: SplitContents, names: ShardNames, bounds: Bounds) -> None:
    """Raise ExportError if a split needs several shards, but its template has no place for a number."""
    too_many = bounds.records is not None and (split.records or 0) > bounds.records
    too_large = bounds.size is not None and (split.bytes or 0) > bounds.size and (split.records or 0) > 1
    if not names.has_number and (too_many or too_large):
        names.at(1)  # raises the error


def _refuse_existing(store: Store, names: ShardNames, number: int) -> None:
    """Raise ExportError if there is already a shard with the number `number`, or with the next number.

    If an old shard had the next number, a reader of the new shards would also read the old shard. The two numbers are
    checked before each upload, because another program may have written such a shard since the last check.
    """
    for at in (number, number + 1) if names.has_number else (number,):
        if _exists(store, names.at(at)):
            raise ExportError(f"{store.url(names.at(at))}: there is a shard already; exists='replace' replaces it")


def _exists(store: Store, name: str) -> bool:
    try:
        store.head(name)
    except ShardNotFound:
        return False
    return True


def _remove_from(store: Store, names: ShardNames, number: int) -> None:
    """Remove the shards of an earlier, longer run: from `number` on, up to the first number without a shard."""
    if not names.has_number:
        return
    for at in count(number):
        if not _exists(store, names.at(at)):
            return
        store.delete(names.at(at))
