"""`bench`: how fast *this* bucket can feed *this* machine, and what holds it up."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ais_tar2tf.cli.carding import write_page
from ais_tar2tf.cli.console import Console, quantity
from ais_tar2tf.cli.verbs import Endpoint, Json, Quiet, Urls, Verbose, verb
from ais_tar2tf.errors import SchemaError

if TYPE_CHECKING:
    from ais_tar2tf.cli.judging import Rates, Verdict
    from ais_tar2tf.cli.stages import Measured, Sample

__all__ = ["bench"]

_CONNECTIONS = (2, 1, 4, 8)  # the default first: the others are held against it
_WIDTH = 36  # characters of the longest bar


@verb
def bench(
    urls: Urls,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="the plot as an HTML file, too", metavar="FILE")
    ] = None,
    seconds: Annotated[float, typer.Option(help="for each measurement", min=0.05, max=600)] = 2.0,
    batch: Annotated[int, typer.Option(help="records of a batch", min=1)] = 128,
    tensorflow: Annotated[bool, typer.Option(help="measure tf.data and decoding, too")] = True,
    endpoint: Endpoint = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Measure download, parsing, tf.data and decoding one by one, and say which of them is the bottleneck.

    It reads for some seconds each, and up to 128 MiB of shards are held in memory.
    """
    from ais_tar2tf.cli.judging import judge
    from ais_tar2tf.source import open_source

    console = Console(as_json=as_json, quiet=quiet, verbose=verbose)
    rates, sample = _measured(console, urls, endpoint, seconds, batch, with_tensorflow=tensorflow)
    can_cache = "cache" in inspect.signature(open_source).parameters
    verdict = judge(rates, sample.record_bytes, os.cpu_count() or 1, batch=batch, can_cache=can_cache)
    document = _document(rates, sample, verdict)
    console.document(document, lambda: _show(console, rates, sample, verdict))
    if out is not None:
        from ais_tar2tf.cli.bench_page import page

        write_page(out, page(urls[0], rates.stages, verdict, sample))
        console.note(f"the plot is in {out}")


def _measured(
    console: Console, urls: Sequence[str], endpoint: str | None, seconds: float, batch: int, *, with_tensorflow: bool
) -> tuple[Rates, Sample]:
    from ais_tar2tf.cli import stages
    from ais_tar2tf.cli.judging import Rates
    from ais_tar2tf.cli.places import objects, store_of

    store, _ = store_of(urls[0], endpoint)
    names = [info.name for _, info in objects(urls, endpoint)]
    try:
        console.note(f"taking a sample of {len(names):,} shards")
        sample = stages.take_sample(store, names)
        if not sample.records:
            raise SchemaError(f"{urls[0]}: there are no records to measure with")
        downloads: list[tuple[int, Measured]] = []
        for at, connections in enumerate(_CONNECTIONS):
            console.note(f"download over {connections}")
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
    from ais_tar2tf.cli.places import as_template
    from ais_tar2tf.cli.quietly import import_tensorflow
    from ais_tar2tf.source import Source, open_source

    console.note("tf.data")
    import_tensorflow()
    source = sample.source

    def live() -> Source:
        return open_source([as_template(url) for url in urls], endpoint=endpoint, on_error="skip-shard")

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
    width = max(len(measured.name) for measured in rates.stages)
    told: Callable[[Measured], str] = lambda m: f"{quantity(m.rate)}/s, {m.records_rate:,.0f} records/s"  # noqa: E731
    for measured in rates.stages:
        bar = _bar(measured.rate / most)
        console.data(f"{measured.name:<{width}}  {console.styled(f'{bar:<{_WIDTH}}', 'cyan')}  {told(measured)}")
    console.data("")
    console.data(f"a record takes {quantity(sample.record_bytes)} of a shard")
    console.data(f"bottleneck: {console.styled(verdict.bottleneck, 'bold')}")
    for advice in verdict.advice:
        console.data(f"  → {advice}")
    console.data(f"suggested: connections={verdict.connections}, batch={verdict.batch}")


def _bar(share: float) -> str:
    """In eighths of a character."""
    eighths = max(1, round(share * _WIDTH * 8))
    return "█" * (eighths // 8) + ("", *"▏▎▍▌▋▊▉")[eighths % 8]
