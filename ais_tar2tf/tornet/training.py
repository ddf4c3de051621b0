"""What a model is trained on: a sample's variables, scaled and stacked as channels, with its label."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ais_tar2tf.errors import SchemaError
from ais_tar2tf.tornet.layout import FRAMES, RADAR, VARIABLES

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
"""What becomes 0 and 1 of each variable: what weather radars measure in storms."""

_GAP = -3.0  # where there is no echo: clearly outside of 0..1


def pair(
    variables: Sequence[str] = RADAR, *, tilt_last: bool = True, frames: int = 1
) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """A function for `.map()` from a sample to (channels, label of the last frame).

    The `variables` of both sweeps (tilts) are the channels: (azimuth, range, channels) when `tilt_last`, else
    (channels, azimuth, range); with `frames` over 1, time comes first. Values are scaled by `RANGES`, gaps are −3.
    """
    unknown = [name for name in variables if name not in VARIABLES]
    if unknown or not variables:
        raise SchemaError(f"variables are some of {', '.join(VARIABLES)}, not {', '.join(unknown) or 'none'}")
    if not 1 <= frames <= FRAMES:
        raise SchemaError(f"a sample has {FRAMES} frames, not {frames}")

    def stacked(sample: dict[str, Any]) -> tuple[Any, Any]:
        import tensorflow as tf

        channels = tf.concat([_scaled(sample[name][-frames:], *RANGES[name]) for name in variables], axis=-1)
        if not tilt_last:
            channels = tf.transpose(channels, (0, 3, 1, 2))
        return channels if frames > 1 else channels[0], tf.cast(sample["label"][-1:], tf.float32)

    return stacked


def _scaled(values: Any, least: float, most: float) -> Any:
    import tensorflow as tf

    scaled = (values - least) / (most - least)
    return tf.where(tf.math.is_nan(scaled), tf.constant(_GAP, scaled.dtype), scaled)


def weighted(tornado: float, none: float = 1.0) -> Callable[[Any, Any], tuple[Any, Any, Any]]:
    """A function for `.map()` that adds the weight of each pair: tornadoes are rare, and count for more."""

    def with_weight(channels: Any, label: Any) -> tuple[Any, Any, Any]:
        import tensorflow as tf

        return channels, label, tf.where(label[..., 0] > 0, tornado, none)

    return with_weight
