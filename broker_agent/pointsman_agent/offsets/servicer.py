"""OffsetService: conversion between requests and the table of offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain

from google.protobuf.duration_pb2 import Duration

from pointsman.clock import Clock, utc_millis
from pointsman.daemon.access.access import BROKERS, CLIENTS, VIEWERS, Caller, Rule, Rules, author, check_group
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.request_fields import by_violations
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.group_topics import RETRY_QUEUES, is_retry_topic
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, InvalidRequest, NotReady, refuse_if_any, shown
from pointsman_agent.core.loads_since_reset import LoadsSinceReset
from pointsman_agent.core.offset_epoch import MAX_AHEAD_MILLIS
from pointsman_agent.core.offsets import UNSEEN_DAYS, OffsetKey, TooManyOffsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.replica_offsets import ReplicaOffsets
from pointsman_agent.core.topic_set import TopicSet
from pointsman_agent.offsets.flusher import Flusher
from pointsman_agent.queue_stats.ends import QueueEnds, QueueEndsError
from pointsman_agent.rpc.agent_fields import MAX_QUEUES_A_CALL, QueueFields, cut, name_violations, read_page, to_queues
from pointsman_agent.rpc.agent_refusals import GroupInUse, LimitExceeded, NotFound, NotStored, OutOfRange, ResetRefused

COMMITS = Rule(CLIENTS.roles | BROKERS.roles)
"""A broker: the agent of a slave hands over offsets."""
RULES: Rules = {
    "CommitOffsets": COMMITS,
    "GetOffsets": CLIENTS,
    "BeginTopics": COMMITS,
    "ListOffsets": Rule(CLIENTS.roles | VIEWERS.roles),
    "ListTopicOffsets": Rule(CLIENTS.roles | VIEWERS.roles),
    "ResetOffsets": CLIENTS,
    "DeleteOffsets": CLIENTS,
}
SERVICE = wire.DESCRIPTOR.services_by_name["OffsetService"]
MAX_MOMENT_SECONDS = 253_402_300_799
"""The last second of the year 9999, where timestamps end."""
MAX_NAMED = 5
"""Offsets beyond an end that an error lists: it is sent in trailers, which are limited."""

log = logging.getLogger(__name__)


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
        is_broadcasting: Callable[[str], bool] = lambda _: False,
        on_reset: Callable[[str], None] = lambda _: None,
        member_count: Callable[[str], int | None] = lambda _: 0,
    ) -> None:
        """``is_broadcasting``: whether the members of a group store their own offsets. ``on_reset`` is called with the
        group when offsets have a new epoch. ``member_count``: the number of members of a group at this
        agent; None: not known yet."""
        self._offsets = offsets
        self._flushers = flushers
        self._topics = topics
        self._queues = QueueFields(topics)
        self._ends = ends
        self._clock = clock
        self._is_broadcasting = is_broadcasting
        self._on_reset = on_reset
        self._member_count = member_count
        self._loads = LoadsSinceReset()

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
        group, now = request.group, utc_millis(self._clock)
        self._refuse_without_epoch(request, peer, now=now)
        epochs = {QueueKey(each.topic, each.queue_id): each.epoch for each in request.offsets if each.HasField("epoch")}
        is_news = any(epoch > self._offsets.epoch(group, queue) for queue, epoch in epochs.items())
        try:
            kept = self._offsets.commit(group, offsets, epochs=epochs, reset=request.reset, now=now, peer=peer.key)
        except TooManyOffsets as error:
            raise _too_many(error, group) from error
        if is_news:
            self._on_reset(group)
        return wire.CommitOffsetsResponse(kept=self._to_messages(group, kept))

    def get_offsets(self, request: wire.GetOffsetsRequest, peer: Peer) -> wire.GetOffsetsResponse:
        """See offset_service.proto. A queue that the broker no longer has may still have an offset."""
        refuse_if_any(
            chain(
                name_violations("group", request.group),
                self._queues.violations("queues", request.queues, must_exist=False),
            )
        )
        check_group(peer.caller, request.group)
        self._refuse_until_loaded()
        group, queues = request.group, to_queues(request.queues)
        found = self._offsets.get(group, queues, pending_only=request.pending_only)
        if request.pending_only:
            return wire.GetOffsetsResponse(offsets=self._to_messages(group, found))
        epochs = {queue: epoch for queue in queues if (epoch := self._offsets.epoch(group, queue))}
        keys = ((OffsetKey(group, *queue), epoch) for queue, epoch in epochs.items())
        self._loads.loaded(keys, peer.addr, now=utc_millis(self._clock))
        return wire.GetOffsetsResponse(
            offsets=self._to_messages(group, found),
            uncommitted=[
                wire.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, epoch=epoch)
                for queue, epoch in epochs.items()
                if queue not in found
            ],
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

    async def list_topic_offsets(
        self, request: wire.ListTopicOffsetsRequest, caller: Caller | None = None
    ) -> wire.ListTopicOffsetsResponse:
        """See offset_service.proto."""
        group, topic = request.group, request.topic
        refuse_if_any(chain(name_violations("group", group), name_violations("topic", topic)))
        check_group(caller, group)
        self._refuse_until_loaded()
        queues = self._readable(topic)
        committed = self._offsets.get(group, queues)
        try:
            ends = await self._ends.ends(queues)
        except QueueEndsError:
            ends = {}
        problem = next((each.problem for each in self._flushers if each.problem), "")
        response = wire.ListTopicOffsetsResponse(store_problem=problem)
        for queue in queues:
            added = response.queues.add(
                queue_id=queue.queue_id, committed=committed.get(queue), epoch=self._offsets.epoch(group, queue)
            )
            if queue in ends:
                added.min_offset, added.max_offset = ends[queue].min_offset, ends[queue].max_offset
        return response

    async def reset_offsets(self, request: wire.ResetOffsetsRequest, peer: Peer) -> wire.ResetOffsetsResponse:
        """See offset_service.proto."""
        group = request.group
        named = [wire.QueueOffset(topic=request.topic, queue_id=each.queue_id) for each in request.queues]
        refuse_if_any(
            chain(
                name_violations("group", group),
                name_violations("topic", request.topic),
                self._queues.violations("queues", named, must_exist=True),
                [] if request.queues else [FieldViolation("queues", "must have at least one entry")],
                by_violations(request.by),
            )
        )
        check_group(peer.caller, group)
        self._refuse_until_loaded()
        offsets = {QueueKey(request.topic, each.queue_id): each.offset for each in request.queues}
        _refuse_beyond(offsets, await self._max_offsets(offsets), field="queues")
        self._refuse_reset(request)
        held, now = self._offsets.get(group, offsets), utc_millis(self._clock)
        try:
            epochs = self._offsets.reset(group, offsets, now=now, peer=peer.key)
        except TooManyOffsets as error:
            raise _too_many(error, group) from error
        facts = {
            "group": group,
            "topic": request.topic,
            "queues": {queue.queue_id: f"{held.get(queue, '-')} to {offset}" for queue, offset in offsets.items()},
            "by": author(request.by, peer.caller).name,
            "peer": peer.addr,
        }
        log.warning("operator reset offsets of a group", extra={"facts": facts})
        self._on_reset(group)
        await self._store("the offsets are reset")
        return wire.ResetOffsetsResponse(
            offsets=[
                wire.QueueOffset(topic=queue.topic, queue_id=queue.queue_id, offset=offset, epoch=epochs[queue])
                for queue, offset in offsets.items()
            ]
        )

    async def delete_offsets(self, request: wire.DeleteOffsetsRequest, peer: Peer) -> wire.DeleteOffsetsResponse:
        """See offset_service.proto."""
        group = request.group
        refuse_if_any(chain(name_violations("group", group), by_violations(request.by)))
        check_group(peer.caller, group)
        self._refuse_until_loaded()
        count = self._member_count(group)
        if count is None:
            raise NotReady("this agent has just started and may not know all members yet; retry", state="warming")
        if count:
            members = "1 member" if count == 1 else f"{count} members"
            raise GroupInUse(f"group {group} has {members} here: nothing was deleted; stop its consumers first")
        deleted = self._offsets.delete(group)
        facts = {
            "group": group,
            "offsets": deleted,
            "by": author(request.by, peer.caller).name,
            "peer": peer.addr,
        }
        log.warning("operator deleted the offsets of a group", extra={"facts": facts})
        await self._store("the offsets are deleted")
        return wire.DeleteOffsetsResponse(offset_count=deleted)

    async def _store(self, done: str) -> None:
        """Raise NotStored, which begins with ``done``, unless the change is on the disk."""
        for flusher in self._flushers:
            if not await flusher.flush():
                raise NotStored(f"{done}, but cannot be stored yet, so send it again: {flusher.problem}")

    def _readable(self, topic: str) -> list[QueueKey]:
        """Return the queues of a topic. Raises NotFound."""
        count = RETRY_QUEUES if is_retry_topic(topic) else None
        for each in self._topics().topics:
            if each.topic == topic:
                count = each.read_queue_nums
        if count is None:
            raise NotFound(f"this broker does not have topic {shown(topic)}")
        return [QueueKey(topic, queue_id) for queue_id in range(count)]

    def _refuse_reset(self, request: wire.ResetOffsetsRequest) -> None:
        if self._is_broadcasting(request.group):
            raise ResetRefused(f"group {request.group} broadcasts: each member stores its own offsets")
        for each in request.queues:
            queue = QueueKey(request.topic, each.queue_id)
            held = self._offsets.get(request.group, [queue]).get(queue)
            if each.HasField("expected") and held != each.expected:
                is_at = "has no committed offset" if held is None else f"is at offset {held}"
                raise ResetRefused(
                    f"group {request.group} {is_at} in queue {each.queue_id} of topic {request.topic}, "
                    f"not at {each.expected}: nothing was reset"
                )

    def _refuse_without_epoch(self, request: wire.CommitOffsetsRequest, peer: Peer, *, now: int) -> None:
        """Refuse commits whose epoch is too far ahead, or unknown where it matters. Raises both refusals of fields."""
        ahead = [
            FieldViolation(f"offsets[{index}].epoch", f"is more than a day ahead of this agent's clock: {each.epoch}")
            for index, each in enumerate(request.offsets)
            if each.epoch > now + MAX_AHEAD_MILLIS
            and each.epoch > self._offsets.epoch(request.group, QueueKey(each.topic, each.queue_id))
        ]
        if ahead:
            raise InvalidRequest(_first(ahead))
        late = [
            FieldViolation(
                f"offsets[{index}]",
                f"is refused: an operator has reset the offset of queue {each.queue_id} of topic {each.topic!r}, and "
                "this client has not loaded it since; restart the client, or use version 0.2, which follows a reset",
            )
            for index, each in enumerate(request.offsets)
            if not each.HasField("epoch") and not self._may_commit(request.group, each, peer, now=now)
        ]
        if late:
            raise OutOfRange(_first(late))

    def _may_commit(self, group: str, offset: wire.QueueOffset, peer: Peer, *, now: int) -> bool:
        queue = QueueKey(offset.topic, offset.queue_id)
        epoch = self._offsets.epoch(group, queue)
        return self._loads.may_commit(OffsetKey(group, *queue), epoch, peer.addr, now=now)

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

    def _to_messages(self, group: str, offsets: Mapping[QueueKey, int]) -> list[wire.QueueOffset]:
        return [
            wire.QueueOffset(
                topic=queue.topic, queue_id=queue.queue_id, offset=offset, epoch=self._offsets.epoch(group, queue)
            )
            for queue, offset in offsets.items()
        ]

    async def _max_offsets(self, queues: Collection[QueueKey]) -> Mapping[QueueKey, int]:
        """Return the ends of queues, as far as the broker reports them now."""
        try:
            return await self._ends.max_offsets(queues)
        except QueueEndsError:
            # A group must be able to commit while the broker is down; it cannot be beyond what it has read.
            return {}


def _refuse_beyond(offsets: Mapping[QueueKey, int], ends: Mapping[QueueKey, int], *, field: str = "offsets") -> None:
    violations = [
        FieldViolation(
            f"{field}[{index}].offset",
            f"is beyond the end of queue {queue.queue_id} of topic {queue.topic!r}, which is {ends[queue]}: {offset}",
        )
        for index, (queue, offset) in enumerate(offsets.items())
        if offset > ends.get(queue, offset)
    ]
    if violations:
        raise OutOfRange(_first(violations))


def _first(violations: list[FieldViolation]) -> list[FieldViolation]:
    if len(violations) <= MAX_NAMED:
        return violations
    return [*violations[:MAX_NAMED], FieldViolation("...", f"and {len(violations) - MAX_NAMED} more errors")]


def _too_many(error: TooManyOffsets, group: str) -> LimitExceeded:
    note = (
        f"existing offsets of group {group!r} can still advance, but nothing new was recorded for it; offsets before "
        f"the start of their queue expire when their group has had no client for {UNSEEN_DAYS} days"
    )
    return LimitExceeded(error.what, error.bound, note=note)


def _to_progress(key: OffsetKey, offset: int, max_offset: int | None) -> wire.QueueProgress:
    return wire.QueueProgress(
        group=key.group,
        committed=wire.QueueOffset(topic=key.topic, queue_id=key.queue_id, offset=offset),
        max_offset=max_offset,
    )
