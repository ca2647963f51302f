"""The daemon: joins core, servers and stores; starts and stops them."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from pointsman.clock import Clock, SystemClock
from pointsman.daemon.access.access import Access
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.daemon.http_server import HttpServer
from pointsman.daemon.monitoring import MonitoringServer
from pointsman.daemon.process.sd_notify import ServiceManager
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.daemon.tls.tls import load_certificates, open_context
from pointsman.names import join_addr, split_addr
from pointsman_namesrv.config import NameServerConfig
from pointsman_namesrv.core.administration import Administration
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.live_queues import LiveQueueReports
from pointsman_namesrv.core.model import NodeState, Position
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.order_topics import order_problems
from pointsman_namesrv.core.replica_state import Phase
from pointsman_namesrv.core.staging import coming_in_bytes
from pointsman_namesrv.history import recorder_assembly
from pointsman_namesrv.history.past_worker_link import PastWorkerLink
from pointsman_namesrv.history.recorder import Recorder
from pointsman_namesrv.history.startup_memory import StartupMemory
from pointsman_namesrv.node_metrics import Metrics, PastMetrics
from pointsman_namesrv.own_pauses import OwnPauses
from pointsman_namesrv.periodic_tasks import ALIVE_SECONDS, PeriodicTasks
from pointsman_namesrv.remoting.remoting_assembly import remoting_server
from pointsman_namesrv.remoting.remoting_server import RemotingServer
from pointsman_namesrv.rpc.admin import AdminServicer
from pointsman_namesrv.rpc.inspection import Node
from pointsman_namesrv.rpc.live_queue_queries import LiveQueueQueries
from pointsman_namesrv.rpc.node_server import ADMIN_RULES, ROUTE_RULES, NodeServer, services_of
from pointsman_namesrv.rpc.past_queries import PastQueries, PastQuestions
from pointsman_namesrv.rpc.registration import RegistrationServicer
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.routes import RouteServicer
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.settings.settings_keeper import SettingsKeeper
from pointsman_namesrv.settings.settings_store import SettingsStore, table_file
from pointsman_namesrv.snapshot.keeper import SnapshotKeeper
from pointsman_namesrv.snapshot.snapshot_codec import HistoryMark
from pointsman_namesrv.snapshot.snapshot_store import SnapshotStore
from pointsman_namesrv.web.address_server import address_lists
from pointsman_namesrv.web.fleet_documents import Fleet
from pointsman_namesrv.web.followed_list import FollowedList, followed_list
from pointsman_namesrv.web.loop_documents import LoopDocuments
from pointsman_namesrv.web.page_documents import PageSources
from pointsman_namesrv.web.past_source import PastSource
from pointsman_namesrv.web.peer_comparison import PeerComparison
from pointsman_namesrv.web.status_site import StatusSite
from pointsman_namesrv.web.web_assembly import authorise_on, documents_of

HISTORY_STOP_SECONDS = 10.0
SNAPSHOT_STOP_SECONDS = 10.0
SETTINGS_STOP_SECONDS = 5.0
STATUS_SECONDS = 5.0
STREAMS_A_BROKER = 1.25
"""A client that reconnects has two for a while."""
COLLECTOR_THRESHOLDS = (10_000, 10, 50)
"""Threshold of the garbage collector. Python's own is for programs with fewer objects in flight: without any collection
4 to 7 % more route queries were answered per CPU second."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What stores and serves the tables: built once the port, and with it the name of this node, is known."""

    node: str
    recorder: Recorder
    memory: StartupMemory
    past: PastWorkerLink
    snapshot: SnapshotKeeper | None
    """None: nothing is stored on disk."""
    settings: SettingsKeeper
    followed_list: FollowedList | None
    """None: operators set all lists of name servers."""
    pauses: OwnPauses
    periodic_tasks: PeriodicTasks
    hub: WatchHub
    registration: RegistrationServicer
    services: Sequence[Service]
    remoting: RemotingServer | None
    """None: RocketMQ's wire is off."""
    peers: PeerComparison
    documents: LoopDocuments
    past_pages: PastSource


class NameServerApp:
    """One name server. Before :meth:`run` it only reads the token file. Raises ConfigError."""

    parts: Parts
    """Set by :meth:`run` before anything is served."""

    def __init__(
        self,
        config: NameServerConfig,
        *,
        version: str,
        clock: Clock | None = None,
        manager: ServiceManager | None = None,
        running: Callable[[], NameServerConfig] | None = None,
    ) -> None:
        """``running`` returns the configuration with its reloads, for operators; by default there are none.

        Raises ConfigError for certificates that cannot be used.
        """
        self.config = config
        self._running_config = running or (lambda: config)
        self.clock = clock or SystemClock()
        self.started = asyncio.Event()
        """Set once it serves; then :attr:`addr` and :attr:`monitoring_port` have values."""
        self.addr = ""
        self.remoting_addr = ""
        """Address of RocketMQ's wire; empty: off."""
        self.monitoring_port = 0
        self.address_server_port = 0
        """0: off."""
        self.metrics = Metrics()
        self._certificates = load_certificates(
            config.tls, prefix="pointsman_namesrv", registry=self.metrics.registry, clock=self.clock
        )
        self._started_at = self.clock.monotonic()
        self.lifecycle = NodeLifecycle(started_at=self._started_at, warm_up_seconds=config.server.warm_up_seconds)
        self.core = NameServer(
            rules=config.liveness.rules(),
            guard_rules=config.guard.rules(),
            first_generation=secrets.randbits(64),
            started_at=self._started_at,
            lifecycle=self.lifecycle,
            max_brokers=config.routes.max_brokers,
            max_topics=config.routes.max_topics,
            every_heartbeat=config.history.every_heartbeat,
            remember_seconds=config.routes.remember_hours * 3_600.0,
        )
        unix_offset = self.clock.utc_now().timestamp() - self._started_at
        self._boot = secrets.randbits(64)
        self.live_queues = LiveQueueReports()
        self.responses = RouteResponses(
            self.core.routes,
            boot=self._boot,
            max_bytes=config.cache_bytes_of_each_wire,
            metrics=self.metrics,
            unix_offset=unix_offset,
        )
        self._version = version
        self.access = Access(
            config.access,
            clock=self.clock,
            prefix="pointsman_namesrv",
            registry=self.metrics.registry,
            shown_over_http={**ROUTE_RULES, **ADMIN_RULES},
        )
        self._manager = manager or ServiceManager({}, clock=self.clock)
        self.server = NodeServer(
            self.lifecycle,
            longest_interval=config.liveness.max_heartbeat_interval_seconds,
            max_connections=config.server.max_connections,
            clock=self.clock,
            metrics=self.metrics,
            record=self.record,
            access=self.access,
            listener=config.server.listener,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then drain.

        Raises CannotListen or OSError when an address or a folder is not available.
        """
        async with AsyncExitStack() as steps:
            # Each step of the stop runs, the last one here first, even if an earlier one failed.
            steps.callback(self._record_stopped)
            monitoring, site = self._monitoring()
            self.monitoring_port = monitoring.port
            steps.push_async_callback(asyncio.to_thread, monitoring.stop)
            lists = self._address_server()
            if lists is not None:
                self.address_server_port = lists.port
                steps.push_async_callback(asyncio.to_thread, lists.stop)
            host, _ = split_addr(self.config.server.listen)
            port = self.server.bind(self.config.server.listen, self._certificates)
            self.addr = join_addr(host, port)
            self.parts = parts = self._assemble(port)
            # gRPC stops first, although its port is bound before the rest: the node is named after it.
            steps.push_async_callback(self._stop_history)
            steps.push_async_callback(parts.past.stop)
            steps.push_async_callback(self._stop_snapshot)
            steps.push_async_callback(self._stop_settings)
            if parts.remoting is not None:
                steps.push_async_callback(parts.remoting.stop)
            steps.push_async_callback(self._stop_serving)

            parts.recorder.start()
            marks = self._start_warm()
            monitoring.start()
            if lists is not None:
                lists.start()  # with the lists of the last run
            detail: dict[str, object] = {"version": self._version, "alive_seconds": ALIVE_SECONDS}
            if previous := parts.recorder.previous_boot_id:
                detail["previous_boot_id"] = previous
            self.record([Event(kind=EventKind.NAMESRV_STARTED, detail=detail)])
            if parts.remoting is not None and self.config.shares_port:
                self.remoting_addr = self.addr
                self.server.share_port(parts.remoting)
            elif parts.remoting is not None:
                self.remoting_addr = parts.remoting.bind(self.config.remoting.listen)
                await parts.remoting.start()
            parts.periodic_tasks.end_warm_up(self.clock.monotonic())
            await self.server.start(parts.services)
            site.documents, site.past = parts.documents, parts.past_pages
            self._report_started()
            await self._until(stop, marks)

    def record(self, events: Iterable[Event]) -> None:
        """Pass events to the history, its counters and the live penalties."""
        happened = tuple(events)
        self.parts.recorder.record(happened)
        now = self.clock.monotonic()
        for event in happened:
            in_window = event.broker is not None and self.core.maintenance.covers(
                event.broker.identity.group_key, now=now
            )
            self.core.penalties.record(event, now=now, in_window=in_window)
            self.parts.memory.note(event, now=now, in_window=in_window)
            if event.broker is not None and event.broker.state.phase is Phase.GONE:
                self.live_queues.forget(event.broker.identity.position)

    # --- stop -------------------------------------------------------------------------------------------------

    async def _stop_serving(self) -> None:
        self._manager.status("draining")
        self._manager.stopping()
        await self.server.stop(self.config.server.stop_grace_seconds)

    async def _stop_snapshot(self) -> None:
        keeper = self.parts.snapshot
        if keeper is not None and not await keeper.stop(within=SNAPSHOT_STOP_SECONDS):
            problem = "; ".join(keeper.problems()) or "the disk did not respond in time"
            log.error(
                "snapshot could not be written at the stop; the next start has older registrations",
                extra={"facts": {"problem": problem}},
            )

    async def _stop_settings(self) -> None:
        settings = self.parts.settings
        if not await settings.stop(within=SETTINGS_STOP_SECONDS):
            problem = "; ".join(settings.problems()) or "the disk did not respond in time"
            log.error("operator settings could not be saved at the stop", extra={"facts": {"problem": problem}})

    async def _stop_history(self) -> None:
        now = self.clock.monotonic()
        for _, replica in self.core.members():
            self.record(self.core.close_heartbeats(replica, now=now))
        self.record([Event(kind=EventKind.NAMESRV_STOPPED)])
        if not await asyncio.to_thread(self.parts.recorder.stop, timeout=HISTORY_STOP_SECONDS):
            log.error("history could not be written to its end; its last rows are lost")

    def _record_stopped(self) -> None:
        if self.started.is_set():
            log.info("stopped", extra={"facts": {"addr": self.addr}})

    # --- start ------------------------------------------------------------------------------------------------

    def _start_warm(self) -> Mapping[Position, HistoryMark]:
        """Restore the snapshot; return of each of its brokers how much of the history it contains."""
        loaded = None
        if self.parts.snapshot is not None:
            loaded = self.parts.snapshot.warm_start(before_brokers=self.parts.settings.load)
        self.parts.pauses.expect(self.clock.monotonic())  # loading is not a pause
        gc.freeze()  # loaded objects stay: the collector need not walk them
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        if loaded is not None:
            self.lifecycle.restored(len(loaded.brokers), complete=not loaded.refused)
        return {} if loaded is None else loaded.marks

    def _report_started(self) -> None:
        facts: dict[str, object] = {"addr": self.addr, "remoting": self.remoting_addr, "node": self.parts.node}
        facts |= {
            "metrics": self.monitoring_port,
            "address_server": self.address_server_port,
            "state": self.lifecycle.state,
        }
        log.info("serving", extra={"facts": facts})
        self._send_status()
        # During the warm-up already: agents whose units are ordered after this one could not start otherwise.
        self._manager.ready()
        self.started.set()

    # --- while it serves --------------------------------------------------------------------------------------

    async def _until(self, stop: asyncio.Event, marks: Mapping[Position, HistoryMark]) -> None:
        parts = self.parts
        async with asyncio.TaskGroup() as tasks:
            work = [
                parts.periodic_tasks.run(),
                parts.hub.run(),
                self.server.follow(),
                self.server.watch_over(),
                parts.settings.run(),
                self._manager.feed_watchdog(),
                self.access.follow(),
                self._report_status(),
                parts.peers.run(),
                parts.memory.run(previous_boot_id=parts.recorder.previous_boot_id, in_snapshot=marks),
                parts.past.run(parts.memory.until_read),
            ]
            if parts.snapshot is not None:
                work.append(parts.snapshot.run())
            if parts.followed_list is not None:
                work.append(parts.followed_list.run())
            if self._certificates is not None:
                work.append(self._certificates.run())
            if parts.remoting is not None:
                work.append(parts.remoting.run())
            running = [tasks.create_task(task) for task in work]
            await stop.wait()
            for task in running:
                task.cancel()

    def _is_ready(self) -> bool:
        return self.started.is_set() and self.lifecycle.state is NodeState.READY

    async def _report_status(self) -> None:
        while True:
            await self.clock.sleep(STATUS_SECONDS)
            self._send_status()

    def _send_status(self) -> None:
        confirmed = [not replica.is_provisional for _, replica in self.core.members()]
        counts = f"{sum(confirmed)}/{len(confirmed)} brokers confirmed, {self.parts.hub.count} watchers"
        self._manager.status(f"{self.lifecycle.state.lower()}, {counts}")

    def _sizes(self) -> dict[str, int]:
        parts = self.parts
        sizes = {
            "watchers": parts.hub.count,
            "watched_topics": parts.hub.watched_count,
            "keep_alive_streams": parts.registration.stream_count,
            "route_cache_bytes": self.responses.bytes,
            "live_queue_bytes": self.live_queues.size,
        }
        if parts.remoting is not None:
            sizes["remoting_connections"] = parts.remoting.connection_count
        return self.metrics.totals() | sizes | parts.memory.sizes()

    def _problems(self) -> list[str]:
        overdue = [f"the guard of cluster {cluster} is on for too long" for cluster in self.core.guard.overdue()]
        snapshot = self.parts.snapshot.problems() if self.parts.snapshot is not None else []
        orders = order_problems(self.core.routes, self.core.kv)
        history = [*self.parts.recorder.problems(), *self.parts.memory.problems()]
        stored = [*history, *snapshot, *self.parts.settings.problems()]
        tls = self._certificates.problems() if self._certificates is not None else []
        lists = self.parts.followed_list.problems() if self.parts.followed_list is not None else []
        return [*overdue, *orders, *stored, *lists, *tls, *self.access.problems()]

    # --- parts ------------------------------------------------------------------------------------------------

    def _monitoring(self) -> tuple[MonitoringServer, StatusSite]:
        self.metrics.build.info({"version": self._version})
        self.metrics.ready.set_function(self._is_ready)

        def health() -> tuple[bool, dict[str, object]]:
            return self._is_ready(), {"state": self.lifecycle.state, "node": self.parts.node}

        listen, has_tls = self.config.monitoring.listen, self.config.monitoring.tls
        plaintext = self.config.tls.plaintext_beyond_loopback
        site = StatusSite(authorise_on(listen, self.access, has_tls=has_tls, plaintext_beyond_loopback=plaintext))
        tls = open_context(self._certificates, has_tls)
        return MonitoringServer(listen, registry=self.metrics.registry, health=health, tls=tls, site=site), site

    def _address_server(self) -> HttpServer | None:
        listen, has_tls = self.config.address_server.listen, self.config.address_server.tls
        if not listen:
            return None
        answer = address_lists(self.core.kv, self.metrics.registry)
        return HttpServer(listen, answer, what="lists of name servers", tls=open_context(self._certificates, has_tls))

    def _assemble(self, port: int) -> Parts:
        """Build the parts of a node that listens on this port; nothing is opened."""
        config, core, clock, metrics = self.config, self.core, self.clock, self.metrics
        lifecycle, record = self.lifecycle, self.record
        node, boot_id = config.server.node or f"{socket.gethostname()}:{port}", f"{self._boot:016x}"
        recorder = recorder_assembly.recorder(config.history, node=node, boot_id=boot_id, clock=clock, metrics=metrics)
        memory = StartupMemory(
            core, recorder.recent, config.history, node=node, boot_id=boot_id, clock=clock, metrics=metrics
        )
        settings = self._settings_keeper()
        pauses = OwnPauses(core, clock=clock, metrics=metrics, record=record)
        hub = WatchHub(
            core.routes,
            self.responses,
            config.routes.on(config.server.listener),
            lifecycle=lifecycle,
            clock=clock,
            metrics=metrics,
            node=node,
        )
        coming_in = FairBound(coming_in_bytes(config.routes.max_topics))
        registration = RegistrationServicer(
            core,
            lifecycle=lifecycle,
            clock=clock,
            bounds=config.liveness.bounds(),
            max_topics=config.routes.max_topics_per_broker,
            max_streams=int(STREAMS_A_BROKER * config.routes.max_brokers),
            record=record,
            pauses=pauses,
            save_settings=settings.save,
            metrics=metrics,
            live_queues=self.live_queues,
            coming_in=coming_in,
        )
        routes = RouteServicer(core, self.responses, hub, lifecycle=lifecycle, clock=clock, metrics=metrics)
        history = Path(config.history.directory) if config.history.enabled else None
        past = PastWorkerLink(history, node=node, clock=clock, metrics=PastMetrics(metrics.registry))
        questions = PastQuestions(clock)
        live_queues = LiveQueueQueries(core, self.live_queues, clock=clock, metrics=metrics, node=node)
        admin = AdminServicer(
            core,
            recorder.recent,
            hub,
            live_queues=live_queues,
            record=record,
            clock=clock,
            node=self._shown(node),
            settings=settings,
            administration=Administration(
                core, hidden_namespaces=config.history.hide_kv, followed_list=config.address_server.follows
            ),
            past=PastQueries(past, questions, clock=clock, node=node),
        )
        peers = PeerComparison(config.peers, admin, core=core, boot=self._boot, clock=clock, metrics=metrics)
        fleet = Fleet(
            core=core,
            recent=recorder.recent,
            admin=admin,
            routes=routes,
            lifecycle=lifecycle,
            clock=clock,
            addr=self.addr,
            node=node,
        )
        remoting = self._remoting(settings, pauses, coming_in)
        sources = PageSources(
            fleet=fleet,
            live=live_queues,
            hub=hub,
            stream_count=lambda: registration.stream_count,
            rocketmq=None if remoting is None else remoting.clients,
            version=self._version,
            peers=peers.results,
            report_url=config.monitoring.report_url,
            broker_url=config.monitoring.broker_url,
            runbook_url=config.monitoring.runbook_url,
        )
        return Parts(
            node=node,
            recorder=recorder,
            memory=memory,
            past=past,
            snapshot=self._snapshot_keeper(lambda: HistoryMark(self._boot, recorder.last_seq)),
            settings=settings,
            followed_list=followed_list(config, core, settings, record=record, registry=metrics.registry, clock=clock),
            pauses=pauses,
            periodic_tasks=PeriodicTasks(
                core,
                recorder,
                record=record,
                pauses=pauses,
                lifecycle=lifecycle,
                clock=clock,
                metrics=metrics,
                settle=registration.calls.settle,
                until_read=memory.until_read,
            ),
            hub=hub,
            registration=registration,
            services=services_of(registration, routes, admin),
            remoting=remoting,
            peers=peers,
            documents=documents_of(sources),
            past_pages=PastSource(past.ask, questions, sources.node),
        )

    def _snapshot_keeper(self, last_row: Callable[[], HistoryMark]) -> SnapshotKeeper | None:
        config = self.config
        if not config.snapshot.enabled:
            return None
        store = SnapshotStore(
            Path(config.snapshot.directory),
            bounds=config.liveness.bounds(),
            max_topics=config.routes.max_topics_per_broker,
        )
        interval = config.snapshot.interval_seconds
        return SnapshotKeeper(
            self.core, store, interval=interval, clock=self.clock, metrics=self.metrics, last_row=last_row
        )

    def _settings_keeper(self) -> SettingsKeeper:
        snapshot, clock = self.config.snapshot, self.clock
        store = SettingsStore(table_file(Path(snapshot.directory)), clock=clock) if snapshot.enabled else None
        return SettingsKeeper(self.core, store, interval=snapshot.interval_seconds, clock=clock, metrics=self.metrics)

    def _remoting(self, settings: SettingsKeeper, pauses: OwnPauses, coming_in: FairBound) -> RemotingServer | None:
        if not self.config.remoting.listen:
            return None
        return remoting_server(
            self.config,
            self.core,
            settings,
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
            record=self.record,
            pauses=pauses,
            coming_in=coming_in,
            certificates=self._certificates,
            access=self.access,
        )

    def _shown(self, node: str) -> Node:
        return Node(
            name=node,
            version=self._version,
            boot=self._boot,
            started_at=self._started_at,
            config=self._running_config,
            lifecycle=self.lifecycle,
            sizes=self._sizes,
            problems=self._problems,
            earlier_runs=lambda: self.parts.memory.state,
        )
