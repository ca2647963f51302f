"""RegistrationService: calls of broker agents."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from pointsman.clock import Clock
from pointsman.daemon.access.access import Caller, check_writes
from pointsman.daemon.access.fair_bound import FairBound
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.handler_table import Ended, Write
from pointsman.names import MAX_CHUNK_TOPICS
from pointsman.v1 import broker_pb2
from pointsman.v1 import registration_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, InvalidRequest, TooSlow, refuse_if_any
from pointsman_namesrv.core.broker_responses import BeatAnswer, BeatStatus
from pointsman_namesrv.core.events import EventKind, RecordEvents
from pointsman_namesrv.core.lifecycle import NodeLifecycle
from pointsman_namesrv.core.live_queues import LiveQueueReports
from pointsman_namesrv.core.model import BrokerIdentity
from pointsman_namesrv.core.name_server import NameServer
from pointsman_namesrv.core.node_refusals import LimitExceeded
from pointsman_namesrv.core.request_rules import IntervalBounds, identity_violations
from pointsman_namesrv.node_metrics import Metrics
from pointsman_namesrv.own_pauses import OwnPauses
from pointsman_namesrv.rpc import broker_codec
from pointsman_namesrv.rpc.register_call import RegisterCalls

HOLDS = frozenset({BeatStatus.OK, BeatStatus.TOPICS_OUT_OF_DATE})
"""Responses after which a stream is bound to the broker: its sender holds the identity."""


FIRST_BEAT_SECONDS = 60.0
"""How long a stream may be open before the heartbeat of a registered broker."""


class RegistrationServicer:
    """Decodes requests, calls the core, and records its events."""

    def __init__(
        self,
        core: NameServer,
        *,
        lifecycle: NodeLifecycle,
        clock: Clock,
        bounds: IntervalBounds,
        max_topics: int,
        max_streams: int,
        record: RecordEvents,
        pauses: OwnPauses,
        save_settings: Callable[[], Awaitable[object]],
        metrics: Metrics,
        live_queues: LiveQueueReports,
        coming_in: FairBound | None = None,
    ) -> None:
        self._core = core
        self._lifecycle = lifecycle
        self._clock = clock
        self._max_topics = max_topics
        self._record = record
        self._pauses = pauses
        self._save_settings = save_settings
        self._metrics = metrics
        self._live_queues = live_queues
        self._count_beat = {status: metrics.beats.labels(status).inc for status in BeatStatus}
        self._stream_ids = itertools.count(1)
        self._streams: set[asyncio.Task[None]] = set()
        self._stream_bound = FairBound(max_streams)
        self._draining = False
        self.calls = RegisterCalls(
            core, clock=clock, bounds=bounds, max_topics=max_topics, record=record, coming_in=coming_in
        )
        self.register_broker = self.calls.register_broker

    def update_topics(
        self, request: wire.UpdateTopicsRequest, caller: Caller | None = None
    ) -> wire.UpdateTopicsResponse:
        """Apply a delta to a known base."""
        count = len(request.changed) + len(request.removed)
        if count > MAX_CHUNK_TOPICS:
            problem = f"and removed may hold at most {MAX_CHUNK_TOPICS} topics together, not {count}"
            raise InvalidRequest([FieldViolation("changed", problem)])
        identity = _own_identity(request.identity, caller)
        changed = broker_codec.topics(request.changed, path="changed")
        removed = broker_codec.removed_topics(request.removed, changed)
        updated = self._core.update_topics(
            identity,
            request.generation,
            base=broker_codec.data_version(request.base_data_version),
            data_version=broker_codec.data_version(request.data_version),
            changed=changed,
            removed=removed,
            max_topics=self._max_topics,
            now=self._clock.monotonic(),
        )
        self._record(updated.events)
        return wire.UpdateTopicsResponse(topic_count=updated.topic_count)

    def heartbeat(self, request: wire.HeartbeatRequest, caller: Caller | None = None) -> wire.HeartbeatResponse:
        """Record one heartbeat."""
        beat = broker_codec.beat(request.beat)
        if caller is not None:
            check_writes(caller, beat.identity.cluster, beat.identity.broker_name)
        answer = self._beat(beat, live_queues=request.live_queues)
        return wire.HeartbeatResponse(answer=broker_codec.beat_answer(answer))

    async def keep_alive(self, requests: AsyncIterator[bytes], send: Write, peer: Peer) -> None:
        """Record heartbeats until the stream ends; its end counts against each broker whose last heartbeat it carried.

        Consecutive heartbeats are nearly equal, so equal bytes are neither decoded nor encoded again. Raises
        LimitExceeded, Ended when another peer needed its share or the node stops, TooSlow for a stream without a
        registered broker's heartbeat, and InvalidRequest.
        """
        stream = next(self._stream_ids)
        held: dict[BrokerIdentity, int] = {}
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a coroutine of grpc.aio runs in one
        bound, share = self._stream_bound, self._stream_bound.take(peer.key, 1, partial(_cancel, task))
        if share is None:
            raise LimitExceeded("keep_alive_streams", bound.bound, value=bound.total + 1)
        # While a heartbeat is processed, this server ends the stream; that does not count against the broker.
        at_work = False
        self._streams.add(task)
        self._metrics.streams.inc()
        try:
            last_beat, last_answer, response = b"", BeatAnswer(BeatStatus.OK), b""
            async with asyncio.timeout(FIRST_BEAT_SECONDS) as first_beat:
                async for request in requests:
                    at_work = True
                    live_queues = broker_codec.live_queues_behind(request, last_beat) if response else None
                    if live_queues is None:
                        message = wire.KeepAliveRequest.FromString(request)
                        beat = broker_codec.beat(message.beat)
                        check_writes(peer.caller, beat.identity.cluster, beat.identity.broker_name)
                        live_queues, message.live_queues = message.live_queues, b""
                        last_beat = message.SerializeToString()
                    answer = self._beat(beat, stream=stream, live_queues=live_queues)
                    if answer.status in HOLDS:
                        if not held:
                            first_beat.reschedule(None)
                        held[beat.identity] = beat.generation
                    if answer != last_answer or not response:
                        response = wire.KeepAliveResponse(answer=broker_codec.beat_answer(answer)).SerializeToString()
                        last_answer = answer
                    at_work = False
                    await send(response)
        except TimeoutError:
            raise TooSlow(f"no heartbeat of a registered broker within {FIRST_BEAT_SECONDS:g} s") from None
        except asyncio.CancelledError:
            # The agent disconnected, this node drains, or the stream was ended for another peer.
            if not share.is_held:
                note = "this stream was ended: its connection has the most streams, and another connection needs one"
                raise Ended(LimitExceeded("keep_alive_streams", bound.bound, note=note)) from None
            if self._draining:
                raise Ended(self._lifecycle.refusal()) from None
            raise
        finally:
            self._streams.discard(task)
            self._metrics.streams.dec()
            is_revoked = peer.caller is not None and peer.caller.is_revoked
            now, by_us = self._now(), at_work or self._draining or not share.is_held or is_revoked
            bound.give_back(share)
            for identity, generation in held.items():
                self._record(self._core.end_stream(identity, generation, stream=stream, now=now, by_us=by_us))

    @property
    def stream_count(self) -> int:
        """Return the number of open KeepAlive streams."""
        return len(self._streams)

    async def drain(self) -> None:
        """End every stream from this side, which does not count against the brokers."""
        self._draining = True
        for task in self._streams:
            task.cancel()

    async def unregister_broker(
        self, request: wire.UnregisterBrokerRequest, caller: Caller | None = None
    ) -> wire.UnregisterBrokerResponse:
        """Unregister a broker; a write permission that this restores is on disk before the response."""
        identity = _own_identity(request.identity, caller)
        answer = self._core.unregister(
            identity,
            request.generation,
            reason=broker_codec.unregister_reason(request.reason),
            now=self._clock.monotonic(),
        )
        self._record(answer.events)
        if any(event.kind is EventKind.PERM_CHANGED for event in answer.events):
            await self._save_settings()
        return broker_codec.unregister_response(answer)

    def report_queue_stats(
        self, request: wire.ReportQueueStatsRequest, caller: Caller | None = None
    ) -> wire.ReportQueueStatsResponse:
        """Emit an agent's measurements."""
        identity = _own_identity(request.identity, caller)
        stats = broker_codec.queue_stats(request.stats, path="stats")
        answer = self._core.report_queue_stats(identity, request.generation, stats, now=self._clock.monotonic())
        self._metrics.queue_stats.labels(answer.status).inc()
        self._record(answer.events)
        return broker_codec.stats_response(answer)

    def _now(self) -> float:
        """Return the time, once a pause of this process is credited."""
        now = self._clock.monotonic()
        if now > self._pauses.late_after:
            self._pauses.catch_up(now)
        return now

    def _take_live_queues(self, beat: broker_codec.Beat, body: bytes) -> None:
        is_kept = self._live_queues.take(beat.identity, beat.generation, body, now=self._clock.monotonic())
        self._metrics.live_queues.labels("kept" if is_kept else "too_large").inc()

    def _ahead_ms(self, sent_at_millis: int) -> int:
        return sent_at_millis - round(self._clock.utc_now().timestamp() * 1_000)

    def _beat(self, beat: broker_codec.Beat, *, stream: int | None = None, live_queues: bytes = b"") -> BeatAnswer:
        answer = self._core.beat(
            beat.identity,
            beat.generation,
            data_version=beat.data_version,
            health=beat.health,
            now=self._now(),
            stream=stream,
            hand_over=beat.hand_over,
            clock_ahead_ms=self._ahead_ms(beat.sent_at_millis) if beat.sent_at_millis else None,
        )
        if answer.status not in HOLDS:
            # A held identity was checked when it registered.
            refuse_if_any(identity_violations(beat.identity, path="beat.identity"))
        elif live_queues:
            self._take_live_queues(beat, live_queues)
        self._count_beat[answer.status]()
        if answer.events:
            self._record(answer.events)
        return answer


def _own_identity(request: broker_pb2.BrokerIdentity, caller: Caller | None) -> BrokerIdentity:
    """Read an identity that the caller may write. Raises InvalidRequest, PermissionDenied."""
    identity = broker_codec.checked_identity(request, path="identity")
    check_writes(caller, identity.cluster, identity.broker_name)
    return identity


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
