"""The daemon: joins core and shells, runs the sweep, and knows how to start and stop."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections import Counter
from pathlib import Path

from namesrv.config import NameServerConfig
from namesrv.core.events import Event, EventKind
from namesrv.core.model import NodeState
from namesrv.core.name_server import NameServer
from namesrv.history.files import HistoryFiles
from namesrv.history.recorder import Recorder
from namesrv.metrics import Metrics
from namesrv.rpc.admin import AdminServicer
from namesrv.rpc.calls import Calls
from namesrv.rpc.registration import RegistrationServicer
from namesrv.rpc.route_answers import RouteAnswers
from namesrv.rpc.routes import RouteServicer
from namesrv.rpc.server import Server, Servicers
from pointsman.service.clock import Clock, SystemClock
from pointsman.service.monitoring import MonitoringServer
from pointsman.wire.names import join_addr, split_addr

ALIVE_SECONDS = 60.0
STEP_SECONDS = 0.5
HISTORY_STOP_SECONDS = 10.0

log = logging.getLogger(__name__)


class NameServerApp:
    """One name server. Nothing is opened before :meth:`run`."""

    def __init__(self, config: NameServerConfig, *, version: str, clock: Clock | None = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.started = asyncio.Event()
        """Set once it serves; then :attr:`addr` and :attr:`monitoring_port` are known."""
        self.addr = ""
        self.monitoring_port = 0
        self.metrics = Metrics()
        self.core = NameServer(
            rules=config.liveness.rules(), first_generation=secrets.randbits(64), started_at=self.clock.monotonic()
        )
        boot = secrets.randbits(64)
        self.answers = RouteAnswers(
            self.core.routes, boot=boot, max_bytes=config.routes.cache_bytes, metrics=self.metrics
        )
        self._version = version
        self._boot_id = f"{boot:016x}"

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set, then drain.

        Raises CannotListen or OSError when an address or the history's folder is not to be had.
        """
        server = Server()
        host, _ = split_addr(self.config.server.listen)
        port = server.bind(self.config.server.listen)
        self.addr = join_addr(host, port)
        node = self.config.server.node or f"{socket.gethostname()}:{port}"
        self.recorder = self._recorder(node)
        calls = Calls(clock=self.clock, metrics=self.metrics, record=self.recorder.record)
        monitoring = self._monitoring(calls, node)
        try:
            self.recorder.start()
            monitoring.start()
            self.recorder.record([Event(kind=EventKind.NAMESRV_STARTED, detail={"version": self._version})])
            await server.start(self._servicers(node), calls)
            self.recorder.record([Event(kind=EventKind.NAMESRV_READY)])
            self.metrics.ready.set(1)
            log.info("serving", extra={"facts": {"addr": self.addr, "node": node, "metrics": self.monitoring_port}})
            self.started.set()
            await self._until(stop, calls)
        finally:
            self.metrics.ready.set(0)
            await server.stop(self.config.server.stop_grace_seconds)
            self.recorder.record([Event(kind=EventKind.NAMESRV_STOPPED)])
            if not await asyncio.to_thread(self.recorder.stop, timeout=HISTORY_STOP_SECONDS):
                log.error("the history could not be written to its end")
            await asyncio.to_thread(monitoring.stop)
            log.info("stopped", extra={"facts": {"addr": self.addr}})

    def _recorder(self, node: str) -> Recorder:
        history = self.config.history
        files = HistoryFiles(Path(history.directory), node=node, boot_id=self._boot_id) if history.enabled else None
        return Recorder(
            files,
            node=node,
            boot_id=self._boot_id,
            clock=self.clock,
            metrics=self.metrics,
            queue_rows=history.queue_rows,
        )

    def _servicers(self, node: str) -> Servicers:
        return Servicers(
            RegistrationServicer(
                self.core,
                clock=self.clock,
                bounds=self.config.liveness.bounds(),
                max_topics=self.config.routes.max_topics_per_broker,
                record=self.recorder.record,
                metrics=self.metrics,
            ),
            RouteServicer(self.core, self.answers),
            AdminServicer(self.core, self.recorder, clock=self.clock, node=node),
        )

    def _monitoring(self, calls: Calls, node: str) -> MonitoringServer:
        self.metrics.build.info({"version": self._version})

        def health() -> tuple[bool, dict[str, object]]:
            return self.started.is_set() and calls.state is NodeState.READY, {"state": calls.state, "node": node}

        monitoring = MonitoringServer(self.config.monitoring.listen, registry=self.metrics.registry, health=health)
        self.monitoring_port = monitoring.port
        return monitoring

    async def _until(self, stop: asyncio.Event, calls: Calls) -> None:
        async with asyncio.TaskGroup() as tasks:
            loops = [tasks.create_task(self._sweep()), tasks.create_task(self._tell_alive(calls))]
            await stop.wait()
            for loop in loops:
                loop.cancel()

    async def _sweep(self) -> None:
        swept_at = self.clock.monotonic()
        while True:
            # In steps, for whoever registers meanwhile may have declared a shorter expiry.
            due = swept_at + self.core.sweep_interval() - self.clock.monotonic()
            if due > 0:
                await self.clock.sleep(min(due, STEP_SECONDS))
                continue
            started = swept_at = self.clock.monotonic()
            self.recorder.record(self.core.sweep(now=started))
            self.metrics.sweep_seconds.observe(self.clock.monotonic() - started)
            self.metrics.show_brokers(self.core.members())
            self.metrics.topics.set(len(self.core.routes.topics))

    async def _tell_alive(self, calls: Calls) -> None:
        while True:
            await self.clock.sleep(ALIVE_SECONDS)
            states = Counter(replica.state.value for _, replica in self.core.members())
            detail: dict[str, object] = {
                "state": calls.state.value,
                "brokers": dict(states),
                "rows_dropped": self.recorder.dropped,
            }
            self.recorder.record([Event(kind=EventKind.NAMESRV_ALIVE, detail=detail)])
