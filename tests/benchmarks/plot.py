"""Draw the results: records per second of this package and each peer, and curves over the number of connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tests.benchmarks.bench import Result

__all__ = ["draw"]

_OURS, _OURS_IN_PYTHON, _PEER, _INK, _SOFT = "#d9822b", "#ecc193", "#9aa5b1", "#1f2933", "#52606d"
_PANELS = (
    (
        "Plain records, 2 KB, HTTP",
        ("records-engines-2KB", "records-spdl-2KB", "records-2KB", "records-hugging-face-2KB"),
    ),
    (
        "Plain records, 100 KB, HTTP",
        (
            "records-engines-100KB",
            "records-curl-100KB",
            "records-spdl-100KB",
            "records-100KB",
            "records-hugging-face-100KB",
        ),
    ),
    ("Batches into tf.data, 2 KB, HTTP", ("batch-engines-2KB", "batch-tfrecord-2KB")),
    ("Batches into tf.data, 100 KB, HTTP", ("batch-engines-100KB", "batch-tfrecord-100KB")),
    ("Batches into tf.data, 2 KB, files", ("batch-files-engines-2KB", "batch-files-2KB", "batch-dali-2KB")),
    ("Batches into tf.data, 100 KB, files", ("batch-files-engines-100KB", "batch-files-100KB", "batch-dali-100KB")),
)
_CURVES = (
    ("streams-", "Plain records, 100 KB, connections", "connections, each over a link of 200 MB/s"),
    ("parallel-", "Images, decoded and resized", "concurrent calls of the mapping (parallel)"),
)


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw one picture of the given results. Panels without results are left out."""
    found = {result.name: result for result in results}
    panels = [(title, [found[name] for name in names if name in found]) for title, names in _PANELS]
    panels = [(title, lines) for title, lines in panels if lines]
    curves = [(_counted(found, prefix), title, over) for prefix, title, over in _CURVES]
    curves = [curve for curve in curves if curve[0]]
    count = len(panels) + len(curves)
    if not count:
        return
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 10, "text.color": _INK, "axes.labelcolor": _SOFT})
    rows = -(-count // 2)
    figure, grid = plt.subplots(rows, 2, figsize=(12, 2.7 * rows), dpi=100, squeeze=False, layout="constrained")
    figure.suptitle("Records per second (each peer as its ratio to ours in one line)", fontweight="bold")
    places = list(grid.flat)
    for axes, (title, lines) in zip(places, panels, strict=False):
        _bars(axes, title, lines)
    for axes, curve in zip(places[len(panels) :], curves, strict=False):
        _curve(axes, *curve)
    for axes in places[count:]:
        axes.axis("off")
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)


def _counted(found: Mapping[str, Result], prefix: str) -> dict[int, Result]:
    """Return the results of a curve, by the number in their names."""
    return {int(name.removeprefix(prefix)): each for name, each in found.items() if name.startswith(prefix)}


def _bars(axes: Axes, title: str, lines: Sequence[Result]) -> None:
    """Draw our rate in the first line, and each peer scaled by its ratio to ours in its own line."""
    ours = lines[0].ours
    names = ["ais_tar2tf", *(line.peer_name for line in lines)]
    rates = [ours, *(ours / line.ratio for line in lines)]
    colors = [_OURS, *(_OURS_IN_PYTHON if line.peer_name.startswith("ours") else _PEER for line in lines)]
    bars = axes.barh(names[::-1], rates[::-1], color=colors[::-1], height=0.65)
    axes.bar_label(bars, labels=[f"{rate:,.0f}" for rate in rates[::-1]], padding=4, color=_SOFT)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlim(0, max(rates) * 1.18)
    axes.xaxis.set_visible(False)
    axes.spines[["top", "right", "bottom"]].set_visible(False)


def _curve(axes: Axes, lines: Mapping[int, Result], title: str, over: str) -> None:
    counts = [1, *sorted(lines)]
    rates = [lines[counts[1]].peer, *(lines[count].ours for count in counts[1:])]
    axes.plot(counts, rates, color=_OURS, marker="o", linewidth=2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_ylim(0, max(rates) * 1.15)
    axes.set_xlabel(over)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
