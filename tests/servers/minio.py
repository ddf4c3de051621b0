"""A real MinIO, on 127.0.0.1."""

from __future__ import annotations

from pathlib import Path
from typing import Self

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
        """As the users of AWS's own tools set it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }

    def __enter__(self) -> Self:
        self._process.start()
        try:
            self._process.wait_until(lambda: answers(f"{self.url}/minio/health/ready"), "MinIO is ready")
        except BaseException:
            self._process.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.stop()
