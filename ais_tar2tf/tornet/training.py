"""Mappings from samples to training pairs: variables are scaled and stacked as channels, with the label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ais_tar2tf.base.lazy_module import LazyModule
from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tornet.layout import FRAMES, RADAR, VARIABLES

tf: Any = LazyModule("tensorflow")

__all__ = ["RANGES", "pair", "weighted"]

RANGES = {
    "DBZ": (-20.0, 60.0),
    "VEL": (-60.0, 60.0),
    "KDP": (-2.0, 5.0),
    "RHOHV": (0.2, 1.04),
    "ZDR": (-1.0, 8.0),
    "WIDTH": (0.0, 9.0),
    "range_folded_mask": (0.0, 1.0),
}
"""The values of each variable that become 0 and 1: the range that weather radars measure in storms."""

_GAP = -3.0  # for gates without an echo; clearly outside of 0..1


def pair(
    variables: Sequence[str] = RADAR, *, tilt_last: bool = True, frames: int = 1
) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """Return a function for `.map()` that maps a sample to (channels, label of the last frame).

    The channels are the variables of both sweeps (tilts). Values are scaled by `RANGES`; gaps become −3.

    Args:
        variables: The variables to stack.
        tilt_last: Whether the shape is (azimuth, range, channels), or (channels, azimuth, range).
        frames: The number of last frames; with more than one, time is the first dimension.

    Raises:
        SchemaError: A variable is unknown, or a sample has fewer frames.

    Example:
        dataset = tornet.stream(urls).map(tornet.pair(("DBZ", "VEL"), frames=4))
    """
    unknown = [name for name in variables if name not in VARIABLES]
    if unknown or not variables:
        raise SchemaError(f"variables are some of {', '.join(VARIABLES)}, not {', '.join(unknown) or 'none'}")
    if not 1 <= frames <= FRAMES:
        raise SchemaError(f"a sample has {FRAMES} frames, not {frames}")

    def stacked(sample: dict[str, Any]) -> tuple[Any, Any]:
        channels = tf.concat([_scaled(sample[name][-frames:], *RANGES[name]) for name in variables], axis=-1)
        if not tilt_last:
            channels = tf.transpose(channels, (0, 3, 1, 2))
        return channels if frames > 1 else channels[0], tf.cast(sample["label"][-1:], tf.float32)

    return stacked


def _scaled(values: Any, low: float, high: float) -> Any:
    scaled = (values - low) / (high - low)
    return tf.where(tf.math.is_nan(scaled), tf.constant(_GAP, scaled.dtype), scaled)


def weighted(tornado: float, none: float = 1.0) -> Callable[[Any, Any], tuple[Any, Any, Any]]:
    """Return a function for `.map()` that adds a weight to each pair, because tornadoes are rare.

    Args:
        tornado: The weight of a sample with a tornado.
        none: The weight of any other sample.

    Example:
        dataset = tornet.stream(urls).map(tornet.pair()).map(tornet.weighted(10.0))
    """

    def with_weight(channels: Any, label: Any) -> tuple[Any, Any, Any]:
        return channels, label, tf.where(label[..., 0] > 0, tornado, none)

    return with_weight
