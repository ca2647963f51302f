"""TopicService: topics of this broker as operators see and change them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from pointsman.daemon.access.access import ADMINS, CLIENTS, VIEWERS, Rule, Rules, author
from pointsman.daemon.rpc.calling_peer import Peer
from pointsman.daemon.rpc.request_fields import by_violations
from pointsman.daemon.rpc.rpc_server import Service
from pointsman.group_topics import is_group_topic
from pointsman.names import MAX_QUEUES, PERM_READ, PERM_WRITE
from pointsman.v1 import topic_service_pb2 as wire
from pointsman.wire.refusals import FieldViolation, refuse_if_any, shown
from pointsman_agent.core.offsets import Offsets
from pointsman_agent.core.queue import QueueKey
from pointsman_agent.core.topic_set import TopicConfig, TopicSet
from pointsman_agent.queue_stats.collector import slices
from pointsman_agent.queue_stats.ends import QueueContents, QueueEnds, QueueEndsError
from pointsman_agent.rpc.agent_fields import MAX_QUEUES_A_CALL, name_violations
from pointsman_agent.rpc.agent_refusals import HeldByOther, QueueInUse, TopicUnwritable, Unavailable
from pointsman_agent.topic_changes.topic_writer import TopicUnwritableError, TopicWriteFailedError, TopicWriter

if TYPE_CHECKING:
    from pointsman_agent.topic_changes.redis_streams import RedisStreams

RULES: Rules = {
    "GetTopic": Rule(CLIENTS.roles | VIEWERS.roles),
    "WriteTopic": ADMINS,
    "RemoveTopic": ADMINS,
    "RemoveQueues": ADMINS,
}
SERVICE = wire.DESCRIPTOR.services_by_name["TopicService"]
BATCH_QUEUES = 200
"""Queues whose last messages are read at a time: Redis serves no other client during it."""

Applied = Callable[[Callable[[TopicSet], bool]], Awaitable[None]]
"""Reads the topic source until the agent's topics are such; raises Unavailable if that takes too long."""

log = logging.getLogger(__name__)


class TopicServicer:
    """Serves the topics of one broker. ``streams``: None where its messages cannot be removed."""

    def __init__(
        self,
        writer: TopicWriter,
        *,
        topics: Callable[[], TopicSet],
        applied: Applied,
        ends: QueueEnds,
        streams: RedisStreams | None,
        offsets: Offsets,
        is_master: Callable[[], bool],
    ) -> None:
        self._writer = writer
        self._topics = topics
        self._applied = applied
        self._ends = ends
        self._streams = streams
        self._offsets = offsets
        self._is_master = is_master
        self._changed_by = ""

    def service(self) -> Service:
        """Return the service for the server."""
        return Service(descriptor=SERVICE, servicer=self, rules=RULES)

    async def get_topic(self, request: wire.GetTopicRequest) -> wire.GetTopicResponse:
        """See topic_service.proto."""
        refuse_if_any(name_violations("topic", request.topic))
        held = _held(self._topics(), request.topic)
        count = max(held.read_queue_nums, held.write_queue_nums) if held is not None else 0
        if self._streams is not None:
            with _failures():
                count = max(count, await self._streams.count(request.topic))
        return wire.GetTopicResponse(
            settings=_to_settings(held) if held is not None else None,
            queues=await self._held_queues(request.topic, count),
            source=self._writer.source,
            unwritable=self._writer.unwritable(),
            removes_queues=self._streams is not None,
            is_master=self._is_master(),
        )

    async def write_topic(self, request: wire.WriteTopicRequest, peer: Peer) -> wire.WriteTopicResponse:
        """See topic_service.proto."""
        settings = request.settings
        refuse_if_any(
            chain(_topic_violations(request.topic), _settings_violations(settings), by_violations(request.by))
        )
        before = _held(self._topics(), request.topic)

        def is_written(topics: TopicSet) -> bool:
            held = _held(topics, request.topic)
            return held is not None and _to_settings(held) == settings

        if is_written(self._topics()):
            return wire.WriteTopicResponse()
        with self._changing(request.by, peer) as by:
            topic = TopicConfig(request.topic, settings.read_queues, settings.write_queues, settings.perm)
            await self._writer.write(topic)
            await self._applied(is_written)
        log.info(
            "topic changed by an operator",
            extra={"facts": {"topic": request.topic, "by": by, "before": _text(before), "after": _text(topic)}},
        )
        return wire.WriteTopicResponse(changed=True)

    async def remove_topic(self, request: wire.RemoveTopicRequest, peer: Peer) -> wire.RemoveTopicResponse:
        """See topic_service.proto."""
        refuse_if_any(chain(_topic_violations(request.topic), by_violations(request.by)))
        before = _held(self._topics(), request.topic)
        if before is None:
            return wire.RemoveTopicResponse()
        with self._changing(request.by, peer) as by:
            await self._writer.remove(request.topic)
            await self._applied(lambda topics: _held(topics, request.topic) is None)
        facts = {"topic": request.topic, "by": by, "before": _text(before)}
        log.info("topic removed by an operator", extra={"facts": facts})
        return wire.RemoveTopicResponse(changed=True)

    async def remove_queues(self, request: wire.RemoveQueuesRequest, peer: Peer) -> wire.RemoveQueuesResponse:
        """See topic_service.proto."""
        refuse_if_any(
            chain(_topic_violations(request.topic), _queue_violations(request.queues), by_violations(request.by))
        )
        streams = self._streams
        if streams is None:
            raise TopicUnwritable("this agent cannot remove messages: its broker is not a Redis server")
        ends = {each.queue_id: each.max_offset for each in request.queues}

        def used() -> int:
            held = _held(self._topics(), request.topic)
            return max(held.read_queue_nums, held.write_queue_nums) if held is not None else 0

        if ends and min(ends) < used():
            raise QueueInUse(f"topic {shown(request.topic)} has {used()} queues, number {min(ends)} among them")
        with self._changing(request.by, peer) as by:
            removed, moved = await streams.remove(request.topic, ends)
            gone = ends.keys() - set(moved)
            offsets = self._offsets.remove_queues([QueueKey(request.topic, queue_id) for queue_id in gone])
            await streams.tidy(request.topic)
        facts = {"topic": request.topic, "by": by, "queues": removed, "stay": moved, "offsets": offsets}
        log.info("queues removed by an operator", extra={"facts": facts})
        return wire.RemoveQueuesResponse(removed=removed, moved=moved)

    @contextmanager
    def _changing(self, claimed: str, peer: Peer) -> Iterator[str]:
        """Allow one change at a time; yield its author."""
        by = author(claimed, peer.caller).name or peer.addr
        if not self._is_master() and self._writer.source == "redis":
            raise TopicUnwritable("this broker is a replica: the agent of its master changes topics")
        if self._changed_by:
            raise HeldByOther("the topic source of this agent", holder=self._changed_by)
        self._changed_by = by
        try:
            with _failures():
                yield by
        finally:
            self._changed_by = ""

    async def _held_queues(self, topic: str, count: int) -> list[wire.HeldQueue]:
        queues = [QueueKey(topic, queue_id) for queue_id in range(count)]
        try:
            ends = await self._ends.ends(queues)
            last = {queue: end.max_offset - 1 for queue, end in ends.items() if end.depth}
            born_at: dict[tuple[QueueKey, int], float] = {}
            if isinstance(self._ends, QueueContents):
                for part in slices(last.items(), BATCH_QUEUES):
                    born_at |= await self._ends.born_at(part)
        except QueueEndsError as error:
            raise Unavailable(str(error)) from error
        held: list[wire.HeldQueue] = []
        for queue in queues:
            row = wire.HeldQueue(queue_id=queue.queue_id)
            if (end := ends.get(queue)) is not None:
                row.min_offset, row.max_offset, row.message_count = end.min_offset, end.max_offset, end.depth
            if (at := born_at.get((queue, last.get(queue, -1)))) is not None:
                row.last_message_at.FromMilliseconds(round(at * 1000))
            held.append(row)
        return held


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except TopicUnwritableError as error:
        raise TopicUnwritable(str(error)) from error
    except TopicWriteFailedError as error:
        raise Unavailable(str(error)) from error


def _held(topics: TopicSet, topic: str) -> TopicConfig | None:
    return next((each for each in topics.topics if each.topic == topic), None)


def _to_settings(topic: TopicConfig) -> wire.TopicSettings:
    return wire.TopicSettings(
        read_queues=topic.read_queue_nums,
        write_queues=topic.write_queue_nums,
        perm=topic.perm & (PERM_READ | PERM_WRITE),
    )


def _text(topic: TopicConfig | None) -> str:
    return "" if topic is None else f"{topic.read_queue_nums} read, {topic.write_queue_nums} write, perm {topic.perm}"


def _topic_violations(topic: str) -> Sequence[FieldViolation]:
    if violations := name_violations("topic", topic):
        return violations
    if is_group_topic(topic):
        return [FieldViolation("topic", f"is the retry topic or the dead letters of a group: {shown(topic)}")]
    return ()


def _settings_violations(settings: wire.TopicSettings) -> Iterator[FieldViolation]:
    for field, count in (("read_queues", settings.read_queues), ("write_queues", settings.write_queues)):
        if count > MAX_QUEUES:
            yield FieldViolation(f"settings.{field}", f"must be at most {MAX_QUEUES}, not {count}")
    if not (settings.read_queues or settings.write_queues):
        yield FieldViolation("settings.read_queues", "must not be 0 together with write_queues: remove the topic")
    if settings.perm & ~(PERM_READ | PERM_WRITE):
        yield FieldViolation("settings.perm", f"has other bits than read (4) and write (2): {settings.perm}")


def _queue_violations(queues: Sequence[wire.RemovedQueue]) -> Iterator[FieldViolation]:
    if not 0 < len(queues) <= MAX_QUEUES_A_CALL:
        yield FieldViolation("queues", f"must have 1 to {MAX_QUEUES_A_CALL} entries, not {len(queues)}")
        return
    seen: set[int] = set()
    for index, each in enumerate(queues):
        if each.queue_id >= MAX_QUEUES:
            yield FieldViolation(f"queues[{index}].queue_id", f"must be below {MAX_QUEUES}, not {each.queue_id}")
        if each.queue_id in seen:
            yield FieldViolation(f"queues[{index}].queue_id", f"repeats queue {each.queue_id}")
        seen.add(each.queue_id)
