"""One Python definition of a transformer: served here, or written down as a container and as AIStore's ETL spec."""

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
    """Selections and conversions of `ops`, and a record_to_example of an installed module, over whole shards.

    `output`: "tfrecord", or "tar", in which arrays are `.npy` members. Other functions of yours are refused: code
    does not go to the cluster, and nothing is pickled.

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
        function, output = definition.record_to_example, definition.output
        return cls(
            definition.selections,
            definition.conversions,
            function,
            output,
            grouping=definition.grouping,
            limits=limits,
        )

    @property
    def name(self) -> str:
        """Of the ETL, if it gets no other."""
        return self.definition.name

    def run(self, blocks: Iterable[Bytes], shard: str) -> Iterator[bytes]:
        """What the service does to a shard, without a service."""
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
        """Answer a target's requests until `close()`: PUT (hpush), GET (hpull), /ws, /health.

        Args:
            port: The port; 0 lets the system choose.
            host: The address to listen on.
            roots: Folders whose files a target may name instead of sending them.
            target: Where hpull asks for objects; AIS_TARGET_URL if it is not given.
            workers: Shards at once; as many as there are CPUs if it is not given.
            timeouts: For requests of the service's own.
            secret: The first part of every request's path, and part of the service's `url`. Drawn if it is not given;
                with an empty one, only this machine and the cluster's targets are answered.
            nodes: Nodes, as `host:port`, that output may be put to beside the targets of the cluster.

        Returns:
            The running service; use it in a `with` block, or call its `close()`.
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
        """What `PUT /v1/etl` takes; see `deployment.spec`."""
        return deployment.spec(
            self.definition, name or self.name, image=image, communication=communication, **options
        )

    def spec_text(self, name: str | None = None, *, image: str, communication: str = "hpush", **options: Any) -> str:
        """The same for `ais etl init --spec FILE`: JSON, which YAML is a superset of."""
        return json.dumps(self.spec(name, image=image, communication=communication, **options), indent=2) + "\n"

    def containerfile(self, **options: Any) -> str:
        """What the image is made from; see `deployment.containerfile`."""
        return deployment.containerfile(self.definition, **options)
