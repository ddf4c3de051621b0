"""Relay connections to a cluster's nodes and record the bytes that clients send.

Addresses in answers are rewritten, so that redirects lead through the relay, too.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Sequence
from typing import Self
from urllib.parse import urlsplit

_PATIENCE = 20.0


class Relay:
    """Listens on one port for each of `urls` and replaces the nodes' addresses in their answers by its own.

    Each number in `cuts` ends one connection after the node has sent that many bytes through it.
    """

    def __init__(self, urls: Sequence[str], *, cuts: Sequence[int] = ()) -> None:
        self._cuts = deque(cuts)
        self.cut = 0  # number of connections ended so far
        self._node_addresses = [urlsplit(url).netloc for url in urls]
        self._listeners = [socket.create_server(("127.0.0.1", 0)) for _ in urls]
        self._relay_addresses = [f"127.0.0.1:{listener.getsockname()[1]}" for listener in self._listeners]
        self._sent = [bytearray() for _ in urls]
        self._sockets: list[socket.socket] = []
        self._threads = [self._thread(self._accept, number) for number in range(len(urls))]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (*self._listeners, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(_PATIENCE)

    def url(self, number: int) -> str:
        return f"http://{self._relay_addresses[number]}"

    def sent(self, number: int) -> bytes:
        """Return all bytes that clients sent to this node."""
        return bytes(self._sent[number])

    def _thread(self, function: object, *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        return thread

    def _accept(self, number: int) -> None:
        while True:
            try:
                client, _ = self._listeners[number].accept()
            except OSError:
                return
            host, port = self._node_addresses[number].rsplit(":", 1)
            server = socket.create_connection((host, int(port)), _PATIENCE)
            self._sockets += [client, server]
            self._threads.append(self._thread(self._to_server, client, server, number))
            self._threads.append(self._thread(self._to_client, server, client))

    def _to_server(self, client: socket.socket, server: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                self._sent[number] += data
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _to_client(self, server: socket.socket, client: socket.socket) -> None:
        """Copy answers. All ports have five digits, so replacing an address does not change a length."""
        received = 0
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                for node, relay in zip(self._node_addresses, self._relay_addresses, strict=True):
                    data = data.replace(node.encode(), relay.encode())
                received += len(data)
                if self._cuts and received > self._cuts[0]:
                    client.sendall(data[: len(data) - (received - self._cuts.popleft())])
                    self.cut += 1
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
