"""A definition as AIStore's ETL spec, and as a container file. Pure: nothing is started here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ais_tar2tf.cluster.etl.definition import ENVIRONMENT, Definition
from ais_tar2tf.errors import SchemaError

__all__ = ["COMMUNICATIONS", "PORT", "containerfile", "spec"]

COMMUNICATIONS = ("hpush", "hpull", "ws")
PORT = 8000  # on which AIStore looks for the service
_NAME = re.compile(r"[a-z0-9][-a-z0-9]{4,30}[a-z0-9]")  # Kubernetes makes pods of it, AIStore wants 6 to 32
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
    """Return the message that starts an ETL: AIStore runs a pod of `image` beside every target.

    Args:
        definition: What the ETL does.
        name: Its name.
        image: The container image, made from `containerfile`.
        communication: How targets ask: `hpush`, `hpull` or `ws`.
        init_timeout: How long a pod may take to start.
        object_timeout: For a whole shard: AIStore's own 10 s would be for small objects.
        roots: The target's folders, mounted in the pod, whose files a target may name instead of sending them.
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
    """The image: this package (or a wheel of it, and what a record_to_example needs) and the definition."""
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
