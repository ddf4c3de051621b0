"""`serve`: checks the arguments and starts the embedded server. Importing this module must not import aiohttp."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ais_tar2tf.base.nearest import known_options
from ais_tar2tf.base.urls.locations import local_folder
from ais_tar2tf.errors import OptionError

if TYPE_CHECKING:
    from ais_tar2tf.cluster.server.lifecycle import Server

__all__ = ["serve"]

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
        token: The Bearer token that the proxy requires. The target then answers only requests that the proxy
            redirected, each with a signed grant that is valid for five minutes.
        transformers: The URLs of running transformers (`t2t.cluster.etl`), by ETL name.
        hosts: Host names under which clients reach this server. IP addresses, `localhost`, `host` and this machine's
            own name are always accepted; requests for any other name, and requests from web pages, are refused.

    Returns:
        The running server. Use it in a `with` block, or call its `close()`. Its `url` is the endpoint for clients.

    Raises:
        OptionError: An argument is not valid.
        ServerError: The directory does not exist, or the server cannot listen on that address and port.
    """
    from ais_tar2tf.cluster.server.lifecycle import Server

    if not 0 <= port <= _LAST_PORT:
        raise OptionError(f"port is a number from 1 to {_LAST_PORT}, or 0 for a free one, not {port}")
    token = None if token is None else token.strip()  # clients strip it, too: a token file ends with a newline
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise OptionError(
            "token is one word of ASCII without blanks, as a header carries it; None means that no token is required"
        )
    folder = local_folder(directory, "the directory to serve")
    return Server(folder, host, port, token, transformers or {}, hosts)
