"""t2t.pack: a folder, a CSV file, or records → tar shards in a store, each proved by reading it back."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from ais_tar2tf.errors import ExportError, OptionTypeError, SchemaError, ShardNotFound
from ais_tar2tf.export.boundaries import DEFAULT_SIZE, Boundaries, Bounds
from ais_tar2tf.locations import location_text
from ais_tar2tf.nearest import known_options
from ais_tar2tf.options import Limits
from ais_tar2tf.packing import PackOptions, Rows, contents_of
from ais_tar2tf.packing.class_files import ClassFiles
from ais_tar2tf.packing.contents import Part
from ais_tar2tf.packing.planning import Plan, ShardNames, check_template, covering, plan_of
from ais_tar2tf.packing.result import Packed
from ais_tar2tf.packing.shard_files import put_shard, shard_files
from ais_tar2tf.progress import Progress, progress_for
from ais_tar2tf.records import Record, splitter
from ais_tar2tf.source import read_options
from ais_tar2tf.stores import Store, TokenSource, check_access, check_bucket, open_store, split_url

__all__ = ["look", "pack", "run"]

_split = splitter("first-dot")
_logger = logging.getLogger("ais_tar2tf.packing")


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
) -> Packed:
    """Write records as tar shards `url`, a template such as `ais://bucket/train-{:05d}.tar`; return their URLs.

    The result is a list of URLs that also says what was packed and what was left out: `Packed`.

    Args:
        source: A folder, where files of one name are a record (`1.jpg` and `1.json`), and sub-folders with images (or
            other files of one kind) are classes: `cls` is the number of the class in the order of their names, as
            Keras and torchvision number them. Folders named train, val, test … are splits. Hidden files, README and
            alike, and files outside of the class folders are left out and counted. Or a CSV file, where a column
            `filename` names a file and `label` its label. Or dicts with `__key__` and fields, whose values are
            encoded by the extension of the field.
        url: The shards' names. A number, which begins at 0, goes in place of `{}` or `{:05d}`, the name of a split
            in place of `{split}`.
        shard_size: No shard is larger, as "100MB".
        shard_records: No shard has more records.
        shuffle: The seed of the records' order, False for the order of names. None: class folders are shuffled with
            seed 0, since neighbours share their label there; nothing else is.
        grouping: Where the key of a file's name ends, when it has several dots. "first-dot": `a.seg.png` is the field
            `seg.png` of the record `a`. "last-dot": it is the record `a_seg`; dots in keys become `_`. None: as
            "first-dot", but names that look otherwise (`cat.0.jpg`) are refused.
        labels: "folders": each sub-folder is a class; None: none is; "auto": as the files in them look.
        splits: True: sub-folders are splits; False: they are not; None: they are when all have such names.
        classes: All class names in the order of their numbers, where that is not the order of names.
        root: The folder that file names in a CSV file are below; by default the folder of the CSV file.
        follow_links: Pack what symbolic links point to, also outside of the folder.
        create: Make the bucket.
        exists: "replace" replaces the shards that are there, and removes those of a longer run; "error" refuses.
        limits: Bounds on what may be packed; see `options.Limits`.

    Raises:
        ShardNotFound: There is nothing to pack.
        UnclearLayout: The names of files leave open what is a record, a class or a split; the text says which option
            decides.
        ExportError: There are shards already.

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
    plan = look(source, url, options, progress=progress)
    for text in (*plan.contents.warnings, *plan.contents.unexpected):
        _logger.warning("%s", text)
    packed = run(plan, create=create, progress=progress, endpoint=endpoint, token=token)
    for text in packed.warnings:
        _logger.warning("%s", text)
    return packed


def look(source: Rows, url: str | os.PathLike[str], options: PackOptions, *, progress: bool | None = None) -> Plan:
    """Return what `pack` would do; no file of a folder is read for it, and no store is asked."""
    where = _template(url)
    with progress_for("looking at files", wanted=progress, counted="files") as shown:
        contents = contents_of(
            source, options, lambda count: shown.add(count - shown.records, 0), _own_shards(source, where)
        )
    return plan_of(contents, where, options)


def _template(url: object) -> str:
    if not isinstance(url, str | os.PathLike):
        raise OptionTypeError(f"url is a template of shards, as 'ais://bucket/train-{{:05d}}.tar', not {url!r}")
    where = location_text(url)
    check_template(where)
    return where


def _own_shards(source: Rows, url: str) -> Callable[[str], bool]:
    """Return what tells whether a file below the folder `source` has the name of a shard in `url`."""
    scheme, _, template = split_url(url)
    if scheme != "file" or not isinstance(source, str | os.PathLike):
        return lambda _: False
    folder, root = (os.path.realpath(each) for each in (os.path.dirname(template) or ".", source))  # noqa: PTH120
    if folder != root and not folder.startswith(f"{root.rstrip('/')}/"):
        return lambda _: False
    below = os.path.relpath(folder, root)
    name = os.path.basename(template)  # noqa: PTH119
    return covering(name if below == "." else f"{below}/{name}")


def run(
    plan: Plan,
    *,
    create: bool = False,
    progress: bool | None = None,
    endpoint: str | None = None,
    token: TokenSource | None = None,
) -> Packed:
    """Write what `plan` says."""
    check_access(plan.url, endpoint=endpoint, token=token)
    scheme, bucket, name = split_url(plan.url)
    records = {part.split: _begun(part, plan) for part in plan.contents.parts if part.records is None}
    options = plan.options
    read = read_options(limits=options.limits)
    with contextlib.closing(open_store(scheme, bucket, read, endpoint=endpoint, token=token)) as store:
        if create:
            store.create()
        elif scheme != "file":  # whose folders are made
            check_bucket(store, name.partition("{")[0])
        names = {split: ShardNames(template) for split, template in plan.templates.items()}
        if options.exists == "error":
            _refuse_existing(store, names.values())
        for part in plan.contents.parts:
            _refuse_few_names(part, names[part.split], options.bounds)
        files = ClassFiles(store, read, plan.contents, plan.templates)
        contents = files.agreed(plan.contents)
        files.retire(contents)
        packed = Packed(contents, plan.seed)
        with progress_for("pack", wanted=progress, size=contents.size) as shown:
            for part in contents.parts:
                rows = records.get(part.split) or part.read(contents.numbers, plan.seed)
                _write_part(store, names[part.split], part.split, rows, options.bounds, packed, shown)
        packed.classes_files = files.write(contents)
    return packed


def _begun(part: Part, plan: Plan) -> Iterator[Record]:
    """Return rows of which the first one is there: nothing is made in a store for none, or for a bad one."""
    rows = part.read({}, None)
    first = next(rows, None)
    if first is None:
        raise ShardNotFound("there is nothing to pack: no row came", url=plan.url)
    return chain([_checked(first)], rows)


def _write_part(
    store: Store,
    names: ShardNames,
    split: str,
    records: Iterator[Record],
    bounds: Bounds,
    packed: Packed,
    shown: Progress,
) -> None:
    def added(record: Record) -> None:
        size = packed.add_record(record)
        shown.add(1, size)

    number = 0
    with tempfile.TemporaryDirectory(prefix="ais_tar2tf-") as folder:
        path = Path(folder, "shard.tar")
        with contextlib.closing(shard_files(map(_checked, records), Boundaries(bounds), path, added)) as made:
            for shard in made:
                put_shard(store, names.at(number), shard)
                packed.add_shard(split, store.url(names.at(number)))
                number += 1
    _remove_behind(store, names, number)


def _checked(record: Record) -> Record:
    """Return a record whose members are read back as the same record."""
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


def _refuse_few_names(part: Part, names: ShardNames, bounds: Bounds) -> None:
    """Refuse before anything is written what would need several shards, when there is a name for one."""
    too_many = bounds.records is not None and (part.records or 0) > bounds.records
    too_large = bounds.size is not None and (part.bytes or 0) > bounds.size and (part.records or 0) > 1
    if not names.many and (too_many or too_large):
        names.at(1)


def _refuse_existing(store: Store, names: Iterable[ShardNames]) -> None:
    for each in names:
        if _is_there(store, each.at(0)):
            raise ExportError(f"{store.url(each.at(0))}: there is a shard already; exists='replace' replaces it")


def _is_there(store: Store, name: str) -> bool:
    try:
        store.head(name)
    except ShardNotFound:
        return False
    return True


def _remove_behind(store: Store, names: ShardNames, number: int) -> None:
    """Remove the shards of a run that was longer, up to the first gap."""
    if not names.many:
        return
    for at in count(number):
        if not _is_there(store, names.at(at)):
            return
        store.delete(names.at(at))
