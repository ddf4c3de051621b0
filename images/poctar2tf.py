"""Draws poctar2tf.png, the figure of the README: the path from shards in a bucket to a model, or to record files."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

WIDTH, HEIGHT, DPI = 14.0, 6.3, 100  # inches; 1400 pixels wide
INK, SOFT, LINE = "#1f2933", "#52606d", "#7b8794"
STORE, PACKAGE, OURS, TENSORFLOW, DISK = "#e3f0fb", "#f5f7fa", "#ffffff", "#fdefdc", "#e6f4ea"
STORE_EDGE, OURS_EDGE, TENSORFLOW_EDGE, DISK_EDGE = "#3b82c4", "#9aa5b1", "#d9822b", "#3f9142"

FETCH = """ranges over
several
connections,
read ahead
in bounds


broken off:
retried,
resumed


at the end:
checksum"""


def main() -> None:
    plt.rcParams.update({"font.family": "DejaVu Sans", "font.size": 13, "text.color": INK})
    figure = plt.figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(0, HEIGHT))
    axes.axis("off")
    _store(axes)
    _package(axes)
    _tensorflow(axes)
    _disk(axes)
    _arrows(axes)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=DPI, metadata={"Software": None})


# What stands where, from left to right.


def _store(axes: Axes) -> None:
    _panel(axes, 0.3, 0.4, 2.9, 5.5, STORE, STORE_EDGE, "AIStore")
    axes.text(0.57, 5.02, "bucket", fontsize=11, color=SOFT)
    for index, name in enumerate(("train-0.tar.gz", "train-1.tar.gz", "…")):
        _box(
            axes, 0.57, 4.45 - 0.52 * index, 2.36, 0.42, "white", STORE_EDGE, name, family="DejaVu Sans Mono", size=11
        )
    _box(axes, 0.57, 1.98, 2.36, 0.95, "white", STORE_EDGE, "proxy", "knows where each one is")
    _box(axes, 0.57, 0.7, 2.36, 0.95, "white", STORE_EDGE, "target", "sends the bytes")


def _package(axes: Axes) -> None:
    _panel(axes, 4.3, 0.4, 5.6, 5.5, PACKAGE, OURS_EDGE, "ais_tar2tf")
    _box(axes, 4.57, 0.7, 1.95, 4.5, OURS, OURS_EDGE, "fetch", FETCH)
    column = {
        3.9: ("mapping", "record → pair\nrecord → Example"),
        2.3: ("records", "__key__, jpg, cls, …\nby name, as bytes"),
        0.7: ("archive", "tar and tar.gz, headers\nparsed many at once"),
    }
    for y, (name, what) in column.items():
        _box(axes, 7.0, y, 2.63, 1.3, OURS, OURS_EDGE, name, what)


def _tensorflow(axes: Axes) -> None:
    _box(
        axes,
        10.9,
        3.9,
        2.8,
        1.3,
        TENSORFLOW,
        TENSORFLOW_EDGE,
        "tf.data.Dataset",
        "shuffle · batch · prefetch\nnothing stored on the way",
    )
    _box(axes, 10.9, 2.55, 2.8, 0.8, TENSORFLOW, TENSORFLOW_EDGE, "model.fit")


def _disk(axes: Axes) -> None:
    _box(axes, 10.9, 0.7, 2.8, 1.3, DISK, DISK_EDGE, "train.record", "TFRecord, published\nwhole or not at all")


def _arrows(axes: Axes) -> None:
    for y, text, inwards in (
        (2.72, "GET", False),
        (2.19, "redirect", True),
        (1.42, "GET range", False),
        (0.93, "bytes", True),
    ):
        ends = (2.93, y), (4.57, y)
        _arrow(axes, *(ends if inwards else ends[::-1]), STORE_EDGE, dashed=text != "bytes")
        _note(axes, 3.75, y + 0.14, text, STORE_EDGE)
    _arrow(axes, (6.52, 1.35), (7.0, 1.35))
    _arrow(axes, (8.31, 2.0), (8.31, 2.3))
    _arrow(axes, (8.31, 3.6), (8.31, 3.9))
    _arrow(axes, (9.63, 4.8), (10.9, 4.8), TENSORFLOW_EDGE)
    _arrow(axes, (12.3, 3.9), (12.3, 3.35), TENSORFLOW_EDGE)
    _arrow(axes, (9.63, 4.3), (10.9, 1.35), DISK_EDGE, style="arc,angleA=0,angleB=180,armA=66,armB=61,rad=12")
    _note(axes, 10.38, 2.9, "path=", DISK_EDGE, align="left")
    _arrow(axes, (12.3, 2.0), (12.3, 2.55), DISK_EDGE)
    _note(axes, 12.17, 2.27, "TFRecordDataset", DISK_EDGE, align="right")


# How it is drawn.


def _panel(axes: Axes, x: float, y: float, width: float, height: float, fill: str, edge: str, title: str) -> None:
    _shape(axes, x, y, width, height, fill, edge, radius=0.18)
    axes.text(
        x + width / 2,
        y + height - 0.33,
        title,
        ha="center",
        va="center",
        fontsize=15,
        weight="bold",
        color=edge if fill != PACKAGE else INK,
    )


def _box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    edge: str,
    title: str,
    text: str = "",
    *,
    family: str | None = None,
    size: float = 14,
) -> None:
    _shape(axes, x, y, width, height, fill, edge, radius=0.1)
    lines = text.count("\n") + 1 if text else 0
    middle = y + height / 2
    rise = 0.11 * lines
    weight = "normal" if family else "bold"
    axes.text(
        x + width / 2,
        middle + rise + (0.07 if text else 0),
        title,
        ha="center",
        va="center",
        fontsize=size,
        weight=weight,
        family=family,
    )
    if text:
        axes.text(
            x + width / 2,
            middle + rise - 0.14,
            text,
            ha="center",
            va="top",
            fontsize=11,
            color=SOFT,
            linespacing=1.35,
        )


def _shape(axes: Axes, x: float, y: float, width: float, height: float, fill: str, edge: str, radius: float) -> None:
    style = f"round,pad=0,rounding_size={radius}"
    axes.add_patch(
        FancyBboxPatch((x, y), width, height, boxstyle=style, facecolor=fill, edgecolor=edge, linewidth=1.6)
    )


def _arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    colour: str = LINE,
    *,
    style: str = "arc3",
    dashed: bool = False,
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=18,
            linewidth=2,
            color=colour,
            shrinkA=2,
            shrinkB=2,
            connectionstyle=style,
            linestyle=(0, (4, 3)) if dashed else "-",
        )
    )


def _note(axes: Axes, x: float, y: float, text: str, colour: str = SOFT, *, align: str = "center") -> None:
    axes.text(x, y, text, ha=align, va="center", fontsize=11, color=colour, family="DejaVu Sans Mono")


if __name__ == "__main__":
    main()
