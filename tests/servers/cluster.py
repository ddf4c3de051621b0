"""What fixtures hand out beside a server itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import requests

from tests.servers.aistore import AIStore
from tests.servers.authn import AuthN

__all__ = ["AuthCluster", "Outside"]


@dataclass(frozen=True)
class Outside:
    """A server that somebody else started, for example by docker."""

    url: str
    environment: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def target_urls(self) -> list[str]:
        """Of an AIStore."""
        smap = requests.get(f"{self.url}/v1/daemon?what=smap", timeout=10).json()
        return [target["public_net"]["direct_url"] for target in smap["tmap"].values()]


@dataclass(frozen=True)
class AuthCluster:
    """A cluster that wants tokens, and who gives them out."""

    service: AuthN
    cluster: AIStore

    @property
    def url(self) -> str:
        return self.cluster.url
