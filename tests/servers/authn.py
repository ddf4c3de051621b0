"""Run AIStore's AuthN, which manages users, roles and tokens for a cluster that shares its secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

import requests

from tests.servers.process import Process, free_ports, wait_until

__all__ = ["AuthN"]

_SECRET = "a-secret-that-signs-the-tokens-of-a-test"
_ADMIN = "admin-password-of-a-test"


class AuthN:
    """An AuthN server.

    Start it first, then a cluster with `sections` and `environment`, then `register` the cluster.
    """

    sections: ClassVar[dict[str, Any]] = {"auth": {"client_auth_required": True, "signature": {"method": "HMAC"}}}
    environment: ClassVar[dict[str, str]] = {"AIS_AUTHN_SECRET_KEY": _SECRET}

    def __init__(self, program: Path, folder: Path) -> None:
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}"
        (folder / "log").mkdir(parents=True)
        configuration = {
            "log": {"dir": str(folder / "log"), "level": "3"},
            "net": {"http": {"port": port, "use_https": False}},
            "auth": {"secret": _SECRET, "expiration_time": "24h"},
            "timeout": {"default_timeout": "10s"},
        }
        (folder / "authn.json").write_text(json.dumps(configuration))
        environment = {**self.environment, "AIS_AUTHN_SU_PASS": _ADMIN}
        self._process = Process([str(program), f"-config={folder}"], folder / "output.log", environment=environment)
        self._issued: set[str] = set()
        self.admin = ""  # a token with all rights

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._process.wait_until(self._admin_can_log_in, "AuthN's administrator can log in")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()

    def _admin_can_log_in(self) -> bool:
        try:
            self.admin = self.token()
        except requests.RequestException:
            return False
        return True

    def token(self, user: str = "admin", password: str = _ADMIN) -> str:
        """Return a new token. Within one second, AuthN issues the same token again, so this waits for another one."""
        found: list[str] = []

        def is_new() -> bool:
            found[:] = [self._login(user, password)]
            return found[0] not in self._issued

        wait_until(is_new, "another token")
        self._issued.add(found[0])
        return found[0]

    def _login(self, user: str, password: str) -> str:
        answer = requests.post(f"{self._url}/v1/users/{user}", json={"password": password}, timeout=10)
        answer.raise_for_status()
        return answer.json()["token"]

    def register(self, cluster_url: str, *, alias: str = "tests") -> None:
        """Register the cluster with AuthN, which then sends it revoked tokens."""
        smap = self._as_admin("GET", f"{cluster_url}/v1/daemon?what=smap").json()
        cluster = {"id": smap["uuid"], "alias": alias, "urls": [cluster_url]}
        self._as_admin("POST", f"{self._url}/v1/clusters", json=cluster)

    def add_lister(self, user: str, password: str, cluster_url: str) -> None:
        """Add a user who may list buckets and read their properties, but not their objects."""
        smap = self._as_admin("GET", f"{cluster_url}/v1/daemon?what=smap").json()
        role = {"name": f"{user}-role", "desc": "", "clusters": [{"id": smap["uuid"], "perm": "768"}]}
        self._as_admin("POST", f"{self._url}/v1/roles", json=role)
        described = {"id": user, "pass": password, "roles": [{"name": role["name"]}]}
        self._as_admin("POST", f"{self._url}/v1/users", json=described)

    def revoke(self, token: str) -> None:
        self._as_admin("DELETE", f"{self._url}/v1/tokens", json={"token": token})

    def _as_admin(self, method: str, url: str, **options: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {self.admin}"}
        answer = requests.request(method, url, headers=headers, timeout=10, **options)
        assert answer.ok, f"{method} {url}: {answer.status_code} {answer.text[:300]}"
        return answer
