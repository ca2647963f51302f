"""The name servers of a list that changes: where they are registered at, and metrics of the list."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman_agent.observable import Observable


class ListedNameServers:
    """A :class:`~pointsman.name_servers.NameServerListUser` that sets ``listed``."""

    def __init__(self, listed: Observable[tuple[str, ...]], registry: CollectorRegistry) -> None:
        self._listed = listed
        self._count = Gauge(
            "pointsman_agent_name_servers_listed", "Name servers in the last valid list.", registry=registry
        )
        self._reads = Counter(
            "pointsman_agent_name_server_list_reads_total",
            "Reads of the name server list, by result: ok, failed.",
            ["result"],
            registry=registry,
        )

    @property
    def addrs(self) -> tuple[str, ...]:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        return self._listed.value

    async def use(self, addrs: tuple[str, ...]) -> None:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        self._count.set(len(addrs))
        self._listed.set(addrs)

    def on_read(self, problem: str) -> None:
        """See :class:`~pointsman.name_servers.NameServerListUser`."""
        self._reads.labels("failed" if problem else "ok").inc()
