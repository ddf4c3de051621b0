"""Run the fuzz targets: `python -m tests.fuzz --minutes 10 [TARGET …]`.

Each target runs in a process of its own, `--jobs` at a time. What it finds stays in `--out`, a folder a target: its
corpus, and the input of each finding. The table at the end says how many inputs each target ran, and what was found.
`--keep` adds to the kept corpus of each target the smallest inputs that reach what the kept ones do not.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.targets import MEGABYTES, SECONDS, TARGETS

ROOT = Path(__file__).resolve().parents[2]
CORPUS = Path(__file__).resolve().parent / "corpus"
_MOST_BYTES = 16_384  # of an input: enough for a tar of some members, small enough to run thousands a second
_KEPT_BYTES = 4_096  # of an input that is kept in the repository
_KEPT = 40  # inputs of each target


class Result(NamedTuple):
    name: str
    runs: int
    coverage: int
    findings: list[Path]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=f"of: {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time (default: 1)")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "ais_tar2tf-fuzz")
    parser.add_argument("--keep", action="store_true", help="add small inputs that reach more to the kept corpus")
    options = parser.parse_args()
    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"there is no target {', '.join(sorted(unknown))}; there are: {', '.join(TARGETS)}")
    chosen = options.targets or list(TARGETS)
    plant(options.out, chosen)
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: fuzz(name, options.out / name, options.minutes), chosen))
    print(f"\n{'target':<16}{'inputs':>12}{'edges':>8}  findings   ({time.monotonic() - began:.0f} s)")
    for result in results:
        found = ", ".join(map(str, result.findings)) or "none"
        print(f"{result.name:<16}{result.runs:>12,}{result.coverage:>8,}  {found}")
        if options.keep:
            keep(result.name, options.out / result.name)
    return 1 if any(result.findings for result in results) else 0


def plant(out: Path, names: list[str]) -> None:
    """Put good inputs where the targets start from."""
    from tests.fuzz.good import inputs

    for name, good in inputs().items():
        if name in names:
            folder = out / name / "corpus"
            folder.mkdir(parents=True, exist_ok=True)
            for number, data in enumerate(good):
                (folder / f"good-{number}").write_bytes(data)


def fuzz(name: str, folder: Path, minutes: float) -> Result:
    """Run one target for some minutes."""
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    kept = CORPUS / name
    command = [
        sys.executable, "-m", "tests.fuzz.one", name, str(folder / "corpus"), *([str(kept)] if kept.is_dir() else []),
        f"-max_total_time={int(minutes * 60)}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}",
        f"-max_len={_MOST_BYTES}", f"-artifact_prefix={folder}/finding-", "-print_final_stats=1",
    ]  # fmt: skip
    print(f"{name}: for {minutes:g} minutes", flush=True)
    log = folder / "log"
    with log.open("wb") as file:
        ended = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, check=False
        )
    text = log.read_text(errors="replace")
    runs = re.search(r"stat::number_of_executed_units: (\d+)", text)
    edges = re.findall(r"cov: (\d+)", text)
    findings = sorted(folder.glob("finding-*"))
    if ended.returncode and not findings:
        findings = [log]
    result = Result(name, int(runs[1]) if runs else 0, int(edges[-1]) if edges else 0, findings)
    print(
        f"{name}: {result.runs:,} inputs, {'found: see ' + str(folder) if findings else 'nothing found'}", flush=True
    )
    return result


def keep(name: str, folder: Path) -> None:
    """Merge small inputs that reach more than the kept ones into the kept corpus."""
    kept = CORPUS / name
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as small:
        for path in sorted((folder / "corpus").iterdir(), key=lambda each: each.stat().st_size):
            if path.stat().st_size <= _KEPT_BYTES:
                (Path(small) / path.name).write_bytes(path.read_bytes())
        program = Path(small).with_suffix(".sh")
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.fuzz.one {name} "$@"\n')
        program.chmod(0o700)
        subprocess.run(
            [program, "-merge=1", kept, small],
            cwd=ROOT,
            env={**os.environ, "AIS_TAR2TF_FUZZ_PROGRAM": str(program)},
            capture_output=True,
            check=False,
        )
        program.unlink()
    for path in sorted(kept.iterdir(), key=lambda each: each.stat().st_size)[_KEPT:]:
        path.unlink()


if __name__ == "__main__":
    sys.exit(main())
