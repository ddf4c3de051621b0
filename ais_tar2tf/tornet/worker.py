"""A worker process: tasks in, record files out. `python -m ais_tar2tf.tornet.worker DESCRIPTOR`.

A process of its own rather than a fork or a spawned copy: the parent has TensorFlow's threads, and its script may
have no guard around what it does. It ends with its parent, for then its pipe does.
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
    """Answers each task with the size of each sample, then None, or with an error."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it, and ends us
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
            except Exception as error:  # noqa: BLE001  # whatever it is, the parent is to tell it
                pipe.send(ExportError(f"{task.target}: {type(error).__name__}: {error}"))
    except (EOFError, ConnectionError):
        return  # the parent is gone, or has no more work


if __name__ == "__main__":
    main()
