"""The daemon: joins core, servers and stores; starts and stops them."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from pointsman.clock import Clock, SystemClock
from pointsman.daemon.access.access import Access
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.daemon.monitoring import MonitoringServer
from pointsman.daemon.process.sd_notify import ServiceManager
from pointsman.daemon.tls.tls import load_certificates, open_context
from pointsman.names import join_addr, split_addr
from pointsman_namesrv.config import NameServerConfig
from pointsman_namesrv.core.events import Event, EventKind
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.model import NodeState
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.order_topics import order_problems
from pointsman_namesrv.core.staging import coming_in_bytes
from pointsman_namesrv.history import recorder_assembly
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.own_pauses import OwnPauses
from pointsman_namesrv.periodic_tasks import ALIVE_SECONDS, PeriodicTasks
from pointsman_namesrv.remoting.remoting_assembly import remoting_server
from pointsman_namesrv.remoting.remoting_server import RemotingServer
from pointsman_namesrv.rpc.admin import AdminServicer
from pointsman_namesrv.rpc.inspection import Node
from pointsman_namesrv.rpc.node_server import ADMIN_RULES, ROUTE_RULES, NodeServer, services_of
from pointsman_namesrv.rpc.registration import RegistrationServicer
from pointsman_namesrv.rpc.route_responses import RouteResponses
from pointsman_namesrv.rpc.routes import RouteServicer
from pointsman_namesrv.rpc.watch_hub import WatchHub
from pointsman_namesrv.settings.settings_keeper import SettingsKeeper
from pointsman_namesrv.settings.settings_store import SettingsStore, table_file
from pointsman_namesrv.snapshot.keeper import SnapshotKeeper
from pointsman_namesrv.snapshot.snapshot_store import SnapshotStore
from pointsman_namesrv.web.fleet_documents import Fleet
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


class NameServerApp:
    """One name server. Before :meth:`run` it only reads the token file. Raises ConfigError."""

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
        self._coming_in = FairBound(coming_in_bytes(config.routes.max_topics))
        unix_offset = self.clock.utc_now().timestamp() - self._started_at
        self._boot = secrets.randbits(64)
        self.responses = RouteResponses(
            self.core.routes,
            boot=self._boot,
            max_bytes=_cache_bytes(config),
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
        self._remoting: RemotingServer | None = None
        self._manager = manager or ServiceManager({}, clock=self.clock)
        self.server = NodeServer(
            self.lifecycle,
            longest_interval=config.liveness.max_heartbeat_interval_seconds,
            max_connections=config.server.max_connections,
            clock=self.clock,
            metrics=self.metrics,
            record=self.record,
            access=self.access,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then drain.

        Raises CannotListen or OSError when an address or a folder is not available.
        """
        async with AsyncExitStack() as steps:
            # Each step of the stop runs, the last one here first, even if an earlier one failed.
            steps.callback(self._record_stopped)
            monitoring = self._monitoring()
            steps.push_async_callback(asyncio.to_thread, monitoring.stop)
            host, _ = split_addr(self.config.server.listen)
            port = self.server.bind(self.config.server.listen, self._certificates)
            self.addr = join_addr(host, port)
            self._node = self.config.server.node or f"{socket.gethostname()}:{port}"
            self.recorder = recorder_assembly.recorder(
                self.config.history,
                node=self._node,
                boot_id=f"{self._boot:016x}",
                clock=self.clock,
                metrics=self.metrics,
            )
            self._keeper = self._snapshot_keeper()
            self._settings = self._settings_keeper()
            steps.push_async_callback(self._stop_history)
            steps.push_async_callback(self._stop_snapshot)
            steps.push_async_callback(self._stop_settings)
            steps.push_async_callback(self._stop_remoting)
            steps.push_async_callback(self._stop_serving)
            self.recorder.start()
            self._start_warm()
            monitoring.start()
            detail: dict[str, object] = {"version": self._version, "alive_seconds": ALIVE_SECONDS}
            self.record([Event(kind=EventKind.NAMESRV_STARTED, detail=detail)])
            self.hub = self._watch_hub()
            self._pauses = OwnPauses(self.core, clock=self.clock, metrics=self.metrics, record=self.record)
            self._periodic_tasks = self._make_periodic_tasks()
            await self._start_remoting()
            self._periodic_tasks.end_warm_up(self.clock.monotonic())
            await self._start_serving()
            state = self.lifecycle.state
            facts = {
                "addr": self.addr,
                "remoting": self.remoting_addr,
                "node": self._node,
                "metrics": self.monitoring_port,
                "state": state,
            }
            log.info("serving", extra={"facts": facts})
            self._send_status()
            # During the warm-up already: agents whose units are ordered after this one could not start otherwise.
            self._manager.ready()
            self.started.set()
            await self._until(stop)

    def record(self, events: Iterable[Event]) -> None:
        """Pass events to the history, its counters and the live penalties."""
        happened = tuple(events)
        self.recorder.record(happened)
        now = self.clock.monotonic()
        for event in happened:
            in_window = event.broker is not None and self.core.maintenance.covers(
                event.broker.identity.group_key, now=now
            )
            self.core.penalties.record(event, now=now, in_window=in_window)

    # --- stop -------------------------------------------------------------------------------------------------

    async def _stop_serving(self) -> None:
        self._manager.status("draining")
        self._manager.stopping()
        await self.server.stop(self.config.server.stop_grace_seconds)

    async def _stop_remoting(self) -> None:
        if self._remoting is not None:
            await self._remoting.stop()

    async def _stop_snapshot(self) -> None:
        if self._keeper is not None and not await self._keeper.stop(within=SNAPSHOT_STOP_SECONDS):
            problem = "; ".join(self._keeper.problems()) or "the disk did not respond in time"
            log.error(
                "snapshot could not be written at the stop; the next start has older registrations",
                extra={"facts": {"problem": problem}},
            )

    async def _stop_settings(self) -> None:
        if not await self._settings.stop(within=SETTINGS_STOP_SECONDS):
            problem = "; ".join(self._settings.problems()) or "the disk did not respond in time"
            log.error("operator settings could not be saved at the stop", extra={"facts": {"problem": problem}})

    async def _stop_history(self) -> None:
        now = self.clock.monotonic()
        for _, replica in self.core.members():
            self.record(self.core.close_heartbeats(replica, now=now))
        self.record([Event(kind=EventKind.NAMESRV_STOPPED)])
        if not await asyncio.to_thread(self.recorder.stop, timeout=HISTORY_STOP_SECONDS):
            log.error("history could not be written to its end; its last rows are lost")

    def _record_stopped(self) -> None:
        if self.started.is_set():
            log.info("stopped", extra={"facts": {"addr": self.addr}})

    # --- start ------------------------------------------------------------------------------------------------

    def _start_warm(self) -> None:
        loaded = None
        if self._keeper is not None:
            loaded = self._keeper.warm_start(before_brokers=self._settings.load)
        gc.freeze()  # loaded objects stay: the collector need not walk them
        gc.set_threshold(*COLLECTOR_THRESHOLDS)
        if loaded is not None:
            self.lifecycle.restored(len(loaded.brokers), complete=not loaded.refused)

    def _snapshot_keeper(self) -> SnapshotKeeper | None:
        snapshot = self.config.snapshot
        if not snapshot.enabled:
            return None
        store = SnapshotStore(
            Path(snapshot.directory),
            bounds=self.config.liveness.bounds(),
            max_topics=self.config.routes.max_topics_per_broker,
        )
        return SnapshotKeeper(
            self.core, store, interval=snapshot.interval_seconds, clock=self.clock, metrics=self.metrics
        )

    def _settings_keeper(self) -> SettingsKeeper:
        snapshot = self.config.snapshot
        store = SettingsStore(table_file(Path(snapshot.directory)), clock=self.clock) if snapshot.enabled else None
        return SettingsKeeper(
            self.core, store, interval=snapshot.interval_seconds, clock=self.clock, metrics=self.metrics
        )

    def _watch_hub(self) -> WatchHub:
        routes = self.config.routes
        return WatchHub(
            self.core.routes,
            self.responses,
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
            node=self._node,
            coalesce_seconds=routes.watch_coalesce_seconds,
            max_watchers=routes.max_watchers,
            max_watched=routes.max_watched_topics,
            max_topics=routes.max_topics_per_watch,
        )

    async def _start_remoting(self) -> None:
        """Serve RocketMQ's wire. Raises CannotListen."""
        if not self.config.remoting.listen:
            return
        self._remoting = remoting_server(
            self.config,
            self.core,
            self._settings,
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
            record=self.record,
            pauses=self._pauses,
            coming_in=self._coming_in,
            cache_bytes=_cache_bytes(self.config),
            certificates=self._certificates,
            access=self.access,
        )
        self.remoting_addr = self._remoting.bind(self.config.remoting.listen)
        await self._remoting.start()

    async def _start_serving(self) -> None:
        node = Node(
            name=self._node,
            version=self._version,
            boot=self._boot,
            started_at=self._started_at,
            config=self._running_config,
            lifecycle=self.lifecycle,
            sizes=self._sizes,
            problems=self._problems,
        )
        self._registration = RegistrationServicer(
            self.core,
            lifecycle=self.lifecycle,
            clock=self.clock,
            bounds=self.config.liveness.bounds(),
            max_topics=self.config.routes.max_topics_per_broker,
            max_streams=int(STREAMS_A_BROKER * self.config.routes.max_brokers),
            record=self.record,
            pauses=self._pauses,
            save_settings=self._settings.save,
            metrics=self.metrics,
            coming_in=self._coming_in,
        )
        route = RouteServicer(
            self.core, self.responses, self.hub, lifecycle=self.lifecycle, clock=self.clock, metrics=self.metrics
        )
        admin = AdminServicer(
            self.core,
            self.recorder.recent,
            self.hub,
            record=self.record,
            clock=self.clock,
            node=node,
            settings=self._settings,
        )
        await self.server.start(services_of(self._registration, route, admin))
        self._peers = PeerComparison(self.config.peers, admin, boot=self._boot, clock=self.clock, metrics=self.metrics)
        self._site.documents = documents_of(
            Fleet(
                core=self.core,
                recent=self.recorder.recent,
                admin=admin,
                routes=route,
                lifecycle=self.lifecycle,
                clock=self.clock,
                addr=self.addr,
                node=self._node,
            ),
            version=self._version,
            peers=self._peers.results,
            report_url=self.config.monitoring.report_url,
        )

    def _monitoring(self) -> MonitoringServer:
        self.metrics.build.info({"version": self._version})
        self.metrics.ready.set_function(self._is_ready)

        def health() -> tuple[bool, dict[str, object]]:
            return self._is_ready(), {"state": self.lifecycle.state, "node": self._node}

        listen, has_tls = self.config.monitoring.listen, self.config.monitoring.tls
        plaintext = self.config.tls.plaintext_beyond_loopback
        authorise = authorise_on(listen, self.access, has_tls=has_tls, plaintext_beyond_loopback=plaintext)
        self._site = StatusSite(authorise)
        monitoring = MonitoringServer(
            listen,
            registry=self.metrics.registry,
            health=health,
            tls=open_context(self._certificates, has_tls),
            site=self._site,
        )
        self.monitoring_port = monitoring.port
        return monitoring

    # --- while it serves --------------------------------------------------------------------------------------

    def _make_periodic_tasks(self) -> PeriodicTasks:
        return PeriodicTasks(
            self.core,
            self.recorder,
            record=self.record,
            pauses=self._pauses,
            lifecycle=self.lifecycle,
            clock=self.clock,
            metrics=self.metrics,
        )

    async def _until(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            work = [
                self._periodic_tasks.run(),
                self.hub.run(),
                self.server.follow(),
                self._settings.run(),
                self._manager.feed_watchdog(),
                self.access.follow(),
                self._report_status(),
                self._peers.run(),
            ]
            if self._keeper is not None:
                work.append(self._keeper.run())
            if self._certificates is not None:
                work.append(self._certificates.run())
            if self._remoting is not None:
                work.append(self._remoting.run())
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
        counts = f"{sum(confirmed)}/{len(confirmed)} brokers confirmed, {self.hub.count} watchers"
        self._manager.status(f"{self.lifecycle.state.lower()}, {counts}")

    def _sizes(self) -> dict[str, int]:
        sizes = {
            "watchers": self.hub.count,
            "watched_topics": self.hub.watched_count,
            "keep_alive_streams": self._registration.stream_count,
            "route_cache_bytes": self.responses.bytes,
        }
        if self._remoting is not None:
            sizes["remoting_connections"] = self._remoting.connection_count
        return self.metrics.totals() | sizes

    def _problems(self) -> list[str]:
        overdue = [f"the guard of cluster {cluster} is on for too long" for cluster in self.core.guard.overdue()]
        snapshot = self._keeper.problems() if self._keeper is not None else []
        orders = order_problems(self.core.routes, self.core.kv)
        settings = self._settings.problems()
        tls = self._certificates.problems() if self._certificates is not None else []
        return [*overdue, *orders, *self.recorder.problems(), *snapshot, *settings, *tls, *self.access.problems()]


def _cache_bytes(config: NameServerConfig) -> int:
    """Return the cache size of each wire: they hold different bytes, so two wires share the bound."""
    return config.routes.cache_bytes // (2 if config.remoting.listen else 1)
