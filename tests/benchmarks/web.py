"""Run the server that all readers use: nginx if it is installed, otherwise the embedded server."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import free_ports

__all__ = ["LINK", "NotAvailable", "Web", "serving"]

LINK = 200_000_000
"""Bytes per second of one connection, for lines that need a limited one."""

_START_SECONDS = 30.0
_STOP_SECONDS = 5.0
_BUCKET = "bench"
_NGINX_ELSEWHERE = "/usr/sbin:/usr/local/sbin"  # where packages install it, often not on a user's PATH

_NGINX = """
daemon off; {user} worker_processes 1; pid {work}/pid; error_log stderr crit;
events {{ worker_connections 256; }}
http {{
  access_log off; sendfile on; tcp_nopush on; default_type application/octet-stream;
  client_body_temp_path {work}/body; proxy_temp_path {work}/proxy; fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi; scgi_temp_path {work}/scgi;
  server {{
    listen 127.0.0.1:{port}; root {root};
    location ~ ^/link/(.*)$ {{ alias {root}/$1; limit_rate {link}; }}
    location ~ ^/copies/[0-9]+-(.*)$ {{ alias {root}/$1; }}
  }}
}}
"""


class NotAvailable(Exception):
    """A program or a package that a line needs is not installed. The line prints this reason instead of figures."""


@dataclass(frozen=True)
class Web:
    """A running server: its name, and the URL of the folder that it serves."""

    name: str
    root: str

    def url(self, file: str) -> str:
        return f"{self.root}/{file}"

    def limited(self, file: str) -> str:
        """Return a URL of the file over connections of `LINK` bytes per second each."""
        self._only_nginx()
        return f"{self.root}/link/{file}"

    def copies(self, file: str, count: int) -> list[str]:
        """Return many URLs of one file."""
        self._only_nginx()
        return [f"{self.root}/copies/{number}-{file}" for number in range(count)]

    def _only_nginx(self) -> None:
        if self.name != "nginx":
            raise NotAvailable("this line needs nginx (apt install nginx)")


@contextmanager
def serving(home: Path) -> Iterator[tuple[Web, Path]]:
    """Start a server. Return it and the folder below `home` that it serves."""
    folder = home / "shown" / _BUCKET
    folder.mkdir(parents=True)
    nginx = shutil.which("nginx") or shutil.which("nginx", path=_NGINX_ELSEWHERE)
    with _nginx(nginx, home, folder) if nginx else _embedded(folder) as web:
        yield web, folder


@contextmanager
def _embedded(folder: Path) -> Iterator[Web]:
    import ais_tar2tf as t2t

    with t2t.serve(folder.parent) as server:
        yield Web("embedded", f"{server.url}/v1/objects/{_BUCKET}")


@contextmanager
def _nginx(program: str, home: Path, folder: Path) -> Iterator[Web]:
    work, (port,) = home / "nginx", free_ports(1)
    work.mkdir()
    # Started by root, nginx would run its workers as a user who may not read this folder.
    user = f"user {getpass.getuser()};" if os.geteuid() == 0 else ""
    (work / "conf").write_text(_NGINX.format(user=user, work=work, root=folder, port=port, link=LINK))
    process = subprocess.Popen([program, "-p", str(work), "-c", str(work / "conf")])
    try:
        _wait_until_up(process, port)
        yield Web("nginx", f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(_STOP_SECONDS)


def _wait_until_up(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"nginx ended with {process.returncode}: see above")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"nginx did not listen within {_START_SECONDS:g} s")
