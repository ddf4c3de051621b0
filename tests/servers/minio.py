"""Run a real MinIO on 127.0.0.1."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Self

import obstore
import requests
from obstore.store import S3Store

from tests.servers.process import Process, answers, free_ports

__all__ = ["KEY", "REGION", "SECRET", "Minio"]

KEY = "shards-key"
SECRET = "shards-secret"
REGION = "us-east-1"


class Minio:
    def __init__(self, program: Path, folder: Path) -> None:
        (port, console) = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        command = [str(program), "server", "--quiet", "--address", f"127.0.0.1:{port}"]
        command += ["--console-address", f"127.0.0.1:{console}", str(folder / "data")]
        environment = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_BROWSER": "off"}
        self._process = Process(command, folder / "output.log", environment=environment)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables by which users of AWS tools configure access."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._process.wait_until(lambda: answers(f"{self.url}/minio/health/cluster"), "MinIO is ready")
            self._process.wait_until(self._writes, "MinIO makes a bucket")
        except BaseException:
            self._process.stop()
            raise
        return self

    def _writes(self) -> bool:
        """Create a bucket.

        The first request to a new MinIO may hang for a minute, so it is abandoned and repeated.
        """
        config = {"endpoint": self.url, "access_key_id": KEY, "secret_access_key": SECRET, "region": REGION}
        store = S3Store("ready", config=config, client_options={"allow_http": True})
        address = obstore.sign(store, "PUT", "", timedelta(minutes=1))
        try:
            return requests.put(address, timeout=3).status_code in (200, 409)
        except requests.RequestException:
            return False

    def __exit__(self, *_: object) -> None:
        self._process.stop()
