"""Run a real AIStore cluster on 127.0.0.1: one proxy and several targets, each in a process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import requests

from tests.servers.process import Process, free_ports, wait_until

__all__ = ["AIStore", "Tls"]


@dataclass(frozen=True)
class Tls:
    """Paths of the CA's certificate, and of the servers' certificate and key."""

    ca: str
    certificate: str
    key: str
    clients: bool = False  # whether clients need a certificate that this CA signed
    client: tuple[str, str] | None = None  # certificate and key of the client, for calls of this class


class AIStore:
    """A cluster that runs inside a `with` block.

    `sections` are merged into the cluster's configuration. `environment` is added to the environment of its nodes.
    This class sends `token` with its own calls to clusters that require tokens.
    """

    def __init__(
        self,
        program: Path,
        folder: Path,
        *,
        targets: int = 2,
        tls: Tls | None = None,
        sections: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        token: str = "",
    ) -> None:
        self._program = program
        self._folder = folder
        self._session = requests.Session()
        self._session.verify = tls.ca if tls else True
        if tls:
            self._session.cert = tls.client
        if token:
            self._session.headers["Authorization"] = f"Bearer {token}"
        self._tls = tls
        self._environment = dict(environment or {})
        self._scheme = "https" if tls else "http"
        self._ports = free_ports(2 * (1 + targets))  # two for each node: for clients, and for the other nodes
        self.url = f"{self._scheme}://127.0.0.1:{self._ports[0]}"
        self._sections = dict(sections or {})
        self._proxy = self._node("proxy-000", 0)
        self._targets = [self._node(f"target-{number:03d}", 1 + number) for number in range(targets)]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        self._proxy.start()
        # A target that cannot connect to the proxy waits 5 s before it tries again.
        self._proxy.wait_until(lambda: self._answers(0, "health"), "the proxy answers")
        for target in self._targets:
            target.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all targets have joined and no request is answered with 503."""
        for number, target in enumerate(self._targets, 1):
            target.wait_until(lambda n=number: self._answers(n, "health?readiness=true"), "a target is ready")
        wait_until(self._has_all, "the cluster's map has every target")
        wait_until(lambda: self._answers(0, "health?apr=true"), "the proxy is ready")

    def stop(self) -> None:
        for process in (*self._targets, self._proxy):
            process.stop()

    # Used by tests

    @property
    def target_urls(self) -> list[str]:
        return [f"{self._scheme}://127.0.0.1:{port}" for port in self._ports[2::2]]

    def target_of(self, location: str) -> int:
        """Return the number of the target that a redirect leads to."""
        return next(number for number, url in enumerate(self.target_urls) if location.startswith(f"{url}/"))

    def kill_target(self, number: int) -> None:
        self._targets[number].kill()

    def restart_target(self, number: int) -> None:
        self._targets[number].start()
        self.wait_until_ready()

    def logs(self) -> str:
        """Return everything that the nodes logged."""
        return "".join(path.read_text(errors="replace") for path in self._folder.rglob("*log*") if path.is_file())

    # Start and configuration

    def _answers(self, number: int, path: str) -> bool:
        try:
            return self._ask(f"{self._scheme}://127.0.0.1:{self._ports[2 * number]}/v1/{path}").ok
        except requests.RequestException:
            return False

    def _has_all(self) -> bool:
        answer = self._ask(f"{self.url}/v1/daemon?what=smap")
        return answer.ok and len(answer.json()["tmap"]) == len(self._targets)

    def _ask(self, url: str) -> requests.Response:
        with self._session as session:  # closes the connection
            return session.get(url, timeout=5)

    def _node(self, name: str, number: int) -> Process:
        folder = self._folder / name
        (folder / "log").mkdir(parents=True)
        (folder / "mountpaths").mkdir()
        common, own = folder / "ais.json", folder / "ais_local.json"
        common.write_text(json.dumps(self._cluster_configuration()))
        own.write_text(json.dumps(self._node_configuration(folder, number)))
        role = "proxy" if number == 0 else "target"
        command = [str(self._program), f"-role={role}", f"-config={common}", f"-local_config={own}"]
        command += [f"-daemon_id={name}", *(["-skip_startup"] if number == 0 else [])]
        return Process(command, folder / "output.log", environment=self._environment)

    def _cluster_configuration(self) -> dict[str, Any]:
        http: dict[str, Any] = {"idle_conn_time": "6s", "idle_conns_per_host": 32, "idle_conns": 256}
        if self._tls:
            http |= {"use_https": True, "server_crt": self._tls.certificate, "server_key": self._tls.key}
            http |= {"skip_verify": True}  # applies to connections between nodes, not to clients
            if self._tls.clients:
                http |= {"client_ca_tls": self._tls.ca, "client_auth_tls": 4}  # require and verify
        primary = f"{self._scheme}://127.0.0.1:{self._ports[1]}"
        configuration: dict[str, Any] = {
            "timeout": {
                "cplane_operation": "500ms",
                "max_keepalive": "2s",
                "max_host_busy": "10s",
                "startup_time": "30s",
                "join_startup_time": "1m",
                "send_file_time": "1m",
            },
            "proxy": {"primary_url": primary, "original_url": primary, "discovery_url": ""},
            # The disk of a test machine may be nearly full; by default AIStore would then answer 507.
            "space": {"cleanupwm": 96, "lowwm": 97, "highwm": 98, "out_of_space": 99},
            "versioning": {"enabled": True},
            "net": {"l4": {"proto": "tcp"}, "http": http},
        }
        return {**configuration, **self._sections}

    def _node_configuration(self, folder: Path, number: int) -> dict[str, Any]:
        port, intra = map(str, self._ports[2 * number : 2 * number + 2])
        host = "127.0.0.1"
        return {
            "confdir": str(folder),
            "log_dir": str(folder / "log"),
            "host_net": {
                "hostname": host,
                "hostname_intra_control": host,
                "hostname_intra_data": host,
                "port": port,
                "port_intra_control": intra,
                "port_intra_data": intra,
            },
            "test_fspaths": {"root": str(folder / "mountpaths"), "count": 1, "instance": number},
        }
