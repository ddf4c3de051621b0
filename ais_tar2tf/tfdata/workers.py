"""Whether tf.distribute trains on several workers, and so splits a dataset that we did not split."""

from __future__ import annotations

from ais_tar2tf.tfdata.graphs import tf

__all__ = ["several_workers"]


def several_workers() -> bool:
    """Return whether this process is one of several workers of a tf.distribute strategy.

    Such a strategy gives each worker every n-th element of a dataset (auto-sharding). The workers' shares are
    disjoint and complete only when all of them shuffle by the same seed. A strategy for several workers has to be
    made before the first dataset, so that its devices are known here.
    """
    tasks = {device.name.partition("/device:")[0] for device in tf.config.list_logical_devices()}
    return len(tasks) > 1
