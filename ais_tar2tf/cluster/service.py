"""tf.data service over exported files: workers read the files themselves, each element comes once.

A dispatcher and its workers are processes of their own, anywhere that sees the files:

    python -m ais_tar2tf.cluster.service dispatcher --port 5050
    python -m ais_tar2tf.cluster.service worker --dispatcher host:5050
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ais_tar2tf import forking
from ais_tar2tf.errors import ExportError
from ais_tar2tf.loading.dataset import build_dataset
from ais_tar2tf.loading.files import load
from ais_tar2tf.locations import location_text
from ais_tar2tf.nearest import check_choice

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = ["dataset", "main"]


def __dir__() -> list[str]:
    return sorted(__all__)


_SHARINGS = ("dynamic", "off")


def dataset(
    service: str,
    out: str | os.PathLike[str],
    split: str = "train",
    *,
    sharing: str = "dynamic",
    map: Callable[[Any], Any] | None = None,  # noqa: A002  # as Source.dataset has it
    batch: int | None = None,
    drop_remainder: bool = False,
    shuffle: bool | int | None = None,
    seed: int | None = None,
    job_name: str | None = None,
    compression: str | None = "AUTO",
) -> tf.data.Dataset[Any]:
    """The records of an exported split, read, parsed and mapped by the workers of a tf.data service.

    `service`: "grpc://host:5050". `sharing`: "dynamic" hands each file to one worker, "off" gives every worker all of
    them. `job_name`: consumers of one name share one pass. Files are TFRecord in a folder that workers see under the
    same path; no Python of this process goes to them. Batches are made by the workers, so each may end with a short
    one. A single pass by one consumer without batches has the length that the manifest says, and fails where a
    worker was lost with records; tf.data service by itself would end early without a word.
    """
    import tensorflow as tf

    check_choice("sharing", sharing, _SHARINGS)
    loaded = load(out)
    if loaded.manifest.format != "tfrecord" or not loaded.local:
        raise ExportError(
            f"{location_text(out)}: workers of tf.data service read TFRecord files in a folder; "
            f"these are {loaded.manifest.format}{'' if loaded.local else ' in a store'}"
        )
    records = build_dataset(replace(loaded.request(split, shuffle=shuffle, seed=seed), counted=False))
    if map is not None:
        records = records.map(map, num_parallel_calls=tf.data.AUTOTUNE)
    if batch is not None:
        records = records.batch(batch, drop_remainder=drop_remainder)
    policies: Any = tf.data.experimental.service.ShardingPolicy
    distribute: Any = tf.data.experimental.service.distribute(
        processing_mode=policies.DYNAMIC if sharing == "dynamic" else policies.OFF,
        service=service,
        job_name=job_name,
        compression=compression,
    )
    records = records.apply(distribute)
    if sharing == "dynamic" and batch is None and job_name is None:
        records = records.apply(tf.data.experimental.assert_cardinality(len(loaded.split(split))))
    return records.prefetch(tf.data.AUTOTUNE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a dispatcher or a worker until it is told to end; its address is the first line of stdout."""
    parser = argparse.ArgumentParser(prog="python -m ais_tar2tf.cluster.service", description=main.__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    dispatcher = roles.add_parser("dispatcher")
    dispatcher.add_argument("--port", type=int, default=0)
    dispatcher.add_argument("--work-dir", help="a folder in which it remembers its jobs over a restart")
    worker = roles.add_parser("worker")
    worker.add_argument("--dispatcher", required=True, help="host:port")
    worker.add_argument("--port", type=int, default=0)
    worker.add_argument("--address", help="how others reach it, as host:port; with %%port%% for the port")
    given = parser.parse_args(arguments)
    server = _dispatcher(given) if given.role == "dispatcher" else _worker(given)
    sys.stdout.write(f"{server}\n")
    sys.stdout.flush()  # whoever started it waits for that
    ended = forking.event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()


def _dispatcher(given: argparse.Namespace) -> Any:
    import tensorflow as tf

    service: Any = tf.data.experimental.service
    config = service.DispatcherConfig(
        port=given.port, work_dir=given.work_dir, fault_tolerant_mode=given.work_dir is not None
    )
    server = service.DispatchServer(config)
    return _Running(server, server.target)


def _worker(given: argparse.Namespace) -> Any:
    import tensorflow as tf

    service: Any = tf.data.experimental.service
    config = service.WorkerConfig(dispatcher_address=given.dispatcher, port=given.port, worker_address=given.address)
    server = service.WorkerServer(config)
    return _Running(server, given.dispatcher)


class _Running:
    """Keeps a server alive, and says where it is."""

    def __init__(self, server: Any, address: str) -> None:
        self._server = server
        self._address = address

    def __str__(self) -> str:
        return self._address


if __name__ == "__main__":
    main()
