"""`inspect`: print the schema, the counts and sizes of fields, and bad records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from ais_tar2tf.cli import exits
from ais_tar2tf.cli.command import Endpoint, Fields, Grouping, Most, UrlsOrOut, verb
from ais_tar2tf.cli.console import Console, quantity

if TYPE_CHECKING:
    from ais_tar2tf.cli.card import DataStatistics
    from ais_tar2tf.cli.scan import ScanResult

__all__ = ["inspect"]

_SHOWN = 3  # bad records of a kind
_CLASSES = 12  # names of classes in a line


@verb()
def inspect(
    console: Console,
    urls: UrlsOrOut,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    fields: Fields = None,
    records: Most = None,
) -> None:
    """Print the schema, counts, sizes and bad records.

    A bad record in a shard does not stop the reading. The exit code is 6 when there are bad records. Images are
    not decoded: only their headers and end marks are checked.

    Examples:
      ais-tar2tf inspect 'ais://imagenet/train-{000..146}.tar'
      ais-tar2tf inspect data/ --records 1000
    """
    from ais_tar2tf.cli.scan import next_of_bad, scan

    reading = scan(
        urls, console, endpoint=endpoint, fields=fields, most=records, what="inspecting", grouping=grouping
    )
    statistics = reading.statistics
    console.document(_document(reading), lambda: _show(console, reading))
    if reading.stopped:
        console.error("stopped: this is what was read until then", "--records N reads only the first N")
        raise typer.Exit(exits.INTERRUPTED)
    if statistics.error_count:
        console.error(f"{statistics.error_count:,} bad", next_of_bad(reading, urls))
        raise typer.Exit(exits.CORRUPT)


def _document(reading: ScanResult) -> dict[str, Any]:
    stats = reading.stats
    read = {"whole": reading.whole, "ignored": stats.ignored, "received": stats.bytes, "retries": stats.retries}
    return {**reading.statistics.to_json(), "shards": reading.shards, "read": read}


def _show(console: Console, reading: ScanResult) -> None:
    statistics, stats = reading.statistics, reading.stats
    schema = statistics.schema
    rows = [
        [
            field.name,
            field.type_text,
            field.encoding_text,
            statistics.presence(field.name),
            _sizes(reading, field.name),
        ]
        for field in schema
    ]
    if rows:
        console.table(("field", "type", "stored as", "present", "bytes each"), rows, right=frozenset({3, 4}))
        console.data("")
    part = "" if reading.whole else f" (the first; of {reading.shards:,} shards)"
    console.data(f"records  {statistics.records:,}{part}")
    console.data(f"shards   {_shards(reading)}")
    console.data(f"bytes    {quantity(statistics.bytes)} in fields, {quantity(stats.bytes)} received")
    for names in statistics.classes.values():
        console.name(f"classes  {_classes(names)}")
    if stats.ignored:
        console.data(f"ignored  {stats.ignored:,} members that are no fields (folders, links, ._*)")
    console.data(f"bad      {statistics.error_count:,}")
    _show_bad(console, statistics)


def _shards(reading: ScanResult) -> str:
    """Return how many shards were read, and how many of them had no records."""
    with_records = len(reading.statistics.shards)
    if not reading.whole:
        return f"{with_records:,}"
    empty = reading.shards - with_records if reading.split is None and not reading.statistics.more_shards else 0
    return f"{reading.shards:,}{f' ({empty:,} without records)' if empty else ''}"


def _show_bad(console: Console, statistics: DataStatistics) -> None:
    """Print how many bad records there are of each kind, and the first of them."""
    for kind, count in statistics.errors_by_kind.items():
        console.data(f"{count:>7,} × {kind}")
        of_kind = [bad for bad in statistics.first_errors if bad.kind == kind][:_SHOWN]
        for bad in of_kind:
            console.point(bad.text, "·")
    if max(statistics.errors_by_kind.values(), default=0) > _SHOWN:
        console.data("  --json names more of them")


def _classes(names: Sequence[str]) -> str:
    """Return the names of classes with their numbers.

    >>> _classes(["ant", "bee"])
    '2: ant 0, bee 1'
    """
    shown = ", ".join(f"{name} {number}" for number, name in enumerate(names[:_CLASSES]))
    more = f", … ({len(names) - _CLASSES:,} more in --json)" if len(names) > _CLASSES else ""
    return f"{len(names):,}: {shown}{more}"


def _sizes(reading: ScanResult, name: str) -> str:
    found = reading.statistics.fields.get(name)
    sizes = found.numbers["size"].summary if found is not None and "size" in found.numbers else None
    if sizes is None or not sizes.count:
        return ""
    low, high = quantity(sizes.low), quantity(sizes.high)
    return low if low == high else f"{low} to {high}"
