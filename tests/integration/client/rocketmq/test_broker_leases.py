"""Leases at a fake RocketMQ broker: which requests it gets, and what its responses mean."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from pointsman.rocketmq.codes import BrokerRequestCode as Request
from pointsman.rocketmq.codes import BrokerResponseCode as Code
from pointsman.rocketmq.frames import Command
from pointsman_client.core.lease import ConsumeMode, GroupBacklog, LeasedMessage
from pointsman_client.errors import BrokerRefusedError, GroupModeError
from pointsman_client.ports.leases import LeasesMessages, PoppedMessages, StatesConsumeMode
from pointsman_client.rocketmq import RocketmqTransport
from tests.kit.broker.rocketmq.fake_broker import Answer, FakeBroker
from tests.kit.broker.rocketmq.stored_messages import stored_message
from tests.kit.broker.under_test import QUEUE, READER
from tests.kit.waiting import eventually

SECONDS = 30.0
GROUP = READER.group
V5_0, V5_3_3, V4_9 = 413, 479, 407
LEASE_CODES = {Request.ACK_MESSAGE, Request.BATCH_ACK_MESSAGE, Request.CHANGE_MESSAGE_INVISIBLETIME}


class PoppingBroker(FakeBroker):
    """Hands out one message at each of the offsets in ``available``; knows only groups that have read."""

    def __init__(self, version: int = V5_3_3) -> None:
        super().__init__(version=version)
        self.offsets: dict[tuple[str, str], int] = {}
        """By topic and queue id."""
        self.available: list[int] = []
        self.is_known = True
        self.bodies: list[bytes] = []
        """Of batches of acknowledgements."""
        self.handlers |= {
            Request.QUERY_CONSUMER_OFFSET: self._query_offset,
            Request.UPDATE_CONSUMER_OFFSET: self._update_offset,
            Request.POP_MESSAGE: self._pop,
            Request.NOTIFICATION: self._notify,
            Request.BATCH_ACK_MESSAGE: self._acknowledge_batch,
            Request.ACK_MESSAGE: lambda _command, _body: Answer(),
            Request.CHANGE_MESSAGE_INVISIBLETIME: lambda command, _: Answer(
                ext={"popTime": "2000", "invisibleTime": command.ext["invisibleTime"], "reviveQid": "1"}
            ),
        }

    def _query_offset(self, command: Command, _: bytes) -> Answer:
        offset = self.offsets.get((command.ext["topic"], command.ext["queueId"]))
        return Answer(Code.QUERY_NOT_FOUND) if offset is None else Answer(ext={"offset": str(offset)})

    def _update_offset(self, command: Command, _: bytes) -> Answer:
        if not self.is_known:
            return Answer(Code.SUBSCRIPTION_GROUP_NOT_EXIST)
        self.offsets[command.ext["topic"], command.ext["queueId"]] = int(command.ext["commitOffset"])
        return Answer()

    def _pop(self, command: Command, _: bytes) -> Answer:
        taken, self.available = self.available, []
        if not taken:
            return Answer(Code.POLLING_TIMEOUT, {"popTime": "0", "invisibleTime": "0", "reviveQid": "0"})
        records = b"".join(
            stored_message(b"%d" % offset, offset=offset, queue_id=QUEUE.queue_id, topic=QUEUE.topic)
            for offset in taken
        )
        ext = {"popTime": "1000", "invisibleTime": command.ext["invisibleTime"], "reviveQid": "1"}
        return Answer(ext=ext | {"startOffsetInfo": f"0 {QUEUE.queue_id} {taken[0]}"}, body=records)

    def _notify(self, _command: Command, _body: bytes) -> Answer:
        self.is_known = True
        return Answer(ext={"hasMsg": "true"})

    def _acknowledge_batch(self, _: Command, body: bytes) -> Answer:
        self.bodies.append(body)
        return Answer()

    def asked(self, *codes: int) -> list[int]:
        return [each.code for each in self.requests if each.code in codes]


@pytest.fixture
async def broker() -> AsyncIterator[PoppingBroker]:
    async with PoppingBroker() as started:
        yield started


@pytest.fixture
async def transport() -> AsyncIterator[RocketmqTransport]:
    made = RocketmqTransport()
    assert isinstance(made, LeasesMessages)
    yield made
    await made.close()


async def pop(transport: RocketmqTransport, broker: PoppingBroker, *, most: int = 9) -> PoppedMessages:
    return await transport.pop(
        broker.addr,
        [QUEUE],
        reader=READER,
        max_messages=most,
        invisible_seconds=30.0,
        is_ordered=False,
        timeout_seconds=SECONDS,
    )


async def begin(transport: RocketmqTransport, broker: PoppingBroker, offset: int = 0) -> None:
    await transport.begin_group(broker.addr, QUEUE, offset, group=GROUP, timeout_seconds=SECONDS)


async def leased(transport: RocketmqTransport, broker: PoppingBroker, *offsets: int) -> tuple[LeasedMessage, ...]:
    await begin(transport, broker)
    broker.available = list(offsets)
    return (await pop(transport, broker)).messages


async def test_a_queue_without_a_committed_offset_is_not_popped_before_it_is_begun(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    broker.available = [7]
    assert await pop(transport, broker) == PoppedMessages(without_group=(QUEUE,))
    assert broker.asked(Request.POP_MESSAGE) == []
    await begin(transport, broker, 7)
    assert broker.offsets == {(QUEUE.topic, str(QUEUE.queue_id)): 7}
    (found,) = (await pop(transport, broker)).messages
    assert (found.message.body, found.message.queue, found.message.queue_offset) == (b"7", QUEUE, 7)
    assert found.lease.receipt == f"7 1000 30000 1 0 {QUEUE.broker_name} {QUEUE.queue_id} 7"
    assert await pop(transport, broker) == PoppedMessages()


async def test_a_committed_offset_is_kept_and_asked_for_once(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    broker.offsets[QUEUE.topic, str(QUEUE.queue_id)] = 3
    await begin(transport, broker, 9)
    assert broker.offsets == {(QUEUE.topic, str(QUEUE.queue_id)): 3}
    for _ in range(3):
        await pop(transport, broker)
    assert len(broker.asked(Request.QUERY_CONSUMER_OFFSET)) == 2
    found = await transport.backlogs(broker.addr, [QUEUE], group=GROUP, timeout_seconds=SECONDS)
    assert found == {QUEUE: GroupBacklog(3, 0)}


async def test_a_group_that_the_broker_does_not_know_is_created_before_it_commits(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    broker.is_known = False
    await begin(transport, broker, 5)
    assert broker.offsets == {(QUEUE.topic, str(QUEUE.queue_id)): 5}
    assert broker.asked(Request.NOTIFICATION) == [Request.NOTIFICATION]


async def test_one_message_is_acknowledged_by_itself_and_several_together(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    first, *others = [each.lease for each in await leased(transport, broker, 4, 5, 6)]
    for leases in ([first], others):
        assert await transport.acknowledge(broker.addr, leases, group=GROUP, timeout_seconds=SECONDS) == ()
    assert broker.asked(*LEASE_CODES) == [Request.ACK_MESSAGE, Request.BATCH_ACK_MESSAGE]
    (body,) = map(json.loads, broker.bodies)
    assert [(each["t"], each["q"], each["so"]) for each in body["acks"]] == [(QUEUE.topic, QUEUE.queue_id, 4)]


async def test_a_broker_5_0_gets_one_acknowledgement_for_each_message() -> None:
    transport = RocketmqTransport()
    async with PoppingBroker(V5_0) as broker:
        leases = [each.lease for each in await leased(transport, broker, 4, 5)]
        await transport.acknowledge(broker.addr, leases, group=GROUP, timeout_seconds=SECONDS)
        assert broker.asked(*LEASE_CODES) == [Request.ACK_MESSAGE] * 2
        await transport.close()


async def test_a_changed_lease_has_a_new_receipt_and_a_removed_message_none(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    leases = [each.lease for each in await leased(transport, broker, 4, 5)]
    changed = await transport.change_invisible(
        broker.addr, leases, group=GROUP, invisible_seconds=60.0, timeout_seconds=SECONDS
    )
    assert [lease.receipt if lease else "" for lease in changed] == [
        f"{offset} 2000 60000 1 0 {QUEUE.broker_name} {QUEUE.queue_id} {offset}" for offset in (4, 5)
    ]
    broker.answers[Request.CHANGE_MESSAGE_INVISIBLETIME] = Answer(Code.NO_MESSAGE)
    assert await transport.change_invisible(
        broker.addr, leases, group=GROUP, invisible_seconds=60.0, timeout_seconds=SECONDS
    ) == (None, None)


async def test_an_acknowledgement_of_a_removed_message_is_none_that_failed(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    (found,) = await leased(transport, broker, 4)
    broker.answers[Request.ACK_MESSAGE] = Answer(Code.NO_MESSAGE)
    await transport.acknowledge(broker.addr, [found.lease], group=GROUP, timeout_seconds=SECONDS)


@pytest.mark.parametrize("code", [Request.POP_MESSAGE, Request.ACK_MESSAGE, Request.CHANGE_MESSAGE_INVISIBLETIME])
async def test_a_refusal_is_an_error(broker: PoppingBroker, transport: RocketmqTransport, code: Request) -> None:
    (found,) = await leased(transport, broker, 4)
    broker.answers[code] = Answer(Code.NO_PERMISSION, remark="no")

    async def use() -> None:
        await pop(transport, broker)
        leases = [found.lease]
        await transport.change_invisible(
            broker.addr, leases, group=GROUP, invisible_seconds=60.0, timeout_seconds=SECONDS
        )
        await transport.acknowledge(broker.addr, leases, group=GROUP, timeout_seconds=SECONDS)

    with pytest.raises(BrokerRefusedError, match=r"NO_PERMISSION 16: no"):
        await use()


async def test_a_wait_ends_with_the_brokers_notification_and_may_be_cancelled(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    broker.held.add(Request.NOTIFICATION)

    def wait() -> asyncio.Task[None]:
        return asyncio.create_task(
            transport.wait_for_messages(
                broker.addr,
                [QUEUE],
                reader=READER,
                is_ordered=False,
                wait_seconds=SECONDS,
                timeout_seconds=SECONDS,
            )
        )

    cancelled, waiting = wait(), wait()
    await eventually(lambda: len(broker.asked(Request.NOTIFICATION)) == 2, what="both requests")
    cancelled.cancel()
    await asyncio.wait({cancelled})
    assert not waiting.done()
    broker.release()
    await waiting
    assert broker.connections == 1


async def test_a_broker_4_9_is_refused_before_anything_is_committed() -> None:
    transport = RocketmqTransport()
    async with PoppingBroker(V4_9) as broker:
        with pytest.raises(GroupModeError, match=r"is older than RocketMQ 5\.0 and has no POP; use PushConsumer"):
            await pop(transport, broker)
        assert broker.asked(Request.UPDATE_CONSUMER_OFFSET, Request.POP_MESSAGE) == []
        await transport.close()


async def test_the_mode_of_a_group_is_that_of_the_brokers_assignment(
    broker: PoppingBroker, transport: RocketmqTransport
) -> None:
    assert isinstance(transport, StatesConsumeMode)
    asked: list[dict[str, str]] = []
    answers = [b'{"messageQueueAssignments":[{"mode":"POP"}]}', b'{"messageQueueAssignments":[{"mode":"PULL"}]}', b"{}"]

    def assign(_: Command, body: bytes) -> Answer:
        asked.append(json.loads(body))
        return Answer(body=answers.pop(0))

    broker.handlers[Request.QUERY_ASSIGNMENT] = assign
    found = [
        await transport.consume_mode(broker.addr, QUEUE.topic, group=GROUP, client_id="x@1", timeout_seconds=SECONDS)
        for _ in range(3)
    ]
    assert found == [ConsumeMode.POP, ConsumeMode.PULL, None]
    assert {(each["topic"], each["consumerGroup"], each["clientId"]) for each in asked} == {(QUEUE.topic, GROUP, "x@1")}
    # For a clustering member a broker answers by its list of members, which this one joins later.
    assert {each["messageModel"] for each in asked} == {"BROADCASTING"}


async def test_a_broker_4_9_has_no_mode() -> None:
    transport = RocketmqTransport()
    async with PoppingBroker(V4_9) as broker:
        with pytest.raises(GroupModeError, match=r"is older than RocketMQ 5\.0 and has no POP; use PushConsumer with"):
            await transport.consume_mode(
                broker.addr, QUEUE.topic, group=GROUP, client_id="x@1", timeout_seconds=SECONDS
            )
        await transport.close()


async def test_queues_are_of_the_topic_that_is_asked_for(broker: PoppingBroker, transport: RocketmqTransport) -> None:
    other = replace(QUEUE, queue_id=QUEUE.queue_id + 1)
    await begin(transport, broker)
    popped = await transport.pop(
        broker.addr,
        [QUEUE, other],
        reader=READER,
        max_messages=1,
        invisible_seconds=30.0,
        is_ordered=True,
        timeout_seconds=SECONDS,
    )
    assert popped.without_group == (other,)
