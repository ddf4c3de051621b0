"""Run all scenarios, print their results and draw images/cluster.png: `python -m tests.simulation`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

from ais_tar2tf.options import Retry
from tests.simulation import scenarios
from tests.simulation.cluster import Cluster
from tests.simulation.plots import Findings, draw
from tests.simulation.trainers import Client

_FIGURE = Path(__file__).resolve().parents[2] / "images" / "cluster.png"
_TRAINERS = (10, 100, 250, 500, 1_000)
_FROM = 2  # the first of these numbers for scenarios in which fewer trainers make no difference
_LOADS = (0.5, 0.8, 0.95)
_CACHES = (0.25, 0.5, 0.64, 0.8, 0.9, 1.0)


def main() -> int:
    began = time.perf_counter()
    findings = _find(Client(), Cluster())
    _print(findings)
    draw(findings, _FIGURE)
    print(f"\n{time.perf_counter() - began:.0f} s; {_FIGURE}")
    return 0


def _find(client: Client, cluster: Cluster) -> Findings:
    return Findings(
        trainers=_TRAINERS,
        start_seconds=[
            scenarios.seconds_to_begin(replace(client, trainers=count), cluster, listing=True) for count in _TRAINERS
        ],
        redirects=scenarios.redirects(client, cluster, _TRAINERS[_FROM:]),
        max_redirects=cluster.proxy_workers / cluster.redirect,
        death=scenarios.death(client, cluster),
        loads=_LOADS,
        skew=scenarios.skew(client, cluster, _LOADS),
        slow=scenarios.slow_target(client, cluster),
        cache_sizes=_CACHES,
        hits=scenarios.cached(client, _CACHES),
    )


def _print(found: Findings) -> None:
    seconds, trainers = found.start_seconds[-1], found.trainers[-1]
    print(f"1. Listing: the last of {trainers:,} trainers starts after {seconds:,.0f} s; with a template: 0 s")
    print("2. Redirects per second, and the share of their data rate that trainers get:")
    for name, rates in found.redirects.items():
        print(f"   {name:<42} {rates[-1].redirects:>8,.0f}  {rates[-1].mean:.0%}")
    print(f"3. A target dies (default: {Retry().attempts} tries):")
    for name, lived in found.death.items():
        print(f"   {name:<42} {lived.failed:>4} trainers fail  {', '.join(sorted(lived.errors))}")
    print(f"Skew at a load of {found.loads[-1]:.0%}: share of the data rate of all trainers, and of the slowest one")
    for name, rates in found.skew.items():
        print(f"   {name:<42} {rates[-1].mean:.0%}  {rates[-1].slowest:.0%}")
    for name, rate in found.slow.items():
        print(f"   {name:<42} {rate.mean:.0%}  {rate.slowest:.0%}")
    print("Cache hits in later epochs: shards dealt anew, in the same order, and each trainer's own shards")
    for size, hit in zip(found.cache_sizes, found.hits, strict=True):
        print(
            f"   {size:>4.0%} of the share{'':<27} {hit.dealt_anew:.1%}  {hit.same_order:.0%}  {hit.own_shards:.0%}"
        )


if __name__ == "__main__":
    sys.exit(main())
