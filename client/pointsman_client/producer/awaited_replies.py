"""Requests of one producer: messages that await a reply, which a broker passes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from pointsman_client.aio import done_within
from pointsman_client.client_ids import check_client_id, local_address, unique_instance
from pointsman_client.core.message import OutgoingMessage, ReceivedMessage
from pointsman_client.core.reply_address import ReplyAddress, reply_topic
from pointsman_client.errors import ClientClosedError, InvalidMessageError, InvalidOptionError, NoReplyError
from pointsman_client.ownership import Resources
from pointsman_client.ports.producer_group import HasRequests, ProducerGroupRequest, RequestGroup

GROUP = "POINTSMAN_REQUESTS"
"""Producer group of the connections that get replies; brokers find them by the client id."""

logger = logging.getLogger(__name__)


class AwaitedReplies:
    """What waits for replies; joins the brokers with the first request."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._group: RequestGroup | None = None
        self._client_id = ""
        self._waiting: dict[str, asyncio.Future[ReceivedMessage]] = {}
        """By correlation id."""
        self._is_closed = False

    async def request(
        self,
        outgoing: OutgoingMessage,
        send: Callable[[OutgoingMessage], Awaitable[object]],
        *,
        timeout_seconds: float,
    ) -> ReceivedMessage:
        """Send a request and return the reply to it.

        Raises what ``send`` raises, :class:`NoReplyError`, and :class:`InvalidOptionError` for a transport without
        requests.
        """
        clock, topic = self._resources.clock, outgoing.message.topic
        ends_at = clock.monotonic() + timeout_seconds
        if outgoing.message.deliver_at is not None:
            problem = "cannot be set in a request, whose sender waits for the reply"
            raise InvalidMessageError("deliver_at", outgoing.message.deliver_at.isoformat(), problem)
        await self._register(topic, timeout_seconds)
        address = ReplyAddress(self._client_id, outgoing.message_id, str(round(timeout_seconds * 1000)))
        waiter: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self._waiting[address.correlation_id] = waiter
        try:
            await send(outgoing._replace(internal_properties=address.properties()))
            if not await done_within(waiter, max(ends_at - clock.monotonic(), 0.0), clock=clock):
                raise NoReplyError(topic, outgoing.message_id, timeout_seconds)
            return waiter.result()
        finally:
            del self._waiting[address.correlation_id]
            waiter.cancel()

    async def close(self) -> None:
        """Leave the brokers; what waits raises ClientClosedError."""
        self._is_closed = True
        for waiter in self._waiting.values():
            if not waiter.done():
                waiter.set_exception(ClientClosedError())
        if self._group is not None:
            await self._group.close()

    async def _register(self, topic: str, timeout_seconds: float) -> None:
        """Be connected, under this client id, to every broker that a reply may be sent to."""
        route = await self._resources.client.topic_route(topic)
        topics = sorted({reply_topic(data.cluster) for data in route.broker_datas})
        if self._is_closed:
            raise ClientClosedError
        if self._group is None:
            self._group = self._join()
            await self._group.start()
        await self._group.register(topics, timeout_seconds=timeout_seconds)

    def _join(self) -> RequestGroup:
        resources = self._resources
        transport = resources.transport
        if not isinstance(transport, HasRequests):
            problem = "has no requests and replies: use RocketMQ brokers, or have the reply sent to another topic"
            raise InvalidOptionError("transport", type(transport).__name__, problem)
        address = local_address(resources.client.name_servers[0])
        self._client_id = check_client_id(f"{address}@{unique_instance(resources.rng)}")
        request = ProducerGroupRequest(
            routes=resources.client,
            group=GROUP,
            client_id=self._client_id,
            topics=(),
            on_check=lambda half, _: logger.info("a check of transaction %s ignored", half.transaction_id),
            on_reply=self._replied,
            clock=resources.clock,
        )
        return transport.request_group(request)

    def _replied(self, reply: ReceivedMessage) -> None:
        address = reply.reply_address
        waiter = None if address is None else self._waiting.get(address.correlation_id)
        if waiter is None:
            logger.info("a reply came that no request awaits any longer: %s", address)
        elif not waiter.done():
            waiter.set_result(reply)
