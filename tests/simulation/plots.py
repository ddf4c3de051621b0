"""Draw the results as images/cluster.png. Needs matplotlib (extra `dev`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tests.simulation.scenarios import Hits, Rates, Survival

__all__ = ["Findings", "draw"]

_SIZE, _DPI = (14.0, 7.4), 100  # inches; 1400 pixels wide
_BAD, _OTHER, _OURS, _THIRD = "#c4453b", "#d9a22b", "#3b82c4", "#3f9142"
_INK, _SOFT = "#1f2933", "#52606d"
_GB = 1e9


@dataclass(frozen=True)
class Findings:
    """The results of all scenarios."""

    trainers: Sequence[int]
    start_seconds: Sequence[float]  # until the last trainer starts, if every trainer lists
    redirects: Mapping[str, Sequence[Rates]]
    max_redirects: float  # per second
    death: Mapping[str, Survival]
    loads: Sequence[float]
    skew: Mapping[str, Sequence[Rates]]
    slow: Mapping[str, Rates]
    cache_sizes: Sequence[float]
    hits: Sequence[Hits]


def draw(findings: Findings, path: Path) -> None:
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 9, "text.color": _INK, "axes.edgecolor": _SOFT})
    figure, axes = plt.subplots(2, 3, figsize=_SIZE, dpi=_DPI, facecolor="white", layout="constrained")
    panels = (_start, _redirects, _death, _skew, _slow, _cache)
    for panel, each in zip(panels, axes.flat, strict=True):
        each.spines[["top", "right"]].set_visible(False)
        each.grid(axis="y", alpha=0.25)
        panel(each, findings)
    figure.savefig(path, dpi=_DPI, metadata={"Software": None})
    plt.close(figure)


def _title(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    axes.set_xlabel(x, color=_SOFT)
    axes.set_ylabel(y, color=_SOFT)


def _start(axes: Axes, found: Findings) -> None:
    _title(axes, "1. Every trainer lists at the start", "trainers", "seconds until the last one starts")
    axes.plot(found.trainers, found.start_seconds, "o-", color=_BAD, label="a prefix/ or a glob: every trainer lists")
    axes.plot(found.trainers, [0.0] * len(found.trainers), "o-", color=_OURS, label="a template: no listing")
    axes.legend(frameon=False)


def _redirects(axes: Axes, found: Findings) -> None:
    _title(axes, "2. Redirects, one for each request", "trainers", "redirects per second")
    trainers, limit = found.trainers, found.max_redirects
    for (name, rates), colour in zip(found.redirects.items(), (_BAD, _OTHER, _THIRD, _OURS), strict=True):
        redirects = [rate.redirects for rate in rates]
        label = f"{name}: {rates[-1].mean:.0%} of the data rate"
        axes.plot(trainers[-len(rates) :], redirects, "o--" if colour == _OTHER else "o-", color=colour, label=label)
    axes.axhline(limit, color=_SOFT, linestyle=":")
    axes.annotate("limit of the proxies", (trainers[-1], limit), ha="right", va="bottom", color=_SOFT)
    axes.set_ylim(0, limit * 1.9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _death(axes: Axes, found: Findings) -> None:
    _title(axes, "3. A target dies", "seconds", "GB/s of all trainers")
    for (name, lived), colour in zip(found.death.items(), (_BAD, _OURS, _OTHER), strict=True):
        ended = f"{lived.failed} trainers fail" if lived.failed else "no trainer fails"
        axes.plot([taken / _GB for taken in lived.taken], color=colour, label=f"{name}: {ended}")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, loc="lower right")


def _skew(axes: Axes, found: Findings) -> None:
    _title(axes, "Skew: some targets get more requests", "load of all targets", "data rate of the slowest trainer")
    for (name, rates), colour in zip(found.skew.items(), (_BAD, _OURS, _THIRD), strict=True):
        axes.plot(found.loads, [rate.slowest for rate in rates], "o-", color=colour, label=name)
    axes.set_ylim(0, 1.05)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.legend(frameon=False, loc="lower left")


def _slow(axes: Axes, found: Findings) -> None:
    _title(axes, "One target at a tenth of its speed", "", "share of the data rate")
    places = range(len(found.slow))
    axes.bar([place - 0.2 for place in places], [rate.mean for rate in found.slow.values()], 0.4, color=_OURS)
    axes.bar([place + 0.2 for place in places], [rate.slowest for rate in found.slow.values()], 0.4, color=_BAD)
    axes.set_xticks(places, list(found.slow))
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylim(0, 1.3)
    axes.legend(["all trainers", "the slowest"], frameon=False, loc="upper center", ncols=2)


def _cache(axes: Axes, found: Findings) -> None:
    _title(axes, "A cache for the next epochs", "size of the cache, in shares of a trainer", "cache hits")
    for name, label, colour in (
        ("dealt_anew", "dealt anew each epoch (default)", _BAD),
        ("same_order", "reshuffle_each_epoch=False", _OTHER),
        ("own_shards", "each trainer's own shards, shuffled", _OURS),
    ):
        axes.plot(found.cache_sizes, [getattr(hit, name) for hit in found.hits], "o-", color=colour, label=label)
    axes.xaxis.set_major_formatter("{x:.0%}")
    axes.yaxis.set_major_formatter("{x:.0%}")
    axes.set_ylim(-0.03, 1.05)
    axes.legend(frameon=False, loc="upper left")
