"""Convert shards on the hosts of a job array, each a share, then publish all shares as one export.

    python examples/job_array.py                                                    # three hosts, one after the other
    python examples/job_array.py --host 2 --hosts 8 --url "ais://…" --out "s3://…"  # this host of eight
    python examples/job_array.py --finish --out "s3://…"                            # when all hosts are done

A host that was killed continues when it runs again. Publishing names the hosts whose shares are missing.
"""

from __future__ import annotations

import argparse
import os
import tempfile

import ais_tar2tf as t2t


def convert(url: str, out: str, host: int, hosts: int) -> None:
    files = t2t.open(url).export(out, shard=(host, hosts), align="shard")
    print(f"host {host}: {len(files)} files are ready to be published")


def demo(hosts: int) -> None:
    """Generate shards and convert them as several hosts would, one after the other."""
    rows = ({"__key__": f"{number:06d}", "cls": "1"} for number in range(600))
    t2t.pack(rows, "memory://examples/array-{}.tar", shard_size=None, shard_records=50, create=True)
    with tempfile.TemporaryDirectory() as out:
        convert("memory://examples/array-{0..11}.tar", out, 0, hosts)
        try:
            t2t.finish(out)
        except t2t.errors.PartMissing as missing:
            print(f"still to run: hosts {', '.join(map(str, missing.hosts))}")
        for host in range(1, hosts):
            convert("memory://examples/array-{0..11}.tar", out, host, hosts)
        print(f"{len(t2t.finish(out))} files, {t2t.load(out).verify().records} records")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    number = os.environ.get("JOB_COMPLETION_INDEX") or os.environ.get("SLURM_PROCID")
    parser.add_argument("--host", type=int, default=int(number) if number else 0)
    parser.add_argument("--hosts", type=int, default=3)
    parser.add_argument("--url", help="shards (default: generate some)")
    parser.add_argument("--out", help="a folder or a URL that all hosts can reach")
    parser.add_argument("--finish", action="store_true", help="publish the shares of all hosts")
    options = parser.parse_args()
    if options.finish:
        print(f"{len(t2t.finish(options.out))} files")
    elif options.url:
        convert(options.url, options.out, options.host, options.hosts)
    else:
        demo(options.hosts)


if __name__ == "__main__":
    main()
