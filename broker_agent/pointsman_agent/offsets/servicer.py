"""OffsetService: conversion between requests and the table of offsets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain

from google.protobuf.duration_pb2 import Duration

from pointsman.clock import Clock, utc_millis
from pointsman.daemon.access.access import BROKERS, CLIENTS, VIEWERS, Caller, Rule, Rules, check_group
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, NotReady, refuse_if_any, shown
from pointsman_agent.core.offsets import UNSEEN_DAYS, OffsetKey, TooManyOffsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.offsets.flusher import Flusher
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError
from pointsman_agent.rpc.agent_fields import MAX_QUEUES_A_CALL, QueueFields, cut, name_violations, read_page, to_queues
from pointsman_agent.rpc.agent_refusals import LimitExceeded, OutOfRange

COMMITS = Rule(CLIENTS.roles | BROKERS.roles)
"""A broker: the agent of a slave hands over offsets."""
RULES: Rules = {
    "CommitOffsets": COMMITS,
    "GetOffsets": CLIENTS,
    "BeginTopics": COMMITS,
    "ListOffsets": Rule(CLIENTS.roles | VIEWERS.roles),
}
SERVICE = wire.DESCRIPTOR.services_by_name["OffsetService"]
MAX_MOMENT_SECONDS = 253_402_300_799
"""The last second of the year 9999, where timestamps end."""
MAX_NAMED = 5
"""Offsets beyond an end that an error lists: it is sent in trailers, which are limited."""


class OffsetServicer:
    """Serves ``offsets``, once ``flushers`` have loaded them. ``topics`` returns the broker's current topics."""

    def __init__(
        self,
        offsets: ReplicaOffsets,
        *,
        flushers: Sequence[Flusher],
        topics: Callable[[], TopicSet],
        ends: QueueEnds,
        clock: Clock,
    ) -> None:
        self._offsets = offsets
        self._flushers = flushers
        self._topics = topics
        self._queues = QueueFields(topics)
        self._ends = ends
        self._clock = clock

    def service(self) -> Service:
        """Return the service for the server."""
        return Service(descriptor=SERVICE, servicer=self, rules=RULES)

    async def commit_offsets(self, request: wire.CommitOffsetsRequest, peer: Peer) -> wire.CommitOffsetsResponse:
        """See offset_service.proto."""
        refuse_if_any(
            chain(
                name_violations("group", request.group),
                self._queues.violations("offsets", request.offsets, must_exist=True),
            )
        )
        check_group(peer.caller, request.group)
        self._refuse_until_loaded()
        offsets = {QueueKey(each.topic, each.queue_id): each.offset for each in request.offsets}
        _refuse_beyond(offsets, await self._max_offsets(offsets))
        now = utc_millis(self._clock)
        try:
            kept = self._offsets.commit(request.group, offsets, reset=request.reset, now=now, peer=peer.key)
        except TooManyOffsets as error:
            raise _too_many(error, request.group) from error
        return wire.CommitOffsetsResponse(kept=_to_messages(kept))

    def get_offsets(self, request: wire.GetOffsetsRequest, caller: Caller | None = None) -> wire.GetOffsetsResponse:
        """See offset_service.proto. A queue that the broker no longer has may still have an offset."""
        refuse_if_any(
            chain(
                name_violations("group", request.group),
                self._queues.violations("queues", request.queues, must_exist=False),
            )
        )
        check_group(caller, request.group)
        self._refuse_until_loaded()
        return wire.GetOffsetsResponse(
            offsets=_to_messages(
                self._offsets.get(request.group, to_queues(request.queues), pending_only=request.pending_only)
            )
        )

    def begin_topics(self, request: wire.BeginTopicsRequest, peer: Peer) -> wire.BeginTopicsResponse:
        """See offset_service.proto. A moment in the future, by this machine's clock, counts as now."""
        refuse_if_any(chain(name_violations("group", request.group), self._topic_violations(request.topics)))
        check_group(peer.caller, request.group)
        self._refuse_until_loaded()
        now = utc_millis(self._clock)
        moments = {
            each.topic: min(now, each.first_consumed_at.ToMilliseconds())
            for each in request.topics
            if each.HasField("first_consumed_at")
        }
        topics = [each.topic for each in request.topics]
        try:
            begins = self._offsets.begin(request.group, moments, topics, now=now, peer=peer.key)
        except TooManyOffsets as error:
            raise _too_many(error, request.group) from error
        response = wire.BeginTopicsResponse()
        for topic, moment in begins.items():
            response.topics.add(topic=topic).first_consumed_at.FromMilliseconds(moment)
        return response

    async def list_offsets(
        self, request: wire.ListOffsetsRequest, caller: Caller | None = None
    ) -> wire.ListOffsetsResponse:
        """See offset_service.proto."""
        limit, after = read_page(group=request.group, page_size=request.page_size, page_token=request.page_token)
        check_group(caller, request.group)
        self._refuse_until_loaded()
        found = self._offsets.page(limit=limit + 1, group=request.group, after=after)
        rows, token = cut(found, limit=limit, place_of=lambda row: row[0])
        ends = await self._max_offsets({key.queue for key, _ in rows})
        durable_within = Duration()
        durable_within.FromMilliseconds(round(max(each.durable_within for each in self._flushers) * 1000))
        return wire.ListOffsetsResponse(
            progress=[_to_progress(key, offset, ends.get(key.queue)) for key, offset in rows],
            next_page_token=token,
            durable_within=durable_within,
        )

    def _refuse_until_loaded(self) -> None:
        """Raise NotReady: the response "no offset" would send groups to the start or the end of their queues."""
        for flusher in self._flushers:
            if not flusher.is_loaded:
                why = f": {flusher.problem}" if flusher.problem else ""
                raise NotReady(f"the committed offsets are not loaded yet{why}", state="loading")

    def _topic_violations(self, topics: Sequence[wire.TopicBegin]) -> Iterator[FieldViolation]:
        if len(topics) > MAX_QUEUES_A_CALL:
            yield FieldViolation("topics", f"are {len(topics)}, at most {MAX_QUEUES_A_CALL} are allowed")
            return
        known = {each.topic for each in self._topics().topics}
        first: dict[str, int] = {}
        for index, each in enumerate(topics):
            place = f"topics[{index}]"
            if each.topic in first:
                yield FieldViolation(place, f"is topics[{first[each.topic]}] again: {shown(each.topic)}")
                continue
            first[each.topic] = index
            yield from name_violations(f"{place}.topic", each.topic)
            if not each.HasField("first_consumed_at"):
                continue
            if each.topic not in known:
                yield FieldViolation(f"{place}.topic", f"is not a topic of this broker: {shown(each.topic)}")
            moment = each.first_consumed_at
            if not (0 <= moment.seconds <= MAX_MOMENT_SECONDS and 0 <= moment.nanos < 10**9):
                yield FieldViolation(
                    f"{place}.first_consumed_at",
                    f"must be from 1970 to 9999, got {moment.seconds} s, {moment.nanos} ns",
                )

    async def _max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """Return the ends of queues, as far as the broker reports them now."""
        try:
            return await self._ends.max_offsets(queues)
        except QueueEndsError:
            # A group must be able to commit while the broker is down; it cannot be beyond what it has read.
            return {}


def _refuse_beyond(offsets: Mapping[QueueKey, int], ends: Mapping[QueueKey, int]) -> None:
    violations = [
        FieldViolation(
            f"offsets[{index}].offset",
            f"is beyond the end of queue {queue.queue_id} of topic {queue.topic!r}, which is {ends[queue]}: {offset}",
        )
        for index, (queue, offset) in enumerate(offsets.items())
        if offset > ends.get(queue, offset)
    ]
    if len(violations) > MAX_NAMED:
        more = len(violations) - MAX_NAMED
        violations[MAX_NAMED:] = [FieldViolation("...", f"and {more} more errors")]
    if violations:
        raise OutOfRange(violations)


def _too_many(error: TooManyOffsets, group: str) -> LimitExceeded:
    note = (
        f"existing offsets of group {group!r} can still advance, but nothing new was recorded for it; offsets before "
        f"the start of their queue expire when their group has had no client for {UNSEEN_DAYS} days"
    )
    return LimitExceeded(error.what, error.bound, note=note)


def _to_messages(offsets: Mapping[QueueKey, int]) -> list[wire.QueueOffset]:
    return [wire.QueueOffset(topic=topic, queue_id=queue_id, offset=n) for (topic, queue_id), n in offsets.items()]


def _to_progress(key: OffsetKey, offset: int, max_offset: int | None) -> wire.QueueProgress:
    return wire.QueueProgress(
        group=key.group,
        committed=wire.QueueOffset(topic=key.topic, queue_id=key.queue_id, offset=offset),
        max_offset=max_offset,
    )
