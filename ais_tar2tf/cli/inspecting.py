"""`inspect`: what the records are: schema, counts, sizes, and everything that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.console import Console, quantity
from ais_tar2tf.cli.verbs import Endpoint, Fields, Grouping, Json, Most, Quiet, UrlsOrOut, Verbose, verb

if TYPE_CHECKING:
    from ais_tar2tf.card import Survey
    from ais_tar2tf.cli.surveying import Reading

__all__ = ["inspect"]

_SHOWN = 3  # bad records of a kind: the fourth one seldom tells more
_CLASSES = 12  # named in a line


@verb
def inspect(
    urls: UrlsOrOut,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    fields: Fields = None,
    records: Most = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Tell the schema, counts, sizes and bad records.

    Everything is read, without stopping at what is bad. It ends with 6 when something is. Images are judged by their
    headers and end marks, and not decoded.

    \b
    Examples:
      ais-tar2tf inspect 'ais://imagenet/train-{000..146}.tar'
      ais-tar2tf inspect data/ --records 1000
    """
    from ais_tar2tf.cli.surveying import next_of_bad, read_all

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    reading = read_all(
        urls, console, endpoint=endpoint, fields=fields, most=records, what="inspecting", grouping=grouping
    )
    survey = reading.survey
    console.document(_document(reading), lambda: _show(console, reading))
    if reading.stopped:
        console.error("stopped: this is what was read until then", "--records N reads only the first N")
        raise typer.Exit(exits.INTERRUPTED)
    if survey.faulty:
        console.error(f"{survey.faulty:,} bad", next_of_bad(reading, urls))
        raise typer.Exit(exits.CORRUPT)


def _document(reading: Reading) -> dict[str, Any]:
    stats = reading.stats
    read = {"whole": reading.whole, "ignored": stats.ignored, "received": stats.bytes, "retries": stats.retries}
    return {**reading.survey.to_json(), "shards": reading.shards, "read": read}


def _show(console: Console, reading: Reading) -> None:
    survey, stats = reading.survey, reading.stats
    schema = survey.schema
    rows = [
        [
            field.name,
            field.type_text,
            field.encoding_text,
            _presence(reading, field.name),
            _sizes(reading, field.name),
        ]
        for field in schema
    ]
    if rows:
        console.table(("field", "type", "stored as", "present", "bytes each"), rows, right=frozenset({3, 4}))
        console.data("")
    part = "" if reading.whole else f" (the first; of {reading.shards:,} shards)"
    console.data(f"records  {survey.records:,}{part}")
    console.data(f"shards   {_shards(reading)}")
    console.data(f"bytes    {quantity(survey.bytes)} in fields, {quantity(stats.bytes)} received")
    for names in survey.classes.values():
        console.name(f"classes  {_classes(names)}")
    if stats.ignored:
        console.data(f"ignored  {stats.ignored:,} members that are no fields (folders, links, ._*)")
    console.data(f"bad      {survey.faulty:,}")
    _show_bad(console, survey)


def _shards(reading: Reading) -> str:
    """How many shards were read, and how many of them gave no record."""
    with_records = len(reading.survey.shards)
    if not reading.whole:
        return f"{with_records:,}"
    empty = reading.shards - with_records if reading.split is None and not reading.survey.more_shards else 0
    return f"{reading.shards:,}{f' ({empty:,} without records)' if empty else ''}"


def _show_bad(console: Console, survey: Survey) -> None:
    """How many of each kind, and the first ones."""
    for kind, count in survey.faults.items():
        console.data(f"{count:>7,} × {kind}")
        of_kind = [bad for bad in survey.bad if bad.kind == kind][:_SHOWN]
        for bad in of_kind:
            console.point(bad.text, "·")
    if survey.faulty > _SHOWN:
        console.data("  --json names more of them")


def _classes(names: Sequence[str]) -> str:
    """The names of classes with their numbers.

    >>> _classes(["ant", "bee"])
    '2: ant 0, bee 1'
    """
    shown = ", ".join(f"{name} {number}" for number, name in enumerate(names[:_CLASSES]))
    more = f", … ({len(names) - _CLASSES:,} more in --json)" if len(names) > _CLASSES else ""
    return f"{len(names):,}: {shown}{more}"


def _presence(reading: Reading, name: str) -> str:
    found = reading.survey.fields.get(name)
    if found is None:
        return ""
    share = found.records / reading.survey.records
    return "always" if share == 1 else f"{share:.1%}"


def _sizes(reading: Reading, name: str) -> str:
    found = reading.survey.fields.get(name)
    sizes = found.numbers.get("size") if found is not None else None
    if sizes is None or not sizes.count:
        return ""
    low, high = quantity(sizes.low), quantity(sizes.high)
    return low if low == high else f"{low} to {high}"
