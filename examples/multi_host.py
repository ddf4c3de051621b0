"""Read one bucket on several hosts. Each host reads a share, and together they read each record once.

    python examples/multi_host.py                                     # three hosts, one after the other
    python examples/multi_host.py --host 2 --hosts 8 --url "ais://…"  # this host of eight
    srun -n 8 python examples/multi_host.py --url "ais://…"           # each process finds its own number

`t2t.hosts` takes the number of this host from TF_CONFIG, Slurm, MPI, Horovod, JAX or torchrun.
examples/kubernetes.yaml has a training job for Kubernetes.
"""

from __future__ import annotations

import argparse
import os

import ais_tar2tf as t2t

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def share(url: str, host: int, hosts: int) -> list[str]:
    """Return the keys that one host reads in its first epoch."""
    dataset = t2t.open(url).select("cls").dataset(shuffle=True, seed=1, shard=(host, hosts))
    return [record["__key__"].numpy().decode() for record in dataset]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--host", type=int, help="number of this host, from 0 (default: from the environment)")
    parser.add_argument("--hosts", type=int, default=3, help="with --host, or for generated shards (%(default)s)")
    parser.add_argument("--url", help="shards (default: generate some)")
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
