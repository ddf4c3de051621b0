"""The number of this process among the processes of a training (the *hosts*), and the number of all these processes.

Both numbers are read from environment variables, which the program that launched the processes has set. This module
must not do I/O. The variables, and the programs that set them:

TF_CONFIG                                   tf.distribute; the chief has number 0, the workers follow
SLURM_PROCID, SLURM_NTASKS                  srun
OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE  mpirun (Open MPI), horovodrun over it
PMI_RANK, PMI_SIZE                          MPICH, Intel MPI
HOROVOD_RANK, HOROVOD_SIZE                  horovodrun
JAX_PROCESS_ID, JAX_NUM_PROCESSES           jax.distributed
RANK, WORLD_SIZE                            torchrun
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from ais_tar2tf.base.documents.parsing import json_value
from ais_tar2tf.errors import OptionError

__all__ = ["hosts"]

# Pairs of variables: the number of this process, and the number of all processes.
_RANKS = (
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("RANK", "WORLD_SIZE"),
)
_READERS = ("chief", "master", "worker")  # tasks in TF_CONFIG that have a share; evaluators, for example, have none


def hosts(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return (i, n): this process is number i, counted from 0, of n processes. `shard="env"` calls this function.

    Args:
        environ: The environment variables, by default those of this process.

    Raises:
        OptionError: The variables are missing, incomplete or contradictory.

    >>> hosts({"SLURM_PROCID": "3", "SLURM_NTASKS": "8"})
    (3, 8)
    """
    variables = os.environ if environ is None else environ
    found = dict(_stated(variables))
    if not found:
        missing = _missing(variables)
        raise OptionError(f"the environment does not say which host this is: {missing}, or say shard=(i, n)")
    if len(set(found.values())) > 1:
        stated = ", ".join(f"{name} {host}" for name, host in found.items())
        raise OptionError(f"the environment says different things of which host this is ({stated}); say shard=(i, n)")
    return next(iter(found.values()))


def _stated(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield (name, (i, n)) for TF_CONFIG and for each pair of variables, if they state a host.

    The name of a pair is the name of its first variable.
    """
    config = environ.get("TF_CONFIG", "")
    if config.strip():
        host = _host_in_cluster(config)
        if host is not None:
            yield "TF_CONFIG", host
    for rank_name, size_name in _RANKS:
        rank, size = environ.get(rank_name, ""), environ.get(size_name, "")
        if not rank or not size:
            continue
        if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
            raise OptionError(
                f"{rank_name}={rank!r} and {size_name}={size!r} name no host: of 4 hosts, the ranks are 0 to 3; set "
                "both so, or say shard=(i, n)"
            )
        yield rank_name, (int(rank), int(size))


def _missing(environ: Mapping[str, str]) -> str:
    """Return advice for the error: to complete an incomplete pair of variables, or else to set any of them."""
    for pair in _RANKS:
        present = [name for name in pair if environ.get(name, "")]
        if present:
            (missing,) = set(pair) - set(present)
            return f"{present[0]}={environ[present[0]]!r} is set, and {missing} is not; set both"
    pairs = ", ".join(f"{rank} with {size}" for rank, size in _RANKS)
    return f"none of its variables is set; set TF_CONFIG, or one of the pairs {pairs}"


def _host_in_cluster(config: str) -> tuple[int, int] | None:
    """Return the (i, n) that TF_CONFIG states; None if TF_CONFIG has no cluster, as on a single machine."""
    try:
        parsed: dict[str, Any] = json_value(config)
        cluster: dict[str, Any] = parsed.get("cluster") or {}
        if not cluster:
            return None
        kind, index = str(parsed["task"]["type"]), int(parsed["task"]["index"])
        sizes = [(name, len(cluster.get(name) or ())) for name in _READERS]
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise OptionError(f"TF_CONFIG cannot be read ({error}); say shard=(i, n)") from error
    if kind not in _READERS or not 0 <= index < dict(sizes)[kind]:
        raise OptionError(f"TF_CONFIG says this is {kind} {index}, which has no share of the data; say shard=(i, n)")
    before = sum(size for _, size in sizes[: _READERS.index(kind)])
    return before + index, sum(size for _, size in sizes)
