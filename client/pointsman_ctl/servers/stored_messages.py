"""Messages in the queues of a topic, the same for Redis brokers and RocketMQ brokers: bounds, reads, sends.

A read touches no consumer group: Redis has none in its streams, and RocketMQ brokers are read as their own tools read.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeVar

from pointsman.names import is_rocketmq
from pointsman_client import (
    BrokerData,
    BrokerError,
    BrokerRefusedError,
    BrokerReplica,
    BrokerUnreachableError,
    HashRing,
    Message,
    MessageQueue,
    NoBrokerUpError,
    NoWritableQueueError,
    OutgoingMessage,
    PointsmanError,
    QueueUnavailableError,
    Reader,
    ReceivedMessage,
    SendReceipt,
    TopicRoute,
    Transport,
    to_publish_queues,
)
from pointsman_client.pointsman_grpc.codec import to_topic_route
from pointsman_client.rocketmq import (
    Link,
    RocketmqOptions,
    RocketmqTransport,
    broker_of,
    query_messages,
    view_message,
)
from pointsman_ctl.servers.name_servers import PointsmanNameServer, name_servers
from pointsman_ctl.servers.producer_connections import Sender, redis_senders, rocketmq_senders
from pointsman_ctl.servers.rocketmq_name_server import RocketmqAccess
from pointsman_ctl.servers.server_calls import To, query_first

READER = Reader("TOOLS_CONSUMER")
"""A group that every RocketMQ broker has, and mqadmin reads with (``MixAll.TOOLS_CONSUMER_GROUP``)."""
PRODUCER_GROUP = "TOOLS_PRODUCER"
"""Producer group that RocketMQ brokers see (``MixAll.TOOLS_PRODUCER_GROUP``)."""
PULL_BYTES = 8 * 1024 * 1024
"""Memory for the messages of one pull: the next pull asks for as many as fit, by the largest one so far."""
FIRST_PULL, MAX_PULL = 4, 256
MAX_CONCURRENT_QUEUES = 16
"""Queues that are queried at the same time."""
ResultT = TypeVar("ResultT")


class BrokerKind(StrEnum):
    """What stores the messages of a queue."""

    REDIS = "redis"
    """A Redis server with an agent beside it."""
    ROCKETMQ = "rocketmq"
    """Registered by itself or by an agent."""


class StaticTopicError(PointsmanError):
    """A static topic of RocketMQ 5, whose logical queues no Pointsman program reads or writes."""

    code = "STATIC_TOPIC"

    def __init__(self, topic: str) -> None:
        super().__init__(f"{topic} is a static topic of RocketMQ 5: its messages are not read or sent; use mqadmin")
        self.topic = topic


class RedisPackageMissingError(PointsmanError):
    """The queue is a Redis stream, and the package that reads it is not installed."""

    code = "REDIS_PACKAGE_MISSING"

    def __init__(self) -> None:
        super().__init__("messages of Redis brokers need the redis package: pip install 'pointsman-client[redis]'")


@dataclass(frozen=True, slots=True)
class RedisAccess:
    """How to connect to Redis brokers."""

    username: str = ""
    """ACL user; empty: the default user."""
    password: str = field(default="", repr=False)
    """Empty: no AUTH."""
    ssl: Mapping[str, object] | None = None
    """Arguments of redis-py's ``SSLConnection``; None: plain text."""


@dataclass(frozen=True, slots=True, order=True)
class HeldQueue:
    """A queue of a topic, and the broker that serves it now."""

    queue: MessageQueue
    addr: str
    """The master's, else the replica's with the lowest id."""
    kind: BrokerKind = field(compare=False)
    is_readable: bool = field(default=True, compare=False)
    """Whether consumers may read it."""
    is_writable: bool = field(default=True, compare=False)
    """Whether producers may write it: permission, and a master that is routed."""

    @property
    def name(self) -> str:
        """``CLUSTER/BROKER/N``, as in tables."""
        return f"{self.queue.cluster}/{self.queue.broker_name}/{self.queue.queue_id}"


class StoredMessages:
    """Messages of one run of a command. Every call to a broker ends within the timeout of the command.

    Calls to brokers raise :class:`~pointsman_client.BrokerError`, and RedisPackageMissingError.
    """

    def __init__(
        self,
        to: To[PointsmanNameServer],
        addrs: Sequence[str],
        *,
        timeout_seconds: float,
        rocketmq: RocketmqAccess,
        redis: RedisAccess,
        max_length: int | None = None,
    ) -> None:
        """``addrs``: the name servers, of one kind. ``max_length``: of Redis streams, after a send; None: any."""
        self._to = to
        self._addrs = addrs
        self._timeout_seconds = timeout_seconds
        self._rocketmq = rocketmq
        self._redis = redis
        self._max_length = max_length
        self._transports: dict[BrokerKind, Transport] = {}
        self._links: dict[str, Link] = {}
        self._registered_alone: frozenset[str] | None = None

    async def queues(self, topic: str, cluster: str = "") -> tuple[HeldQueue, ...]:
        """Return the queues of a topic, readable or writable, of one cluster or all, sorted.

        Raises TopicNotFoundError, NoBrokerUpError, StaticTopicError, NameServersUnavailableError.
        """
        route = await self._route(topic, cluster)
        brokers = [each for each in route.broker_datas if each.replicas]
        without = await self._without_agent(brokers)
        found = await asyncio.gather(*(self._kind_of(each, topic, without) for each in brokers))
        kinds = {each.key: kind for each, kind in zip(brokers, found, strict=True)}
        return tuple(sorted(_held_queues(route, kinds)))

    async def brokers(self, cluster: str = "") -> tuple[str, ...]:
        """Return all brokers that are routed, CLUSTER/BROKER, of one cluster or all, sorted.

        Raises ClusterNotFoundError and NameServersUnavailableError.
        """
        found = await query_first(
            name_servers(self._to, self._rocketmq),
            self._addrs,
            lambda server, deadline: server.clusters(deadline, cluster=cluster),
            self._timeout_seconds,
        )
        return tuple(
            sorted(f"{data.cluster}/{data.broker_name}" for each in found.clusters for data in each.broker_datas)
        )

    async def queue_of_key(self, topic: str, sharding_key: str) -> MessageQueue:
        """Return the queue of a sharding key, for producers with the default map; it may not be writable now.

        Raises as :meth:`queues`, OrderTopicConfError, and NoWritableQueueError if the topic has no write queues.
        """
        route = await self._route(topic)
        queues = to_publish_queues(route) if route.order_topic_conf else tuple(_write_queues(route))
        if not queues:
            raise NoWritableQueueError(topic, "its brokers have no write queues")
        return HashRing().over(queues).queue_of(sharding_key)

    async def _route(self, topic: str, cluster: str = "") -> TopicRoute:
        found = await query_first(
            name_servers(self._to, self._rocketmq),
            self._addrs,
            lambda server, deadline: server.route(topic, deadline, cluster=cluster),
            self._timeout_seconds,
        )
        route = to_topic_route(found)
        if route.is_static:
            raise StaticTopicError(topic)
        if not route.queue_datas and route.absent_brokers:
            raise NoBrokerUpError(topic, route.absent_brokers)
        return route

    async def bounds(self, held: HeldQueue) -> tuple[int, int]:
        """Return the offset of the first stored message and that after the last; equal: there is none."""
        transport, seconds = self._transport(held.kind), self._timeout_seconds
        # In this order: a queue whose first messages are removed in between must not look empty.
        first = await transport.min_offset(held.addr, held.queue, timeout_seconds=seconds)
        end = await transport.max_offset(held.addr, held.queue, timeout_seconds=seconds)
        return first, max(first, end)

    async def offset_at(self, held: HeldQueue, moment: datetime) -> int:
        """Return the offset of the first message from ``moment``; the end, if there is none.

        Redis: by the time at which it was born; RocketMQ: by that at which the broker stored it.
        """
        transport = self._transport(held.kind)
        return await transport.offset_at(held.addr, held.queue, moment, timeout_seconds=self._timeout_seconds)

    async def read(self, held: HeldQueue, begin: int, end: int) -> AsyncIterator[ReceivedMessage]:
        """Yield the stored messages from ``begin`` to before ``end``; those that were removed are missing.

        Holds PULL_BYTES at a time, or FIRST_PULL messages. Raises UnreadableMessageError at a message that cannot be
        read: begin again after its offset.
        """
        transport, count, largest, offset = self._transport(held.kind), FIRST_PULL, 1, begin
        while offset < end:
            pulled = await transport.pull(
                held.addr,
                held.queue,
                offset,
                max_messages=min(count, end - offset),
                wait_seconds=0.0,
                timeout_seconds=self._timeout_seconds,
                reader=READER,
            )
            for message in pulled.messages:
                if message.queue_offset >= end:
                    return
                largest = max(largest, len(message.body))
                yield message
            if pulled.next_offset <= offset:
                return
            offset = pulled.next_offset
            count = max(1, min(MAX_PULL, PULL_BYTES // largest))

    async def indexed(self, held: HeldQueue, *, key: str = "", message_id: str = "") -> list[ReceivedMessage]:
        """Return the messages of a topic at the broker of a queue with a key or an id, from the index of RocketMQ.

        The id is a producer's, or an ``offsetMsgId`` of this broker. At most 64 messages.
        """
        link, seconds = self._link(held.addr), self._timeout_seconds
        found = await query_messages(link, held.queue, key=key, message_id=message_id, timeout_seconds=seconds)
        if found or not message_id or broker_of(message_id) != held.addr:
            return found
        viewed = await view_message(link, held.queue, message_id, timeout_seconds=seconds)
        return [] if viewed is None or viewed.queue.topic != held.queue.topic else [viewed]

    async def senders(self, held: HeldQueue, group: str = "") -> list[Sender]:
        """Return the producers that are connected to the broker of a queue; ``group``: a producer group of RocketMQ."""
        seconds = self._timeout_seconds
        if held.kind is BrokerKind.ROCKETMQ:
            return await rocketmq_senders(self._link(held.addr), group, seconds=seconds)
        redis = self._redis
        try:
            return await redis_senders(
                held.addr, username=redis.username, password=redis.password, ssl=redis.ssl, seconds=seconds
            )
        except ImportError:
            raise RedisPackageMissingError from None

    async def send(self, held: HeldQueue, messages: Sequence[OutgoingMessage]) -> SendReceipt:
        """Append messages to a queue, in their order, all or none; nothing is sent a second time.

        Raises QueueUnavailableError, and InvalidInputError for a message that brokers of this kind do not accept.
        """
        if not held.is_writable:
            raise QueueUnavailableError(str(held.queue), "it has no write permission, or its broker has no master")
        transport = self._transport(held.kind)
        return await transport.send(held.addr, held.queue, messages, timeout_seconds=self._timeout_seconds)

    async def close(self) -> None:
        """Close the connections to brokers."""
        transports, links = list(self._transports.values()), list(self._links.values())
        self._transports, self._links = {}, {}
        await asyncio.gather(*(each.close() for each in transports), *(each.close() for each in links))

    async def _kind_of(self, broker: BrokerData, topic: str, without_agent: frozenset[str]) -> BrokerKind:
        names = {f"{broker.cluster}/{broker.broker_name}/{replica.broker_id}" for replica in broker.replicas}
        if is_rocketmq(self._addrs[0]) or names & without_agent:
            return BrokerKind.ROCKETMQ
        queue = MessageQueue(topic, broker.cluster, broker.broker_name, 0)
        return await self._kind_at(_read_from(broker).addr, queue)

    async def _kind_at(self, addr: str, queue: MessageQueue) -> BrokerKind:
        """Return what serves at the address of a broker with an agent: it may be RocketMQ's, too."""
        seconds = self._timeout_seconds
        try:
            await self._transport(BrokerKind.REDIS).min_offset(addr, queue, timeout_seconds=seconds)
        except BrokerUnreachableError as error:
            if "refused" in error.message:
                return BrokerKind.REDIS
        except RedisPackageMissingError:
            pass
        except BrokerError:
            return BrokerKind.REDIS
        else:
            return BrokerKind.REDIS
        try:
            await self._transport(BrokerKind.ROCKETMQ).min_offset(addr, queue, timeout_seconds=seconds)
        except BrokerRefusedError:
            return BrokerKind.ROCKETMQ
        except BrokerError:
            return BrokerKind.REDIS
        return BrokerKind.ROCKETMQ

    async def _without_agent(self, brokers: Sequence[BrokerData]) -> frozenset[str]:
        """Return CLUSTER/BROKER/ID of brokers that registered themselves, if there may be some among these."""
        if is_rocketmq(self._addrs[0]) or all(any(each.agent_addr for each in broker.replicas) for broker in brokers):
            return frozenset()
        if self._registered_alone is None:
            # An agent that serves no clients has no address either: registrations show the difference.
            listed = await query_first(
                self._to, self._addrs, lambda server, deadline: server.rocketmq_brokers(deadline), self._timeout_seconds
            )
            self._registered_alone = frozenset(listed)
        return self._registered_alone

    def _link(self, addr: str) -> Link:
        if addr not in self._links:
            access = self._rocketmq
            self._links[addr] = Link(addr, RocketmqOptions(tls=access.tls, access_key=access.access_key))
        return self._links[addr]

    def _transport(self, kind: BrokerKind) -> Transport:
        if kind not in self._transports:
            self._transports[kind] = self._open(kind)
        return self._transports[kind]

    def _open(self, kind: BrokerKind) -> Transport:
        if kind is BrokerKind.ROCKETMQ:
            return RocketmqTransport(
                producer_group=PRODUCER_GROUP, tls=self._rocketmq.tls, access_key=self._rocketmq.access_key
            )
        try:
            from pointsman_client.redis_streams import RedisStreamsTransport  # noqa: PLC0415  # an extra
        except ImportError:
            raise RedisPackageMissingError from None
        return RedisStreamsTransport(
            username=self._redis.username or None,
            password=self._redis.password or None,
            ssl=self._redis.ssl,
            # How long an application's queue may be is for its producers to say.
            max_length=self._max_length,
        )


async def of_every(
    queues: Sequence[HeldQueue], query: Callable[[HeldQueue], Awaitable[ResultT]]
) -> list[tuple[HeldQueue, ResultT | PointsmanError]]:
    """Query every queue, MAX_CONCURRENT_QUEUES at a time; return the result or the failure of each, in their order."""
    turns = asyncio.Semaphore(MAX_CONCURRENT_QUEUES)

    async def one(held: HeldQueue) -> tuple[HeldQueue, ResultT | PointsmanError]:
        async with turns:
            try:
                return held, await query(held)
            except PointsmanError as failure:
                return held, failure

    return await asyncio.gather(*map(one, queues))


def outgoing(message: Message, *, now: datetime | None = None) -> OutgoingMessage:
    """Return a new message as a producer sends it: with a new id, born now.

    Raises InvalidInputError for a message that no broker accepts.
    """
    message.check()
    return OutgoingMessage(message, uuid.uuid4().hex, now or datetime.now(UTC), due_at=message.deliver_at)


def _write_queues(route: TopicRoute) -> Iterator[MessageQueue]:
    """Yield the queues that keys map to: also of brokers without a master or permission, so that no key moves."""
    for data in sorted(route.queue_datas, key=lambda each: each.broker_key):
        for queue_id in range(data.write_queue_nums):
            yield MessageQueue(route.topic, data.cluster, data.broker_name, queue_id)


def _read_from(broker: BrokerData) -> BrokerReplica:
    return min(broker.replicas, key=lambda replica: replica.broker_id)


def _held_queues(route: TopicRoute, kinds: Mapping[tuple[str, str], BrokerKind]) -> Iterator[HeldQueue]:
    brokers = {each.key: each for each in route.broker_datas if each.replicas}
    for data in route.queue_datas:
        broker = brokers.get(data.broker_key)
        if broker is None:
            continue
        for queue_id in range(max(data.read_queue_nums, data.write_queue_nums)):
            yield HeldQueue(
                MessageQueue(route.topic, data.cluster, data.broker_name, queue_id),
                _read_from(broker).addr,
                kinds[data.broker_key],
                is_readable=data.is_readable and queue_id < data.read_queue_nums,
                is_writable=data.is_writable and queue_id < data.write_queue_nums and broker.master is not None,
            )
