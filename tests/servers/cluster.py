"""What fixtures hand out beside a server itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.servers.aistore import AIStore
from tests.servers.authn import AuthN

__all__ = ["AuthCluster", "Outside"]


@dataclass(frozen=True)
class Outside:
    """A server that somebody else started, for example by docker."""

    url: str
    environment: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class AuthCluster:
    """A cluster that wants tokens, and who gives them out."""

    service: AuthN
    cluster: AIStore

    @property
    def url(self) -> str:
        return self.cluster.url
