"""Convert shards to record files in an Apache Beam pipeline, with the same bytes as a local export.

    python examples/beam.py                                     # generated shards, in this process
    python examples/beam.py --url "ais://…" --out "s3://…" -- --runner=DataflowRunner --region=…

Beam and the newest TensorFlow need different versions of protobuf, so install Beam in an environment of its own:
pip install "ais_tar2tf[beam]". Options after `--` go to Beam.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

import ais_tar2tf as t2t


def convert(url: str, out: str, options: list[str]) -> None:
    """Run a pipeline with a work item for each shard. Without a runner take FnApiRunner, which downloads nothing."""
    runner = None if any(option.startswith("--runner") for option in options) else FnApiRunner()
    with apache_beam.Pipeline(runner=runner, options=PipelineOptions(options)) as pipeline:
        shards = pipeline | apache_beam.Create(list(t2t.open(url).shards))
        _ = shards | t2t.cluster.beam.ConvertShards(out)


def demo() -> None:
    """Generate shards, convert them with and without Beam, and compare the manifests."""
    with tempfile.TemporaryDirectory() as folder:
        rows = ({"__key__": f"{number:06d}", "cls": "1"} for number in range(600))
        t2t.pack(rows, f"{folder}/shards/array-{{}}.tar", shard_size=None, shard_records=50)
        url, out = f"{folder}/shards/array-{{0..11}}.tar", f"{folder}/out"
        convert(url, out, [])
        t2t.open(url).export(f"{folder}/alone", align="shard", workers=1, progress=False)
        manifests = [Path(each, "manifest.json").read_bytes() for each in (out, f"{folder}/alone")]
        print(f"{t2t.load(out).verify().records} records, the same as without Beam: {manifests[0] == manifests[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--url", help="shards (default: generate some)")
    parser.add_argument("--out", help="a folder or a URL that all workers can reach")
    given, options = parser.parse_known_args()
    if given.url:
        convert(given.url, given.out, [option for option in options if option != "--"])
    else:
        demo()


if __name__ == "__main__":
    main()
