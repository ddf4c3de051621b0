"""Several hosts read one bucket: each its share, disjoint and complete, in an order that depends on the seed alone.

    python examples/multi_host.py                                     # three hosts, one after the other
    python examples/multi_host.py --host 2 --hosts 8 --url "ais://…"  # this host of eight
    srun -n 8 python examples/multi_host.py --url "ais://…"           # each finds out which one it is

Which of how many this host is, TF_CONFIG, Slurm, MPI, Horovod, JAX or torchrun tell (`t2t.hosts`); on Kubernetes
examples/kubernetes.yaml has the job that trains.
"""

from __future__ import annotations

import argparse
import os

import ais_tar2tf as t2t

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def share(url: str, host: int, hosts: int) -> list[str]:
    """The keys that one host reads in its first epoch."""
    dataset = t2t.open(url).select("cls").dataset(shuffle=True, seed=1, shard=(host, hosts))
    return [record["__key__"].numpy().decode() for record in dataset]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", type=int, help="from 0; left out, the environment tells")
    parser.add_argument(
        "--hosts", type=int, default=3, help="with --host, or with shards that are made (%(default)s)"
    )
    parser.add_argument("--url", help="shards; without it some are made")
    options = parser.parse_args()
    if options.url:
        host, hosts = t2t.hosts() if options.host is None else (options.host, options.hosts)
        print(f"host {host} of {hosts}: {len(share(options.url, host, hosts)):,} records")
        return
    rows = ({"__key__": f"{number:06d}", "cls": "1"} for number in range(600))
    t2t.pack(rows, "memory://hosts/train-{}.tar", shard_size=None, shard_records=50, create=True)
    shares = [share("memory://hosts/train-{0..11}.tar", host, options.hosts) for host in range(options.hosts)]
    for host, keys in enumerate(shares):
        print(f"host {host}: {len(keys)} records, the first is {keys[0]}")
    together = [key for keys in shares for key in keys]
    print(f"together {len(together)}, different {len(set(together))}")


if __name__ == "__main__":
    main()
