"""AgentService: drains and state of one broker's agent, for operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration

from pointsman.clock import Clock
from pointsman.daemon.access.access import ADMINS, BROKERS, VIEWERS, Rule, Rules, author
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman.daemon.rpc.request_fields import by_violations
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.v1 import agent_service_pb2 as wire
from pointsman.v1 import broker_pb2
from pointsman.wire.refusals import FieldViolation, refuse_if_any
from pointsman.wire.wire_time import seconds_of
from pointsman_agent.core.drain import Answer, DrainOptions, DrainStep, Progress, StepState
from pointsman_agent.core.own_state import OwnState
from pointsman_agent.drain.drainer import Drainer, DrainRun, DrainRunning
from pointsman_agent.probe.redis_facts import RedisFacts
from pointsman_agent.registration.registration_messages import to_health
from pointsman_agent.rpc.agent_refusals import HeldByOther, Unavailable

RULES: Rules = {
    "Drain": ADMINS,
    # The agent of a slave checks which broker it hands offsets over to.
    "GetAgentInfo": Rule(BROKERS.roles | VIEWERS.roles),
}
SERVICE = wire.DESCRIPTOR.services_by_name["AgentService"]
MAX_QUIET_SECONDS = 300.0
MAX_PRODUCERS_SECONDS = 3_600.0
MAX_CONSUMERS_SECONDS = 86_400.0

_STEPS = {each: wire.DrainStep.Value(f"DRAIN_STEP_{each.name}") for each in DrainStep}
_STATES = {each: wire.DrainStepState.Value(f"DRAIN_STEP_STATE_{each.name}") for each in StepState}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentFacts:
    """What the agent reports about itself."""

    version: str
    cluster: str
    broker_name: str
    addr: str
    own: OwnState
    registration_states: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By name server: the registration state, and the address of the holder if it is another broker."""
    redis: RedisFacts | None = None
    """None: the broker is not a Redis server, or the last probe could not read its state."""
    put_rate: float | None = None
    """Messages per second, at the last measurement; None: not measured."""


class AgentService:
    """Serves drains and the agent's state. ``facts`` is called for each request; ``clock`` measures the uptime."""

    def __init__(self, drainer: Drainer, *, facts: Callable[[], AgentFacts], clock: Clock) -> None:
        self._drainer = drainer
        self._facts = facts
        self._clock = clock
        self._started_at = clock.monotonic()

    def service(self) -> Service:
        """Return the service for the server."""
        return Service(descriptor=SERVICE, servicer=self, rules=RULES)

    async def drain(self, request_bytes: bytes, write: Write, peer: Peer) -> None:
        """See the protocol. The drain runs in a separate task; it is aborted when the caller disconnects."""
        request = wire.DrainRequest.FromString(request_bytes)
        drain = self._begin(_to_options(request), by=author(request.by, peer.caller).name or peer.addr)
        try:
            async with aclosing(drain.progress()) as reports:
                async for progress, elapsed in reports:
                    await write(_to_response(progress, elapsed).SerializeToString())
        finally:
            drain.abort()
        if not drain.is_done:
            raise Ended(Unavailable("the drain was undone; see its last message for the reason"))

    def get_agent_info(self, _request: wire.GetAgentInfoRequest) -> wire.GetAgentInfoResponse:
        """See the protocol."""
        facts = self._facts()
        own = facts.own
        identity = broker_pb2.BrokerIdentity(
            cluster=facts.cluster, broker_name=facts.broker_name, broker_id=own.broker_id, addr=facts.addr
        )
        version = own.data_version
        return wire.GetAgentInfoResponse(
            version=facts.version,
            identity=identity if own.may_claim else None,
            incarnation=own.verdict.incarnation,
            role=own.verdict.role.value,
            health=to_health(own),
            warnings=own.verdict.warnings,
            data_version=broker_pb2.DataVersion(
                state_version=version.state_version, timestamp_millis=version.timestamp_millis, counter=version.counter
            ),
            topic_count=len(own.topics.topics),
            name_servers=[
                wire.NameServerStanding(addr=addr, standing=state, holder_addr=holder)
                for addr, (state, holder) in sorted(facts.registration_states.items())
            ],
            uptime=_to_duration(self._clock.monotonic() - self._started_at),
            drain=self._drainer.state,
            redis=_to_redis(facts.redis),
            put_rate=facts.put_rate,
        )

    def _begin(self, options: DrainOptions, *, by: str) -> DrainRun:
        try:
            return self._drainer.drain(options, by=by)
        except DrainRunning as error:
            raise HeldByOther("the drain of this broker", holder=error.by) from error


def _to_redis(facts: RedisFacts | None) -> wire.RedisStatus | None:
    if facts is None:
        return None
    return wire.RedisStatus(
        used_memory_bytes=facts.used_memory_bytes,
        max_memory_bytes=facts.max_memory_bytes,
        persists=facts.persists,
        replica_count=len(facts.replicas),
        replica_lag_bytes=facts.replica_lag_bytes,
        link_is_up=facts.link_is_up,
    )


def _to_options(request: wire.DrainRequest) -> DrainOptions:
    """Read and check the options. Raises InvalidRequest."""
    defaults = DrainOptions()
    quiet = seconds_of(request.quiet) if request.HasField("quiet") else defaults.quiet_seconds
    producers = (
        seconds_of(request.producers_timeout) if request.HasField("producers_timeout") else defaults.producers_seconds
    )
    consumers = (
        seconds_of(request.consumers_timeout) if request.HasField("consumers_timeout") else defaults.consumers_seconds
    )
    refuse_if_any(
        [
            *_outside("quiet", quiet, MAX_QUIET_SECONDS),
            *_outside("producers_timeout", producers, MAX_PRODUCERS_SECONDS),
            *_outside("consumers_timeout", consumers, MAX_CONSUMERS_SECONDS),
            *by_violations(request.by),
        ]
    )
    return DrainOptions(quiet_seconds=quiet, producers_seconds=producers, consumers_seconds=consumers)


def _outside(name: str, seconds: float, most: float) -> Iterable[FieldViolation]:
    if not 0 <= seconds <= most:
        yield FieldViolation(name, f"must be from 0 to {most:g} s, not {seconds:g} s")


def _to_response(progress: Progress, elapsed: float) -> wire.DrainResponse:
    return wire.DrainResponse(
        step=_STEPS[progress.step],
        state=_STATES[progress.state],
        detail=progress.detail,
        name_servers=[_to_answer(addr, answer) for addr, answer in sorted(progress.name_servers.items())],
        elapsed=_to_duration(elapsed),
        groups=[
            wire.UnreadGroup(group=each.group, lag=each.lag, retry_lag=each.retry_lag, member_count=each.member_count)
            for each in progress.groups
        ],
    )


def _to_answer(addr: str, answer: Answer) -> wire.NameServerAnswer:
    return wire.NameServerAnswer(addr=addr, done=answer.done, answer=answer.text)


def _to_duration(seconds: float) -> Duration:
    whole, nanos = divmod(round(seconds * 1e9), 1_000_000_000)
    return Duration(seconds=whole, nanos=nanos)
