"""The program of a worker process: receives tasks and writes record files.

    python -m ais_tar2tf.tornet.worker DESCRIPTOR

It is a separate program rather than a fork or a spawned copy, because the parent may run TensorFlow's threads, and
its script may lack an `if __name__ == "__main__"` guard. The process ends when its parent ends, which closes the
pipe.
"""

from __future__ import annotations

import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from ais_tar2tf.errors import ExportError, Tar2TFError
from ais_tar2tf.tornet.record_file import write

__all__ = ["main"]


def main() -> None:
    """Answer each task with the size of each payload and then None, or with an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, and ends this process
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    try:
        while True:
            task = pipe.recv()
            try:
                write(task, pipe.send)
                pipe.send(None)
            except Tar2TFError as error:
                pipe.send(error)
            except ConnectionError:
                return
            except Exception as error:  # noqa: BLE001  # the parent reports any error
                pipe.send(ExportError(f"{task.target}: {type(error).__name__}: {error}"))
    except (EOFError, ConnectionError):
        return  # the parent has ended, or has no more work


if __name__ == "__main__":
    main()
