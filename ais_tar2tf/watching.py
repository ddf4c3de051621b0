"""What an account says of speed: which of network, parsing and consumer holds it up, and what to turn. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

from ais_tar2tf.account import Stats
from ais_tar2tf.nearest import known_options

__all__ = ["bottleneck", "bottleneck_line", "openmetrics", "shares"]

_ADVICE = {
    "network": "more connections=, a cache=, or a store that is nearer",
    "parsing": "a larger parallel=, fewer fields by select(), a mapping that runs as a graph, or more cores",
    "consumer": "nothing here: the training step, or what was put behind the dataset, takes its time",
}
_TOLD_APART = frozenset({"network_wait", "reading", "idle", "mapping", "skipped", "chosen", "seed"})
_PREFIX = "ais_tar2tf"


def shares(stats: Stats) -> dict[str, float]:
    """Of the whole time, what went by waiting for the network, parsing and mapping, and waiting for the consumer.

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
    """ "network", "parsing" or "consumer": where most of the time goes; "" before anything was read."""
    return max(found := shares(stats), key=found.__getitem__) if stats.seconds else ""


def bottleneck_line(stats: Stats) -> str:
    """One line: which of the three it is, and what to turn.

    >>> bottleneck_line(Stats(records_emitted=100, reading=2.0, network_wait=1.9)).partition(" at ")[0]
    'network holds it up, 95% of 2.0 s (parsing 5%, consumer 0%)'
    """
    which = bottleneck(stats)
    if not which:
        return "nothing was read yet"
    found = shares(stats)
    others = ", ".join(f"{name} {share:.0%}" for name, share in found.items() if name != which)
    rates = f"{stats.records_per_second:,.0f} records/s, {stats.megabytes_per_second:,.1f} MB/s"
    spent = f"{found[which]:.0%} of {stats.seconds:.1f} s ({others})"
    chosen = ", ".join(f"{name} {choice.value}" for name, choice in stats.chosen.items())
    by_itself = f"; chosen by itself: {chosen}" if chosen else ""
    return f"{which} holds it up, {spent} at {rates}; to turn: {_ADVICE[which]}{by_itself}"


@known_options
def openmetrics(stats: Stats, labels: Mapping[str, str] | None = None) -> str:
    """The counters as OpenMetrics text, which Prometheus reads; `labels` are put on every line.

    >>> print(openmetrics(Stats(shards=2), {"job": "a"}).splitlines()[1])
    ais_tar2tf_shards_total{job="a"} 2
    """
    told = dict(labels or {})
    lines: list[str] = []
    for each in fields(stats):
        if each.name not in _TOLD_APART:
            lines += _family(each.name, [(told, getattr(stats, each.name))])
    lines += _family("skipped", [({**told, "error": name}, count) for name, count in sorted(stats.skipped.items())])
    times = {name: getattr(stats, f"{name}_seconds") for name in _ADVICE}
    lines += _family(
        "time_seconds", [({**told, "where": name}, value) for name, value in times.items()], unit="seconds"
    )
    return "\n".join([*lines, "# EOF", ""])


def _family(name: str, samples: list[tuple[dict[str, str], float]], unit: str = "") -> list[str]:
    family = f"{_PREFIX}_{name}"
    said = [f"# TYPE {family} counter", *([f"# UNIT {family} {unit}"] if unit else [])]
    return [*said, *(f"{family}_total{_labelled(labels)} {value:.17g}" for labels, value in samples)]


def _labelled(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
