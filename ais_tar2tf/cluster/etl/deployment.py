"""The conversion of a definition into AIStore's ETL spec or a container file. This module must not do I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ais_tar2tf.cluster.etl.definition import ENVIRONMENT, Definition
from ais_tar2tf.errors import SchemaError

__all__ = ["COMMUNICATIONS", "PORT", "containerfile", "spec"]

COMMUNICATIONS = ("hpush", "hpull", "ws")
PORT = 8000  # AIStore expects the service on this port
_NAME = re.compile(r"[a-z0-9][-a-z0-9]{4,30}[a-z0-9]")  # Kubernetes' rule for pod names; AIStore's length, 6 to 32
_PYTHON = "3.12"
_COMMAND = ("python", "-m", "ais_tar2tf.cluster.etl")


def spec(
    definition: Definition,
    name: str,
    *,
    image: str,
    communication: str = "hpush",
    init_timeout: str = "5m",
    object_timeout: str = "10m",
    roots: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the message that starts an ETL: AIStore then runs a pod of `image` next to every target.

    Args:
        definition: The work of the ETL.
        name: The name of the ETL.
        image: The container image, built from `containerfile`.
        communication: How targets send shards: `hpush`, `hpull` or `ws`.
        init_timeout: The maximum time for the start of a pod.
        object_timeout: The maximum time for one shard; AIStore's default of 10 s is meant for small objects.
        roots: Folders that you mount in the pod. A target may name a file in them instead of sending it.
    """
    if not _NAME.fullmatch(name):
        raise SchemaError(f"an ETL's name has 6 to 32 small letters, digits and inner dashes, not {name!r}")
    if communication not in COMMUNICATIONS:
        raise SchemaError(f"communication is one of {', '.join(COMMUNICATIONS)}, not {communication!r}")
    if not image:
        raise SchemaError("an ETL runs an image: build one from containerfile(), push it, and name it")
    return {
        "name": name,
        "communication": f"{communication}://",
        "init_timeout": init_timeout,
        "obj_timeout": object_timeout,
        "support_direct_put": True,
        "runtime": {
            "image": image,
            "command": _command(roots),
            "env": [{"name": ENVIRONMENT, "value": definition.to_json()}],
        },
    }


def _command(roots: Sequence[str]) -> list[str]:
    return [*_COMMAND, *(part for root in roots for part in ("--root", root))]


def containerfile(
    definition: Definition,
    *,
    base: str = f"python:{_PYTHON}-slim",
    packages: Sequence[str] = ("ais_tar2tf",),
    roots: Sequence[str] = (),
) -> str:
    """Return a container file for an image that runs the transformer.

    Args:
        definition: The work of the transformer.
        base: The image to build on, which must contain Python.
        packages: The packages for pip to install: this package or a wheel of it, and those that a
            record_to_example needs.
        roots: Folders whose files a target may name instead of sending them.
    """
    install = " ".join(json.dumps(each) for each in packages)
    value = json.dumps(definition.to_json()).replace("$", "\\$")
    return "\n".join(
        (
            f"FROM {base}",
            f"RUN pip install --no-cache-dir {install}",
            f"ENV {ENVIRONMENT}={value} TF_CPP_MIN_LOG_LEVEL=2",
            "USER 65534",
            f"EXPOSE {PORT}",
            f"CMD {json.dumps(_command(roots))}",
            "",
        )
    )
