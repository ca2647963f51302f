"""Follow the list of name servers: read its source periodically, and use the last valid list during failures."""

from __future__ import annotations

import logging

from prometheus_client import CollectorRegistry, Counter, Gauge

from pointsman.clock import Clock
from pointsman_agent.config import MAX_NAME_SERVERS
from pointsman_agent.deadline import within
from pointsman_agent.name_servers import NameServerSource, NameServerSourceError
from pointsman_agent.observable import Observable
from pointsman_agent.single_call_thread import SingleCallThread

READ_TIMEOUT_SECONDS = 5.0
"""Deadline of one read. With a refresh every 10 s a change is known after at most 15 s."""

log = logging.getLogger(__name__)


class NameServerListMetrics:
    """Metrics of the name server list."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.listed = Gauge(
            "pointsman_agent_name_servers_listed", "Name servers in the last valid list.", registry=registry
        )
        self.reads = Counter(
            "pointsman_agent_name_server_list_reads_total",
            "Reads of the name server list, by result: ok, failed.",
            ["result"],
            registry=registry,
        )


class NameServerFollower:
    """Reads ``source`` into ``listed``, sorted and without duplicates, every ``refresh`` seconds."""

    def __init__(
        self,
        source: NameServerSource,
        listed: Observable[tuple[str, ...]],
        *,
        clock: Clock,
        refresh: float,
        metrics: NameServerListMetrics,
    ) -> None:
        self._source = source
        self._thread = SingleCallThread("name-server-list", busy=NameServerSourceError)
        self._listed = listed
        self._clock = clock
        self._refresh = refresh
        self._metrics = metrics
        self._problem = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            await self.read()
            await self._clock.sleep(self._refresh)

    async def read(self) -> None:
        """Read once. An unreadable or invalid list changes nothing and is logged once."""
        try:
            addrs = await within(self._clock, READ_TIMEOUT_SECONDS, self._thread.run(self._source.read))
            self._take(addrs)
        except NameServerSourceError as error:
            self._keep(str(error))
        except TimeoutError:
            self._keep(f"no response within {READ_TIMEOUT_SECONDS:g} s")

    def _take(self, addrs: tuple[str, ...]) -> None:
        # Sorted, because resolvers rotate their responses.
        new = tuple(sorted(set(addrs)))
        if not new:
            raise NameServerSourceError("the list is empty")
        if len(new) > MAX_NAME_SERVERS:
            raise NameServerSourceError(f"the list has {len(new)} name servers, at most {MAX_NAME_SERVERS} are allowed")
        self._metrics.reads.labels("ok").inc()
        self._metrics.listed.set(len(new))
        old, problem, self._problem = self._listed.value, self._problem, ""
        if problem or new != old:
            facts = {
                "name_servers": len(new),
                "added": sorted(set(new) - set(old)),
                "removed": sorted(set(old) - set(new)),
            }
            log.info("name server list changed", extra={"facts": facts})
        self._listed.set(new)

    def _keep(self, problem: str) -> None:
        self._metrics.reads.labels("failed").inc()
        if problem != self._problem:
            self._problem = problem
            facts = {"reason": problem, "kept": list(self._listed.value)}
            log.warning("name server list cannot be read; keeping the last valid list", extra={"facts": facts})
