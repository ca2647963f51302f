"""Topics at one broker, read and changed: at its agent, or at a RocketMQ broker itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

import grpc

from pointsman.names import PERM_READ, PERM_WRITE
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import RequestCode
from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import topic_service_pb2 as wire
from pointsman.wire.operator_texts import perm_text
from pointsman_client import RequestRejectedError
from pointsman_ctl.servers.agent_queries import AgentServer
from pointsman_ctl.servers.rocketmq_broker import RocketmqBroker
from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess
from pointsman_ctl.servers.topic_bodies import (
    NEW_TOPIC,
    BrokerTopic,
    QueueStat,
    read_group_list,
    read_topic,
    read_topic_of_all,
    read_topic_stats,
)


class TopicSettings(NamedTuple):
    """The queues of a topic at one broker, and its permission (read 4, write 2)."""

    read_queues: int
    write_queues: int
    perm: int = PERM_READ | PERM_WRITE

    @property
    def queues(self) -> int:
        """Number of queues that can be read or written."""
        return max(self.read_queues, self.write_queues)

    def __str__(self) -> str:
        perm = perm_text(self.perm)
        if self.read_queues == self.write_queues:
            return f"{self.read_queues} queues, {perm}"
        return f"{self.read_queues} read queues, {self.write_queues} write queues, {perm}"


@dataclass(frozen=True, slots=True)
class HeldQueue:
    """What a queue holds; None: the broker does not report it."""

    queue_id: int
    min_offset: int | None = None
    max_offset: int | None = None
    message_count: int | None = None
    last_write_at: datetime | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it is known to hold no message."""
        return self.message_count == 0


@dataclass(frozen=True, slots=True)
class HeldTopic:
    """A topic as one broker has it."""

    settings: TopicSettings | None
    """None: the broker does not have it."""
    queues: tuple[HeldQueue, ...] = ()
    """By number; also queues that are no longer in use, where they still hold messages."""
    kind: str = "toml"
    """Topic source of its agent, or ``broker`` for a RocketMQ broker."""
    unwritable: str = ""
    """Why it cannot be changed; empty: it can."""
    removes_queues: bool = False
    """Whether messages of a queue can be removed by themselves."""
    is_replica: bool = False
    """Whether the broker is a slave, whose agent has topics from its own file: groups read at its master."""
    is_copy: bool = False
    """Whether the broker copies its topics from its master, where they are changed."""


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A consumer group that reads a topic, or has read it, at one broker."""

    group: str
    members: int
    is_broadcasting: bool = False
    committed: Mapping[int, int] = field(default_factory=dict)
    """Offset by queue."""

    def lag_in(self, queues: Sequence[HeldQueue]) -> int:
        """Return the number of messages of these queues that it has not committed; known ones count."""
        lag = 0
        for queue in queues:
            if queue.max_offset is not None:
                begin = max(self.committed.get(queue.queue_id, 0), queue.min_offset or 0)
                lag += max(0, queue.max_offset - begin)
        return lag


class TopicBroker(Protocol):
    """One broker. Methods raise BrokerFailedError or AgentFailedError, and RequestRejectedError.

    ``deadline``: a time of the event loop. Every change can be repeated.
    """

    async def topic(self, topic: str, deadline: float) -> HeldTopic:
        """Return a topic."""
        ...

    async def groups(self, topic: str, deadline: float) -> list[TopicGroup]:
        """Return the groups of a topic, sorted by name."""
        ...

    async def write(self, topic: str, settings: TopicSettings, deadline: float, *, by: str) -> bool:
        """Create a topic or set its queues and permission; return whether anything changed."""
        ...

    async def remove(self, topic: str, deadline: float, *, by: str) -> bool:
        """Remove a topic; return whether it was there."""
        ...

    async def remove_queues(
        self, topic: str, ends: Mapping[int, int], deadline: float, *, by: str
    ) -> tuple[list[int], list[int]]:
        """Remove queues that are not in use, by number, with their messages; return those removed, and those that stay.

        One with another end than the given one stays.
        """
        ...


def topic_broker(server: AgentServer | RocketmqBroker) -> TopicBroker:
    """Return the topics at a server."""
    return RocketmqTopics(server) if isinstance(server, RocketmqBroker) else AgentTopics(server)


class AgentTopics:
    """Topics at an agent."""

    def __init__(self, agent: AgentServer) -> None:
        self._agent = agent

    async def topic(self, topic: str, deadline: float) -> HeldTopic:
        """See :meth:`TopicBroker.topic`."""
        request = wire.GetTopicRequest(topic=topic)
        found = await self._agent.call(self._agent.topics.GetTopic, request, deadline=deadline)
        settings = found.settings
        return HeldTopic(
            TopicSettings(settings.read_queues, settings.write_queues, settings.perm)
            if found.HasField("settings")
            else None,
            tuple(map(_to_queue, found.queues)),
            kind=found.source,
            unwritable=found.unwritable,
            removes_queues=found.removes_queues and found.is_master,
            is_replica=not found.is_master,
            is_copy=found.source == "redis" and not found.is_master,
        )

    async def groups(self, topic: str, deadline: float) -> list[TopicGroup]:
        """See :meth:`TopicBroker.groups`."""
        listed, progress = await asyncio.gather(
            self._agent.list_groups(deadline), self._agent.list_offsets("", deadline)
        )
        committed: dict[str, dict[int, int]] = {}
        for each in progress.progress:
            if each.committed.topic == topic:
                committed.setdefault(each.group, {})[each.committed.queue_id] = each.committed.offset
        members = {each.group: each for each in listed.groups}
        names = committed.keys() | {each.group for each in listed.groups if topic in each.topics}
        found: list[TopicGroup] = []
        for name in sorted(names):
            summary = members.get(name, groups_wire.GroupSummary())
            is_broadcasting = summary.message_model == groups_wire.MESSAGE_MODEL_BROADCASTING
            found.append(TopicGroup(name, summary.members, is_broadcasting, committed.get(name, {})))
        return found

    async def write(self, topic: str, settings: TopicSettings, deadline: float, *, by: str) -> bool:
        """See :meth:`TopicBroker.write`."""
        request = wire.WriteTopicRequest(topic=topic, settings=wire.TopicSettings(**settings._asdict()), by=by)
        return (await self._agent.call(self._agent.topics.WriteTopic, request, deadline=deadline)).changed

    async def remove(self, topic: str, deadline: float, *, by: str) -> bool:
        """See :meth:`TopicBroker.remove`."""
        request = wire.RemoveTopicRequest(topic=topic, by=by)
        return (await self._agent.call(self._agent.topics.RemoveTopic, request, deadline=deadline)).changed

    async def remove_queues(
        self, topic: str, ends: Mapping[int, int], deadline: float, *, by: str
    ) -> tuple[list[int], list[int]]:
        """See :meth:`TopicBroker.remove_queues`."""
        removed: list[int] = []
        moved: list[int] = []
        numbers = sorted(ends)
        for start in range(0, len(numbers), MAX_QUEUES_A_CALL):
            queues = [
                wire.RemovedQueue(queue_id=each, max_offset=ends[each])
                for each in numbers[start : start + MAX_QUEUES_A_CALL]
            ]
            request = wire.RemoveQueuesRequest(topic=topic, queues=queues, by=by)
            response = await self._agent.call(self._agent.topics.RemoveQueues, request, deadline=deadline)
            removed += response.removed
            moved += response.moved
        return removed, moved


MAX_QUEUES_A_CALL = 1_000
"""As agents allow."""


def _to_queue(queue: wire.HeldQueue) -> HeldQueue:
    return HeldQueue(
        queue.queue_id,
        queue.min_offset if queue.HasField("min_offset") else None,
        queue.max_offset if queue.HasField("max_offset") else None,
        queue.message_count if queue.HasField("message_count") else None,
        queue.last_message_at.ToDatetime(tzinfo=UTC) if queue.HasField("last_message_at") else None,
    )


class RocketmqTopics:
    """Topics at a RocketMQ broker. A slave has those of its master."""

    def __init__(self, broker: RocketmqBroker) -> None:
        self._broker = broker

    async def topic(self, topic: str, deadline: float) -> HeldTopic:
        """See :meth:`TopicBroker.topic`."""
        config = await self._config(topic, deadline)
        if config is None:
            return HeldTopic(None, kind="broker")
        body = await self._broker.request(Request.GET_TOPIC_STATS_INFO, {"topic": topic}, deadline)
        with self._broker.bad_bodies(Request.GET_TOPIC_STATS_INFO):
            stats = {each.queue_id: each for each in read_topic_stats(topic, body or b"")}
        # 4.9 reports writable queues alone.
        for queue_id in range(max(config.read_queues, config.write_queues)):
            if queue_id not in stats:
                stats[queue_id] = await self._bounds(topic, queue_id, deadline)
        return HeldTopic(
            TopicSettings(config.read_queues, config.write_queues, config.perm & (PERM_READ | PERM_WRITE)),
            tuple(
                HeldQueue(
                    each.queue_id,
                    each.min_offset,
                    each.max_offset,
                    max(0, each.max_offset - each.min_offset),
                    datetime.fromtimestamp(each.last_write_millis / 1000, UTC) if each.last_write_millis else None,
                )
                for each in sorted(stats.values(), key=lambda each: each.queue_id)
            ),
            kind="broker",
            unwritable="it is a static topic: use mqadmin updateStaticTopic" if config.is_static else "",
        )

    async def groups(self, topic: str, deadline: float) -> list[TopicGroup]:
        """See :meth:`TopicBroker.groups`.

        A broker lists groups with offsets, and in 5.x, in place of groups with members, the topic's own name.
        """
        names = await self._broker.group_names(deadline)
        body = await self._broker.request(Request.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}, deadline)
        with self._broker.bad_bodies(Request.QUERY_TOPIC_CONSUME_BY_WHO):
            listed = {*read_group_list(body or b'{"groupList":[]}')}
        found = await self._broker.of_each(names, lambda name: self._broker.group(name, deadline))
        connected = {name: each.group for name, each in found.items()}
        concerned = [name for name in names if name in listed or _subscribes(connected[name], topic)]

        async def one(name: str) -> TopicGroup:
            progress = await self._broker.progress(name, deadline, topic=topic)
            group = connected[name] or groups_wire.GetGroupResponse()
            return TopicGroup(
                name,
                len(group.members),
                group.membership.message_model == groups_wire.MESSAGE_MODEL_BROADCASTING,
                {each.committed.queue_id: each.committed.offset for each in progress if each.committed.topic == topic},
            )

        return list((await self._broker.of_each(concerned, one)).values())

    async def write(self, topic: str, settings: TopicSettings, deadline: float, *, by: str) -> bool:
        """See :meth:`TopicBroker.write`."""
        del by  # RocketMQ has no place for it
        config = await self._config(topic, deadline)
        if config is not None and settings == (
            config.read_queues,
            config.write_queues,
            config.perm & (PERM_READ | PERM_WRITE),
        ):
            return False
        ext = (config or NEW_TOPIC).to_ext(topic, **settings._asdict())
        await self._broker.request(Request.UPDATE_AND_CREATE_TOPIC, ext, deadline, is_read=False)
        return True

    async def remove(self, topic: str, deadline: float, *, by: str) -> bool:
        """See :meth:`TopicBroker.remove`. Its messages go with it."""
        del by
        is_held = await self._config(topic, deadline) is not None
        await self._broker.request(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic}, deadline, is_read=False)
        return is_held

    async def remove_queues(
        self,
        topic: str,
        ends: Mapping[int, int],
        deadline: float,
        *,
        by: str,
    ) -> tuple[list[int], list[int]]:
        """A RocketMQ broker keeps the messages of queues that are not in use until they are too old."""
        del topic, deadline, by
        return [], sorted(ends)

    async def _bounds(self, topic: str, queue_id: int, deadline: float) -> QueueStat:
        ext = {"topic": topic, "queueId": str(queue_id)}
        end = await self._broker.offset(Request.GET_MAX_OFFSET, ext, deadline)
        # A queue that was never written has no first message either.
        begin = min(end, await self._broker.offset(Request.GET_MIN_OFFSET, ext, deadline))
        return QueueStat(queue_id, begin, end, 0)

    async def _config(self, topic: str, deadline: float) -> BrokerTopic | None:
        try:
            body = await self._broker.request(Request.GET_TOPIC_CONFIG, {"topic": topic}, deadline)
        except RequestRejectedError as error:
            if error.status is grpc.StatusCode.NOT_FOUND:
                return None
            if error.status is not grpc.StatusCode.UNIMPLEMENTED:
                raise
            # 4.9 has no request for one topic.
            body = await self._broker.request(Request.GET_ALL_TOPIC_CONFIG, {}, deadline)
            with self._broker.bad_bodies(Request.GET_ALL_TOPIC_CONFIG):
                return read_topic_of_all(topic, body or b"{}")
        with self._broker.bad_bodies(Request.GET_TOPIC_CONFIG):
            return read_topic(body or b"{}")


def _subscribes(group: groups_wire.GetGroupResponse | None, topic: str) -> bool:
    return group is not None and any(
        subscription.topic == topic for member in group.members for subscription in member.subscriptions
    )


async def delete_at_rocketmq_name_server(
    addr: str, topic: str, deadline: float, *, cluster: str, access: RocketmqAccess
) -> None:
    """Delete a topic at a RocketMQ name server at host:port, as mqadmin does after the brokers."""
    server = RocketmqBroker(addr, access)
    ext = {"topic": topic, **({"clusterName": cluster} if cluster else {})}
    try:
        await server.request(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext, deadline, is_read=False)
    finally:
        await server.close()
