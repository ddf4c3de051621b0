"""Run the transformer that the variable AIS_TAR2TF_ETL defines, until SIGTERM or SIGINT. Containers run this."""

from __future__ import annotations

import argparse
import os
import sys

from ais_tar2tf.cluster.etl.definition import ENVIRONMENT, SECRET_NAME, Definition
from ais_tar2tf.cluster.etl.transformer import Transformer
from ais_tar2tf.cluster.stopping import stop_event
from ais_tar2tf.errors import Tar2TFError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ais_tar2tf.cluster.etl", description=__doc__)
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104  # the target connects to the pod
    parser.add_argument("--port", type=int, default=8000)  # the port that AIStore expects
    parser.add_argument(
        "--root",
        action="append",
        default=[],
        help="a folder whose files a target may name instead of sending them; may be repeated",
    )
    parser.add_argument(
        "--node",
        action="append",
        default=[],
        help="host:port of a node that output may be put to; may be repeated",
    )
    options = parser.parse_args()
    definition = os.environ.get(ENVIRONMENT)
    if not definition:
        print(
            f"{ENVIRONMENT} is not set: it must hold the definition, as Definition.to_json writes it", file=sys.stderr
        )
        return 2
    try:
        transformer = Transformer.of(Definition.from_json(definition))
    except Tar2TFError as error:
        print(error, file=sys.stderr)
        return 2
    secret = os.environ.get(SECRET_NAME, "")
    with (
        stop_event() as stop,
        transformer.serve(
            port=options.port, host=options.host, roots=options.root, secret=secret, nodes=options.node
        ) as service,
    ):
        print(f"serving {service.url}", flush=True)
        stop.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
