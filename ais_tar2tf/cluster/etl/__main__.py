"""What the container runs: the transformer that AIS_TAR2TF_ETL defines, until it is told to end."""

from __future__ import annotations

import argparse
import os
import signal
import sys

from ais_tar2tf import forking
from ais_tar2tf.cluster.etl.definition import ENVIRONMENT, SECRET_NAME, Definition
from ais_tar2tf.cluster.etl.transformer import Transformer
from ais_tar2tf.errors import Tar2TFError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ais_tar2tf.cluster.etl", description=__doc__)
    parser.add_argument("--host", default="0.0.0.0")  # noqa: S104  # in its pod, for the target
    parser.add_argument("--port", type=int, default=8000)  # the port that AIStore expects
    parser.add_argument("--root", action="append", default=[], help="folder whose files a target may name; several")
    parser.add_argument("--node", action="append", default=[], help="host:port that output may be put to; several")
    options = parser.parse_args()
    said = os.environ.get(ENVIRONMENT)
    if not said:
        print(f"{ENVIRONMENT} is not set: it says what is done, as Definition.to_json writes it", file=sys.stderr)
        return 2
    try:
        transformer = Transformer.of(Definition.from_json(said))
    except Tar2TFError as error:
        print(error, file=sys.stderr)
        return 2
    ended = forking.event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    secret = os.environ.get(SECRET_NAME, "")
    with transformer.serve(
        port=options.port, host=options.host, roots=options.root, secret=secret, nodes=options.node
    ) as service:
        print(f"serving {service.url}", flush=True)
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
