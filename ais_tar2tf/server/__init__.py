"""The embedded server: AIStore's object API over a directory; it must not be needed to read from a real cluster.

The sub-folders of the directory are the buckets, the files in them are the objects.

>>> import pathlib, tempfile, requests
>>> with tempfile.TemporaryDirectory() as folder, serve(folder) as server:
...     _ = requests.post(f"{server.url}/v1/buckets/mnist", json={"action": "create-bck"}, timeout=5)
...     _ = pathlib.Path(folder, "mnist", "train-0.tar").write_bytes(b"tar")
...     requests.get(f"{server.url}/v1/objects/mnist/train-0.tar", timeout=5).content
b'tar'
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ais_tar2tf.errors import OptionError
from ais_tar2tf.locations import local_folder
from ais_tar2tf.nearest import known_options

if TYPE_CHECKING:
    from ais_tar2tf.server.calls import Seen
    from ais_tar2tf.server.lifecycle import Server

__all__ = ["Seen", "Server", "serve"]

_LAST_PORT = 65_535


@known_options
def serve(
    directory: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    transformers: Mapping[str, str] | None = None,
    hosts: Iterable[str] = (),
) -> Server:
    """Serve a directory's sub-folders as AIStore buckets, in a thread of this process, until `close()`.

    Args:
        directory: The folder; the files in its sub-folders are the objects.
        host: The address to listen on; an empty one means all interfaces.
        port: The proxy's port; 0 lets the system choose.
        token: The Bearer token that the proxy asks for. The target then answers only requests that the proxy
            redirected, each by a signed grant that is good for five minutes.
        transformers: URLs of running transformers (`t2t.cluster.etl`), by the names of the ETLs that clients ask for.
        hosts: Host names under which clients reach this server. Addresses, `localhost`, `host` and this machine's
            own name are always known; requests for any other name are refused, and so are those of web pages.

    Returns:
        The running server; use it in a `with` block, or call its `close()`.
    """
    from ais_tar2tf.server.lifecycle import start  # aiohttp is loaded when a server is started, not when it is named

    if not 0 <= port <= _LAST_PORT:
        raise OptionError(f"port is a number from 1 to {_LAST_PORT}, or 0 for a free one, not {port}")
    token = None if token is None else token.strip()  # as clients do it: a file ends with a line's end
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise OptionError("token is one word of ASCII without blanks, as a header carries it; None asks for none")
    folder = local_folder(directory, "the directory to serve")
    return start(folder, host, port, token, transformers or {}, hosts)


def __getattr__(name: str) -> Any:
    if name == "Seen":
        from ais_tar2tf.server.calls import Seen

        return Seen
    if name == "Server":
        from ais_tar2tf.server.lifecycle import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
