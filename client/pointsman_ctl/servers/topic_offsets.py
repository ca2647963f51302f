"""Offsets of a group in the queues of one topic, read and reset the same way at agents and at RocketMQ brokers.

RocketMQ brokers from 5.2 reset offsets themselves (``useServerSideResetOffset``), in any queue. Before that a broker
passes a reset on to the running members, all queues to one time; without members each offset is committed. So mqadmin
does it, too (``resetOffsetByTime``, ``skipAccumulatedMessage``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import grpc

from pointsman.names import MAX_QUEUES
from pointsman.rocketmq.bodies import number_of
from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.v1 import consumer_group_service_pb2 as groups_wire
from pointsman.v1 import offset_service_pb2 as wire
from pointsman.wire.error_details import ErrorDetails
from pointsman_client import PointsmanError, RequestRejectedError
from pointsman_ctl.servers.agent_queries import AgentGroup, AgentServer
from pointsman_ctl.servers.group_bodies import object_table
from pointsman_ctl.servers.rocketmq_broker import MAX_CONCURRENT_CALLS, RocketmqBroker

MAX_QUEUES_A_CALL = 1_000
END_MILLIS = -1
"""RocketMQ's time for the end of a queue."""


class ResetUnsupportedError(PointsmanError):
    """A RocketMQ broker cannot make this reset while the group has members."""

    code = "RESET_UNSUPPORTED"

    def __init__(self, addr: str, group: str) -> None:
        super().__init__(
            f"{addr} resets offsets of running members only in all queues, to earliest, latest or a time, as it is a "
            f"broker before 5.2 or has useServerSideResetOffset=false: do that, or stop the members of {group} first"
        )
        self.addr = addr
        self.group = group


class OffsetUnknownError(PointsmanError):
    """The new offset of a queue cannot be found: its messages are not known now."""

    code = "OFFSET_UNKNOWN"

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"where the messages of queue {queue} begin and end, or which are of that time, is not known now: "
            "its broker is down, not routed, or its agent cannot query it; give an offset"
        )
        self.queue = queue


class OffsetMovedError(PointsmanError):
    """A committed offset is not the expected one; nothing was reset."""

    code = "OFFSET_MOVED"

    def __init__(self, queue: str, *, committed: int | None, expected: int) -> None:
        at = "has no committed offset" if committed is None else f"is at offset {committed}"
        super().__init__(f"queue {queue} {at}, not at the expected {expected}: nothing was reset")
        self.committed = committed
        self.expected = expected


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A group in one queue."""

    queue_id: int
    committed: int | None
    """None: there is no committed offset."""
    min_offset: int | None
    """Of the first message; None: the broker does not report it."""
    max_offset: int | None
    """After the last message."""


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """A group in the queues that one broker has of a topic."""

    queues: Sequence[QueuePosition]
    """By number; empty: the broker does not have the topic."""
    members: Mapping[str, bool] = field(default_factory=dict)
    """Client ids of running members that read the topic, and whether each follows a reset while it runs."""
    is_broadcasting: bool = False
    is_known: bool = True
    """Whether the broker knows the group: by its offsets, members or settings."""
    is_unstored: bool = False
    """Whether an agent could not store offsets at its last attempt: a reset of before is sent again."""
    by_members: bool = False
    """Whether the broker has running members make the reset: all queues to one time."""


@dataclass(frozen=True, slots=True)
class ResetOrder:
    """Offsets to set at one broker."""

    group: str
    topic: str
    offsets: Mapping[int, int]
    """By queue id."""
    expected: Mapping[int, int] = field(default_factory=dict)
    """Committed offsets without which nothing is reset."""
    millis: int | None = None
    """The same as one time for all queues, since 1970, or END_MILLIS; None: it is not."""
    by: str = ""


async def topic_offsets(server: AgentServer | RocketmqBroker, group: str, topic: str, deadline: float) -> TopicOffsets:
    """Return the group's offsets at one server. Raises AgentFailedError and RequestRejectedError."""
    if isinstance(server, RocketmqBroker):
        return await _at_broker(server, group, topic, deadline)
    return await _at_agent(server, group, topic, deadline)


async def reset_offsets(server: AgentServer | RocketmqBroker, order: ResetOrder, deadline: float) -> None:
    """Reset offsets at one server; a queue that is at its offset already is reset again.

    Raises AgentFailedError, RequestRejectedError, ResetUnsupportedError and OffsetMovedError.
    """
    if isinstance(server, RocketmqBroker):
        await _reset_at_broker(server, order, deadline)
        return
    rest = iter(order.offsets.items())
    while part := tuple(islice(rest, MAX_QUEUES_A_CALL)):
        request = wire.ResetOffsetsRequest(group=order.group, topic=order.topic, by=order.by)
        for queue_id, offset in part:
            request.queues.add(queue_id=queue_id, offset=offset, expected=order.expected.get(queue_id))
        await server.call(server.offsets.ResetOffsets, request, deadline=deadline)


# --- agents ---------------------------------------------------------------------------------------------------


async def _at_agent(server: AgentServer, group: str, topic: str, deadline: float) -> TopicOffsets:
    request = wire.ListTopicOffsetsRequest(group=group, topic=topic)
    try:
        listed = await server.call(server.offsets.ListTopicOffsets, request, deadline=deadline)
    except RequestRejectedError as refusal:
        if refusal.status is grpc.StatusCode.NOT_FOUND:
            return TopicOffsets((), is_known=False)
        raise
    found = await server.group(group, deadline)
    queues = [
        QueuePosition(
            each.queue_id,
            each.committed if each.HasField("committed") else None,
            each.min_offset if each.HasField("min_offset") else None,
            each.max_offset if each.HasField("max_offset") else None,
        )
        for each in listed.queues
    ]
    members = _members(found, topic, lambda member: member.settings.follows_resets)
    is_known = found.group is not None or any(each.committed is not None for each in queues)
    return TopicOffsets(queues, members, _is_broadcasting(found), is_known, is_unstored=bool(listed.store_problem))


def _members(found: AgentGroup, topic: str, follows: Callable[[groups_wire.GroupMember], bool]) -> Mapping[str, bool]:
    """Return the members that read the topic, and whether each follows a reset."""
    return {
        each.client_id: follows(each)
        for each in (found.group.members if found.group is not None else ())
        if any(subscription.topic == topic for subscription in each.subscriptions) or topic.startswith("%")
    }


def _is_broadcasting(found: AgentGroup) -> bool:
    return found.group is not None and found.group.membership.message_model == groups_wire.MESSAGE_MODEL_BROADCASTING


# --- RocketMQ brokers -----------------------------------------------------------------------------------------


async def _at_broker(broker: RocketmqBroker, group: str, topic: str, deadline: float) -> TopicOffsets:
    progress = await broker.progress(group, deadline, topic=topic)
    here = {each.committed.queue_id: each for each in progress if each.committed.topic == topic}
    if not here:
        return TopicOffsets((), is_known=False)
    firsts = await _first_offsets(broker, topic, deadline)
    queues = [
        QueuePosition(
            queue_id,
            each.committed.offset,
            firsts.get(queue_id, 0),
            max(firsts.get(queue_id, 0), each.max_offset),
        )
        for queue_id, each in sorted(here.items())
    ]
    found = await broker.group(group, deadline)
    is_known = bool(found.clients) or group in await broker.group_names(deadline)
    by_members = bool(found.clients) and not await _resets_itself(broker, deadline)
    members = _members(found, topic, lambda _: True)
    return TopicOffsets(queues, members, _is_broadcasting(found), is_known, by_members=by_members)


async def _first_offsets(broker: RocketmqBroker, topic: str, deadline: float) -> dict[int, int]:
    body = await broker.request(Request.GET_TOPIC_STATS_INFO, {"topic": topic}, deadline) or b""
    with broker.bad_bodies(Request.GET_TOPIC_STATS_INFO):
        return {
            number_of(queue, "queueId", most=MAX_QUEUES): number_of(facts, "minOffset", most=2**63 - 1)
            for queue, facts in object_table(body, "offsetTable")
            if facts.get("minOffset") != -1
        }


async def _reset_at_broker(broker: RocketmqBroker, order: ResetOrder, deadline: float) -> None:
    if order.expected:
        now = await _at_broker(broker, order.group, order.topic, deadline)
        committed = {each.queue_id: each.committed for each in now.queues}
        for queue_id, expected in order.expected.items():
            if committed.get(queue_id) != expected:
                raise OffsetMovedError(
                    f"{order.topic}/{queue_id}", committed=committed.get(queue_id), expected=expected
                )
    names = {"topic": order.topic, "group": order.group, "isForce": "true"}
    if await _resets_itself(broker, deadline):

        async def reset(queue_id: int) -> None:
            ext = names | {"queueId": str(queue_id), "offset": str(order.offsets[queue_id]), "timestamp": "0"}
            await _change(broker, Request.INVOKE_BROKER_TO_RESET_OFFSET, ext, deadline)

        await _each(order.offsets, reset)
    elif (await broker.group(order.group, deadline)).clients:
        if order.millis is None:
            raise ResetUnsupportedError(broker.addr, order.group)
        ext = names | {"timestamp": str(order.millis)}
        await _change(broker, Request.INVOKE_BROKER_TO_RESET_OFFSET, ext, deadline)
    else:

        async def commit(queue_id: int) -> None:
            ext = {"consumerGroup": order.group, "topic": order.topic, "queueId": str(queue_id)}
            ext |= {"commitOffset": str(order.offsets[queue_id])}
            await _change(broker, Request.UPDATE_CONSUMER_OFFSET, ext, deadline)

        await _each(order.offsets, commit)


async def _change(broker: RocketmqBroker, code: Request, ext: Mapping[str, str], deadline: float) -> None:
    if await broker.request(code, ext, deadline, is_read=False) is None:
        group = ext.get("group", ext.get("consumerGroup", ""))
        message = f"{code.name} ({code}): the broker does not have group {group}, or its members just left"
        raise RequestRejectedError(broker.addr, grpc.StatusCode.FAILED_PRECONDITION, message, ErrorDetails())


async def _resets_itself(broker: RocketmqBroker, deadline: float) -> bool:
    """Whether the broker resets single queues: 4.9 and 5.0 ignore the number, and would reset all queues."""
    config = await broker.request(Request.GET_BROKER_CONFIG, {}, deadline) or b""
    lines = config.decode(errors="replace").splitlines()
    return any(line.replace(" ", "") == "useServerSideResetOffset=true" for line in lines)


async def _each(queue_ids: Iterable[int], call: Callable[[int], Awaitable[None]]) -> None:
    """Make one call for each queue, a bounded number at the same time."""
    turns = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

    async def one(queue_id: int) -> None:
        async with turns:
            await call(queue_id)

    await asyncio.gather(*map(one, queue_ids))
