"""Leases of messages at RocketMQ brokers, 5.0 or later: POP, its acknowledgements, and changes of the invisible time.

Brokers share out the queues of a topic and of its POP retry topic themselves, in one request for all queues. They store
how far a group is as the committed offset of each queue, so a queue is begun by a commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from pointsman.rocketmq.codes import BrokerRequestCode, BrokerResponseCode
from pointsman.rocketmq.frames import compact
from pointsman_client.aio import deadline_in
from pointsman_client.core.lease import ConsumeMode, GroupBacklog, Lease
from pointsman_client.core.message_queue import MessageQueue
from pointsman_client.errors import GroupModeError
from pointsman_client.ports.leases import PoppedMessages
from pointsman_client.ports.transport import Reader
from pointsman_client.rocketmq.broker_connection import Response
from pointsman_client.rocketmq.broker_link import Link
from pointsman_client.rocketmq.broker_refusals import refused
from pointsman_client.rocketmq.popping import (
    VERSION_WITH_BATCHES,
    VERSION_WITH_POP,
    batch_body,
    lease_fields,
    mode_query,
    notification_fields,
    pop_fields,
    read_changed,
    read_mode,
    read_popped,
)
from pointsman_client.rocketmq.pulling import number

_FINISHED = {BrokerResponseCode.SUCCESS, BrokerResponseCode.NO_MESSAGE}
"""NO_MESSAGE: the broker has removed the message."""


class BrokerLeases:
    """The leases of one transport, whose ``link_of`` returns the link to a broker."""

    def __init__(self, link_of: Callable[[str], Link], *, max_body_bytes: int) -> None:
        self._link_of = link_of
        self._max_body_bytes = max_body_bytes
        self._begun: set[tuple[str, str, MessageQueue]] = set()
        """By address and group: queues that have a committed offset."""

    async def pop(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        max_messages: int,
        invisible_seconds: float,
        is_ordered: bool,
        timeout_seconds: float,
    ) -> PoppedMessages:
        """See :meth:`LeasesMessages.pop`."""
        deadline = deadline_in(timeout_seconds)
        unknown = [queue for queue in queues if (addr, reader.group, queue) not in self._begun]
        if unknown:
            begun = await self._backlogs(addr, unknown, reader.group, deadline)
            self._refuse_old(addr, reader.group, queues[0].topic)
            self._begun.update((addr, reader.group, queue) for queue in begun)
            without = tuple(queue for queue in unknown if queue not in begun)
            if without:
                # A pop would begin them by a rule of the broker.
                return PoppedMessages(without_group=without)
        fields = pop_fields(
            queues[0].topic,
            reader=reader,
            max_messages=max_messages,
            invisible_ms=round(invisible_seconds * 1000),
            is_ordered=is_ordered,
        )
        link, code = self._link_of(addr), BrokerRequestCode.POP_MESSAGE
        command, body = await link.exchange(code, fields, b"", deadline, is_read=False)
        leased = read_popped(addr, queues[0], command, body, group=reader.group, max_body_bytes=self._max_body_bytes)
        return PoppedMessages(tuple(leased))

    async def wait(
        self,
        addr: str,
        queues: Sequence[MessageQueue],
        *,
        reader: Reader,
        is_ordered: bool,
        wait_seconds: float,
        timeout_seconds: float,
    ) -> None:
        """See :meth:`LeasesMessages.wait_for_messages`."""
        wait_ms = max(1, round(wait_seconds * 1000))
        fields = notification_fields(queues[0].topic, group=reader.group, wait_ms=wait_ms, is_ordered=is_ordered)
        deadline = deadline_in(wait_seconds + timeout_seconds)
        code = BrokerRequestCode.NOTIFICATION
        command, _ = await self._link_of(addr).exchange(code, fields, b"", deadline, is_read=True)
        if command.code != BrokerResponseCode.SUCCESS:
            raise refused(addr, command)

    async def acknowledge(
        self, addr: str, leases: Sequence[Lease], *, group: str, timeout_seconds: float
    ) -> tuple[Lease, ...]:
        """See :meth:`LeasesMessages.acknowledge`. Brokers do not report leases that are over."""
        deadline, link = deadline_in(timeout_seconds), self._link_of(addr)
        if len(leases) > 1 and link.version >= VERSION_WITH_BATCHES:
            body = compact(batch_body(leases, group=group))
            code = BrokerRequestCode.BATCH_ACK_MESSAGE
            responses: Sequence[Response] = [await link.exchange(code, {}, body, deadline, is_read=True)]
        else:
            responses = await self._for_each(link, BrokerRequestCode.ACK_MESSAGE, leases, group, {}, deadline)
        for command, _ in responses:
            if command.code not in _FINISHED:
                raise refused(addr, command)
        return ()

    async def change_invisible(
        self, addr: str, leases: Sequence[Lease], *, group: str, invisible_seconds: float, timeout_seconds: float
    ) -> tuple[Lease | None, ...]:
        """See :meth:`LeasesMessages.change_invisible`."""
        more = {"invisibleTime": str(round(invisible_seconds * 1000))}
        code, deadline = BrokerRequestCode.CHANGE_MESSAGE_INVISIBLETIME, deadline_in(timeout_seconds)
        responses = await self._for_each(self._link_of(addr), code, leases, group, more, deadline)
        changed: list[Lease | None] = []
        for lease, (command, _) in zip(leases, responses, strict=True):
            if command.code not in _FINISHED:
                raise refused(addr, command)
            is_held = command.code == BrokerResponseCode.SUCCESS
            changed.append(read_changed(addr, lease, command) if is_held else None)
        return tuple(changed)

    async def begin_group(
        self, addr: str, queue: MessageQueue, offset: int, *, group: str, timeout_seconds: float
    ) -> None:
        """See :meth:`LeasesMessages.begin_group`."""
        deadline = deadline_in(timeout_seconds)
        if await self._backlogs(addr, [queue], group, deadline):
            return
        fields = _queue_fields(queue, group) | {"commitOffset": str(offset)}
        code, link = BrokerRequestCode.UPDATE_CONSUMER_OFFSET, self._link_of(addr)
        command, _ = await link.exchange(code, fields, b"", deadline, is_read=True)
        if command.code == BrokerResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            # The first request of a reader creates it (autoCreateSubscriptionGroup), a commit does not.
            create = notification_fields(queue.topic, group=group, wait_ms=0, is_ordered=False)
            await link.exchange(BrokerRequestCode.NOTIFICATION, create, b"", deadline, is_read=True)
            command, _ = await link.exchange(code, fields, b"", deadline, is_read=True)
        if command.code != BrokerResponseCode.SUCCESS:
            raise refused(addr, command)

    async def backlogs(
        self, addr: str, queues: Collection[MessageQueue], *, group: str, timeout_seconds: float
    ) -> Mapping[MessageQueue, GroupBacklog]:
        """See :meth:`LeasesMessages.backlogs`. How many messages of a queue are leased is not known."""
        return await self._backlogs(addr, queues, group, deadline_in(timeout_seconds))

    async def consume_mode(
        self, addr: str, topic: str, *, group: str, client_id: str, timeout_seconds: float
    ) -> ConsumeMode | None:
        """See :meth:`StatesConsumeMode.consume_mode`."""
        query = mode_query(topic, group=group, client_id=client_id)
        deadline, link = deadline_in(timeout_seconds), self._link_of(addr)
        command, body = await link.exchange(BrokerRequestCode.QUERY_ASSIGNMENT, {}, query, deadline, is_read=True)
        self._refuse_old(addr, group, topic)
        return read_mode(addr, command, body)

    async def _backlogs(
        self, addr: str, queues: Collection[MessageQueue], group: str, deadline: float
    ) -> dict[MessageQueue, GroupBacklog]:
        found: dict[MessageQueue, GroupBacklog] = {}
        link, code = self._link_of(addr), BrokerRequestCode.QUERY_CONSUMER_OFFSET
        for queue in queues:
            fields = _queue_fields(queue, group) | {"setZeroIfNotFound": "false"}
            command, _ = await link.exchange(code, fields, b"", deadline, is_read=True)
            if command.code == BrokerResponseCode.SUCCESS:
                offset = number(addr, command, "offset")
                if offset >= 0:
                    found[queue] = GroupBacklog(offset, 0)
            elif command.code != BrokerResponseCode.QUERY_NOT_FOUND:
                raise refused(addr, command)
        return found

    def _refuse_old(self, addr: str, group: str, topic: str) -> None:
        version = self._link_of(addr).version
        if version < VERSION_WITH_POP:
            instead = "use PushConsumer with ConsumeMode.PULL, or PullConsumer"
            problem = f"broker {addr} is older than RocketMQ 5.0 and has no POP; {instead}"
            raise GroupModeError(group, topic, problem)

    async def _for_each(
        self,
        link: Link,
        code: BrokerRequestCode,
        leases: Sequence[Lease],
        group: str,
        more: Mapping[str, str],
        deadline: float,
    ) -> Sequence[Response]:
        """Send a request for each lease, and return the responses in their order."""
        return await asyncio.gather(
            *(
                link.exchange(code, {**lease_fields(lease, group=group), **more}, b"", deadline, is_read=False)
                for lease in leases
            )
        )


def _queue_fields(queue: MessageQueue, group: str) -> dict[str, str]:
    return {"consumerGroup": group, "topic": queue.topic, "queueId": str(queue.queue_id)}
