"""Run the fuzz targets: `python -m tests.fuzz --minutes 10 [TARGET …]`.

Each target runs in its own process, `--jobs` of them at a time. `--out` gets a folder for each target, with its
corpus and with the input of each finding. The table at the end shows the number of inputs and the findings of each
target. `--keep` adds small inputs that reach new code to the corpus in the repository.
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
_MAX_BYTES = 16_384  # of an input: enough for a tar of a few members, and thousands run per second
_KEPT_BYTES = 4_096  # of an input in the repository's corpus
_KEPT = 40  # inputs of each target in the repository's corpus


class Result(NamedTuple):
    name: str
    runs: int
    coverage: int
    findings: list[Path]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=f"some of: {', '.join(TARGETS)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="duration for each target (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="targets that run concurrently (default: 1)")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "ais_tar2tf-fuzz")
    parser.add_argument("--keep", action="store_true", help="add small inputs to the repository's corpus")
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
    """Write the good inputs from which the targets start."""
    from tests.fuzz.good import inputs

    for name, good in inputs().items():
        if name in names:
            folder = out / name / "corpus"
            folder.mkdir(parents=True, exist_ok=True)
            for number, data in enumerate(good):
                (folder / f"good-{number}").write_bytes(data)


def fuzz(name: str, folder: Path, minutes: float) -> Result:
    """Run one target for `minutes`."""
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    kept = CORPUS / name
    command = [
        sys.executable, "-m", "tests.fuzz.one", name, str(folder / "corpus"), *([str(kept)] if kept.is_dir() else []),
        f"-max_total_time={int(minutes * 60)}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}",
        f"-max_len={_MAX_BYTES}", f"-artifact_prefix={folder}/finding-", "-print_final_stats=1",
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
        f"{name}: {result.runs:,} inputs, {'findings in ' + str(folder) if findings else 'no findings'}", flush=True
    )
    return result


def keep(name: str, folder: Path) -> None:
    """Merge small inputs that reach new code into the repository's corpus."""
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
