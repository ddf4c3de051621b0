"""Run benchmarks, print each result as a line of a table, and optionally write JSON and a picture."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Bench, Result
from tests.benchmarks.data import Data
from tests.benchmarks.lines import LINES
from tests.benchmarks.web import NotAvailable, serving

_ROUNDS, _QUICK_ROUNDS = 3, 2
_ROW = "{:<24}{:>12}{:>12} {:<10}{:>8} {:>9}  {:<6}{:>15}  {}"


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that `with` stops the server, too
    names = _chosen(options.only)
    with tempfile.TemporaryDirectory(prefix="t2t-benchmarks-") as home, serving(Path(home)) as (web, folder):
        rounds = options.rounds or (_QUICK_ROUNDS if options.quick else _ROUNDS)
        bench = Bench(web, Data(folder, quick=options.quick), Path(home), options.quick, rounds)
        machine = _machine(bench)
        print("  ".join(f"{name}: {value}" for name, value in machine.items()), end="\n\n")
        results = list(_run(names, bench))
    if options.plot:
        from tests.benchmarks.plot import draw

        draw(results, options.plot)
    if options.json:
        document = {"machine": machine, "results": [result.as_json() for result in results]}
        options.json.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", description="Compare the speed of this package with other libraries."
    )
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="run only these lines; may be patterns such as 'records-*'"
    )
    parser.add_argument("--quick", action="store_true", help="use a quarter of the data and fewer rounds")
    parser.add_argument("--rounds", type=int, help=f"how often each side runs (default {_ROUNDS})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the results (needs matplotlib)")
    return parser.parse_args()


def _chosen(patterns: Sequence[str] | None) -> list[str]:
    if not patterns:
        return list(LINES)
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in LINES):
            sys.exit(f"no line is called {pattern!r}; choose from: {', '.join(LINES)}")
    return [name for name in LINES if any(fnmatch(name, pattern) for pattern in patterns)]


def _machine(bench: Bench) -> dict[str, Any]:
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "platform": platform.platform(terse=True),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("tensorflow", "webdataset")},
        "server": bench.web.name,
        "rounds": bench.rounds,
        "quick": bench.quick,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _run(names: Sequence[str], bench: Bench) -> Sequence[Result]:
    print(_ROW.format("line", "ours", "peer", "unit", "ratio", "goal", "met", "CPU s", "name of the peer"))
    results: list[Result] = []
    for name in names:
        try:
            result = LINES[name](name, bench)
        except NotAvailable as error:
            print(f"{name:<24}not measured: {error}", flush=True)
            continue
        print(_row(result), flush=True)
        results.append(result)
    return results


def _row(result: Result) -> str:
    cpu = "" if result.ours_cpu_s is None else f"{result.ours_cpu_s:.2f} / {result.peer_cpu_s:.2f}"
    goal = "" if result.goal is None else f"{'≥' if result.goal_on == 'ratio' else 'ours ≤'} {result.goal:g}"
    met = {True: "yes", False: "NO", None: ""}[result.holds]
    ours, peer = _figure(result.ours), _figure(result.peer)
    return _ROW.format(result.name, ours, peer, result.unit, f"{result.ratio:.2f}", goal, met, cpu, result.peer_name)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
