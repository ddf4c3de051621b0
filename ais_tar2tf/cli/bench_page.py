"""The plot of `bench` as one HTML file, which looks like a card and loads nothing."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ais_tar2tf.card import document
from ais_tar2tf.cli.console import quantity
from ais_tar2tf.cli.judging import Verdict
from ais_tar2tf.cli.stages import Measured, Sample

__all__ = ["page"]


def page(url: str, stages: Sequence[Measured], verdict: Verdict, sample: Sample) -> str:
    """Bars of MB/s, one for each stage, and the verdict."""
    said = html.escape(url)
    advice = "".join(f"<li>{html.escape(each)}</li>" for each in verdict.advice)
    sections = (
        "<section aria-labelledby=rates><h2 id=rates>How fast each stage is</h2>"
        "<p class=soft>Bytes of shards in a second; the slowest of download, parsing, tf.data and decoding "
        "holds up all the others.</p>"
        f"{_plot(stages)}</section>"
        f"<section aria-labelledby=verdict><h2 id=verdict>The bottleneck: {html.escape(verdict.bottleneck)}</h2>"
        f"<ul>{advice}</ul>"
        f"<p>Suggested: <code>{html.escape(verdict.code)}</code></p></section>"
    )
    summary = (
        f"measured on {len(sample.urls):,} shards with {sample.records:,} records of {quantity(sample.record_bytes)}"
    )
    header = f"<header><h1>{said}</h1><p class=soft>{html.escape(summary)}</p></header>"
    return document(
        f"{said}: how fast it is", f"{header}<main>{sections}</main>", "Made by <code>ais-tar2tf bench</code>."
    )


def _plot(stages: Sequence[Measured]) -> str:
    most = max(measured.rate for measured in stages) or 1.0
    rows = "".join(
        f"<li><span class='word plain'>{html.escape(measured.name)}</span>"
        f"<span class=track aria-hidden=true><i style='width:{100 * measured.rate / most:.1f}%'></i></span>"
        f"<span class=count>{quantity(measured.rate)}/s · {measured.records_rate:,.0f} records/s</span></li>"
        for measured in stages
    )
    return f"<ul class='bars tall'>{rows}</ul>"
