"""What an observer serves to operators: pages over HTTP, and gRPC for ``pointsmanctl --namesrv observe://HOST:PORT``."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access
from pointsman.daemon.access.access_settings import AccessSettings
from pointsman.daemon.monitoring import MonitoringServer
from pointsman.daemon.tls.tls import load_certificates, open_context
from pointsman.daemon.tls.tls_settings import TlsConfig
from pointsman.names import OBSERVE_SCHEME, join_addr, split_addr
from pointsman.wire.refusals import NotReady
from pointsman_namesrv.config import HistoryConfig
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.history.past_worker_link import PastWorkerLink
from pointsman_namesrv.node_metrics import Metrics, PastMetrics
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observed_node import ObservedNode, ObserverServer
from pointsman_namesrv.observe.observed_server import ObservedServer
from pointsman_namesrv.observe.observed_services import ObserverItself
from pointsman_namesrv.observe.observer_metrics import ObserverMetrics
from pointsman_namesrv.observe.observer_pages import ObserverPages
from pointsman_namesrv.observe.whole_fleet import WholeFleet
from pointsman_namesrv.rpc.node_server import ADMIN_RULES, ROUTE_RULES
from pointsman_namesrv.web.status_site import OF_OBSERVERS, StatusSite
from pointsman_namesrv.web.web_assembly import authorise_on

STOP_SECONDS = 2.0
COUNT_SECONDS = 2.0
"""Between two counts of the fleet; of 10,000 brokers each takes some milliseconds."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """Where operators reach the observer, and who may."""

    listen: str = ""
    """gRPC address; empty: off."""
    monitoring_listen: str = ""
    """HTTP address of metrics, health and pages; empty: off."""
    monitoring_tls: bool = False
    access: AccessSettings = field(default_factory=AccessSettings)
    tls: TlsConfig = field(default_factory=TlsConfig)


class Serving:
    """The observed name servers as operators query them. Raises ConfigError for files that cannot be used."""

    def __init__(
        self,
        listings: Listings,
        settings: ServingSettings,
        *,
        collects_topics: bool,
        history: HistoryConfig,
        version: str,
        clock: Clock,
        metrics: Metrics,
        observed: ObserverMetrics,
    ) -> None:
        """``collects_topics``: whether the observers walk over the topics. Must be made in the event loop."""
        self._settings = settings
        self._listings = listings
        self._collects_topics = collects_topics
        self._history = history
        self._version = version
        self._clock = clock
        self._metrics = metrics
        self._observed = observed
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
        directory = Path(history.directory) if history.enabled else None
        self._past = PastWorkerLink(directory, node=[], clock=clock, metrics=PastMetrics(metrics.registry))
        self._servers: dict[str, ObservedServer] = {}
        self._whole = WholeFleet(self._servers, now=clock.monotonic())
        self._server = ObserverServer(clock=clock, metrics=metrics, access=self.access)
        self._site = StatusSite(
            authorise_on(
                settings.monitoring_listen,
                self.access,
                has_tls=settings.monitoring_tls,
                plaintext_beyond_loopback=settings.tls.plaintext_beyond_loopback,
            ),
            OF_OBSERVERS,
        )
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self.port = 0
        """Of gRPC; 0: off."""
        self.monitoring_port = 0
        """0: off."""

    def add(self, addr: str) -> ObservedNode:
        """Serve a name server; its observer must fill ``server`` of what this returns, and begin with its ``boot``."""
        now = self._clock.monotonic()
        server = self._servers[addr] = ObservedServer(addr, now=now, collects_topics=self._collects_topics)
        node = ObservedNode(
            server,
            history=self._history,
            boot=secrets.randbits(64),
            version=self._version,
            clock=self._clock,
            metrics=self._metrics,
            past=self._past,
            listings=self._listings,
        )
        self._follow(node)
        self._server.add(node)
        self._past.read(list(self._servers))
        if self._tasks is not None:
            self._running[addr] = self._tasks.create_task(node.run())
        return node

    async def remove(self, addr: str) -> None:
        """Serve a name server no longer."""
        node = self._server.remove(addr)
        if (task := self._running.pop(addr, None)) is not None:
            task.cancel()
        await node.hub.drain(NotReady(f"the observer no longer polls {addr}"))
        del self._servers[addr]
        self._whole.went_away(addr, now=self._clock.monotonic(), at=self._clock.utc_now())
        self._past.read(list(self._servers))

    def _follow(self, node: ObservedNode) -> None:
        """Let the whole fleet follow the watches of one name server."""
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

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve during the block. Raises CannotListen."""
        async with AsyncExitStack() as steps:
            steps.push_async_callback(self._past.stop)
            await self._start_rpc(steps)
            await self._start_monitoring(steps)
            self._tasks = await steps.enter_async_context(asyncio.TaskGroup())
            steps.callback(self._end)
            for addr, node in self._server.nodes.items():
                self._running[addr] = self._tasks.create_task(node.run())
            work = {"access": self.access.follow(), "count": self._count()}
            if self.port:
                work["gRPC"] = self._server.watch_over()
            if self._certificates is not None:
                work["certificates"] = self._certificates.run()
            self._running |= {name: self._tasks.create_task(each) for name, each in work.items()}
            yield

    def _end(self) -> None:
        self._tasks = None
        for task in self._running.values():
            task.cancel()

    async def _count(self) -> None:
        """Count the fleet for the metrics until cancelled."""
        while True:
            missing = {position for each in self._listings.by_addr.values() for position in each.missing}
            self._observed.fleet = self._whole.numbers(missing, now=self._clock.monotonic())
            await self._clock.sleep(COUNT_SECONDS)

    async def _start_rpc(self, steps: AsyncExitStack) -> None:
        if not self._settings.listen:
            return
        self.port = self._server.bind(self._settings.listen, self._certificates)
        node = f"{socket.gethostname()}:{self.port}"
        itself = ObserverItself(self._servers, node=node, version=self._version)
        steps.push_async_callback(self._server.stop, STOP_SECONDS)
        await self._server.start(self._server.services_of(itself))
        log.info("serving queries about the observed name servers", extra={"facts": {"port": self.port}})

    async def _start_monitoring(self, steps: AsyncExitStack) -> None:
        listen = self._settings.monitoring_listen
        if not listen:
            return
        host, _ = split_addr(self._settings.listen or listen)
        pages = ObserverPages(
            self._whole,
            self._server.nodes,
            self._listings,
            self._past,
            name=f"observer at {socket.gethostname()}",
            observe_addr=f"{OBSERVE_SCHEME}{join_addr(host, self.port)}" if self.port else "",
            version=self._version,
            clock=self._clock,
            metrics=self._metrics,
        )
        server = MonitoringServer(
            listen,
            registry=self._observed.registry,
            health=self._health,
            tls=open_context(self._certificates, self._settings.monitoring_tls),
            site=self._site,
        )
        self._site.documents, self._site.past = pages.documents, pages.past
        self.monitoring_port = server.port
        steps.push_async_callback(asyncio.to_thread, server.stop)
        server.start()
        log.info("serving metrics and pages", extra={"facts": {"port": server.port}})

    def _health(self) -> tuple[bool, dict[str, object]]:
        watched = {addr: listing.brokers is not None for addr, listing in self._listings.by_addr.items()}
        return any(watched.values()), {"watched": watched}
