"""A tf.data service over exported record files: its workers read the files, by default each record once.

The dispatcher and the workers are processes on any machines that can read the files:

    python -m ais_tar2tf.cluster.service dispatcher --port 5050
    python -m ais_tar2tf.cluster.service worker --dispatcher host:5050
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ais_tar2tf.base.nearest import check_choice
from ais_tar2tf.base.urls.locations import location_text
from ais_tar2tf.cluster.stopping import stop_event
from ais_tar2tf.errors import ExportError
from ais_tar2tf.recordfiles.loading.dataset import build_dataset
from ais_tar2tf.source.dataset_options import DatasetOptions
from ais_tar2tf.source.loaded import load

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
    """Return the records of an exported split, read, parsed and mapped by the workers of a tf.data service.

    The files are TFRecord files in a folder that the workers see under the same path. The workers run no Python of
    this process. With dynamic sharing, no batches and no job name, the dataset's length is asserted: it fails when a
    worker was lost with records, where tf.data service alone would end early without an error.

    Args:
        service: The dispatcher's address, as "grpc://host:5050".
        out: The folder that an export wrote.
        split: The split to read.
        sharing: "dynamic" gives each file to one worker; "off" gives every worker all files.
        map: A TensorFlow function of a record, applied by the workers.
        batch: The number of records in a batch. The workers make the batches, so each worker may end with a smaller
            one.
        drop_remainder: Whether to drop these smaller batches.
        shuffle: Whether and how to shuffle, as for `Source.dataset`.
        seed: The seed of the shuffled order.
        job_name: Consumers with the same name share one pass over the records.
        compression: "AUTO" to let the workers compress the records that they send; None not to compress.

    Returns:
        A tf.data.Dataset.

    Raises:
        ExportError: `out` holds no TFRecord files, or is not a folder.
    """
    import tensorflow as tf

    check_choice("sharing", sharing, _SHARINGS)
    loaded = load(out)
    if not loaded.manifest.record_format.read_by_tensorflow or not loaded.local:
        raise ExportError(
            f"{location_text(out)}: workers of tf.data service read TFRecord files in a folder; "
            f"these are {loaded.manifest.format}{'' if loaded.local else ' in a store'}"
        )
    options = DatasetOptions(shuffle=shuffle, seed=seed)
    records = build_dataset(replace(loaded.request(split, options), counted=False))
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
    """Run a dispatcher or a worker of tf.data service until SIGINT or SIGTERM, and print the dispatcher's address.

    Args:
        arguments: The arguments of the command line. Default: those of this process.
    """
    summary = "Run a dispatcher or a worker of tf.data service until SIGINT or SIGTERM."
    parser = argparse.ArgumentParser(prog="python -m ais_tar2tf.cluster.service", description=summary)
    roles = parser.add_subparsers(dest="role", required=True)
    dispatcher = roles.add_parser("dispatcher")
    dispatcher.add_argument("--port", type=int, default=0, help="the port to listen on; 0 takes a free one")
    dispatcher.add_argument("--work-dir", help="a folder in which the dispatcher keeps its jobs over a restart")
    worker = roles.add_parser("worker")
    worker.add_argument("--dispatcher", required=True, help="the dispatcher's address, as host:port")
    worker.add_argument("--port", type=int, default=0, help="the port to listen on; 0 takes a free one")
    worker.add_argument(
        "--address", help="the address under which others reach this worker: host:port, or host:%%port%%"
    )
    options = parser.parse_args(arguments)
    server, address = _start(options)
    sys.stdout.write(f"{address}\n")
    sys.stdout.flush()  # the starting process may wait for this line
    with stop_event() as stop:
        stop.wait()
    del server  # until here, it must not be garbage-collected


def _start(options: argparse.Namespace) -> tuple[Any, str]:
    """Return a running dispatcher or worker, and the dispatcher's address."""
    import tensorflow as tf

    service: Any = tf.data.experimental.service
    if options.role == "dispatcher":
        config = service.DispatcherConfig(
            port=options.port, work_dir=options.work_dir, fault_tolerant_mode=options.work_dir is not None
        )
        server = service.DispatchServer(config)
        return server, server.target
    config = service.WorkerConfig(
        dispatcher_address=options.dispatcher, port=options.port, worker_address=options.address
    )
    return service.WorkerServer(config), options.dispatcher


if __name__ == "__main__":
    main()
