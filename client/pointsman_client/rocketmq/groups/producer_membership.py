"""A producer's place in its group at RocketMQ brokers: heartbeats (34, 35), transactions (37, 39), replies (326).

Every master of the topics gets heartbeats. A broker asks any of the group's producers that it knows about transactions
that have not ended, so each of them must know how any ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman.rocketmq.frames import Command, compact
from pointsman_client.aio import Wakeup, end_tasks, start_task
from pointsman_client.core.route import RouteChange
from pointsman_client.core.transactions import HalfMessage, TransactionState
from pointsman_client.errors import PointsmanError
from pointsman_client.ports.producer_group import ProducerGroupRequest, masters_of
from pointsman_client.rocketmq.broker_connection import Reply
from pointsman_client.rocketmq.groups.broker_membership import (
    CALL_SECONDS,
    HEARTBEAT_INTERVAL_SECONDS,
    LEAVE_SECONDS,
    MIN_ROUND_SECONDS,
    RETRY_SECONDS,
)
from pointsman_client.rocketmq.groups.member_links import MemberLinks
from pointsman_client.rocketmq.half_messages import checked_half, end_fields, read_checked
from pointsman_client.rocketmq.message_codec import read_reply
from pointsman_client.rocketmq.pulling import number
from pointsman_client.rocketmq.rocketmq_options import RocketmqOptions

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Registered:
    error: PointsmanError | None = None
    """Of the last heartbeat; None: accepted."""
    sent_at: float = -math.inf
    next_at: float = -math.inf
    is_accepted: bool = False
    """Whether the broker accepted a heartbeat on the connection that is open."""


class ProducerMembership:
    """See :class:`~pointsman_client.ports.producer_group.ProducerGroup`."""

    def __init__(self, request: ProducerGroupRequest, options: RocketmqOptions) -> None:
        self._request = request
        self._max_body_bytes = options.max_body_bytes
        self._clock = request.clock
        self._links = MemberLinks(options, on_request=self._handle, on_lost=self._connection_lost)
        self._topics = set(request.topics)
        self._registered: dict[str, _Registered] = {}
        """By the address of a master."""
        self._wakeup = Wakeup(request.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._stop_route_changes: Callable[[], None] | None = None
        heartbeat = {"clientID": request.client_id, "producerDataSet": [{"groupName": request.group}]}
        self._heartbeat = compact(heartbeat | {"consumerDataSet": []})

    async def start(self) -> None:
        """See :meth:`ProducerGroup.start`."""
        if not self._tasks:
            self._stop_route_changes = self._request.routes.on_route_change(self._route_changed)
            self._tasks.append(start_task(self._run(), name=f"pointsman-producer-group-{self._request.group}"))

    async def end(
        self, half: HalfMessage, state: TransactionState, *, is_checked: bool, timeout_seconds: float
    ) -> None:
        """See :meth:`ProducerGroup.end`. Unlike the Java client it awaits the response."""
        ext = end_fields(half, state, group=self._request.group, is_checked=is_checked)
        code = BrokerRequestCode.END_TRANSACTION
        await self._links.call(half.addr, code, ext, timeout_seconds=timeout_seconds)

    async def register(self, topics: Collection[str], *, timeout_seconds: float) -> None:
        """See :meth:`RequestGroup.register`."""
        self._topics.update(topics)
        addrs = await masters_of(self._request.routes, topics)
        missing = [addr for addr in addrs if not self._registered.setdefault(addr, _Registered()).is_accepted]
        await asyncio.gather(*(self._heartbeat_at(addr, min(timeout_seconds, CALL_SECONDS)) for addr in missing))
        errors = [self._registered[addr].error for addr in missing]
        if errors and len(errors) == len(addrs) and (error := errors[0]) is not None and all(errors):
            raise error

    async def close(self) -> None:
        """See :meth:`ProducerGroup.close`."""
        if self._stop_route_changes is not None:
            self._stop_route_changes()
        tasks, self._tasks = self._tasks, []
        # First the heartbeats: one after the unregistration would register again.
        await end_tasks(tasks, timeout_seconds=0.2)
        name = f"pointsman-leave-{self._request.group}"
        accepted = [addr for addr, each in self._registered.items() if each.error is None]
        leaving = [start_task(self._unregister(addr), name=name) for addr in accepted]
        if leaving:
            await asyncio.wait(leaving, timeout=LEAVE_SECONDS)
        await end_tasks(leaving, timeout_seconds=0.1)
        await self._links.close()

    async def _unregister(self, addr: str) -> None:
        ext = {"clientID": self._request.client_id, "producerGroup": self._request.group}
        try:
            await self._links.call(addr, BrokerRequestCode.UNREGISTER_CLIENT, ext, timeout_seconds=LEAVE_SECONDS)
        except PointsmanError as error:
            logger.info("%s did not unregister producer group %s: %s", addr, self._request.group, error)

    # Heartbeats

    async def _run(self) -> None:
        while True:
            addrs = await masters_of(self._request.routes, self._topics)
            for addr in [each for each in self._registered if each not in addrs]:
                del self._registered[addr]
            now = self._clock.monotonic()
            due = [addr for addr in addrs if self._registered.setdefault(addr, _Registered()).next_at <= now]
            await asyncio.gather(*(self._heartbeat_at(addr) for addr in due))
            self._links.retire_others(addrs)
            await self._clock.sleep(MIN_ROUND_SECONDS)
            next_at = min((each.next_at for each in self._registered.values()), default=now + RETRY_SECONDS)
            await self._wakeup.wait(max(next_at - self._clock.monotonic(), 0.0))

    async def _heartbeat_at(self, addr: str, timeout_seconds: float = CALL_SECONDS) -> None:
        registered = self._registered[addr]
        # Set before the call: a connection that breaks during the call makes it due again.
        registered.sent_at = self._clock.monotonic()
        registered.next_at = registered.sent_at + HEARTBEAT_INTERVAL_SECONDS
        group = self._request.group
        try:
            code = BrokerRequestCode.HEART_BEAT
            await self._links.call(addr, code, {}, self._heartbeat, timeout_seconds=timeout_seconds)
        except PointsmanError as error:
            registered.next_at = self._clock.monotonic() + RETRY_SECONDS
            if registered.error is None:
                logger.warning("heartbeat of producer group %s failed at broker %s: %s", group, addr, error)
            registered.error, registered.is_accepted = error, False
        else:
            if registered.error is not None:
                logger.warning("heartbeat of producer group %s accepted by broker %s", group, addr)
            registered.error, registered.is_accepted = None, True

    def _connection_lost(self, addr: str) -> None:
        """Register again at a broker: it forgets a producer whose connection ended."""
        registered = self._registered.get(addr)
        if registered is not None:
            registered.is_accepted = False
            registered.next_at = min(registered.next_at, registered.sent_at + RETRY_SECONDS)
            self._wakeup.wake()

    def _route_changed(self, change: RouteChange) -> None:
        if change.topic in self._topics:
            self._wakeup.wake()

    # Requests of brokers

    def _handle(self, addr: str, command: Command, body: bytes, reply: Callable[[Reply], None]) -> None:
        """See ``RequestHandler``."""
        most = self._max_body_bytes
        if command.code == BrokerRequestCode.CHECK_TRANSACTION_STATE:
            half = checked_half(addr, command, body)
            self._request.on_check(half, lambda: read_checked(addr, body, max_body_bytes=most))
        elif command.code == BrokerRequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT and self._request.on_reply is not None:
            ext, sys_flag = command.ext, number(addr, command, "sysFlag")
            message = read_reply(ext.get("properties", ""), body, sys_flag, ext.get("topic", ""), max_body_bytes=most)
            self._request.on_reply(message)
            reply(Reply())
        else:
            reply(Reply(BrokerResponseCode.REQUEST_CODE_NOT_SUPPORTED, f"request code {command.code} is not supported"))
