"""`Transformer`: it serves a definition here, or writes its container file and AIStore's ETL spec."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ais_tar2tf.archive import Bytes
from ais_tar2tf.cluster.etl import deployment
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.cluster.etl.service import Service
from ais_tar2tf.cluster.etl.transform import Transform
from ais_tar2tf.options import Limits, Timeouts
from ais_tar2tf.records import Record

__all__ = ["Transformer"]


class Transformer:
    """Applies selections, conversions and a record_to_example to whole shards, as an AIStore ETL.

    Args:
        selections: The values to select from each record, as `ops` describe them.
        conversions: Ops that are applied before the selections.
        record_to_example: A function of a module that is installed in the container's image. Other functions are
            refused: code is not sent to the cluster, and nothing is pickled.
        output: "tfrecord", or "tar", in which arrays are `.npy` members.
        grouping: "first-dot" or "last-dot": where the key of a member's name ends.
        limits: Bounds on what a shard may hold.

    Raises:
        SchemaError: An argument cannot be written as data, or is not valid.

    Example:
    >>> from ais_tar2tf.ops import Rename
    >>> Transformer(conversions=[Rename(label="cls")], selections={"label": "label"}).definition.output
    'tfrecord'
    """

    def __init__(
        self,
        selections: Any = (),
        conversions: Sequence[Any] = (),
        record_to_example: Callable[[Record], Any] | str | None = None,
        output: str = "tfrecord",
        *,
        grouping: str = "first-dot",
        limits: Limits | None = None,
    ) -> None:
        self.definition: Definition = Definition.of(conversions, selections, record_to_example, output, grouping)
        self._transform = Transform(self.definition, limits or Limits())

    @classmethod
    def of(cls, definition: Definition, limits: Limits | None = None) -> Transformer:
        """Return the transformer of a definition.

        Args:
            definition: The definition, for example from `Definition.from_json`.
            limits: Bounds on what a shard may hold.
        """
        values = definition.selections, definition.conversions, definition.record_to_example, definition.output
        return cls(*values, grouping=definition.grouping, limits=limits)

    @property
    def name(self) -> str:
        """The ETL's default name."""
        return self.definition.name

    def run(self, blocks: Iterable[Bytes], shard: str) -> Iterator[bytes]:
        """Yield the output for one shard, as the service would send it.

        Args:
            blocks: The shard's bytes.
            shard: The shard's URL.
        """
        return self._transform.run(blocks, shard)

    def serve(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        roots: Sequence[str] = (),
        target: str | None = None,
        workers: int | None = None,
        timeouts: Timeouts | None = None,
        secret: str | None = None,
        nodes: Sequence[str] = (),
    ) -> Service:
        """Start a service that answers a target's requests until `close()`: hpush, hpull, ws, and /health.

        Args:
            port: The port; 0 lets the system choose.
            host: The address to listen on.
            roots: Folders whose files a target may name instead of sending them.
            target: The URL of the target that hpull fetches objects from; AIS_TARGET_URL when left out.
            workers: Shards that are transformed at once; the number of CPUs when left out.
            timeouts: The timeouts of requests that the service itself makes.
            secret: The path of the service's `url`, which all requests but /health need; random when left out.
                When empty, only this machine and the cluster's targets are answered.
            nodes: Nodes, as `host:port`, that output may be put to, besides the targets of the cluster.

        Returns:
            The running service. Use it in a `with` block, or call its `close()`.
        """
        return Service(
            self._transform,
            host=host,
            port=port,
            roots=roots,
            target=os.environ.get("AIS_TARGET_URL", "") if target is None else target,
            workers=workers,
            timeouts=timeouts,
            secret=secrets.token_urlsafe(24) if secret is None else secret,
            nodes=nodes,
        )

    def spec(
        self, name: str | None = None, *, image: str, communication: str = "hpush", **options: Any
    ) -> dict[str, Any]:
        """Return the message that starts the ETL (`PUT /v1/etl`).

        Args:
            name: The ETL's name; a hash of the definition when left out.
            image: The container image, built from `containerfile()`.
            communication: How targets send shards: "hpush", "hpull" or "ws".
            options: `init_timeout`, `object_timeout` and `roots`, as `deployment.spec` describes them.
        """
        return deployment.spec(
            self.definition, name or self.name, image=image, communication=communication, **options
        )

    def spec_text(self, name: str | None = None, *, image: str, communication: str = "hpush", **options: Any) -> str:
        """Return the text of `spec()` for `ais etl init --spec FILE`. It is JSON, and therefore YAML.

        Args:
            name: As `spec` takes it.
            image: As `spec` takes it.
            communication: As `spec` takes it.
            **options: Further options of `spec`.
        """
        return json.dumps(self.spec(name, image=image, communication=communication, **options), indent=2) + "\n"

    def containerfile(self, **options: Any) -> str:
        """Return the text of a container file to build the image from.

        Args:
            options: `base`, `packages` and `roots`, as `deployment.containerfile` describes them.
        """
        return deployment.containerfile(self.definition, **options)
