"""Our mapping as an AIStore ETL: a service that makes TFRecord, or another tar, of a shard, beside the target.

transformer = Transformer(conversions=[Decode("jpg"), Resize("jpg", (64, 64))], selections={"image": "jpg"})
with transformer.serve() as service:
    service.url  # where a target's requests are answered
transformer.spec("resize", image="registry/resize:1")  # what AIStore starts it from
transformer.containerfile()  # what that image is made from
"""

from __future__ import annotations

from ais_tar2tf.cluster.etl.client import running, start, stop
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.cluster.etl.transformer import Transformer

__all__ = ["Definition", "Transformer", "running", "start", "stop"]


def __dir__() -> list[str]:
    return sorted(__all__)
