"""Committed offsets at the brokers of the queues: QUERY_CONSUMER_OFFSET (14) and UPDATE_CONSUMER_OFFSET (15).

RocketMQ's RemoteBrokerOffsetStore. A broker stores any offset that it receives, also a lower one and from a client that
is not a member, so what keeps an offset from going backwards is here.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from pointsman.clock import Clock
from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman_client.core.message_queue import MessageQueue, to_subscribe_queues
from pointsman_client.core.route import BrokerKey, TopicRoute
from pointsman_client.errors import (
    BrokerRefusedError,
    BrokerTimeoutError,
    BrokerUnreachableError,
    OffsetBeyondEndError,
    PointsmanError,
    UnreadableMessageError,
)
from pointsman_client.ports.coordination import BegunTopics, LoadedOffsets, RoutedBrokers
from pointsman_client.ports.transport import Reader, Transport
from pointsman_client.rocketmq.groups.member_links import MemberLinks, any_addr
from pointsman_client.rocketmq.pulling import SEARCHER, number

CALL_SECONDS = 3.0
"""Timeout of a call, shorter than RocketMQ's 5 s: a queue that is not loaded is tried again."""
CONFIRMED_TTL_SECONDS = 60.0
"""How long a broker is assumed to have what it confirmed; then the offset is committed again."""
MAX_CONCURRENT_CALLS = 200
"""Per broker."""
LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)

ResultT = TypeVar("ResultT")


class _Confirmed(NamedTuple):
    addr: str
    offset: int
    at: float


class BrokerOffsetStore:
    """See :class:`~pointsman_client.ports.coordination.OffsetStore`."""

    def __init__(
        self,
        brokers: RoutedBrokers,
        links: MemberLinks,
        transport: Transport,
        *,
        route: Callable[[str], Awaitable[TopicRoute]],
        group: str,
        clock: Clock,
    ) -> None:
        """``route``: the route of a topic, from the cache if it is there."""
        self._brokers = brokers
        self._links = links
        self._transport = transport
        self._route = route
        self._group = group
        self._clock = clock
        self._confirmed: dict[MessageQueue, _Confirmed] = {}
        # A reset must not be overtaken by a commit that was sent before it.
        self._turn = asyncio.Lock()

    async def load(self, queues: Collection[MessageQueue]) -> LoadedOffsets:
        """See :meth:`OffsetStore.load`.

        For a queue without a committed offset a 4.9 broker reports 0 while message 0 is still in memory, which is taken
        as an offset: the queue is read from its first message on.
        """
        loaded, failed = await self._for_each(queues, self._load)
        for queue in loaded:
            # Another member may have committed since, also a lower offset.
            self._confirmed.pop(queue, None)
        return LoadedOffsets({queue: offset for queue, offset in loaded.items() if offset is not None}, failed)

    async def begin(self, moments: Mapping[str, datetime]) -> BegunTopics:
        """See :meth:`OffsetStore.begin`.

        Brokers do not store when a group began. A group that has committed offsets of the topic is not new to it: then
        a queue without one was added since, and begins with the messages sent after the last one that the group
        consumed. Without this a queue that was added while the group was stopped would lose its first messages.
        """
        begun: dict[str, datetime] = {}
        unknown: dict[str, PointsmanError] = {}
        for topic, moment in moments.items():
            try:
                last = await self._last_consumed_at(topic)
            except PointsmanError as error:
                unknown[topic] = error
            else:
                begun[topic] = moment if last is None else min(moment, last)
        return BegunTopics(begun, unknown)

    async def commit(
        self,
        offsets: Mapping[MessageQueue, int],
        *,
        reset: bool = False,
        epochs: Mapping[MessageQueue, int] | None = None,  # noqa: ARG002  # of the Protocol; there are none here
    ) -> Mapping[MessageQueue, PointsmanError]:
        """See :meth:`OffsetStore.commit`; offsets that a broker has confirmed are not sent again."""
        async with self._turn:
            since = self._clock.monotonic() - CONFIRMED_TTL_SECONDS
            self._confirmed = {queue: each for queue, each in self._confirmed.items() if each.at > since}
            missing = [queue for queue, offset in offsets.items() if reset or not self._has(queue, offset)]

            async def commit_one(queue: MessageQueue, addr: str) -> None:
                offset = offsets[queue]
                try:
                    await self._update(queue, addr, offset)
                except BrokerRefusedError as error:
                    if error.response_code != BrokerResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                        raise
                    # Without a member, as with assigned queues, the first pull creates the group, not a commit.
                    await self._born_at(addr, queue, offset, Reader(self._group))
                    await self._update(queue, addr, offset)
                self._confirmed[queue] = _Confirmed(addr, offset, self._clock.monotonic())

            # Each broker by itself: one that hangs must not delay the commits of others.
            by_broker: defaultdict[BrokerKey, list[MessageQueue]] = defaultdict(list)
            for queue in missing:
                by_broker[queue.broker_key].append(queue)
            failures = await asyncio.gather(*(self._commit_at(each, commit_one) for each in by_broker.values()))
            failed = {queue: error for each in failures for queue, error in each.items()}
            for queue in failed:
                self._confirmed.pop(queue, None)
            return failed

    async def _commit_at(
        self, queues: Collection[MessageQueue], commit_one: Callable[[MessageQueue, str], Awaitable[None]]
    ) -> dict[MessageQueue, PointsmanError]:
        """Commit queues of one broker; return the failures.

        Of two first offsets of a topic that arrive together a broker may lose one, and reports success for both
        (``ConsumerOffsetManager.commitOffset``): one goes ahead.
        """
        known = {(queue.broker_key, queue.topic) for queue in self._confirmed}
        first = {queue.topic: queue for queue in queues if (queue.broker_key, queue.topic) not in known}
        _, failed = await self._for_each(first.values(), commit_one)
        errors = {queue.topic: error for queue, error in failed.items()}
        others = [queue for queue in queues if first.get(queue.topic) != queue]
        failed |= {queue: errors[queue.topic] for queue in others if queue.topic in errors}
        _, others_failed = await self._for_each([queue for queue in others if queue not in failed], commit_one)
        return failed | others_failed

    async def _update(self, queue: MessageQueue, addr: str, offset: int) -> None:
        ext = self._ext(queue) | {"commitOffset": str(offset)}
        code = BrokerRequestCode.UPDATE_CONSUMER_OFFSET
        await self._links.call(addr, code, ext, timeout_seconds=CALL_SECONDS)

    async def _load(self, queue: MessageQueue, addr: str) -> int | None:
        response = await self._links.call(
            addr,
            BrokerRequestCode.QUERY_CONSUMER_OFFSET,
            self._ext(queue) | {"setZeroIfNotFound": "false"},
            timeout_seconds=CALL_SECONDS,
            allowed=(BrokerResponseCode.SUCCESS, BrokerResponseCode.QUERY_NOT_FOUND),
            is_read=True,
        )
        if response.command.code == BrokerResponseCode.QUERY_NOT_FOUND:
            return None
        offset = number(addr, response.command, "offset")
        return offset if offset >= 0 else None

    async def _last_consumed_at(self, topic: str) -> datetime | None:
        """When the newest message that the group consumed of a topic was born; None: the group is new to the topic.

        Of a queue with committed offset 0 its first message counts. Where the message cannot be read any longer, the
        time is unknown but long ago. Raises the error of a queue if no queue has a time.
        """
        loaded = await self.load(to_subscribe_queues(await self._route(topic)))
        consumed = {queue: max(offset - 1, 0) for queue, offset in loaded.offsets.items()}
        if not consumed and loaded.unknown:
            raise next(iter(loaded.unknown.values()))

        async def born_at(queue: MessageQueue, addr: str) -> datetime | None:
            try:
                # Not as the group: a broker reports a reset in one response to it, which the queue's owner needs.
                return await self._born_at(addr, queue, consumed[queue], SEARCHER)
            except BrokerRefusedError:
                # Access control may permit only the own group.
                return await self._born_at(addr, queue, consumed[queue], Reader(self._group))

        found, failed = await self._for_each(consumed, born_at)
        last = max((at for at in found.values() if at is not None), default=None)
        if last is None and failed:
            raise next(iter(failed.values()))
        return last

    async def _born_at(self, addr: str, queue: MessageQueue, offset: int, reader: Reader) -> datetime | None:
        try:
            pulled = await self._transport.pull(
                addr,
                queue,
                offset,
                max_messages=1,
                wait_seconds=0.0,
                timeout_seconds=CALL_SECONDS,
                reader=reader,
            )
        except (OffsetBeyondEndError, UnreadableMessageError):
            return LONG_AGO
        if pulled.trimmed:
            return LONG_AGO
        return pulled.messages[0].born_at if pulled.messages else None

    async def _for_each(
        self, queues: Collection[MessageQueue], call: Callable[[MessageQueue, str], Awaitable[ResultT]]
    ) -> tuple[dict[MessageQueue, ResultT], dict[MessageQueue, PointsmanError]]:
        """Make a call for each queue at its broker, a bounded number at the same time; return results and failures.

        After a call without a response the broker's remaining queues fail without one, so that a broker that hangs
        takes the time of one call.
        """
        results: dict[MessageQueue, ResultT] = {}
        failed: dict[MessageQueue, PointsmanError] = {}
        limits: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_CONCURRENT_CALLS))
        down: dict[str, PointsmanError] = {}

        async def one(queue: MessageQueue) -> None:
            addr = any_addr(self._brokers.broker(queue.cluster, queue.broker_name))
            if addr is None:
                failed[queue] = BrokerUnreachableError(f"{queue.cluster}/{queue.broker_name}", "no route has it")
                return
            async with limits[addr]:
                if addr in down:
                    failed[queue] = down[addr]
                    return
                try:
                    results[queue] = await call(queue, addr)
                except (BrokerUnreachableError, BrokerTimeoutError) as error:
                    failed[queue] = down[addr] = error
                except PointsmanError as error:
                    failed[queue] = error

        await asyncio.gather(*map(one, queues))
        return results, failed

    def _has(self, queue: MessageQueue, offset: int) -> bool:
        confirmed = self._confirmed.get(queue)
        addr = any_addr(self._brokers.broker(queue.cluster, queue.broker_name))
        return confirmed is not None and confirmed.addr == addr and confirmed.offset >= offset

    def _ext(self, queue: MessageQueue) -> dict[str, str]:
        return {"consumerGroup": self._group, "topic": queue.topic, "queueId": str(queue.queue_id)}
