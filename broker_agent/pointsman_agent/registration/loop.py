"""Registration loop: keeps the broker registered with one name server.

A thin shell around :class:`~pointsman_agent.core.registration_session.Session`: executes the step that the session
returns, and passes it the result. Each name server has its own loop, session and connection, so a dead or slow one
delays no other.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc.aio

from pointsman.backoff import FullJitterBackoff
from pointsman.clock import Clock
from pointsman.deadline import within
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceStub
from pointsman.wire.channel_opener import ChannelOpener
from pointsman.wire.channel_options import CHANNEL_OPTIONS
from pointsman_agent.agent_metrics import AgentMetrics
from pointsman_agent.core.deltas import TopicDelta
from pointsman_agent.core.own_state import Leave, OwnState
from pointsman_agent.core.registration_session import (
    Beat,
    BeatStatus,
    Failure,
    Finish,
    Register,
    RegistrationState,
    Session,
    Unregister,
    Update,
    Wait,
)
from pointsman_agent.observable import Observable
from pointsman_agent.registration.beat_stream import BeatStream
from pointsman_agent.registration.registration_failure import UNANSWERED, FailedCall, from_error
from pointsman_agent.registration.registration_messages import (
    BrokerProfile,
    from_beat_status,
    from_duration,
    from_held_version,
    from_unregister_status,
    to_beat,
    to_name,
    to_registration,
    to_unregister,
    to_update,
)

if TYPE_CHECKING:
    from pointsman.v1.registration_service_pb2_grpc import RegistrationServiceAsyncStub

RECONNECT_CAP_SECONDS = 3.0
"""Longest wait before an unreachable server is retried. With gRPC's own 2 s between connection attempts, all agents are
back about 5 s after a server returns, spread over that time by jitter."""

CLOCK_REPORT_SECONDS = 300.0
"""Each heartbeat with the wall clock differs from the one before, and the name server has to decode it."""

HOLDS = frozenset({BeatStatus.OK, BeatStatus.TOPICS_OUT_OF_DATE})
"""Responses of a name server that took the heartbeat as this registration's."""

LiveQueues = Callable[[float], "tuple[float, bytes] | None"]
"""Returns the last measurement of the broker's queues as a heartbeat carries it, with its time in monotonic seconds, if
it is later than the given time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Longest waits for a response, in seconds."""

    beat: float = 3.0
    register: float = 10.0


@dataclass(frozen=True, slots=True)
class Report:
    """Registration state at this name server, for operators."""

    state: RegistrationState
    since: str
    """UTC, RFC 3339."""
    holder_addr: str = ""
    """The broker that holds this identity instead; empty: none."""


class RegistrationLoop:
    """The registration loop for the name server at ``name_server`` (host:port).

    ``draw(a, b)`` is ``random.uniform`` in production.
    """

    def __init__(
        self,
        name_server: str,
        *,
        profile: BrokerProfile,
        own: Observable[OwnState],
        opener: ChannelOpener,
        clock: Clock,
        metrics: AgentMetrics,
        timeouts: Timeouts,
        live_queues: LiveQueues = lambda _: None,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self.name_server = name_server
        self._profile = profile
        self._own = own
        self._opener = opener
        self._credentials_version = opener.version
        self._next_move_at = -math.inf
        self._clock = clock
        self._metrics = metrics.of_name_server(name_server)
        self._timeouts = timeouts
        self._live_queues = live_queues
        self._live_sent_at = -math.inf
        """When the last measurement that the name server has was made."""
        self._session = Session(
            own_addr=profile.addr,
            interval=profile.interval_seconds,
            expiry=profile.expiry_seconds,
            reconnect=FullJitterBackoff(draw, cap=RECONNECT_CAP_SECONDS),
            repeat=FullJitterBackoff(draw, cap=profile.interval_seconds),
            draw=draw,
        )
        self._changed = asyncio.Event()
        self._channel: grpc.aio.Channel | None = None
        self._stream: BeatStream | None = None
        self._last_beat: tuple[OwnState, float] | None = None
        self._clock_sent_at = -math.inf
        self._is_to_end = False
        self.report = Report(self._session.state, self._at())
        self._also_at_addr: list[str] = []
        self.master_agent_addr = ""
        """Agent of the broker's master, from the last response; empty for a master, and without a master."""

    async def run(self) -> None:
        """Run until the broker is unregistered or handed over; cancel it to stop without either."""
        ends = [self._own.on_change(self._changed.set), self._opener.on_change(self._changed.set)]
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._run(tasks)
                await self._close_stream()
        finally:
            for end in ends:
                end()
            await self._close_channel()

    def end(self) -> None:
        """Stop sending to this name server, while the broker and the agent continue.

        The last heartbeat hands over. A stream that merely broke off would look like a crash of the broker, and
        unregistering would remove it for clients that still use this name server.
        """
        self._is_to_end = True
        self._changed.set()

    async def report_queue_stats(self, stats: wire.QueueStats) -> wire.ReportQueueStatsResponse | None:
        """Send a report under the current registration; None if there is none. Raises AioRpcError."""
        session = self._session
        if session.state is not RegistrationState.REGISTERED:
            return None
        request = wire.ReportQueueStatsRequest(
            identity=self._profile.to_identity(session.broker_id), generation=session.generation, stats=stats
        )
        return await self._stub().ReportQueueStats(request, timeout=self._timeouts.register)

    async def _run(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            self._changed.clear()
            await self._process_events()
            await self._follow_credentials(tasks)
            own = self._own.value
            if self._is_to_end and own.leave is None:
                own = replace(own, leave=Leave.HAND_OVER)
            step = self._session.next_step(own, now=self._clock.monotonic())
            match step:
                case Register():
                    await self._register(own)
                case Update(delta):
                    await self._update(own, delta)
                case Beat(hand_over):
                    await self._beat(own, tasks, hand_over=hand_over)
                case Unregister(is_drained):
                    await self._unregister(is_drained=is_drained)
                case Wait(seconds):
                    await self._wait(seconds)
                case Finish():
                    return
            self._publish_state()

    async def _wait(self, seconds: float) -> None:
        try:
            await within(self._clock, seconds, self._changed.wait())
        except TimeoutError:
            return

    async def _register(self, own: OwnState) -> None:
        self._live_sent_at = -math.inf  # a new registration remembers none
        try:
            response = await self._stub().RegisterBroker(
                to_registration(self._profile, own), timeout=self._timeouts.register
            )
        except grpc.aio.AioRpcError as error:
            await self._on_register_failure(from_error(error))
            return
        self._session.on_registered(
            response.generation,
            own,
            interval=from_duration(response.heartbeat_interval, default=self._profile.interval_seconds),
            expiry=from_duration(response.expiry, default=self._profile.expiry_seconds),
            now=self._clock.monotonic(),
        )
        self._metrics.count_registration("accepted")
        facts = {
            "broker_id": own.broker_id,
            "topics": len(own.topics.topics),
            "generation": response.generation,
            "incarnation": own.verdict.incarnation,
            "probe": own.status.value,
            "heartbeat_interval_seconds": self._session.interval,
            "expiry_seconds": self._session.expiry,
        }
        log.info("registered", extra={"facts": self._facts() | facts})
        if response.superseded:
            ended = {"superseded": [to_name(each) for each in response.superseded]}
            log.warning(
                "the broker had another name or cluster; its earlier registration ended",
                extra={"facts": self._facts() | ended},
            )
        self._note_conflict(response.group)

    async def _update(self, own: OwnState, delta: TopicDelta) -> None:
        request = to_update(self._profile, own, delta, generation=self._session.generation)
        try:
            response = await self._stub().UpdateTopics(request, timeout=self._timeouts.register)
        except grpc.aio.AioRpcError as error:
            await self._on_update_failure(from_error(error))
            return
        self._session.on_updated(own, now=self._clock.monotonic())
        self._metrics.count_registration("updated")
        facts = {"changed": len(delta.changed), "removed": len(delta.removed), "topics": response.topic_count}
        log.info("topics updated", extra={"facts": self._facts() | facts})

    async def _beat(self, own: OwnState, tasks: asyncio.TaskGroup, *, hand_over: bool) -> None:
        stream = self._stream
        if stream is None:
            stream = self._stream = BeatStream(self._stub(), tasks=tasks, on_event=self._changed.set)
            self._clock_sent_at = -math.inf
        sent_at = self._clock.monotonic()
        event = await self._exchange_on(stream, own, sent_at=sent_at, hand_over=hand_over)
        if isinstance(event, FailedCall):
            await self._on_stream_failure(event)
        else:
            self._metrics.observe_round_trip(self._clock.monotonic() - sent_at)
            self._on_response(event, own, sent_at=sent_at)
        if hand_over:
            answer = event.code if isinstance(event, FailedCall) else from_beat_status(event.status).value
            log.info("registration handed over to the next agent", extra={"facts": self._facts() | {"answer": answer}})
            await self._finish_stream()
            self._session.on_left()

    async def _exchange_on(
        self, stream: BeatStream, own: OwnState, *, sent_at: float, hand_over: bool = False
    ) -> wire.BeatAnswer | FailedCall:
        self._last_beat = own, sent_at
        sends_clock = sent_at - self._clock_sent_at >= CLOCK_REPORT_SECONDS
        if sends_clock:
            self._clock_sent_at = sent_at
        measured_at, live_queues = self._live_queues(self._live_sent_at) or (self._live_sent_at, b"")
        beat = to_beat(
            self._profile,
            own,
            broker_id=self._session.broker_id,
            generation=self._session.generation,
            hand_over=hand_over,
            sent_at=self._clock.utc_now() if sends_clock else None,
        )
        try:
            answer = await within(self._clock, self._timeouts.beat, _exchange(stream, beat, live_queues))
        except TimeoutError:
            return UNANSWERED
        if not isinstance(answer, FailedCall) and from_beat_status(answer.status) in HOLDS:
            self._live_sent_at = measured_at
        return answer

    async def _follow_credentials(self, tasks: asyncio.TaskGroup) -> None:
        """Use changed credentials: without a stream for the next call, else by moving the registration's stream."""
        version, own, session = self._opener.version, self._own.value, self._session
        if version == self._credentials_version or own.leave is not None:
            return
        if self._stream is None:
            self._credentials_version = version
            await self._close_channel()
            session.on_new_credentials()
        elif (
            session.state is RegistrationState.REGISTERED
            and session.broker_id == own.broker_id
            and self._clock.monotonic() >= self._next_move_at
        ):
            await self._move_stream(own, tasks, version=version)

    async def _move_stream(self, own: OwnState, tasks: asyncio.TaskGroup, *, version: int) -> None:
        """Send a heartbeat on a new connection, then close the old one. The name server ignores the end of a stream
        after a heartbeat on a later one. If the heartbeat fails, the old connection stays in use."""
        unused: grpc.aio.Channel | None
        unused = channel = self._opener.open(self.name_server, CHANNEL_OPTIONS)
        try:
            stream = BeatStream(RegistrationServiceStub(channel), tasks=tasks, on_event=self._changed.set)
            sent_at = self._clock.monotonic()
            answer = await self._exchange_on(stream, own, sent_at=sent_at)
            if isinstance(answer, FailedCall):
                self._next_move_at = sent_at + self._session.interval
                await stream.cancel()
                facts = self._facts() | answer.facts
                log.warning("changed credentials failed, the connection stays as it was", extra={"facts": facts})
                return
            await self._close_stream()
            unused, self._channel = self._channel, channel
            self._stream, self._credentials_version = stream, version
            self._on_response(answer, own, sent_at=sent_at)
        finally:
            if unused is not None:
                await unused.close()

    async def _unregister(self, *, is_drained: bool) -> None:
        session = self._session
        leave = to_unregister(
            self._profile, broker_id=session.broker_id, generation=session.generation, is_drained=is_drained
        )
        try:
            response = await self._stub().UnregisterBroker(leave, timeout=self._timeouts.beat)
        except grpc.aio.AioRpcError as error:
            log.warning(
                "unregister failed; the registration will expire",
                extra={"facts": self._facts() | from_error(error).facts},
            )
        else:
            answer = from_unregister_status(response.status)
            log.info("unregistered", extra={"facts": self._facts() | {"answer": answer}})
        await self._finish_stream()
        self._session.on_left()

    async def _process_events(self) -> None:
        """Process what arrived between two heartbeats: usually the end of the stream."""
        while self._stream is not None and (event := self._stream.take()) is not None:
            if isinstance(event, FailedCall):
                await self._on_stream_failure(event)
            elif self._last_beat is not None:
                # An unsolicited response refers to the last heartbeat and delays no other.
                own, sent_at = self._last_beat
                self._on_response(event, own, sent_at=sent_at)
            self._publish_state()

    def _on_response(self, answer: wire.BeatAnswer, own: OwnState, *, sent_at: float) -> None:
        status = from_beat_status(answer.status)
        self.master_agent_addr = answer.group.master_agent_addr
        self._metrics.count_beat(status.value)
        log.debug("heartbeat response received", extra={"facts": self._facts() | {"answer": status.value}})
        if status in {BeatStatus.OK, BeatStatus.TOPICS_OUT_OF_DATE}:
            self._note_conflict(answer.group)
        if status is not BeatStatus.OK:
            facts = {"answer": status.value, "holder_addr": answer.holder_addr}
            log.info("registration is not up to date at the name server", extra={"facts": self._facts() | facts})
        self._session.on_beat_response(
            status,
            own,
            holder_addr=answer.holder_addr,
            held_version=from_held_version(answer),
            sent_at=sent_at,
        )

    def _note_conflict(self, group: broker_pb2.GroupView) -> None:
        """Log when other registrations have the broker's address too, and when none has."""
        others = [to_name(each) for each in group.also_at_addr]
        if others == self._also_at_addr:
            return
        self._also_at_addr = others
        facts = self._facts() | {"addr": self._profile.addr, "also_at_addr": others}
        if others:
            log.warning("another broker is registered at this broker's address", extra={"facts": facts})
        else:
            log.info("no other broker is registered at this broker's address", extra={"facts": facts})

    async def _on_stream_failure(self, failed: FailedCall) -> None:
        self.master_agent_addr = ""
        self._metrics.count_beat("timeout" if failed is UNANSWERED else "stream_broken")
        self._log_failure("heartbeat failed", failed)
        self._session.on_beat_failure(failed.failure, now=self._clock.monotonic())
        await self._close_stream()
        await self._renew_connection_after(failed)

    async def _on_register_failure(self, failed: FailedCall) -> None:
        self._metrics.count_registration(failed.failure.value)
        self._log_failure("registration failed", failed)
        self._session.on_register_failure(failed.failure, now=self._clock.monotonic(), holder_addr=failed.holder_addr)
        await self._renew_connection_after(failed)

    async def _on_update_failure(self, failed: FailedCall) -> None:
        self._metrics.count_registration("update_failed")
        self._log_failure("topic update failed", failed)
        self._session.on_update_failure(failed.failure, now=self._clock.monotonic(), holder_addr=failed.holder_addr)
        await self._renew_connection_after(failed)

    async def _renew_connection_after(self, failed: FailedCall) -> None:
        if failed.needs_new_connection:
            # Without keepalive pings gRPC would continue to use a connection whose peer no longer exists.
            await self._close_stream()
            await self._close_channel()

    def _log_failure(self, message: str, failed: FailedCall) -> None:
        # A server that stays unreachable is one log line, not one for each attempt.
        is_repeated = failed.failure is Failure.UNREACHABLE and self._session.state is RegistrationState.UNREACHABLE
        level = logging.DEBUG if is_repeated else logging.WARNING
        log.log(level, message, extra={"facts": self._facts() | failed.facts})

    def _stub(self) -> RegistrationServiceAsyncStub:
        if self._channel is None:
            self._channel = self._opener.open(self.name_server, CHANNEL_OPTIONS)
        return RegistrationServiceStub(self._channel)

    async def _finish_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            try:
                await within(self._clock, self._timeouts.beat, stream.finish())
            except TimeoutError:
                await stream.cancel()

    async def _close_stream(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            await stream.cancel()

    async def _close_channel(self) -> None:
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    def _publish_state(self) -> None:
        """Publish the registration state if it changed."""
        state = self._session.state
        if state is self.report.state and self._session.holder_addr == self.report.holder_addr:
            return
        facts = {"previous_state": self.report.state.value, "state": state.value}
        log.info("registration state changed", extra={"facts": self._facts() | facts})
        self.report = Report(state, self._at(), self._session.holder_addr)
        self._metrics.set_registration_state(state)

    def _at(self) -> str:
        return self._clock.utc_now().isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _facts(self) -> dict[str, object]:
        return {"name_server": self.name_server}


async def _exchange(stream: BeatStream, beat: wire.Beat, live_queues: bytes) -> wire.BeatAnswer | FailedCall:
    await stream.send(beat, live_queues)
    return await stream.receive()
