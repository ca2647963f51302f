"""Joins what serves one observed name server: tables, routes, watches, the past; and the gRPC server of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import grpc

from pointsman.clock import Clock
from pointsman.daemon.access.access import Access
from pointsman.daemon.rpc.handler_table import HandlerTable
from pointsman.daemon.rpc.listeners import GRPCIO
from pointsman.daemon.rpc.rpc_server import RpcServer, Service
from pointsman.wire.refusals import NotReady
from pointsman_namesrv.config import HistoryConfig, RoutesConfig
from pointsman_namesrv.core.events import Event
from pointsman_namesrv.core.live_queues import LiveQueueReports
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.history.past_turns import Asker
from pointsman_namesrv.history.past_worker_link import PastWorkerLink
from pointsman_namesrv.history.startup_memory import StartupMemory
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.observe.listings import Listings
from pointsman_namesrv.observe.observed_server import Hooks, ObservedServer, ObservedUnreachable
from pointsman_namesrv.observe.observed_services import (
    UNKNOWN_HERE,
    ChosenHandlers,
    NotOfObserver,
    ObservedInspection,
    ObservedRoutes,
    ObserverItself,
    RefusingOthers,
)
from pointsman_namesrv.rpc.inspection import Node
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries
from pointsman_namesrv.rpc.node_server import (
    ADMIN,
    ADMIN_RULES,
    REGISTRATION,
    REGISTRATION_RULES,
    ROUTE,
    ROUTE_RULES,
    node_options,
)
from pointsman_namesrv.rpc.past_queries import PastQueries, PastQuestions
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.routes import RAW_METHODS
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.web.fleet_documents import Fleet

CACHE_BYTES = 16 * 1024 * 1024
"""Of the responses to route queries about one name server."""
MAX_CONNECTIONS = 100
WATCHERS = RoutesConfig(max_watchers=1_000, max_watched_topics=10_000)
"""Watches of operators, not of clients."""
LONGEST_SILENCE_SECONDS = 30.0


class _PastOfOne:
    """Asks the worker about one of the nodes whose files it reads."""

    def __init__(self, worker: PastWorkerLink, node: str) -> None:
        self._worker = worker
        self._node = node

    async def ask(self, question: Mapping[str, Any], asker: Asker) -> dict[str, Any]:
        return await self._worker.ask({**question, "node": self._node}, asker)


class ObservedNode:
    """One observed name server, as operators query it."""

    def __init__(
        self,
        server: ObservedServer,
        *,
        history: HistoryConfig,
        boot: int,
        version: str,
        clock: Clock,
        metrics: Metrics,
        past: PastWorkerLink,
        listings: Listings,
    ) -> None:
        """``boot``: of the first watch in the history. ``past`` and ``listings``: of all observed name servers."""
        self.server = server
        self.boot = boot
        self._listings = listings
        self._clock = clock
        self.memory = StartupMemory(
            server.brokers,
            server.recent,
            history,
            node=server.addr,
            boot_id=f"{boot:016x}",
            clock=clock,
            metrics=metrics,
        )
        started_at = clock.monotonic()
        responses = RouteResponses(
            server.brokers.routes,
            boot=boot,
            max_bytes=CACHE_BYTES,
            metrics=metrics,
            unix_offset=clock.utc_now().timestamp() - started_at,
        )
        self.hub = WatchHub(
            server.brokers.routes,
            responses,
            WATCHERS,
            lifecycle=server.lifecycle,
            clock=clock,
            metrics=metrics,
            node=server.addr,
        )
        self.live_queues = LiveQueueQueries(
            server.brokers, LiveQueueReports(), clock=clock, metrics=metrics, node=server.addr
        )
        node = Node(
            name=server.addr,
            version=version,
            boot=boot,
            started_at=started_at,
            configuration=lambda: "",
            has_history=lambda: history.enabled,
            lifecycle=server.lifecycle,
            sizes=self.memory.sizes,
            problems=self._problems,
            earlier_runs=lambda: self.memory.state,
        )
        self.admin = ObservedInspection(
            server,
            server.recent,
            self.hub,
            live_queues=self.live_queues,
            clock=clock,
            node=node,
            past=PastQueries(_PastOfOne(past, server.addr), PastQuestions(clock), clock=clock, node=server.addr),
        )
        self._read_back: Callable[[], None] = lambda: None
        self.routes = ObservedRoutes(server, responses, self.hub, clock=clock, metrics=metrics)
        self.fleet = Fleet(
            core=server.brokers,
            recent=server.recent,
            admin=self.admin,
            routes=self.routes,
            lifecycle=server.lifecycle,
            clock=clock,
            addr=server.addr,
            node=server.addr,
        )
        server.hooks = Hooks(self._note, self.memory.until_read, self._end_watches)

    def servicers(self) -> Mapping[str, object]:
        """Return the servicer of each service, by its full name."""
        addr = self.server.addr

        def refusal(method: str) -> NotOfObserver:
            return NotOfObserver(method, addr)

        return {
            ROUTE.full_name: self.routes,
            ADMIN.full_name: RefusingOthers(ADMIN, self.admin, refusal, without=UNKNOWN_HERE),
            REGISTRATION.full_name: RefusingOthers(REGISTRATION, object(), refusal),
        }

    async def run(self) -> None:
        """Read the history of earlier runs, and serve watches, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._remember())
            tasks.create_task(self.hub.run())

    def follow_read_back(self, call: Callable[[], None]) -> None:
        """Call ``call`` once the history of earlier runs is read."""
        self._read_back = call

    async def _remember(self) -> None:
        await self.memory.run(previous_boot_id="", in_snapshot={})
        self._read_back()

    def _problems(self) -> Sequence[str]:
        missing = self._listings.missing_at(self.server.addr, now=self._clock.monotonic())
        return [f"missing here: {each}" for each in missing]

    def _note(self, event: Event, now: float) -> None:
        self.memory.note(event, now=now, in_window=False)

    async def _end_watches(self) -> None:
        away = self.server.away(now=self._clock.monotonic())
        if away is not None:
            await self.hub.drain(ObservedUnreachable(self.server.addr, *away))


class ObserverServer(RpcServer):
    """Serves the queries of a name server for each observed one. Refuses what would change something."""

    def __init__(self, *, clock: Clock, metrics: Metrics, access: Access | None = None) -> None:
        # grpcio's own listener: it has the metadata before it looks for the handler.
        super().__init__(
            HandlerTable(clock=clock, metrics=metrics.calls, access=access),
            options=node_options(LONGEST_SILENCE_SECONDS, MAX_CONNECTIONS),
            limit_exceeded=LimitExceeded,
            stopping=NotReady("this observer is stopping"),
            access=access,
            listener=GRPCIO,
        )
        self.nodes: dict[str, ObservedNode] = {}
        """By address."""
        self._chosen: dict[str, ChosenHandlers] = {}
        """By the full name of the service, once it is served."""

    def add(self, node: ObservedNode) -> None:
        """Serve one more name server."""
        self.nodes[node.server.addr] = node
        for service in self.services:
            self._choose(service, node)

    def remove(self, addr: str) -> ObservedNode:
        """Serve a name server no longer."""
        for handlers in self._chosen.values():
            handlers.by_addr.pop(addr, None)
        return self.nodes.pop(addr)

    def services_of(self, itself: ObserverItself) -> Sequence[Service]:
        """Return the services; ``itself`` answers what names no observed name server."""
        return [
            Service(
                descriptor=service,
                servicer=RefusingOthers(service, itself, itself.refusal),
                raw=RAW_METHODS if service is ROUTE else frozenset(),
                rules=rules,
                drain=self._end_watches if service is ROUTE else None,
            )
            for service, rules in ((ROUTE, ROUTE_RULES), (ADMIN, ADMIN_RULES), (REGISTRATION, REGISTRATION_RULES))
        ]

    def handler_of(self, service: Service) -> grpc.GenericRpcHandler:
        """Build the handlers of a service at each observed name server."""
        chosen = self._chosen[service.descriptor.full_name] = ChosenHandlers(super().handler_of(service))
        for node in self.nodes.values():
            self._choose(service, node)
        return chosen

    def _choose(self, service: Service, node: ObservedNode) -> None:
        name = service.descriptor.full_name
        handler = super().handler_of(replace(service, servicer=node.servicers()[name]))
        self._chosen[name].by_addr[node.server.addr] = handler

    async def _end_watches(self) -> None:
        for node in self.nodes.values():
            await node.hub.drain(NotReady("this observer is stopping"))
