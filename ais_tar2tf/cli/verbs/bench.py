"""`bench`: measure how fast this machine reads a bucket, and name the slowest stage."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ais_tar2tf.base.urls.signed import shown_url
from ais_tar2tf.cli.command import Batch, Endpoint, Grouping, Urls, WithTensorflow, verb
from ais_tar2tf.cli.console import Console, counted, quantity, width_of
from ais_tar2tf.cli.verbs.card import check_page, write_page
from ais_tar2tf.errors import SchemaError, ShardNotFound

if TYPE_CHECKING:
    from ais_tar2tf.cli.diagnosis import Rates, Verdict
    from ais_tar2tf.cli.stages import BenchSample, StageMeasurement
    from ais_tar2tf.source import Source

__all__ = ["bench"]

_CONNECTIONS = (2, 1, 4, 8)  # numbers to measure; the default first, as the others are compared with it
_MIN_BAR, _MAX_BAR = 8, 36  # characters of the longest bar


@verb()
def bench(
    console: Console,
    urls: Urls,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="also write the plot to this HTML file", metavar="FILE")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="how long each measurement takes", min=0.05, max=600, metavar="N")
    ] = 2.0,
    batch: Batch = 128,
    tensorflow: WithTensorflow = True,
    grouping: Grouping = None,
    endpoint: Endpoint = None,
) -> None:
    """Measure how fast this machine can read a bucket.

    Download, parsing, tf.data and decoding are measured one after the other; the slowest of them is the bottleneck.
    A sample of up to 128 MiB is held in memory.

    Example:
      ais-tar2tf bench 'ais://imagenet/train-{000..146}.tar' -o bench.html
    """
    from ais_tar2tf.cli.diagnosis import judge
    from ais_tar2tf.cli.places import chosen_grouping
    from ais_tar2tf.source import open_source

    if out is not None:
        check_page(out)
    rates, sample = _measure(console, urls, endpoint, seconds, chosen_grouping(grouping))
    if tensorflow:
        reading = {"endpoint": endpoint, "grouping": sample.grouping, "on_error": "skip-shard"}
        rates = _measure_tensorflow(console, rates, sample, partial(open_source, urls, **reading), seconds, batch)
    verdict = judge(rates, sample.record_bytes, os.cpu_count() or 1, batch=batch)
    document = _document(rates, sample, verdict)
    console.document(document, lambda: _show(console, rates, sample, verdict))
    if out is not None:
        write_page(out, _page(shown_url(urls[0]), rates.stages, verdict, sample))
        console.note(f"the plot is in {out}")


def _measure(
    console: Console, urls: Sequence[str], endpoint: str | None, seconds: float, grouping: str
) -> tuple[Rates, BenchSample]:
    from ais_tar2tf.cli import stages
    from ais_tar2tf.cli.diagnosis import Rates
    from ais_tar2tf.cli.places import objects, store_of

    store, _ = store_of(urls[0], endpoint)
    names = [info.name for _, info in objects(urls, endpoint)]
    with closing(store):
        if not names:
            raise ShardNotFound("there are no shards", url=urls[0])
        console.note(f"taking a sample of {counted(len(names), 'shard')}")
        sample = stages.take_sample(store, names, grouping)
        if not sample.records:
            raise SchemaError(f"{shown_url(urls[0])}: there are no records to measure with")
        downloads: list[tuple[int, StageMeasurement]] = []
        for at, connections in enumerate(_CONNECTIONS):
            console.note(f"download over {counted(connections, 'connection')}")
            first = at % len(names)  # another one each time, since the last one may now be in a cache
            downloads.append(
                (connections, stages.download(store, names, connections, seconds, sample.record_bytes, first))
            )
    console.note("parsing")
    return Rates(downloads, stages.in_records(sample, seconds)), sample


def _measure_tensorflow(
    console: Console, rates: Rates, sample: BenchSample, from_store: Callable[[], Source], seconds: float, batch: int
) -> Rates:
    from ais_tar2tf.cli import stages
    from ais_tar2tf.cli.silence import import_tensorflow

    console.note("tf.data")
    import_tensorflow()
    source = sample.source
    handed_over = stages.in_batches("into tf.data", source, None, batch, seconds, sample)
    mapping = stages.decoding(sample)
    decode = None
    if mapping is not None:
        console.note("decoding")
        decode = stages.in_batches("decode and resize images", source, mapping, batch, seconds, sample)
    console.note("all stages together")
    together = stages.in_batches("all together, from the store", from_store, mapping, batch, seconds, sample)
    return replace(rates, handed_over=handed_over, decode=decode, together=together)


def _document(rates: Rates, sample: BenchSample, verdict: Verdict) -> dict[str, Any]:
    return {
        "sample": {"shards": len(sample.urls), "bytes": sample.bytes, "records": sample.records},
        "stages": [measured.to_json() for measured in rates.stages],
        **verdict.to_json(),
    }


def _show(console: Console, rates: Rates, sample: BenchSample, verdict: Verdict) -> None:
    highest_rate = max(measured.rate for measured in rates.stages)
    name_width = max(len(measured.name) for measured in rates.stages)
    texts = {
        measured: f"{quantity(measured.rate)}/s {measured.records_rate:>9,.0f} records/s" for measured in rates.stages
    }
    text_width = max(map(len, texts.values()))
    bar_width = _longest_bar(name_width + text_width + 4)
    for measured in rates.stages:
        bar = console.styled(f"{_bar(measured.rate / highest_rate, bar_width):<{bar_width}}", "cyan")
        console.data(f"{measured.name:<{name_width}}  {bar}  {texts[measured]:>{text_width}}")
    console.data("")
    console.data(f"a record takes {quantity(sample.record_bytes)} of a shard")
    console.data(f"bottleneck: {console.styled(verdict.bottleneck, 'bold')}")
    for advice in verdict.advice:
        console.point(advice)
    console.data(f"suggested:  {verdict.code}")


def _longest_bar(text_width: int) -> int:
    """Return the width of the longest bar: a line with `text_width` characters of text fits the terminal."""
    columns = width_of(sys.stdout)
    return _MAX_BAR if columns is None else min(max(columns - text_width - 1, _MIN_BAR), _MAX_BAR)


def _bar(share: float, width: int) -> str:
    """Return a bar that fills a share of `width`, drawn in eighths of a character."""
    eighths = max(1, round(share * width * 8))
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]


def _page(url: str, stages: Sequence[StageMeasurement], verdict: Verdict, sample: BenchSample) -> str:
    """Return the page as HTML: a bar for the speed of each stage, then the bottleneck and the advice.

    Args:
        url: The URL of the measured shards, as the title.
        stages: The measurement of each stage.
        verdict: The bottleneck, and what to try.
        sample: The records that were measured.
    """
    from ais_tar2tf.cli.card import document

    title = html.escape(url)
    advice = "".join(f"<li>{html.escape(each)}</li>" for each in verdict.advice)
    sections = (
        "<section aria-labelledby=rates><h2 id=rates>How fast each stage is</h2>"
        "<p class=soft>Bytes of shards per second. Download, parsing, tf.data and decoding run at the same time, "
        "so the slowest of these stages limits the speed.</p>"
        f"{_speed_bars(stages)}</section>"
        f"<section aria-labelledby=verdict><h2 id=verdict>The bottleneck: {html.escape(verdict.bottleneck)}</h2>"
        f"<ul>{advice}</ul>"
        f"<p>Suggested: <code>{html.escape(verdict.code)}</code></p></section>"
    )
    summary = (
        f"measured on {len(sample.urls):,} shards with {sample.records:,} records of {quantity(sample.record_bytes)}"
    )
    header = f"<header><h1>{title}</h1><p class=soft>{html.escape(summary)}</p></header>"
    return document(
        f"{title}: how fast it is", f"{header}<main>{sections}</main>", "Made by <code>ais-tar2tf bench</code>."
    )


def _speed_bars(stages: Sequence[StageMeasurement]) -> str:
    fastest = max(stage.rate for stage in stages) or 1.0
    rows = "".join(
        f"<li><span class='word plain'>{html.escape(stage.name)}</span>"
        f"<span class=track aria-hidden=true><i style='width:{100 * stage.rate / fastest:.1f}%'></i></span>"
        f"<span class=count>{quantity(stage.rate)}/s · {stage.records_rate:,.0f} records/s</span></li>"
        for stage in stages
    )
    return f"<ul class='bars tall'>{rows}</ul>"
