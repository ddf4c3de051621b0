"""Interpretation of `Stats`: the bottleneck, with advice, and the counters as OpenMetrics text. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from ais_tar2tf.base.monitoring.stats import Stats
from ais_tar2tf.base.nearest import known_options

__all__ = ["bottleneck", "bottleneck_line", "openmetrics", "shares"]

_ADVICE = {
    "network": "more connections=, a cache=, or a store that is nearer",
    "parsing": "a larger parallel=, fewer fields by select(), a mapping that runs as a graph, or more cores",
    "consumer": "nothing here: the training step, or what was put behind the dataset, takes its time",
}
# Fields of Stats that do not become a counter with one value: the times become parts of "time_seconds", "skipped" is
# divided by error, and "chosen" and "seed" are not written.
_NO_COUNTERS = frozenset({"network_wait", "reading", "idle", "mapping", "skipped", "chosen", "seed"})
_PREFIX = "ais_tar2tf"


def shares(stats: Stats) -> dict[str, float]:
    """Return the share of the time spent on waiting for the network, on parsing and mapping, and by the consumer.

    >>> shares(Stats(reading=2.0, network_wait=1.5, idle=2.0, mapping=1.0))
    {'network': 0.375, 'parsing': 0.375, 'consumer': 0.25}
    """
    seconds = stats.seconds or 1.0
    return {
        "network": stats.network_seconds / seconds,
        "parsing": stats.parsing_seconds / seconds,
        "consumer": stats.consumer_seconds / seconds,
    }


def bottleneck(stats: Stats) -> str:
    """Return where most of the time goes: `network`, `parsing` or `consumer`; "" before anything was read."""
    found = shares(stats)
    return max(found, key=found.__getitem__) if stats.seconds else ""


def bottleneck_line(stats: Stats) -> str:
    """Return one line that names the bottleneck, and advises what to change.

    >>> bottleneck_line(Stats(records_emitted=100, reading=2.0, network_wait=1.9)).partition(" at ")[0]
    'network holds it up, 95% of 2.0 s (parsing 5%, consumer 0%)'
    """
    slowest = bottleneck(stats)
    if not slowest:
        return "nothing was read yet"
    found = shares(stats)
    others = ", ".join(f"{name} {share:.0%}" for name, share in found.items() if name != slowest)
    rates = f"{stats.records_per_second:,.0f} records/s, {stats.megabytes_per_second:,.1f} MB/s"
    spent = f"{found[slowest]:.0%} of {stats.seconds:.1f} s ({others})"
    chosen = ", ".join(f"{name} {choice.value}" for name, choice in stats.chosen.items())
    by_itself = f"; chosen by itself: {chosen}" if chosen else ""
    return f"{slowest} holds it up, {spent} at {rates}; advice: {_ADVICE[slowest]}{by_itself}"


@known_options
def openmetrics(stats: Stats, labels: Mapping[str, str] | None = None) -> str:
    """Return the counters as OpenMetrics text, which Prometheus reads.

    Args:
        stats: The statistics of a source or mixture.
        labels: Labels of every value, such as the job's name.

    >>> print(openmetrics(Stats(shards=2), {"job": "a"}).splitlines()[1])
    ais_tar2tf_shards_total{job="a"} 2
    """
    common = dict(labels or {})
    lines: list[str] = []
    for each in fields(stats):
        if each.name not in _NO_COUNTERS:
            lines += _family(each.name, [(common, getattr(stats, each.name))])
    lines += _family("skipped", [({**common, "error": name}, count) for name, count in sorted(stats.skipped.items())])
    times = {name: getattr(stats, f"{name}_seconds") for name in _ADVICE}
    lines += _family(
        "time_seconds", [({**common, "where": name}, value) for name, value in times.items()], unit="seconds"
    )
    return "\n".join([*lines, "# EOF", ""])


def _family(name: str, samples: list[tuple[dict[str, str], float]], unit: str = "") -> list[str]:
    family = f"{_PREFIX}_{name}"
    head = [f"# TYPE {family} counter", *([f"# UNIT {family} {unit}"] if unit else [])]
    return [*head, *(f"{family}_total{_labelled(labels)} {value:.17g}" for labels, value in samples)]


def _labelled(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
