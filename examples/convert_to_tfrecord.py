"""Convert tar shards to TFRecord files, verify them, and read them as a dataset of known length, without a cluster.

python examples/convert_to_tfrecord.py
python examples/convert_to_tfrecord.py --url "ais://imagenet/train-{000..146}.tar" --out records/
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import ais_tar2tf as t2t


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="shards (default: generate some)")
    parser.add_argument("--out", default="records", help="a folder or a URL (%(default)s)")
    parser.add_argument("--shard-records", type=int, default=1024, help="records per file (%(default)s)")
    options = parser.parse_args()
    if options.url:
        convert(options.url, options.out, options.shard_records)
        return
    with tempfile.TemporaryDirectory() as folder:
        url = f"{folder}/train-{{0..3}}.tar"
        t2t.pack(generate(400), f"{folder}/train-{{}}.tar", shard_size=None, shard_records=100)
        convert(url, Path(folder, "records"), 150)


def convert(url: str, out: str | Path, shard_records: int) -> None:
    """Export, verify and load. If the process is killed, the next run continues the export."""
    with t2t.open(url) as source:
        for file in source.export(out, shard_size=None, shard_records=shard_records, workers=1):
            print(f"wrote {Path(file).name}")
    written = t2t.load(out)
    proof = written.verify()
    print(f"verified {proof.records:,} records in {proof.files} files")
    print(f"the first record has {', '.join(written[0])}")

    dataset = written.dataset("train", shuffle=True, seed=1, batch=32)
    print(f"a dataset of {int(dataset.cardinality())} batches: {sorted(dataset.element_spec)}")


def generate(count: int):
    """Yield records of text and numbers."""
    for number in range(count):
        yield {"__key__": f"{number:06d}", "txt": f"the text of record {number}", "cls": str(number % 10)}


if __name__ == "__main__":
    main()
