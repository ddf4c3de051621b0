"""`bench`: how fast *this* bucket can feed *this* machine, and what holds it up."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ais_tar2tf.cli.carding import check_page, write_page
from ais_tar2tf.cli.console import Console, counted, quantity, width_of
from ais_tar2tf.cli.verbs import Batch, Endpoint, Grouping, Json, Quiet, Urls, Verbose, WithTensorflow, verb
from ais_tar2tf.errors import SchemaError, ShardNotFound
from ais_tar2tf.signed_urls import shown_url

if TYPE_CHECKING:
    from ais_tar2tf.cli.judging import Rates, Verdict
    from ais_tar2tf.cli.stages import Measured, Sample

__all__ = ["bench"]

_CONNECTIONS = (2, 1, 4, 8)  # the default first: the others are held against it
_WIDTHS = (8, 36)  # characters of the longest bar, in a narrow terminal and in a wide one or a file


@verb
def bench(
    urls: Urls,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the plot as an HTML file, too", metavar="FILE")
    ] = None,
    seconds: Annotated[float, typer.Option(help="for each measurement", min=0.05, max=600, metavar="N")] = 2.0,
    batch: Batch = 128,
    tensorflow: WithTensorflow = True,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Measure how fast this bucket can feed this machine.

    Download, parsing, tf.data and decoding are measured one by one, for some seconds each; the slowest of them is
    the bottleneck. Up to 128 MiB of shards are held in memory.

    \b
    Example:
      ais-tar2tf bench 'ais://imagenet/train-{000..146}.tar' -o bench.html
    """
    from ais_tar2tf.cli.judging import judge
    from ais_tar2tf.cli.places import chosen_grouping
    from ais_tar2tf.source import open_source

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    if out is not None:
        check_page(out)
    rates, sample = _measured(
        console, urls, endpoint, seconds, batch, with_tensorflow=tensorflow, grouping=chosen_grouping(grouping)
    )
    can_cache = "cache" in inspect.signature(open_source).parameters
    verdict = judge(rates, sample.record_bytes, os.cpu_count() or 1, batch=batch, can_cache=can_cache)
    document = _document(rates, sample, verdict)
    console.document(document, lambda: _show(console, rates, sample, verdict))
    if out is not None:
        from ais_tar2tf.cli.bench_page import page

        write_page(out, page(shown_url(urls[0]), rates.stages, verdict, sample))
        console.note(f"the plot is in {out}")


def _measured(
    console: Console,
    urls: Sequence[str],
    endpoint: str | None,
    seconds: float,
    batch: int,
    *,
    with_tensorflow: bool,
    grouping: str,
) -> tuple[Rates, Sample]:
    from ais_tar2tf.cli import stages
    from ais_tar2tf.cli.judging import Rates
    from ais_tar2tf.cli.places import objects, store_of

    store, _ = store_of(urls[0], endpoint)
    names = [info.name for _, info in objects(urls, endpoint)]
    try:
        if not names:
            raise ShardNotFound("there are no shards", url=urls[0])
        console.note(f"taking a sample of {counted(len(names), 'shard')}")
        sample = stages.take_sample(store, names, grouping)
        if not sample.records:
            raise SchemaError(f"{shown_url(urls[0])}: there are no records to measure with")
        downloads: list[tuple[int, Measured]] = []
        for at, connections in enumerate(_CONNECTIONS):
            console.note(f"download over {counted(connections, 'connection')}")
            begin = at % len(names)
            downloads.append(
                (connections, stages.download(store, names, connections, seconds, sample.record_bytes, begin))
            )
    finally:
        store.close()
    console.note("parsing")
    rates = Rates(downloads, stages.in_records(sample, seconds))
    return (
        _with_tensorflow(console, rates, sample, urls, endpoint, seconds, batch) if with_tensorflow else rates
    ), sample


def _with_tensorflow(
    console: Console,
    rates: Rates,
    sample: Sample,
    urls: Sequence[str],
    endpoint: str | None,
    seconds: float,
    batch: int,
) -> Rates:
    from dataclasses import replace

    from ais_tar2tf.cli import stages
    from ais_tar2tf.cli.quietly import import_tensorflow
    from ais_tar2tf.source import Source, open_source

    console.note("tf.data")
    import_tensorflow()
    source = sample.source

    def live() -> Source:
        return open_source(list(urls), endpoint=endpoint, grouping=sample.grouping, on_error="skip-shard")

    handed_over = stages.in_batches("into tf.data", source, None, batch, seconds, sample)
    mapping = stages.decoding(sample)
    decode = None
    if mapping is not None:
        console.note("decoding")
        decode = stages.in_batches("decode and resize images", source, mapping, batch, seconds, sample)
    console.note("all of it together")
    together = stages.in_batches("all together, from the store", live, mapping, batch, seconds, sample)
    return replace(rates, handed_over=handed_over, decode=decode, together=together)


def _document(rates: Rates, sample: Sample, verdict: Verdict) -> dict[str, Any]:
    return {
        "sample": {"shards": len(sample.urls), "bytes": sample.bytes, "records": sample.records},
        "stages": [measured.to_json() for measured in rates.stages],
        **verdict.to_json(),
    }


def _show(console: Console, rates: Rates, sample: Sample, verdict: Verdict) -> None:
    most = max(measured.rate for measured in rates.stages)
    names = max(len(measured.name) for measured in rates.stages)
    told = {
        measured: f"{quantity(measured.rate)}/s {measured.records_rate:>9,.0f} records/s" for measured in rates.stages
    }
    numbers = max(map(len, told.values()))
    bars = _bars_width(names + numbers + 4)
    for measured in rates.stages:
        bar = console.styled(f"{_bar(measured.rate / most, bars):<{bars}}", "cyan")
        console.data(f"{measured.name:<{names}}  {bar}  {told[measured]:>{numbers}}")
    console.data("")
    console.data(f"a record takes {quantity(sample.record_bytes)} of a shard")
    console.data(f"bottleneck: {console.styled(verdict.bottleneck, 'bold')}")
    for advice in verdict.advice:
        console.point(advice)
    console.data(f"suggested:  {verdict.code}")


def _bars_width(beside: int) -> int:
    """Of the longest bar, so that a line fits into the terminal."""
    columns = width_of(sys.stdout)
    return _WIDTHS[1] if columns is None else min(max(columns - beside - 1, _WIDTHS[0]), _WIDTHS[1])


def _bar(share: float, width: int) -> str:
    """In eighths of a character."""
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
