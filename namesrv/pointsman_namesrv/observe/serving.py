"""What an observer serves to operators: pages over HTTP, and gRPC for ``pointsmanctl --namesrv observe://HOST:PORT``."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access
from pointsman.daemon.monitoring import MonitoringServer
from pointsman.daemon.tls.tls import load_certificates, open_context
from pointsman.names import OBSERVE_SCHEME, join_addr, split_addr
from pointsman.wire.refusals import NotReady
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.history.past_worker_link import PastWorkerLink
from pointsman_namesrv.node_metrics import Metrics, PastMetrics
from pointsman_namesrv.observe.observed_node import ObservedNode, ObserverServer
from pointsman_namesrv.observe.observed_server import ObservedServer
from pointsman_namesrv.observe.observed_servers import ObservedServers
from pointsman_namesrv.observe.observed_services import ObserverItself
from pointsman_namesrv.observe.observer_config import ObserverConfig
from pointsman_namesrv.observe.observer_pages import ObserverPages
from pointsman_namesrv.observe.whole_fleet import WholeFleet
from pointsman_namesrv.rpc.node_server import ADMIN_RULES, ROUTE_RULES
from pointsman_namesrv.web.status_site import OF_OBSERVERS, StatusSite
from pointsman_namesrv.web.web_assembly import authorise_on

STOP_SECONDS = 2.0
COUNT_SECONDS = 2.0
"""Between two counts of the fleet; of 10,000 brokers each takes some milliseconds."""

log = logging.getLogger(__name__)


class Serving:
    """The observed name servers as operators query them. Raises ConfigError for files that cannot be used."""

    def __init__(
        self,
        servers: ObservedServers,
        settings: ObserverConfig,
        *,
        version: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """``servers`` are followed as their list changes; ``metrics``: in which the recorders count rows."""
        observed, watched = servers.observed, servers.by_addr
        self._settings = settings
        self._servers = servers
        self._history = history = settings.history.as_history
        self._version = version
        self._certificates = load_certificates(
            settings.tls, prefix="pointsman_observe", registry=observed.registry, clock=clock
        )
        self.access = Access(
            settings.access,
            clock=clock,
            prefix="pointsman_observe",
            registry=observed.registry,
            shown_over_http={**ROUTE_RULES, **ADMIN_RULES},
        )
        self._clock = clock
        directory = Path(history.directory) if history.enabled else None
        self._past = PastWorkerLink(
            directory,
            node=list(watched),
            clock=clock,
            metrics=PastMetrics(metrics.registry),
            write_now=lambda: [server.hooks.write_now() for server in watched.values()],
        )
        self._metrics = metrics
        self._whole = WholeFleet(watched, now=clock.monotonic())
        self._nodes = {addr: self._node(server) for addr, server in watched.items()}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._server = ObserverServer(self._nodes, clock=clock, metrics=metrics, access=self.access)
        self._site = StatusSite(
            authorise_on(
                settings.monitoring.listen,
                self.access,
                has_tls=settings.monitoring.tls,
                plaintext_beyond_loopback=settings.tls.plaintext_beyond_loopback,
            ),
            OF_OBSERVERS,
        )
        self.port = 0
        """Of gRPC; 0: off."""
        self.monitoring_port = 0
        """0: off."""

    def _node(self, server: ObservedServer) -> ObservedNode:
        """Return what serves a name server, whose watches the whole fleet follows."""
        node = ObservedNode(
            server,
            history=self._history,
            version=self._version,
            clock=self._clock,
            metrics=self._metrics,
            past=self._past,
            listings=self._servers.listings,
        )
        clock, whole, hooks = self._clock, self._whole, node.server.hooks
        note, end_watches, addr = hooks.note, hooks.went_away, node.server.addr

        def took(event: Event, now: float) -> None:
            note(event, now)
            whole.took(event, now=now, at=clock.utc_now())

        async def went_away() -> None:
            whole.went_away(addr, now=clock.monotonic(), at=clock.utc_now())
            await end_watches()

        hooks.note, hooks.went_away = took, went_away
        node.follow_read_back(lambda: whole.read_back(now=clock.monotonic()))
        return node

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve during the block. Raises CannotListen."""
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._past.stop)
            await self._start_rpc(steps)
            await self._start_monitoring(steps)
            tasks = await steps.enter_async_context(asyncio.TaskGroup())
            work = [self.access.follow(), self._count()]
            if self.port:
                work.append(self._server.watch_over())
            if self._certificates is not None:
                work.append(self._certificates.run())
            for each in work:
                steps.callback(tasks.create_task(each).cancel)
            steps.callback(lambda: [task.cancel() for task in self._running.values()])
            self._running |= {addr: tasks.create_task(node.run()) for addr, node in self._nodes.items()}
            self._servers.on_added = partial(self._add, tasks)
            self._servers.on_removed = self._remove
            yield

    def _add(self, tasks: asyncio.TaskGroup, server: ObservedServer) -> None:
        """Serve one more name server."""
        node = self._nodes[server.addr] = self._node(server)
        self._past.read_nodes(self._nodes)
        self._server.add(node)
        self._running[server.addr] = tasks.create_task(node.run())

    async def _remove(self, addr: str) -> None:
        """Serve a name server no longer: the others decide alone which brokers are up."""
        node, running = self._nodes.pop(addr), self._running.pop(addr)
        if self._nodes:
            self._past.read_nodes(self._nodes)
        self._server.remove(addr)
        await node.hub.drain(NotReady(f"{addr} is observed no longer"))
        running.cancel()
        self._whole.went_away(addr, now=self._clock.monotonic(), at=self._clock.utc_now())

    async def _count(self) -> None:
        """Count the fleet for the metrics until cancelled."""
        while True:
            missing = {position for each in self._servers.listings.by_addr.values() for position in each.missing}
            self._servers.observed.fleet = self._whole.numbers(missing, now=self._clock.monotonic())
            await self._clock.sleep(COUNT_SECONDS)

    async def _start_rpc(self, steps: AsyncExitStack) -> None:
        if not self._settings.server.listen:
            return
        self.port = self._server.bind(self._settings.server.listen, self._certificates)
        itself = ObserverItself(self._nodes, node=f"{socket.gethostname()}:{self.port}", version=self._version)
        steps.push_async_callback(self._server.stop, STOP_SECONDS)
        await self._server.start(self._server.services_of(itself))
        log.info("serving queries about the observed name servers", extra={"facts": {"port": self.port}})

    async def _start_monitoring(self, steps: AsyncExitStack) -> None:
        listen = self._settings.monitoring.listen
        if not listen:
            return
        host, _ = split_addr(self._settings.server.listen or listen)
        pages = ObserverPages(
            self._whole,
            self._nodes,
            self._servers.listings,
            self._past,
            name=f"observer at {socket.gethostname()}",
            observe_addr=f"{OBSERVE_SCHEME}{join_addr(host, self.port)}" if self.port else "",
            version=self._version,
            clock=self._clock,
            metrics=self._metrics,
        )
        server = MonitoringServer(
            listen,
            registry=self._servers.observed.registry,
            health=self._health,
            tls=open_context(self._certificates, self._settings.monitoring.tls),
            site=self._site,
        )
        self._site.documents, self._site.past = pages.documents, pages.past
        self.monitoring_port = server.port
        steps.push_async_callback(asyncio.to_thread, server.stop)
        server.start()
        log.info("serving metrics and pages", extra={"facts": {"port": server.port}})

    def _health(self) -> tuple[bool, dict[str, object]]:
        watched = {addr: listing.brokers is not None for addr, listing in self._servers.listings.by_addr.items()}
        return any(watched.values()), {"watched": watched}
