"""Compare selection in the cluster with selection at the client, on a real AIStore over a 200 MB/s link (toxiproxy).

`run` starts `python -m tests.benchmarks.selecting SHARDS RECORDS ROUNDS` in a private network and reads its JSON
output.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[2]
_LARGE, _SMALL = 1_000_000, 1_000  # bytes of a record's two fields
_RATE = 200_000  # KB/s of the link to each target, and to the proxy
_MAX_SECONDS = 900


def run(shards: int, records: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the seconds and bytes of each way, as the best of `rounds`, measured in a private network."""
    numbers = [str(each) for each in (shards, records, rounds)]
    command = [sys.executable, "-m", "tests.benchmarks.selecting", *numbers, "--full"]  # --full builds toxiproxy
    done = subprocess.run(
        [sys.executable, "-m", "tests.servers.enter", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_MAX_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the servers for this line cannot be started:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(shards: int, records: int, rounds: int) -> None:
    from tests.servers.aistore import AIStore
    from tests.servers.build import EVERYDAY, FULL
    from tests.servers.toxiproxy import Toxiproxy

    with (
        tempfile.TemporaryDirectory() as home,
        AIStore(EVERYDAY["aisnode"].path, Path(home) / "aistore") as cluster,
        Toxiproxy(FULL["toxiproxy"].path, Path(home)) as link,
    ):
        _fill(cluster.url, shards, records)
        linked = {}
        for number, url in enumerate([cluster.url, *cluster.target_urls]):
            linked[urlsplit(url).netloc] = urlsplit(link.in_front_of(url, f"node-{number}")).netloc
            link.poison("bandwidth", {"rate": _RATE}, f"node-{number}")
        _link_redirects(linked)
        endpoint = f"http://{linked[urlsplit(cluster.url).netloc]}"
        found: dict[str, list[dict[str, float]]] = {"cluster": [], "client": []}
        for _ in range(rounds):
            for name, passes in found.items():
                passes.append(_pass(endpoint, shards, records, in_cluster=name == "cluster"))
        print(json.dumps({name: min(passes, key=lambda one: one["wall"]) for name, passes in found.items()}))


def _fill(endpoint: str, shards: int, records: int) -> None:
    from ais_tar2tf.stores.ais import AisStore
    from ais_tar2tf.streams.arguments import read_options
    from tests.support import shards as made

    store = AisStore("bench", read_options(), endpoint=endpoint)
    store.create()
    fields = {"bin": bytes(_LARGE), "small": bytes(_SMALL)}
    for number in range(shards):
        store.put(f"train-{number}.tar", made.labelled(f"n{number}", records, lambda _: fields))
    store.close()


def _link_redirects(linked: dict[str, str]) -> None:
    """Rewrite the cluster's redirects, so that requests to its targets go over the link, too."""
    from ais_tar2tf.stores import ais

    direct = ais.followed

    def over_the_link(url: str, location: str, shown: str) -> str:
        target = urlsplit(direct(url, location, shown))
        return target._replace(netloc=linked.get(target.netloc, target.netloc)).geturl()

    ais.followed = over_the_link


def _pass(endpoint: str, shards: int, records: int, *, in_cluster: bool) -> dict[str, float]:
    import ais_tar2tf as t2t

    with t2t.open(f"ais://bench/train-{{0..{shards - 1}}}.tar", endpoint=endpoint) as src:
        selected = src.select("small", in_cluster=None if in_cluster else False)
        cpu, began = _cpu_seconds(), time.perf_counter()
        count = sum(len(record["small"]) == _SMALL for record in selected.records())
        took = {"wall": time.perf_counter() - began, "cpu": _cpu_seconds() - cpu}
        if count != shards * records or selected.extracted.shards != (shards if in_cluster else 0):
            raise RuntimeError(f"{count} records read, {selected.extracted}")
        return {**took, "bytes": float(selected.stats.bytes + selected.extracted.listed_bytes)}


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _main(arguments: list[str]) -> Any:
    return main(*(int(each) for each in arguments[:3]))


if __name__ == "__main__":
    _main(sys.argv[1:])
