"""The agent: its parts, their start order, and its stop.

Start: monitoring, the topics and a first probe, the services for the broker's clients, then one registration loop for
each name server.
Stop: undo a running drain, probe the broker again, hand over or unregister at all name servers in parallel, stop the
services, write the last offsets. Each step has a time limit.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pointsman.clock import Clock
from pointsman.daemon.monitoring import MonitoringServer
from pointsman.daemon.tls.tls import load_certificates, open_context
from pointsman.deadline import within
from pointsman.name_servers.list_follower import NameServerFollower
from pointsman.name_servers.list_sources import build_source
from pointsman.names import join_addr, split_addr
from pointsman.wire.channel_opener import ChannelOpener
from pointsman_agent.agent_metrics import AgentMetrics
from pointsman_agent.config import MAX_NAME_SERVERS, AgentConfig
from pointsman_agent.core.drain import Answer
from pointsman_agent.core.group_progress import ProgressMeter
from pointsman_agent.core.measured_queue_stats import QueueMeter
from pointsman_agent.core.own_state import MASTER_ID, Leave, OwnState, decide_leave
from pointsman_agent.core.probe_verdict import ProbeResult, Verdict, VerdictKeeper
from pointsman_agent.core.registration_session import RegistrationState
from pointsman_agent.core.topic_set import DataVersion, TopicSet
from pointsman_agent.drain.agent_servicer import AgentFacts, AgentService
from pointsman_agent.drain.drainer import DrainedAgent, Drainer
from pointsman_agent.drain.group_lags import GroupLags
from pointsman_agent.drain.put_rate import PutRate
from pointsman_agent.drain.write_perm import WritePermissions
from pointsman_agent.observable import Observable
from pointsman_agent.probe import Probe, ReadsRedis
from pointsman_agent.probe.prober import Prober
from pointsman_agent.queue_stats.collector import NoReaders, QueueStatsCollector
from pointsman_agent.queue_stats.ends import QueueContents, QueueEnds, UnknownQueueEnds
from pointsman_agent.queue_stats.queue_stats_metrics import QueueStatsMetrics
from pointsman_agent.queue_stats.reporter import Reporter, to_live_message
from pointsman_agent.registration.listed_name_servers import ListedNameServers
from pointsman_agent.registration.loop import RegistrationLoop, Timeouts
from pointsman_agent.registration.registration_fleet import RegistrationFleet
from pointsman_agent.registration.registration_messages import BrokerProfile
from pointsman_agent.rpc.agent_refusals import Unavailable
from pointsman_agent.services import ClientServices
from pointsman_agent.topic_changes.topic_servicer import TopicServicer
from pointsman_agent.topic_changes.topic_writer import TopicWriter, UnwritableTopics
from pointsman_agent.topic_source import TopicSource
from pointsman_agent.topic_source.build import READ_TIMEOUT_SECONDS
from pointsman_agent.topic_source.source_metrics import SourceMetrics
from pointsman_agent.topic_source.toml import TomlTopicSource
from pointsman_agent.topic_source.topic_follower import TopicFollower

if TYPE_CHECKING:
    from pointsman_agent.topic_changes.redis_streams import RedisStreams

FINAL_PROBE_SHARE = 0.5
"""Share of the time to stop for the final probe; the rest is for the name servers."""
ENDS_SECONDS = 2.0
"""Deadline of one exchange with the broker about its queue offsets, in seconds."""

APPLY_SECONDS = 30.0
"""Time for the agent to read topics that it wrote; more than READ_TIMEOUT_SECONDS of the source redis."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What serves the broker's clients and name servers, built once its topics and a probe's result are known."""

    agent_addr: str
    """Where clients reach it; empty: nowhere."""
    services: ClientServices | None
    """None: it does not serve the broker's clients."""
    drainer: Drainer
    collector: QueueStatsCollector
    name_servers: NameServerFollower | None
    """None: their list is fixed."""


class Agent:
    """One broker's agent. ``draw(a, b)`` is ``random.uniform`` in production.

    ``metrics`` and ``source_metrics`` are those used by ``probe`` and ``topic_source``; new ones by default.
    Raises ConfigError for certificates that cannot be used.
    """

    parts: Parts
    """Set by :meth:`run` with :attr:`is_serving`."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        probe: Probe | None,
        clock: Clock,
        version: str,
        topic_source: TopicSource | None = None,
        topic_writer: TopicWriter | None = None,
        streams: RedisStreams | None = None,
        metrics: AgentMetrics | None = None,
        source_metrics: SourceMetrics | None = None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._config = config
        self._clock = clock
        self._version = version
        self._draw = draw
        self.metrics = metrics or AgentMetrics(version=version)
        self._certificates = load_certificates(
            config.tls, prefix="pointsman_agent", registry=self.metrics.registry, clock=clock
        )
        self._topic_writer = topic_writer or UnwritableTopics(config.topics.source, "its agent has no writer")
        self._streams = streams
        self._follower = TopicFollower(
            topic_source or TomlTopicSource(config),
            clock=clock,
            interval=config.topics.check_interval_seconds,
            timeout=READ_TIMEOUT_SECONDS[config.topics.source],
            on_change=lambda topics: self._change(topics=topics),
            metrics=source_metrics or SourceMetrics(self.metrics.registry, clock=clock),
        )
        self._opener = ChannelOpener(config.credentials)
        self._probe: object = probe
        self._prober = self._build_prober(probe) if probe is not None else None
        broker, no_topics = config.broker, TopicSet((), DataVersion())
        self._own = Observable(OwnState(broker.id, no_topics, replica_id=broker.replica_id or None))
        self._listed = Observable(config.name_servers.addrs)
        self._fleet = RegistrationFleet(
            self._listed, self._own, build=self._build_loop, forget=self.metrics.forget_name_server
        )
        self.is_serving = False
        """Whether the topics and a probe's result are known: before, nothing is published about the broker."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set and the broker is handed over or unregistered. Raises CannotListen."""
        monitoring = self._start_monitoring()
        try:
            async with asyncio.TaskGroup() as tasks:
                following = self._opener.follow(self._clock, on_reload=self.metrics.count_credential_reload)
                polling = [tasks.create_task(self._follower.run()), tasks.create_task(following)]
                if self._prober is not None:
                    polling.append(tasks.create_task(self._prober.run()))
                if self._certificates is not None:
                    polling.append(tasks.create_task(self._certificates.run()))
                await self._await_first_results(stop)
                if not stop.is_set():
                    await self._serve(stop, tasks)
                for task in polling:
                    task.cancel()
        finally:
            await asyncio.to_thread(monitoring.stop)
        log.info("stopped")

    def poll_now(self) -> None:
        """Read the topics immediately, as requested by SIGHUP."""
        self._follower.poll_now()

    def health(self) -> tuple[bool, dict[str, object]]:
        """Healthy while at least one name server holds the registration. Read-only, callable from any thread."""
        reports, own = self._fleet.reports, self._own.value
        name_servers = {
            name_server: {"state": report.state.value, "since": report.since, "holder_addr": report.holder_addr}
            for name_server, report in reports.items()
        }
        facts: dict[str, object] = {
            "name_servers": name_servers,
            "broker": {"probe": own.status.value, "detail": own.health_detail} if self.is_serving else {},
        }
        services = self.parts.services if self.is_serving else None
        problems = {
            "topics": self._follower.state.problem,
            "offsets": services.offsets_problem if services is not None else "",
        }
        facts |= {f"{what}_problem": problem for what, problem in problems.items() if problem}
        return any(report.state is RegistrationState.REGISTERED for report in reports.values()), facts

    # --- from start to stop -----------------------------------------------------------------------------------

    def _start_monitoring(self) -> MonitoringServer:
        listen = self._config.monitoring.listen
        host, _ = split_addr(listen)
        monitoring = MonitoringServer(
            listen,
            registry=self.metrics.registry,
            health=self.health,
            tls=open_context(self._certificates, self._config.monitoring.tls),
        )
        monitoring.start()
        facts = {
            "monitoring": join_addr(host, monitoring.port),
            "version": self._version,
            "broker": self._config.broker.addr,
        }
        log.info("started", extra={"facts": facts})
        return monitoring

    async def _await_first_results(self, stop: asyncio.Event) -> None:
        """Wait for topics and a probe result, which the first registration carries; a hanging probe has a deadline."""
        first: list[Awaitable[object]] = [self._follower.first()]
        if self._prober is not None:
            first.append(self._prober.has_verdict.wait())
        polling, stopping = asyncio.gather(*first), asyncio.ensure_future(stop.wait())
        waited_for: set[asyncio.Future[Any]] = {polling, stopping}
        try:
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            polling.cancel()
            stopping.cancel()
            await asyncio.gather(polling, stopping, return_exceptions=True)

    async def _serve(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        self.metrics.set_own_state(self._own.value)
        running: list[asyncio.Task[None]] = []
        async with AsyncExitStack() as closing:
            ends = self._build_ends(closing)
            if self._streams is not None:
                closing.push_async_callback(self._streams.close)
            # Each of them runs, the last one first, also when a part fails or the start is cancelled: committed offsets
            # must reach the store.
            services, agent_addr = self._build_services(ends), self._config.broker.agent_addr
            if services is not None:
                closing.push_async_callback(services.finish)
            closing.push_async_callback(_end, running)
            if services is not None:
                closing.push_async_callback(services.stop)
                agent_addr = services.bind(self._certificates)
            self.parts = parts = self._assemble(ends, services, agent_addr)
            self.is_serving = True
            if services is not None:
                about = AgentService(parts.drainer, facts=self._facts, clock=self._clock)
                await services.start([about.service(), self._build_topic_servicer(ends, services).service()])
                log.info("serving the broker's clients", extra={"facts": {"addr": agent_addr}})
                running.append(tasks.create_task(services.run()))
            running.append(tasks.create_task(parts.collector.run()))
            if parts.name_servers is not None:
                await parts.name_servers.read()
                running.append(tasks.create_task(parts.name_servers.run()))
            registering = tasks.create_task(self._fleet.run())
            await stop.wait()
            await self._leave(parts.drainer, registering)

    async def _leave(self, drainer: Drainer, registering: asyncio.Task[None]) -> None:
        """Hand over or unregister at every name server, within the time limit of a stop."""
        # Undoing a drain has its own time limit, so that enough is left for the name servers.
        await drainer.close(seconds=self._config.stop.timeout_seconds)
        started_at = self._clock.monotonic()
        await self._set_leave()
        left = self._config.stop.timeout_seconds - (self._clock.monotonic() - started_at)
        try:
            await within(self._clock, left, self._fleet.ended.wait())
        except TimeoutError:
            facts = {"name_servers": self._fleet.unfinished}
            log.warning("unregister timed out; the registration will expire", extra={"facts": facts})
            registering.cancel()

    async def _set_leave(self) -> None:
        if self._own.value.leave is not None:
            return
        answers = None
        if self._prober is not None:
            answers = await self._prober.passes_again(
                tries=self._config.probe.fall, seconds=self._config.stop.timeout_seconds * FINAL_PROBE_SHARE
            )
        leave = decide_leave(broker_answers=answers, unprobed=Leave(self._config.stop.unprobed))
        log.info("stopping; final probe is done", extra={"facts": {"leave": leave.value, "broker_answers": answers}})
        self._change(leave=leave)

    async def _unregister(self) -> Mapping[str, Answer]:
        """Unregister at every name server as a drained broker; return the outcome of each."""
        self._change(leave=Leave.DRAIN)
        await self._fleet.ended.wait()
        return {
            name_server: Answer(report.state is RegistrationState.LEFT, report.state.value)
            for name_server, report in self._fleet.reports.items()
        }

    # --- own state --------------------------------------------------------------------------------------------

    def _on_probe_result(self, result: ProbeResult, verdict: Verdict) -> None:
        self.metrics.count_probe(result)
        old = self._own.value
        self._change(verdict=verdict)
        if not self.is_serving:
            return
        new = self._own.value
        facts: dict[str, object] = {
            "probe": new.status.value,
            "evidence": verdict.evidence.value,
            "detail": new.health_detail,
            "incarnation": verdict.incarnation,
            "role": verdict.role.value,
            "broker_id": new.broker_id,
        }
        if new.probe_outcome != old.probe_outcome or new.registration_key != old.registration_key:
            log.info("broker health or identity changed", extra={"facts": facts})
        if new.role_conflict is not None and new.role_conflict != old.role_conflict:
            log.warning("the broker's role contradicts the configured broker id", extra={"facts": facts})

    def _change(
        self, *, verdict: Verdict | None = None, topics: TopicSet | None = None, leave: Leave | None = None
    ) -> None:
        old = self._own.value
        new = replace(old, verdict=verdict or old.verdict, topics=topics or old.topics, leave=leave or old.leave)
        if self.is_serving:
            self.metrics.set_own_state(new)
        self._own.set(new)

    def _topics(self) -> TopicSet:
        return self._own.value.topics

    async def _until_topics(self, is_reached: Callable[[TopicSet], bool]) -> None:
        """Read the topics now, and wait until they are such. Raises Unavailable if that takes too long."""
        changed = asyncio.Event()
        forget = self._own.on_change(changed.set)
        self._follower.poll_now()

        async def reached() -> None:
            while not is_reached(self._topics()):
                changed.clear()
                await changed.wait()

        try:
            await within(self._clock, APPLY_SECONDS, reached())
        except TimeoutError:
            why = self._follower.state.problem or "the topic source has other topics"
            raise Unavailable(f"written, but not applied within {APPLY_SECONDS:g} s: {why}") from None
        finally:
            forget()

    def _is_master(self) -> bool:
        return self._own.value.broker_id == MASTER_ID

    def _facts(self) -> AgentFacts:
        broker, reports = self._config.broker, self._fleet.reports
        live = self.parts.collector.live
        return AgentFacts(
            version=self._version,
            cluster=broker.cluster,
            broker_name=broker.name,
            addr=broker.addr,
            own=self._own.value,
            registration_states={addr: (report.state.value, report.holder_addr) for addr, report in reports.items()},
            redis=self._probe.facts if isinstance(self._probe, ReadsRedis) else None,
            put_rate=live.stats.put_rate if live is not None else None,
        )

    # --- parts ------------------------------------------------------------------------------------------------

    def _build_prober(self, probe: Probe) -> Prober:
        section = self._config.probe
        return Prober(
            probe,
            clock=self._clock,
            interval=section.interval_seconds,
            timeout=section.timeout_seconds,
            keeper=VerdictKeeper(rise=section.rise, fall=section.fall),
            on_result=self._on_probe_result,
        )

    def _build_ends(self, closing: AsyncExitStack) -> QueueEnds:
        if not self._config.is_redis:
            return UnknownQueueEnds()
        from pointsman_agent.queue_stats.redis_queue_ends import RedisQueueEnds  # noqa: PLC0415  # needs the extra `redis`

        target, username, password = self._config.redis_login
        ends = RedisQueueEnds(target, clock=self._clock, timeout=ENDS_SECONDS, username=username, password=password)
        closing.push_async_callback(ends.close)
        return ends

    def _build_topic_servicer(self, ends: QueueEnds, services: ClientServices) -> TopicServicer:
        return TopicServicer(
            self._topic_writer,
            topics=self._topics,
            applied=self._until_topics,
            ends=ends,
            streams=self._streams,
            offsets=services.offsets,
            is_master=self._is_master,
        )

    def _build_services(self, ends: QueueEnds) -> ClientServices | None:
        if not self._config.rpc.listen:
            return None
        return ClientServices(
            self._config,
            topics=self._topics,
            ends=ends,
            is_master=self._is_master,
            master_agent=lambda: self._fleet.master_agent_addr,
            opener=self._opener,
            clock=self._clock,
            registry=self.metrics.registry,
        )

    def _assemble(self, ends: QueueEnds, services: ClientServices | None, agent_addr: str) -> Parts:
        """Build the parts of an agent that its clients reach at this address; nothing is opened."""
        of = self._config.name_servers
        source = build_source(dns=of.dns, file=of.file, url=of.url, credentials=self._config.credentials)
        name_servers = None
        if source is not None:
            name_servers = NameServerFollower(
                source,
                ListedNameServers(self._listed, self.metrics.registry),
                clock=self._clock,
                next_wait=lambda: of.refresh_seconds,
                at_most=MAX_NAME_SERVERS,
            )
        return Parts(
            agent_addr=agent_addr,
            services=services,
            drainer=self._build_drainer(ends, services, agent_addr),
            collector=self._build_collector(ends, services),
            name_servers=name_servers,
        )

    def _build_collector(self, ends: QueueEnds, services: ClientServices | None) -> QueueStatsCollector:
        metrics = QueueStatsMetrics(self.metrics.registry)
        reporter = Reporter(
            lambda: self._fleet.loops,
            clock=self._clock,
            timeout=self._config.heartbeat.timeout_seconds,
            metrics=metrics,
        )
        return QueueStatsCollector(
            ends,
            topics=self._topics,
            committed=services.offsets.commits if services is not None else tuple,
            readers=services.groups if services is not None else NoReaders(),
            contents=ends if isinstance(ends, QueueContents) else None,
            meter=services.meter if services is not None else QueueMeter(),
            progress=services.progress if services is not None else ProgressMeter(),
            report=reporter.report,
            interval=self._config.queue_stats.interval_seconds,
            live_interval=self._config.queue_stats.live_interval_seconds,
            clock=self._clock,
            metrics=metrics,
            draw=self._draw,
        )

    def _build_drainer(self, ends: QueueEnds, services: ClientServices | None, agent_addr: str) -> Drainer:
        broker = self._config.broker
        rate = PutRate(ends, topics=self._topics, clock=self._clock)
        lags = None
        if services is not None and self._config.is_redis:
            lags = GroupLags(
                ends,
                topics=self._topics,
                offsets=services.offsets,
                members=services.member_counts,
                clock=self._clock,
            )
        return Drainer(
            DrainedAgent(
                is_master=self._is_master,
                name_servers=lambda: self._listed.value,
                put_rate=rate.measure if self._config.is_redis else None,
                group_lags=lags.measure if lags is not None else None,
                stop_groups=services.stop_groups if services is not None else None,
                serve_groups=services.serve_groups if services is not None else None,
                unregister=self._unregister,
            ),
            WritePermissions(
                cluster=broker.cluster,
                broker_name=broker.name,
                agent_addr=agent_addr or broker.addr,
                timeout=self._config.heartbeat.timeout_seconds,
                opener=self._opener,
            ),
            clock=self._clock,
        )

    def _live_queues(self, after: float) -> tuple[float, bytes] | None:
        live = self.parts.collector.live
        if live is None or live.at <= after:
            return None
        return live.at, to_live_message(live, now=self._clock.monotonic())

    def _build_loop(self, name_server: str) -> RegistrationLoop:
        heartbeat = self._config.heartbeat
        return RegistrationLoop(
            name_server,
            profile=self._build_profile(),
            own=self._own,
            opener=self._opener,
            clock=self._clock,
            metrics=self.metrics,
            timeouts=Timeouts(beat=heartbeat.timeout_seconds, register=heartbeat.register_timeout_seconds),
            live_queues=self._live_queues,
            draw=self._draw,
        )

    def _build_profile(self) -> BrokerProfile:
        broker, heartbeat = self._config.broker, self._config.heartbeat
        return BrokerProfile(
            cluster=broker.cluster,
            broker_name=broker.name,
            addr=broker.addr,
            ha_addr=broker.ha_addr,
            agent_addr=self.parts.agent_addr,
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


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
