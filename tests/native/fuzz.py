"""Fuzz the C functions of the native step with libFuzzer: `python -m tests.native.fuzz --minutes 60`. Needs clang.

The program is `harness.c` with the sanitizers of addresses and of undefined behaviour. Its first inputs are archives
of the tests and their mutations. The exit code is 0 if nothing was found; otherwise the input is in the folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from ais_tar2tf.native.build import LIBRARIES
from ais_tar2tf.native.library import TAR_LIBRARY
from tests.support import shards as made
from tests.support import tar_mutations as mutations

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "ais_tar2tf" / "native"
_MAX_BYTES = 16_384  # of an input
_SEEDS = 300


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.native.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=1.0, help="duration (default: 1)")
    parser.add_argument("--out", type=Path, default=Path("fuzz-native"), help="folder of the corpus and of findings")
    options = parser.parse_args()
    seeds, corpus, program = options.out / "seeds", options.out / "corpus", options.out / "program"
    for folder in (seeds, corpus):
        folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*mutations.mutations(_SEEDS, 1), made.labelled("s", 8)]):
        (seeds / f"{number}.tar").write_bytes(data[:_MAX_BYTES])
    sources = [HERE / "harness.c", *(NATIVE / name for name in LIBRARIES[TAR_LIBRARY])]
    sanitizers = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]
    flags = ["-g", "-O1", "-std=c11", "-DFUZZING", f"-I{NATIVE}"]
    subprocess.run(["clang", *flags, *sanitizers, *map(str, sources), "-o", str(program)], check=True)
    limits = [f"-max_total_time={options.minutes * 60:.0f}", f"-max_len={_MAX_BYTES}", "-print_final_stats=1"]
    findings = f"-artifact_prefix={options.out}/finding-"
    return subprocess.run(
        [str(program.resolve()), *limits, findings, str(corpus), str(seeds)], check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
