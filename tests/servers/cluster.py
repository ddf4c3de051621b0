"""Values of fixtures that stand for servers."""

from __future__ import annotations

from dataclasses import dataclass, field

import requests

from tests.servers.aistore import AIStore
from tests.servers.authn import AuthN

__all__ = ["AuthCluster", "ExternalServer"]


@dataclass(frozen=True)
class ExternalServer:
    """A server that was started outside of the tests, for example by Docker."""

    url: str
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def target_urls(self) -> list[str]:
        """The URLs of the targets, if the server is an AIStore."""
        smap = requests.get(f"{self.url}/v1/daemon?what=smap", timeout=10).json()
        return [target["public_net"]["direct_url"] for target in smap["tmap"].values()]


@dataclass(frozen=True)
class AuthCluster:
    """A cluster that requires tokens, and the AuthN server that issues them."""

    service: AuthN
    cluster: AIStore

    @property
    def url(self) -> str:
        return self.cluster.url
