"""An AIStore ETL that converts whole shards: a service next to each target turns a shard into TFRecord or a tar.

    transformer = Transformer(conversions=[Decode("jpg"), Resize("jpg", (64, 64))], selections={"image": "jpg"})
    with transformer.serve() as service:
        service.url                                        # answers a target's requests
    transformer.spec("resize", image="registry/resize:1")  # the message that starts the ETL in AIStore
    transformer.containerfile()                            # the file that the image is built from

A shard passes through `service` (the HTTP server), `handler` (the requests of a target), `sources` (where the shard's
bytes come from), `transform` (records in, output out), and perhaps `delivery` (output goes to another node).
`Definition` is the plain data that a container gets; code is never sent to the cluster.
"""

from __future__ import annotations

from ais_tar2tf.cluster.etl.client import running, start, stop
from ais_tar2tf.cluster.etl.definition import Definition
from ais_tar2tf.cluster.etl.transformer import Transformer

__all__ = ["Definition", "Transformer", "running", "start", "stop"]


def __dir__() -> list[str]:
    return sorted(__all__)
