"""Run the matrix of faults and print a table of the outcomes: `python -m tests.matrix [--full]`."""

from __future__ import annotations

import argparse
import datetime
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.matrix.catalogue import FAULTS
from tests.matrix.run import EXACT, Outcome, run
from tests.matrix.scene import PUBLIC, WAYS

_FULL_SEEDS, _SMALL_SEEDS = 20, 2
_ALL_WAYS = (*WAYS, PUBLIC)
_README = Path(__file__).resolve().parent / "README.md"
_BEGIN, _END = "<!-- the matrix -->", "<!-- end of the matrix -->"

Rows = dict[str, dict[str, list[Outcome]]]
"""Outcomes, by fault and by way to the store."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
    began, rows, failed = time.monotonic(), Rows(), list[str]()
    for fault in options.only or FAULTS:
        rows[fault] = defaultdict(list)
        for way in options.way or _ALL_WAYS:
            for seed in options.seed or range(1, 1 + (options.seeds or _SMALL_SEEDS)):
                try:
                    rows[fault][way].append(run(fault, way, seed))
                except AssertionError as error:
                    failed.append(str(error))
                    print(f"FAILED {error}", file=sys.stderr, flush=True)
    text = "\n".join(table(rows))
    runs = sum(len(each) for row in rows.values() for each in row.values())
    seconds = time.monotonic() - began
    print(text, f"{runs} runs passed in {seconds:.0f} s, {len(failed)} failed", sep="\n\n")
    if options.write and not failed:
        _write(text, _heading(runs, options.seeds or _SMALL_SEEDS, seconds))
    return 1 if failed else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.matrix", description="Run the matrix of faults and print a table of the outcomes."
    )
    parser.add_argument(
        "--full", action="store_const", const=_FULL_SEEDS, dest="seeds", help="run 20 seeds of each fault"
    )
    parser.add_argument("--seeds", type=int, help="run this many seeds of each fault, from 1")
    parser.add_argument("--seed", type=int, action="append", help="run only this seed; may be repeated")
    parser.add_argument(
        "--only", action="append", choices=list(FAULTS), metavar="FAULT", help="run only this fault; may be repeated"
    )
    parser.add_argument("--way", action="append", choices=_ALL_WAYS, help="run only this way; may be repeated")
    parser.add_argument("--write", action="store_true", help="write the table into tests/matrix/README.md")
    return parser.parse_args(arguments)


def table(rows: Rows) -> Iterable[str]:
    """Yield the lines of a Markdown table with a row for each fault."""
    yield f"| fault | {' | '.join(_ALL_WAYS)} | retries | resumes | skipped |"
    yield f"|---|{'---|' * len(_ALL_WAYS)}---|---|---|"
    for fault, by_way in rows.items():
        every = [each for outcomes in by_way.values() for each in outcomes]
        cells = [_cell(by_way[way]) for way in _ALL_WAYS]
        retries, resumes = sum(each.retries for each in every), sum(each.resumes for each in every)
        skipped = sum(each.skipped for each in every)
        yield f"| {fault} | {' | '.join(cells)} | {retries:,} | {resumes:,} | {skipped or ''} |"
    stalls = [each for row in rows.values() for outcomes in row.values() for one in outcomes for each in one.stalls]
    if stalls:
        yield ""
        yield f"{len(stalls)} stalls, detected at most {max(stalls):.2f} s after the idle time-out."


def _cell(outcomes: Sequence[Outcome]) -> str:
    counts = Counter(each.result for each in outcomes)
    exact = [f"{counts.pop(EXACT)} exact"] if EXACT in counts else []
    return ", ".join([*exact, *(f"{count} {error}" for error, count in sorted(counts.items()))])


def _heading(runs: int, seeds: int, seconds: float) -> str:
    today = datetime.datetime.now(tz=datetime.UTC).date()
    return (
        f"{runs:,} runs on {today}: {len(FAULTS)} faults × seeds 1 to {seeds} × {len(_ALL_WAYS)} ways, "
        f"in {seconds:.0f} s, Python {platform.python_version()}. All passed."
    )


def _write(text: str, heading: str) -> None:
    before, _, rest = _README.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    _README.write_text(f"{before}{_BEGIN}\n{heading}\n\n{text}\n{_END}{after}")


if __name__ == "__main__":
    raise SystemExit(main())
