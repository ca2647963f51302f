"""The agent put together: what runs, in which order it starts, and how it stops.

Start: topics, monitoring, a first look at the broker (bounded), then one registration loop for each name server.
Stop: look at the broker once more, tell every name server in parallel what that means, end everything; bounded.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from dataclasses import replace

from broker_agent.config import AgentConfig
from broker_agent.core.own_state import Leave, OwnState, decide_leave
from broker_agent.core.probe_verdict import ProbeResult, Verdict, VerdictKeeper
from broker_agent.core.session import Standing
from broker_agent.deadline import within
from broker_agent.metrics import AgentMetrics
from broker_agent.probe import Probe
from broker_agent.probe.prober import Prober
from broker_agent.probe.tcp import TcpProbe
from broker_agent.registration.loop import RegistrationLoop, Timeouts
from broker_agent.registration.message import BrokerProfile
from broker_agent.topic_source import TopicSource
from broker_agent.topic_source.toml import TomlTopicSource
from broker_agent.watched import Watched
from pointsman.service.clock import Clock
from pointsman.service.monitoring import MonitoringServer
from pointsman.wire.names import join_addr, split_addr

LAST_LOOK_SHARE = 0.5
"""Of the time to stop; the rest belongs to the leaves."""

log = logging.getLogger(__name__)


def build_probe(config: AgentConfig) -> Probe | None:
    """Build the configured probe. Raises ProbeNotInstalledError."""
    probe = config.probe
    target = probe.target or config.broker.addr
    if probe.kind == "tcp":
        return TcpProbe(target)
    if probe.kind == "redis":
        from broker_agent.probe.redis import RedisProbe  # noqa: PLC0415  # needs the extra `redis`

        return RedisProbe(target, username=probe.username, password=probe.password)
    return None


class Agent:
    """One broker's agent. ``draw(a, b)`` is ``random.uniform`` in production."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        probe: Probe | None,
        clock: Clock,
        version: str,
        topic_source: TopicSource | None = None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._config = config
        self._clock = clock
        self._version = version
        self._topic_source = topic_source or TomlTopicSource(config)
        self._draw = draw
        self.metrics = AgentMetrics(version=version)
        self._prober = self._build_prober(probe) if probe is not None else None
        self._own: Watched[OwnState] | None = None
        self._loops: list[RegistrationLoop] = []

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set and the leave is said. Raises CannotListen."""
        own = OwnState(self._config.broker.id, await self._topic_source.read())
        self._own = Watched(own)
        self.metrics.set_own_state(own)
        self._loops = [self._build_loop(addr, self._own) for addr in self._config.name_servers.addrs]
        monitoring = self._start_monitoring()
        try:
            await self._serve(stop)
        finally:
            await asyncio.to_thread(monitoring.stop)
        log.info("stopped")

    def health(self) -> tuple[bool, dict[str, object]]:
        """Healthy while at least one name server holds our registration. Only reads, from any thread."""
        reports = {loop.name_server: loop.report for loop in self._loops}
        own = self._own.value if self._own is not None else None
        name_servers = {
            name_server: {"standing": report.standing.value, "since": report.since, "holder_addr": report.holder_addr}
            for name_server, report in reports.items()
        }
        broker = {"probe": own.status.value, "detail": own.health_detail} if own is not None else {}
        is_held = any(report.standing is Standing.REGISTERED for report in reports.values())
        return is_held, {"name_servers": name_servers, "broker": broker}

    def _start_monitoring(self) -> MonitoringServer:
        listen = self._config.monitoring.listen
        host, _ = split_addr(listen)
        monitoring = MonitoringServer(listen, registry=self.metrics.registry, health=self.health)
        monitoring.start()
        facts = {
            "monitoring": join_addr(host, monitoring.port),
            "version": self._version,
            "broker": self._config.broker.addr,
        }
        log.info("started", extra={"facts": facts})
        return monitoring

    async def _serve(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as tasks:
            probing = tasks.create_task(self._prober.run()) if self._prober is not None else None
            await self._await_first_look(stop)
            if not stop.is_set():
                await self._register_until(stop, tasks)
            if probing is not None:
                probing.cancel()

    async def _register_until(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        loops = [tasks.create_task(loop.run()) for loop in self._loops]
        await stop.wait()
        started_at = self._clock.monotonic()
        await self._set_leave()
        left = self._config.stop.timeout_seconds - (self._clock.monotonic() - started_at)
        await self._await_leaves(loops, left)

    async def _await_first_look(self, stop: asyncio.Event) -> None:
        """Let the first registration carry health and incarnation; a probe that hangs is cut off by its deadline."""
        if self._prober is None:
            return
        looking = asyncio.ensure_future(self._prober.has_looked.wait())
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({looking, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            stopping.cancel()
            await asyncio.gather(looking, stopping, return_exceptions=True)

    async def _set_leave(self) -> None:
        answers = None
        if self._prober is not None:
            answers = await self._prober.answers_once_more(
                tries=self._config.probe.fall, seconds=self._config.stop.timeout_seconds * LAST_LOOK_SHARE
            )
        leave = decide_leave(broker_answers=answers, unprobed=Leave(self._config.stop.unprobed))
        log.info("leaving", extra={"facts": {"leave": leave.value, "broker_answers": answers}})
        self._change(leave=leave)

    async def _await_leaves(self, loops: list[asyncio.Task[None]], seconds: float) -> None:
        try:
            await within(self._clock, seconds, _all_done(loops))
        except TimeoutError:
            late = [loop.name_server for loop, task in zip(self._loops, loops, strict=True) if not task.done()]
            log.warning("left without an answer", extra={"facts": {"name_servers": late}})
            for task in loops:
                task.cancel()

    def _on_look(self, result: ProbeResult, verdict: Verdict) -> None:
        self.metrics.count_probe(result)
        if self._own is None:
            return
        old = self._own.value
        self._change(verdict=verdict)
        new = self._own.value
        facts: dict[str, object] = {
            "probe": new.status.value,
            "detail": new.health_detail,
            "incarnation": verdict.incarnation,
            "role": verdict.role.value,
            "broker_id": new.broker_id,
        }
        if new.status is not old.status or new.registration_key != old.registration_key:
            log.info("broker", extra={"facts": facts})
        if new.role_conflict is not None and new.role_conflict != old.role_conflict:
            log.warning("the broker's role contradicts the configured broker id", extra={"facts": facts})

    def _change(self, *, verdict: Verdict | None = None, leave: Leave | None = None) -> None:
        if self._own is None:
            return
        old = self._own.value
        new = replace(old, verdict=verdict or old.verdict, leave=leave or old.leave)
        self.metrics.set_own_state(new)
        self._own.set(new)

    def _build_prober(self, probe: Probe) -> Prober:
        section = self._config.probe
        return Prober(
            probe,
            clock=self._clock,
            interval=section.interval_seconds,
            timeout=section.timeout_seconds,
            keeper=VerdictKeeper(rise=section.rise, fall=section.fall),
            on_look=self._on_look,
        )

    def _build_loop(self, name_server: str, own: Watched[OwnState]) -> RegistrationLoop:
        heartbeat = self._config.heartbeat
        return RegistrationLoop(
            name_server,
            profile=self._build_profile(),
            own=own,
            clock=self._clock,
            metrics=self.metrics,
            timeouts=Timeouts(beat=heartbeat.timeout_seconds, register=heartbeat.register_timeout_seconds),
            draw=self._draw,
        )

    def _build_profile(self) -> BrokerProfile:
        broker, heartbeat = self._config.broker, self._config.heartbeat
        return BrokerProfile(
            cluster=broker.cluster,
            broker_name=broker.name,
            broker_id=broker.id,
            addr=broker.addr,
            ha_addr=broker.ha_addr,
            agent_addr=broker.agent_addr,
            zone=broker.zone,
            host=broker.host or socket.gethostname(),
            labels=broker.labels,
            broker_version=broker.version,
            agent_version=self._version,
            acting_master=broker.acting_master,
            filter_servers=broker.filter_servers,
            interval_seconds=heartbeat.interval_seconds,
            expiry_seconds=heartbeat.expiry_seconds,
        )


async def _all_done(tasks: list[asyncio.Task[None]]) -> None:
    await asyncio.wait(tasks)
