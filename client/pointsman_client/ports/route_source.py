"""What the client needs of name servers, of either kind."""

from __future__ import annotations

from typing import Protocol

from pointsman_client.core.route import ClusterData, TopicRoute


class RouteSource(Protocol):
    """Name servers of one kind, each queried by its address; ``seconds`` is the timeout of the complete query.

    Every query raises :class:`NameServerFailedError`, and :class:`RequestRejectedError` when another name server would
    respond the same.
    """

    async def query_route(
        self,
        addr: str,
        topic: str,
        seconds: float,
        *,
        cluster: str = "",
        zone: str = "",
        known: TopicRoute | None = None,
    ) -> TopicRoute:
        """Query a route; ``known`` is the cached one. Raises :class:`TopicNotFoundError`."""
        ...

    async def query_topics(self, addr: str, seconds: float, *, cluster: str) -> tuple[str, ...]:
        """Query all topic names, or those of one cluster, sorted. Raises :class:`ClusterNotFoundError`."""
        ...

    async def query_clusters(self, addr: str, seconds: float, *, cluster: str) -> tuple[ClusterData, ...]:
        """Query the clusters, or one, with their replica groups. Raises :class:`ClusterNotFoundError`."""
        ...

    async def ping(self, addr: str, seconds: float) -> None:
        """Send a minimal query; returns when the server responds."""
        ...

    async def release(self, addr: str, *, timeout_seconds: float) -> None:
        """Close the connection to a server that is no longer listed; a later query opens a new one."""
        ...

    async def close(self, *, timeout_seconds: float) -> None:
        """End all queries and close all connections."""
        ...


class RouteWatcher(Protocol):
    """Receives changes of routes from the name server in use."""

    @property
    def watched(self) -> frozenset[str]:
        """Topics whose state was received and whose changes the name server pushes."""
        ...

    def topics_changed(self) -> None:
        """Re-read the topics to watch."""
        ...

    async def run(self) -> None:
        """Watch until cancelled; errors of name servers are handled, not raised."""
        ...
