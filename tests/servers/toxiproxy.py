"""Run a real toxiproxy in front of another server, to delay, limit and break connections."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import requests

from tests.servers.process import Process, answers, free_ports

__all__ = ["Toxiproxy"]


class Toxiproxy:
    def __init__(self, program: Path, folder: Path) -> None:
        (port,) = free_ports(1)
        self._api = f"http://127.0.0.1:{port}"
        command = [str(program), "-host", "127.0.0.1", "-port", str(port)]
        self._process = Process(command, folder / "output.log")

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._process.wait_until(lambda: answers(f"{self._api}/version"), "toxiproxy is ready")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def in_front_of(self, url: str, name: str = "server") -> str:
        """Return a URL that leads to `url` through toxiproxy."""
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        self._call("POST", "/proxies", {"name": name, "listen": address, "upstream": urlsplit(url).netloc})
        return f"http://{address}"

    def poison(self, kind: str, attributes: dict[str, int], name: str = "server", toxicity: float = 1.0) -> None:
        """Add a toxic, which affects all further bytes from the server."""
        toxic = {"type": kind, "stream": "downstream", "toxicity": toxicity, "attributes": attributes}
        self._call("POST", f"/proxies/{name}/toxics", {"name": kind, **toxic})

    def cure(self, kind: str, name: str = "server") -> None:
        self._call("DELETE", f"/proxies/{name}/toxics/{kind}")

    def remove(self, name: str = "server") -> None:
        self._call("DELETE", f"/proxies/{name}")

    def _call(self, method: str, path: str, body: object = None) -> None:
        requests.request(method, f"{self._api}{path}", json=body, timeout=10).raise_for_status()
