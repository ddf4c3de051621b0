"""`pack`: a folder or a CSV file → tar shards in a store, each read back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ais_tar2tf.cli.console import Console, counted, quantity
from ais_tar2tf.cli.verbs import (
    Create,
    DryRun,
    Endpoint,
    Json,
    Quiet,
    ShardRecords,
    ShardSize,
    Stopped,
    Verbose,
    refuse_flag,
    verb,
)
from ais_tar2tf.escaping import one_line

if TYPE_CHECKING:
    from ais_tar2tf.packing.planning import Plan
    from ais_tar2tf.packing.result import Packed

__all__ = ["pack"]

_LABELS = ("auto", "folders", "none")
_GROUPINGS = ("first-dot", "last-dot")
_SHOWN = 20  # classes that are told one by one; --json names all of them


@verb
def pack(
    source: Annotated[
        Path, typer.Argument(help="a folder of files, or a CSV file with a column filename", metavar="SOURCE")
    ],
    url: Annotated[str, typer.Argument(help="a template, as 'ais://bucket/train-{:05d}.tar'", metavar="URL")],
    shard_size: ShardSize = None,
    shard_records: ShardRecords = None,
    shuffle: Annotated[
        int | None,
        typer.Option(help="order of the records; class folders are shuffled anyway, with seed 0", metavar="SEED"),
    ] = None,
    in_order: Annotated[bool, typer.Option("--no-shuffle", help="keep the order of names")] = False,
    grouping: Annotated[
        str | None,
        typer.Option(
            help="first-dot: a.seg.png is a field seg.png of the record a; last-dot: it is a record a_seg",
            metavar="HOW",
            autocompletion=lambda: _GROUPINGS,
        ),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            help="folders: each is a class; none: none is; auto: as it looks",
            metavar="HOW",
            autocompletion=lambda: _LABELS,
        ),
    ] = "auto",
    splits: Annotated[
        bool | None,
        typer.Option(
            "--splits/--no-splits",
            help="whether folders train, val … are splits; else as it looks",
            show_default=False,
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="all classes in the order of their numbers, as ant,bee", metavar="NAMES")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="where the files lie that the CSV file names", metavar="DIR")
    ] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="pack what links point to, also outside of SOURCE")
    ] = False,
    create: Create = True,
    replace: Annotated[bool, typer.Option("--replace", help="replace the shards that are there")] = False,
    endpoint: Endpoint = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Pack files into tar shards, each read back to prove it.

    Files of one name are a record. Images in a folder for each class get the number of their class as cls; folders
    train, val, test become splits. Says what it leaves out.

    \b
    Examples:
      ais-tar2tf pack photos/ 'ais://pets/train-{:05d}.tar'
      ais-tar2tf pack data/ 'ais://pets/{split}-{:05d}.tar'
    """
    from ais_tar2tf.cli.places import check_written
    from ais_tar2tf.errors import OptionError
    from ais_tar2tf.export import DEFAULT_SIZE
    from ais_tar2tf.nearest import check_choice
    from ais_tar2tf.packing import PackOptions
    from ais_tar2tf.packing.packer import look, run

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    check_written(url, "URL")
    check_choice("--labels", labels, _LABELS)
    if "://" not in url:
        refuse_flag("--no-create", not create, f"for {url!r}", "a folder is made in any case; it is of buckets")
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
    plan = look(source, url, options, progress=console.bars)
    _narrate(console, plan)
    if dry_run:
        _rehearse(console, plan)
        return
    try:
        packed = run(plan, create=create, progress=console.bars, endpoint=endpoint)
    except KeyboardInterrupt:
        raise Stopped(
            "the shards that are there are whole, the last ones are missing",
            "begin anew with --replace",
            in_part=True,
        ) from None
    _tell(console, packed, plan)


def _narrate(console: Console, plan: Plan) -> None:
    """Say how the folder is understood, before anything is written."""
    contents = plan.contents
    for part in contents.parts:
        name = f"{part.split}: " if part.split else ""
        console.note(f"{name}{counted(part.records or 0, 'record')}, {quantity(part.bytes or 0)}")
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


def _rehearse(console: Console, plan: Plan) -> None:
    from ais_tar2tf.packing.result import summary

    said = summary(plan.contents, plan.seed)
    text = f"would pack {counted(said['records'], 'record')} ({quantity(said['bytes'])}) into {plan.url}"
    console.document({"dry_run": True, **said, "url": plan.url}, lambda: console.data(text))


def _tell(console: Console, packed: Packed, plan: Plan) -> None:
    def shown() -> None:
        for each in packed:
            console.name(each)

    console.document(packed.to_json(), shown)
    console.note(
        f"{counted(packed.records, 'record')} in {counted(len(packed), 'shard')}, each read back and found whole"
    )
    for text in packed.warnings:
        console.warn(text)
    if packed.classes != plan.contents.classes:
        console.note(f"the classes have the numbers of the shards beside: {one_line(', '.join(packed.classes))}")
    for each in packed.classes_files:
        console.note(f"the names of the classes are in {each}")
    for split, urls in (packed.splits or {"": packed}).items():
        if not urls:
            continue
        template = plan.readable(split, len(urls))
        console.note(f"look at {split or 'them'}: ais-tar2tf card '{template}' · load: t2t.open({template!r})")
