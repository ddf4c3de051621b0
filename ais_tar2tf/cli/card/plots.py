"""Small plots as SVG and HTML, without scripts. Each plot has a text for screen readers.

This module must not do I/O.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from ais_tar2tf.cli.card.number_statistics import NumberStatistics
from ais_tar2tf.cli.card.word_counts import WordCounts

__all__ = ["bars", "histogram", "line", "shown_number"]

_HEIGHT = 100


def shown_number(value: float, unit: str = "") -> str:
    """Return a number as text. A number below 1,000 is rounded to three digits, a larger one to a whole number.

    If `unit` is "bytes", the number is shown with three digits and a unit such as kB.

    >>> shown_number(1234567, "bytes"), shown_number(0.12345), shown_number(12345.0)
    ('1.23 MB', '0.123', '12,345')
    """
    if unit == "bytes":
        for name in ("B", "kB", "MB", "GB", "TB"):
            if abs(value) < 999.5 or name == "TB":
                return f"{value:.3g} {name}"
            value /= 1_000
    if abs(value) < 1e15 and value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if 999.5 <= abs(value) < 1e15 else f"{value:.3g}"


def histogram(title: str, numbers: NumberStatistics, unit: str = "") -> str:
    """Return an HTML figure with a histogram, a summary above it, and the lowest and the highest value below it.

    Return "" if there are no values. If all values are equal, the figure states the value and has no histogram.
    """
    bins = numbers.bins()
    if not bins:
        return ""
    summary = numbers.summary
    low, middle, high = (shown_number(each, unit) for each in (summary.low, numbers.quantile(0.5), summary.high))
    if summary.low == summary.high:
        return _always(title, f"{low}{_unit(unit)}")
    mean = f"mean {shown_number(summary.mean, unit)}, median ≈ {middle}{_unit(unit)}"
    heading = _caption(title, f"{mean}, {summary.not_finite:,} not finite" if summary.not_finite else mean)
    label = f"{title}: {summary.count:,} values from {low} to {high}{_unit(unit)}, half of them below about {middle}"
    most = max(count for *_, count in bins)
    rects = "".join(_bar(at, begin, end, count, most, unit) for at, (begin, end, count) in enumerate(bins) if count)
    svg = (
        f'<svg class=histogram viewBox="0 0 {len(bins)} {_HEIGHT}" preserveAspectRatio=none role=img '
        f'aria-label="{html.escape(label)}">{rects}</svg>'
    )
    axis = f"<div class=axis aria-hidden=true><span>{low}</span><span>{high}</span></div>"
    return f"<figure>{heading}{svg}{axis}</figure>"


def _always(title: str, value: str) -> str:
    return f"<figure>{_caption(title, f'always {value}')}</figure>"


def _caption(title: str, text: str) -> str:
    return f"<figcaption><b>{html.escape(title)}</b> <span class=soft>{html.escape(text)}</span></figcaption>"


def _unit(unit: str) -> str:
    return f" {unit}" if unit and unit != "bytes" else ""


def _bar(at: int, begin: float, end: float, count: int, most: int, unit: str) -> str:
    height = max(1.5, _HEIGHT * count / most)
    tooltip = f"{shown_number(begin, unit)} to {shown_number(end, unit)}: {count:,}"
    return (
        f'<rect x="{at + 0.06:g}" y="{_HEIGHT - height:.1f}" width=".88" height="{height:.1f}">'
        f"<title>{html.escape(tooltip)}</title></rect>"
    )


def bars(title: str, words: WordCounts, most: int, records: int) -> str:
    """Return an HTML figure of the `most` most frequent words, each with a bar and its share of `records`."""
    shown = words.common(most)
    if not shown:
        return ""
    top = shown[0][1]
    if len(shown) == 1 and top == records:
        return _always(title, shown[0][0] or "(empty)")
    rows = "".join(
        f"<li><span class=word title='{html.escape(word, quote=True)}'>{html.escape(word) or '(empty)'}</span>"
        f"<span class=track aria-hidden=true><i style='width:{100 * count / top:.1f}%'></i></span>"
        f"<span class=count>{count:,} · {count / records:.1%}</span></li>"
        for word, count in shown
    )
    left = len(words.counts) - len(shown)
    rest = f"<p class='soft small'>and {left:,} more</p>" if left else ""
    caption = _caption(title, f"{len(words.counts):,} different") if title else ""
    return f"<figure>{caption}<ul class=bars>{rows}</ul>{rest}</figure>"


def line(values: Sequence[float], label: str) -> str:
    """Return an SVG with a curve through the finite values. Screen readers read `label`."""
    finite = [each for each in values if math.isfinite(each)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    across = (high / 2 - low / 2) or 1.0  # halves, because the difference of two large numbers may overflow
    points = " ".join(
        f"{at},{38 - 36 * ((each / 2 - low / 2) / across):.1f}"
        for at, each in enumerate(values)
        if math.isfinite(each)
    )
    width = max(1, len(values) - 1)
    return (
        f'<svg viewBox="0 0 {width} 40" preserveAspectRatio=none role=img aria-label="{html.escape(label)}">'
        f'<polyline class=line points="{points}"/></svg>'
    )
