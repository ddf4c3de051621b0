"""Small plots as SVG and HTML, each with a sentence for those who hear a page. No scripts, no I/O."""

from __future__ import annotations

import html
from collections.abc import Sequence

from ais_tar2tf.card._numbers import Numbers
from ais_tar2tf.card._words import Words

__all__ = ["bars", "histogram", "line", "shown_number"]

_HEIGHT = 100


def shown_number(value: float, unit: str = "") -> str:
    """A number for people; bytes as kB and MB.

    >>> shown_number(1234567, "bytes"), shown_number(0.12345), shown_number(12345.0)
    ('1.23 MB', '0.123', '12,345')
    """
    if unit == "bytes":
        for name in ("B", "kB", "MB", "GB", "TB"):
            if abs(value) < 999.5 or name == "TB":
                return f"{value:.3g} {name}"
            value /= 1_000
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if 1_000 <= abs(value) < 1e15 else f"{value:.3g}"


def histogram(title: str, numbers: Numbers, unit: str = "") -> str:
    """A figure: how often which values came, with the lowest, the middle and the highest below."""
    bins = numbers.bins()
    if not bins:
        return ""
    low, middle, high = (shown_number(each, unit) for each in (numbers.low, numbers.quantile(0.5), numbers.high))
    if numbers.low == numbers.high:
        return _always(title, f"{low}{_unit(unit)}")
    heading = _caption(title, _summary(numbers, unit))
    told = f"{title}: {numbers.count:,} values from {low} to {high}{_unit(unit)}, half of them below about {middle}"
    most = max(count for *_, count in bins)
    rects = "".join(_bar(at, begin, end, count, most, unit) for at, (begin, end, count) in enumerate(bins) if count)
    svg = (
        f'<svg class=histogram viewBox="0 0 {len(bins)} {_HEIGHT}" preserveAspectRatio=none role=img '
        f'aria-label="{html.escape(told)}">{rects}</svg>'
    )
    axis = f"<div class=axis aria-hidden=true><span>{low}</span><span>{high}</span></div>"
    return f"<figure>{heading}{svg}{axis}</figure>"


def _always(title: str, what: str) -> str:
    return f"<figure>{_caption(title, f'always {what}')}</figure>"


def _caption(title: str, told: str) -> str:
    return f"<figcaption><b>{html.escape(title)}</b> <span class=soft>{html.escape(told)}</span></figcaption>"


def _summary(numbers: Numbers, unit: str) -> str:
    mean = (
        f"mean {shown_number(numbers.mean, unit)}, median ≈ {shown_number(numbers.quantile(0.5), unit)}{_unit(unit)}"
    )
    return f"{mean}, {numbers.strange:,} not finite" if numbers.strange else mean


def _unit(unit: str) -> str:
    return f" {unit}" if unit and unit != "bytes" else ""


def _bar(at: int, begin: float, end: float, count: int, most: int, unit: str) -> str:
    height = max(1.5, _HEIGHT * count / most)
    told = f"{shown_number(begin, unit)} to {shown_number(end, unit)}: {count:,}"
    return (
        f'<rect x="{at + 0.06:g}" y="{_HEIGHT - height:.1f}" width=".88" height="{height:.1f}">'
        f"<title>{html.escape(told)}</title></rect>"
    )


def bars(title: str, words: Words, most: int, of: int) -> str:
    """A list of words with a bar each, the most frequent first; shares are of `of` records."""
    shown = words.common(most)
    if not shown:
        return ""
    top = shown[0][1]
    if len(shown) == 1 and top == of:
        return _always(title, shown[0][0] or "(empty)")
    rows = "".join(
        f"<li><span class=word title='{html.escape(word, quote=True)}'>{html.escape(word) or '(empty)'}</span>"
        f"<span class=track aria-hidden=true><i style='width:{100 * count / top:.1f}%'></i></span>"
        f"<span class=count>{count:,} · {count / of:.1%}</span></li>"
        for word, count in shown
    )
    left = len(words.counts) - len(shown)
    rest = f"<p class='soft small'>and {left:,} more</p>" if left else ""
    caption = _caption(title, f"{len(words.counts):,} different") if title else ""
    return f"<figure>{caption}<ul class=bars>{rows}</ul>{rest}</figure>"


def line(values: Sequence[float], told: str) -> str:
    """A curve through the values."""
    known = [each for each in values if each == each and abs(each) != float("inf")]  # NaN is no value
    low, high = min(known, default=0.0), max(known, default=0.0)
    across = (high - low) or 1.0
    points = " ".join(
        f"{at},{38 - 36 * (each - low) / across:.1f}"
        for at, each in enumerate(values)
        if each == each and abs(each) != float("inf")
    )
    width = max(1, len(values) - 1)
    return (
        f'<svg viewBox="0 0 {width} 40" preserveAspectRatio=none role=img aria-label="{html.escape(told)}">'
        f'<polyline class=line points="{points}"/></svg>'
    )
