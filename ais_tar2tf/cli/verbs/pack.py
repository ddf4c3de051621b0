"""The verb `pack`: writes the files of a folder, or the files that a CSV file lists, into tar shards in a store.

This module parses the options and prints the results. It must not read or write files: `recordfiles/packing/` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.base.escaping import one_line
from ais_tar2tf.cli.choices import GROUPINGS, LABELS
from ais_tar2tf.cli.command import (
    Create,
    DryRun,
    Endpoint,
    ShardRecords,
    ShardSize,
    Stopped,
    choice,
    refuse_flag,
    verb,
)
from ais_tar2tf.cli.console import Console, counted, quantity

if TYPE_CHECKING:
    from ais_tar2tf.recordfiles.packing.plan import PackPlan
    from ais_tar2tf.recordfiles.packing.result import PackResult

__all__ = ["pack"]

_SHOWN = 20  # the number of classes that are printed; --json names all classes


@verb()
def pack(
    console: Console,
    source: Annotated[
        Path, typer.Argument(help="a folder of files, or a CSV file with a column filename", metavar="SOURCE")
    ],
    url: Annotated[
        str, typer.Argument(help="a template of the shards' URLs, as 'ais://bucket/train-{:05d}.tar'", metavar="URL")
    ],
    shard_size: ShardSize = None,
    shard_records: ShardRecords = None,
    shuffle: Annotated[
        int | None,
        typer.Option(
            help="shuffle the records with this seed; class folders are shuffled anyway, with seed 0", metavar="SEED"
        ),
    ] = None,
    in_order: Annotated[bool, typer.Option("--no-shuffle", help="write the records in the order of names")] = False,
    grouping: Annotated[
        str | None,
        choice(
            GROUPINGS,
            "how a.seg.png is packed: first-dot: field seg.png of record a; last-dot: field png of record a_seg",
        ),
    ] = None,
    labels: Annotated[
        str,
        choice(LABELS, "folders: each folder is a class; none: no classes; auto: decided from the folders"),
    ] = "auto",
    splits: Annotated[
        bool | None,
        typer.Option(
            "--splits/--no-splits",
            help="whether the folders train, val and test are splits; decided from the folders when left out",
            show_default=False,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="the names of all classes in the order of their numbers, as ant,bee", metavar="NAMES"),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="the folder of the files that the CSV file names", metavar="DIR")
    ] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="follow links, even to files outside SOURCE")
    ] = False,
    create: Create = True,
    replace: Annotated[bool, typer.Option("--replace", help="replace existing shards of these names")] = False,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
) -> None:
    """Pack files into tar shards, and check each shard.

    Files that differ only in their extension become one record. Images in one folder for each class get the number of
    their class as the field cls. The folders train, val and test become splits. Files that are left out are reported.
    Each shard is read back after it was written.

    Examples:
      ais-tar2tf pack photos/ 'ais://pets/train-{:05d}.tar'
      ais-tar2tf pack data/ 'ais://pets/{split}-{:05d}.tar'
    """
    from ais_tar2tf.base.nearest import check_choice
    from ais_tar2tf.cli.places import check_written
    from ais_tar2tf.errors import OptionError
    from ais_tar2tf.recordfiles.export import DEFAULT_SIZE
    from ais_tar2tf.recordfiles.packing import PackOptions
    from ais_tar2tf.recordfiles.packing.packer import plan_pack, run_plan

    check_written(url, "URL")
    check_choice("--labels", labels, LABELS)
    if "://" not in url:
        refuse_flag("--no-create", not create, f"for {url!r}", "it is for buckets; a folder is always created")
    if in_order and shuffle is not None:
        raise OptionError("--shuffle and --no-shuffle contradict each other")
    options = PackOptions(
        shard_size=shard_size or (None if shard_records else DEFAULT_SIZE),
        shard_records=shard_records,
        shuffle=False if in_order else shuffle,
        grouping=grouping,
        labels=None if labels == "none" else labels,
        splits=splits,
        classes=None if classes is None else [each.strip() for each in classes.split(",") if each.strip()],
        root=root,
        follow_links=follow_links,
        exists="replace" if replace else "error",
    )
    plan = plan_pack(source, url, options, progress=console.bars)
    _show_plan(console, plan)
    if dry_run:
        _dry_run(console, plan)
        return
    try:
        packed = run_plan(plan, create=create, progress=console.bars, endpoint=endpoint)
    except KeyboardInterrupt:
        raise Stopped(
            "the shards written so far are complete; the rest are missing",
            "begin anew with --replace",
            in_part=True,
        ) from None
    _show_result(console, packed, plan)


def _show_plan(console: Console, plan: PackPlan) -> None:
    """Print which splits, records and classes were found, and which files are left out. Nothing is written yet."""
    contents = plan.contents
    for split in contents.splits:
        name = f"{split.name}: " if split.name else ""
        console.note(f"{name}{counted(split.records or 0, 'record')}, {quantity(split.bytes or 0)}")
    if contents.classes:
        console.note(f"{len(contents.classes):,} classes; the label (the field cls) is the number:")
        for number, (name, count) in enumerate(list(contents.by_class.items())[:_SHOWN]):
            console.note(f"  {number}  {one_line(name)}  ({counted(count, 'record')})")
        if len(contents.classes) > _SHOWN:
            console.note(f"  … {len(contents.classes) - _SHOWN:,} more; --json names all")
    else:
        console.note(contents.labels or "no labels: the records have no field cls")
    if plan.seed is not None:
        why = ", since class folders put all of a class together" if contents.shuffled else ""
        console.note(f"shuffled with seed {plan.seed}{why}; --no-shuffle keeps the order of names")
    if contents.left_out:
        console.note(f"left out of {contents.files + contents.left_out.count:,} files: {contents.left_out}")
    for text in contents.warnings:
        console.warn(text)


def _dry_run(console: Console, plan: PackPlan) -> None:
    from ais_tar2tf.recordfiles.packing.result import contents_to_json

    found = contents_to_json(plan.contents, plan.seed)
    text = f"would pack {counted(found['records'], 'record')} ({quantity(found['bytes'])}) into {plan.url}"
    console.document({"dry_run": True, **found, "url": plan.url}, lambda: console.data(text))


def _show_result(console: Console, packed: PackResult, plan: PackPlan) -> None:
    console.document(packed.to_json(), lambda: console.names(packed))
    console.note(
        f"{counted(packed.records, 'record')} in {counted(len(packed), 'shard')}, each read back and found whole"
    )
    for text in packed.warnings:
        console.warn(text)
    if packed.classes != plan.contents.classes:
        names = one_line(", ".join(packed.classes))
        console.note(f"existing shards there already number the classes, so these numbers are used: {names}")
    for each in packed.classes_files:
        console.note(f"the names of the classes are in {each}")
    for split, urls in (packed.splits or {"": packed}).items():
        if not urls:
            continue
        template = plan.reading_url(split, len(urls))
        console.note(f"look at {split or 'them'}: ais-tar2tf card '{template}' · load: t2t.open({template!r})")
